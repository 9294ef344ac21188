// Rows announced, placed and joined. Read Joiner::join() first.
#include "distributed/key_sums.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "base/element.h"
#include "distributed/bytes.h"
#include "run/rows.h"
#include "run/scratch.h"
#include "run/sum_tree.h"

namespace treadle::distributed {
namespace {

using layout::Range;

// Keys of a list that are joined at once, counted from position 0: with all levels of a tree they stay in the
// cache, and they are of one chunk, whose keys all have the same nodes.
constexpr std::int64_t keys_at_once = 128;

// Rows of dK or dV of one node.
struct Addend {
  std::int64_t pass = 0, list = 0;
  plan::TreePiece piece;
  std::int64_t leaves = 0;
  std::size_t rank = 0;
  Range keys;
  const std::byte *dk = nullptr, *dv = nullptr;
};

// In the order in which they are added.
bool before(const Addend& a, const Addend& b, Sums sums) {
  const auto order = [&](const Addend& x) {
    const std::int64_t first =
        sums == Sums::per_rank ? static_cast<std::int64_t>(x.rank) : x.piece.leaves.begin;
    return std::tuple(x.list, x.pass, first, x.keys.begin);
  };
  return order(a) < order(b);
}

template <class F>
class Joiner {
 public:
  // Of rows of so many elements; `level` says which of them: dK or dV.
  Joiner(std::int64_t length, F scale, bool is_dk, Sums sums)
      : length_(length), scale_(scale), is_dk_(is_dk), sums_(sums) {}

  // Addends of one list, and the keys of it; the rows go to `to`.
  void join(std::span<const Addend> addends, std::size_t passes, Range keys, std::byte* to,
            std::int64_t stride, DType type) {
    total_.assign(static_cast<std::size_t>(keys.count() * length_), F{0});
    for (std::size_t pass = 0; pass < passes; ++pass) {
      const auto of_pass =
          std::ranges::equal_range(addends, static_cast<std::int64_t>(pass), {}, &Addend::pass);
      add_pass({of_pass.begin(), of_pass.end()}, keys, pass == 0);
    }
    base::visit_dtype(type, [&](auto element) {
      using T = typename decltype(element)::type;
      for (std::int64_t i = 0; i < keys.count(); ++i)
        for (std::int64_t d = 0; d < length_; ++d)
          base::store_as<T>(to + i * stride, d,
                            static_cast<double>(total_[static_cast<std::size_t>(i * length_ + d)]));
    });
  }

 private:
  void add_pass(std::span<const Addend> addends, Range keys, bool first) {
    const F* sum = sums_ == Sums::per_rank ? by_rank(addends, keys) : by_tree(addends, keys);
    const std::int64_t count = keys.count() * length_;
    for (std::int64_t i = 0; i < count; ++i) {
      const F scaled = scale_ == F{1} ? sum[i] : sum[i] * scale_;
      F& total = total_[static_cast<std::size_t>(i)];
      total = first ? scaled : total + scaled;
    }
  }

  // Calls f(row of the first key among `keys`, how many, their rows).
  template <class Each>
  void for_each(const Addend& addend, Range keys, const Each& f) const {
    const Range some{std::max(addend.keys.begin, keys.begin), std::min(addend.keys.end, keys.end)};
    if (some.empty()) return;
    const F* rows = reinterpret_cast<const F*>(is_dk_ ? addend.dk : addend.dv);
    f(some.begin - keys.begin, some.count(), rows + (some.begin - addend.keys.begin) * length_);
  }

  const F* by_tree(std::span<const Addend> addends, Range keys) {
    run::SumTree<F>& tree = tree_;
    const std::int64_t leaves = addends.empty() ? 1 : addends.front().leaves;
    const auto carve = [&](run::Carver& carver) {
      tree.carve(carver, keys.count(), length_, leaves);
    };
    work_.reserve({.bytes = static_cast<std::size_t>(run::measured(carve))});
    run::Carver carver(work_.memory());
    carve(carver);
    tree.clear();
    for (std::size_t i = 0; i < addends.size();) {
      const plan::TreePiece& piece = addends[i].piece;
      bool any = false;
      for (; i < addends.size() && addends[i].piece == piece; ++i) {
        for_each(addends[i], keys, [&](std::int64_t row, std::int64_t count, const F* rows) {
          if (!any) tree.open_piece(piece);
          tree.touch(row, row + count);
          std::copy_n(rows, count * length_, tree.leaf() + row * length_);
          any = true;
        });
      }
      if (any) tree.close_piece(piece);
    }
    return tree.finish();
  }

  const F* by_rank(std::span<const Addend> addends, Range keys) {
    plain_.assign(static_cast<std::size_t>(keys.count() * length_), F{0});
    for (const Addend& addend : addends) {
      for_each(addend, keys, [&](std::int64_t row, std::int64_t count, const F* rows) {
        F* to = plain_.data() + row * length_;
        for (std::int64_t i = 0; i < count * length_; ++i) to[i] += rows[i];
      });
    }
    return plain_.data();
  }

