// Nodes of trees told to all, who join them.
#include "distributed/sink_sums.h"

#include <cstdint>
#include <limits>
#include <span>

#include "api/sinks.h"
#include "distributed/bytes.h"

namespace treadle::distributed {
namespace {

using layout::Range;

// Whether a batch entry's head has a sink that anything flows to.
bool has_sink(const Plan::Held& held, const CallFacts& facts, std::int64_t i) {
  const double sink = facts.sinks[static_cast<std::size_t>(i % held.sizes.heads)];
  return !held.sizes.queries.empty() && sink != -std::numeric_limits<double>::infinity();
}

}  // namespace

std::vector<std::byte> own_sink_nodes(const Plan::Held& held, const CallFacts& facts,
                                      const Given& given) {
  const backend::Sizes& sizes = held.sizes;
  std::vector<std::vector<double>> nodes(static_cast<std::size_t>(sizes.batch * sizes.heads));
  base::parallel_for(facts.workers, std::ssize(nodes), [&](std::int64_t i) {
    if (has_sink(held, facts, i))
      api::add_sink_nodes(facts.sinks[static_cast<std::size_t>(i % sizes.heads)],
                          {given.saved, given.dout, given.dlse}, i / sizes.heads, i % sizes.heads,
                          held.own_queries(), sizes.queries.count(),
                          nodes[static_cast<std::size_t>(i)]);
  });
  Writer own;
  for (const std::vector<double>& list : nodes) own.put_list(list);
  return own.take();
}

std::vector<double> dsinks_of(Plan::Held& held, const CallFacts& facts,
                              const std::vector<std::byte>& own) {
  const backend::Sizes& sizes = held.sizes;
  const auto all = held.channel.share(own, "backward");
  std::vector<Reader> readers;
  std::vector<Range> owners;
  for (int r = 0; r < held.ranks(); ++r) {
    readers.emplace_back(all[static_cast<std::size_t>(r)]);
    owners.emplace_back(held.queries.begin(r), held.queries.end(r));
  }
  std::vector<double> gradients(facts.sinks.size());
  for (std::int64_t i = 0; i < sizes.batch * sizes.heads; ++i) {
    std::vector<std::vector<double>> lists;
    std::vector<std::span<const double>> of_rank;
    for (Reader& reader : readers) lists.push_back(reader.get_list<double>());
    for (const std::vector<double>& list : lists) of_rank.emplace_back(list);
    const double sum = has_sink(held, facts, i)
                           ? api::join_sink_nodes(owners, of_rank, sizes.queries.count())
                           : 0.0;
    gradients[static_cast<std::size_t>(i % sizes.heads)] += sum;
  }
  return gradients;
}

}  // namespace treadle::distributed