  std::int64_t length_;
  F scale_;
  bool is_dk_;
  Sums sums_;
  run::SumTree<F> tree_;
  run::Workspace work_;
  std::vector<F> plain_, total_;
};

template <class F>
void join_all(std::span<const SumMessage> from, const backend::Sizes& sizes, Range keys,
              std::size_t passes, Sums sums, double scale, const View& dk, const View& dv,
              const base::Workers& workers) {
  std::vector<Addend> addends;
  for (std::size_t rank = 0; rank < from.size(); ++rank) {
    const std::byte* at = from[rank].bytes;
    for (const SumRows& rows : from[rank].rows) {
      for (const Range& range : rows.keys) {
        const std::byte* values =
            at + range.count() * sizes.dim * static_cast<std::int64_t>(sizeof(F));
        addends.push_back({rows.pass, rows.list, rows.piece, rows.leaves, rank, range, at, values});
        at = values + range.count() * sizes.value_dim * static_cast<std::int64_t>(sizeof(F));
      }
    }
  }
  std::ranges::stable_sort(addends,
                           [&](const Addend& a, const Addend& b) { return before(a, b, sums); });
  const std::int64_t lists = sizes.key_batch * sizes.key_heads;
  if (keys.empty()) return;
  const Range blocks{keys.begin / keys_at_once, (keys.end - 1) / keys_at_once + 1};
  base::parallel_for(workers, lists * blocks.count(), [&](std::int64_t number) {
    const std::int64_t list = number / blocks.count();
    const std::int64_t first = (blocks.begin + number % blocks.count()) * keys_at_once;
    const Range some{std::max(first, keys.begin), std::min(first + keys_at_once, keys.end)};
    const auto of_list = std::ranges::equal_range(addends, list, {}, &Addend::list);
    const auto join = [&](const View& to, F factor, bool is_dk) {
      Joiner<F> joiner(to.size(3), factor, is_dk, sums);
      std::byte* rows = run::rows_of(to, list / sizes.key_heads, list % sizes.key_heads);
      joiner.join({of_list.begin(), of_list.end()}, passes, some,
                  rows + (some.begin - keys.begin) * run::row_bytes(to), run::row_bytes(to),
                  to.dtype());
    };
    join(dk, static_cast<F>(scale), true);
    join(dv, F{1}, false);
  });
}

}  // namespace

std::int64_t SumRows::rows() const {
  std::int64_t rows = 0;
  for (const Range& range : keys) rows += range.count();
  return rows;
}

std::int64_t rows_of(std::span<const SumRows> sums) {
  std::int64_t rows = 0;
  for (const SumRows& some : sums) rows += some.rows();
  return rows;
}

std::vector<std::byte> to_bytes(std::span<const SumRows> sums) {
  Writer to;
  for (const SumRows& rows : sums) {
    to.put(rows.pass);
    to.put(rows.list);
    to.put(rows.piece);
    to.put(rows.leaves);
    to.put_list(rows.keys);
  }
  return to.take();
}

std::vector<SumRows> sums_from_bytes(std::span<const std::byte> bytes) {
  Reader from(bytes);
  std::vector<SumRows> sums;
  while (!from.done()) {
    SumRows rows;
    rows.pass = from.get<std::int64_t>();
    rows.list = from.get<std::int64_t>();
    rows.piece = from.get<plan::TreePiece>();
    rows.leaves = from.get<std::int64_t>();
    rows.keys = from.get_list<Range>();
    sums.push_back(std::move(rows));
  }
  return sums;
}

SumPlaces::SumPlaces(const std::vector<Part>& parts, const std::vector<PassPlan>& passes,
                     const backend::Sizes& sizes, const Shards& keys)
    : to_(static_cast<std::size_t>(keys.ranks())) {
  std::vector<std::int64_t> rows(to_.size(), 0);
  for (const Part& part : parts) {
    const std::size_t pieces = part.tree.pieces.size();
    pieces_.push_back(pieces);
    auto& of_part = places_.emplace_back();
    const std::int64_t lists = part.lists(sizes);
    const std::int64_t first_b = sizes.key_batch == 1 ? 0 : part.piece.batch.begin;
    for (const Slice& slice : part.slices) {
      auto& of_slice = of_part.emplace_back(static_cast<std::size_t>(lists) * pieces);
      for (std::size_t piece = 0; piece < pieces; ++piece) {
        const std::vector<Ranges> added =
            keys_of(part, slice, sizes, passes[static_cast<std::size_t>(part.piece.pass)], piece);
        for (std::int64_t list = 0; list < lists; ++list) {
          const Ranges& all = added[added.size() == 1 ? 0 : static_cast<std::size_t>(list)];
          if (all.empty()) continue;
          auto& places = of_slice[static_cast<std::size_t>(list) * pieces + piece];
          const std::int64_t heads = part.piece.key_heads.count();
          const std::int64_t number = (first_b + list / heads) * sizes.key_heads +
                                      part.piece.key_heads.begin + list % heads;
          const int last = keys.owner(all.back().end - 1);
          for (int owner = keys.owner(all.front().begin); owner <= last; ++owner) {
            Ranges some = inside(all, {keys.begin(owner), keys.end(owner)});
            if (some.empty()) continue;
            const auto o = static_cast<std::size_t>(owner);
            for (const Range& range : some) {
              places.push_back({range, owner, rows[o]});
              rows[o] += range.count();
            }
            to_[o].push_back({part.piece.pass, number, part.tree.pieces[piece], part.all_leaves,
                              std::move(some)});
          }
        }
      }
    }
  }
}

void join_sums(std::span<const SumMessage> from, const backend::Sizes& sizes, Range keys,
               std::size_t passes, Sums sums, double scale, const View& dk, const View& dv,
               const base::Workers& workers) {
  if (sizes.compute == DType::f64)
    return join_all<double>(from, sizes, keys, passes, sums, scale, dk, dv, workers);
  join_all<float>(from, sizes, keys, passes, sums, scale, dk, dv, workers);
}

}  // namespace treadle::distributed
