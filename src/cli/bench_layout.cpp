// Layout cases: how fast masks become layouts, how large those are, and how little they waste.
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <random>

#include "backend/cpu/mask_passes.h"
#include "base/error.h"
#include "cli/bench_case.h"
#include "cli/bench_masks.h"
#include "ir/interpret.h"
#include "ir/parse.h"
#include "layout/choose.h"
#include "layout/statistics.h"
#include "passes/simplify.h"
#include "treadle/tensor.h"

namespace treadle::cli {
namespace {

using layout::Extent;
using layout::Layout;
using layout::Mask;
using layout::Tiles;

constexpr std::int64_t tile_height = 48;

// A mask whose captures live as long as it does.
struct OwnedMask {
  Mask mask;
  std::vector<Tensor> memory;
};

OwnedMask mask_of(const std::string& text, std::vector<ir::Slot> slots = {},
                  std::vector<Tensor> memory = {}) {
  OwnedMask owned{{passes::simplify(ir::parse(text, slots)), {}}, std::move(memory)};
  for (const ir::Slot& slot : owned.mask.graph.slots()) {
    const auto at = std::ranges::find(slots, slot) - slots.begin();
    owned.mask.memory.push_back(owned.memory[static_cast<std::size_t>(at)]);
  }
  return owned;
}

// 1,000 documents of random lengths, as an id per position.
Tensor document_ids(std::int64_t length) {
  std::mt19937_64 random(7);
  std::vector<std::int64_t> cuts{0, length};
  for (int i = 0; i < 999; ++i)
    cuts.push_back(std::uniform_int_distribution<std::int64_t>(0, length)(random));
  std::ranges::sort(cuts);
  Tensor ids(DType::i32, {length});
  for (std::size_t d = 0; d + 1 < cuts.size(); ++d) {
    for (std::int64_t i = cuts[d]; i < cuts[d + 1]; ++i)
      ids.data<std::int32_t>()[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(d);
  }
  return ids;
}

OwnedMask long_mask(const std::string& name, std::int64_t length) {
  std::vector<Tensor> memory;
  if (name == "causal") return mask_of("q >= kv");
  if (name == "window") return mask_of("q >= kv && q - kv < 4096");
  if (name == "prefix") {
    Tensor prefix(DType::i32, {1});
    prefix.data<std::int32_t>()[0] = static_cast<std::int32_t>(length / 3);
    memory.push_back(std::move(prefix));
    return mask_of("kv < prefix[b] || q >= kv", {{"prefix", DType::i32, 1}}, std::move(memory));
  }
  memory.push_back(document_ids(length));
  const std::string causal = name == "causal-document" ? "q >= kv && " : "";
  return mask_of(causal + "ids[q] == ids[kv]", {{"ids", DType::i32, 1}}, std::move(memory));
}

// A spot check: columns of some tiles against the mask itself.
void check(const Mask& mask, const Layout& layout) {
  const Tiles& tiles = layout.tiles();
  for (const std::int64_t tile : {std::int64_t{0}, tiles.count() / 3, tiles.count() - 1}) {
    const std::int64_t keys = layout.extent().keys.count();
    const std::int64_t zero = 0;
    std::vector<char> inside(static_cast<std::size_t>(keys));
    layout::for_each_piece(layout.runs(0, 0, tile), [&](layout::Range piece, bool full) {
      std::fill(inside.begin() + piece.begin, inside.begin() + piece.end, full ? 2 : 1);
    });
    for (std::int64_t key = 0; key < keys; key += std::max<std::int64_t>(keys / 997, 1)) {
      std::vector<std::int64_t> q;
      for (std::int64_t i = 0; i < tiles.size(tile); ++i) q.push_back(tiles.query(tile, i));
      ir::Interpreter<double> run(mask.graph, mask.memory);
      run({.b = {&zero, 1}, .h = {&zero, 1}, .q = q, .kv = {&key, 1}},
          static_cast<std::int64_t>(q.size()));
      const auto seen = std::ranges::count(run.booleans(0), 1);
      const int expected = seen == 0 ? 0 : (seen == tiles.size(tile) ? 2 : 1);
      if (inside[static_cast<std::size_t>(key)] != expected) {
        base::internal_error("bench: tile {}, key {}: the layout says {}, the mask {}", tile, key,
                             static_cast<int>(inside[static_cast<std::size_t>(key)]), expected);
      }
    }
  }
}

Measured measure_build(const OwnedMask& owned, std::int64_t length, Executor& executor) {
  const Extent extent{.queries = length, .keys = length};
  Layout layout;
  const auto build = [&] {
    layout = layout::build(owned.mask, extent, Tiles({}, length, tile_height), executor);
  };
  Measured measured{.queries = length, .keys = length};
  measured.build_bytes = peak_bytes(build);
  check(owned.mask, layout);
  measured.ms = best_ms(build);
  measured.bytes = layout.bytes();
  measured.run_density =
      static_cast<double>(layout.run_pairs()) / static_cast<double>(layout.all_pairs());
  return measured;
}

// Parts of the two without what is near the diagonal.
constexpr const char* far_strided_text = "q >= kv && q - kv >= 128 && (q - kv) % 128 == 0";
constexpr const char* far_fixed_text = "kv <= q && kv % 128 >= 112 && q // 128 != kv // 128";

// Choosing the order and building with it.
Measured measure_choice(const char* text, std::int64_t length, Executor& executor) {
  const OwnedMask owned = mask_of(text);
  const Extent extent{.queries = length, .keys = length};
  backend::cpu::ChosenPasses chosen;
  std::vector<treadle::Layout::Held::Term> built;
  const auto work = [&] {
    backend::cpu::KeptChoices kept;
    chosen = choose_passes(owned.mask, backend::terms_of(owned.mask.graph, owned.mask.memory),
                           extent, {}, kept, executor);
    built = build_terms(chosen, extent, executor);
  };
  Measured measured{.queries = length, .keys = length};
  measured.build_bytes = peak_bytes(work);
  double looked_at = 0;
  for (std::size_t i = 0; i < built.size(); ++i) {
    const Layout& layout = built[i].layout;
    const backend::cpu::ChosenTerm& term = chosen.terms[i];
    check(term.mask, layout);
    measured.bytes = measured.bytes.value_or(0) + layout.bytes();
    looked_at += static_cast<double>(layout.run_pairs());
    measured.note += fmt::format("{}{}, tiles of {}", i == 0 ? "" : "; ",
                                 to_text(term.choice.order), term.choice.height);
  }
  measured.ms = best_ms(work);
  measured.run_density = looked_at / static_cast<double>(built.front().layout.all_pairs());
  return measured;
}

// Pairs inside runs for each visible pair.
Measured measure_waste(const char* text, bool choose, Executor& executor) {
  const std::int64_t length = 4096;
  const OwnedMask owned = mask_of(text);
  const Extent extent{.queries = length, .keys = length};
  layout::Choice choice{{}, tile_height};
  if (choose) choice = layout::choose_order(owned.mask, extent, {}, executor);
  const Layout layout =
      layout::build(owned.mask, extent, Tiles(choice.order, length, choice.height), executor);
  check(owned.mask, layout);
  const auto all = static_cast<double>(layout.all_pairs());
  Measured measured{.queries = length, .keys = length};
  measured.density = static_cast<double>(layout::visible_pairs(owned.mask, layout, executor)) / all;
  measured.run_density = static_cast<double>(layout.run_pairs()) / all;
  measured.ratio = *measured.run_density / *measured.density;
  measured.ms = best_ms([&] { (void)layout::build(owned.mask, extent, layout.tiles(), executor); });
  measured.bytes = layout.bytes();
  measured.note =
      fmt::format("run pairs per visible pair; {}, tiles of {}; 128 x 128 blocks: {:.1f}",
                  to_text(choice.order), choice.height,
                  layout::block_density(owned.mask, extent, 128, executor) / *measured.density);
  return measured;
}

// Against a loop that reads the array once.
Measured measure_dense(double density, Executor& executor) {
  const std::int64_t length = 8192;
  std::vector<Tensor> memory;
  memory.emplace_back(DType::boolean, Dims{length, length});
  std::mt19937_64 random(3);
  for (bool& x : memory[0].data<bool>())
    x = std::uniform_real_distribution<double>(0, 1)(random) < density;
  const OwnedMask owned = mask_of("mask[q, kv]", {{"mask", DType::boolean, 2}}, std::move(memory));
  Measured measured = measure_build(owned, length, executor);
  const auto bytes = std::as_bytes(owned.memory[0].data<bool>());
  std::uint64_t visible = 0;
  const double read = best_ms([&] { visible = read_once(bytes); });
  measured.density = static_cast<double>(visible) / static_cast<double>(bytes.size());
  measured.ratio = measured.ms / read;
  measured.note = fmt::format("times reading it once in one thread, {:.1f} ms", read);
  return measured;
}

}  // namespace

std::vector<BenchCase> layout_cases() {
  std::vector<BenchCase> cases;
  const auto add = [&](std::string name, std::function<Measured(Executor&)> run) {
    cases.push_back({"layout-" + name, "layout", std::move(run)});
  };
  for (const char* name : {"causal", "window", "document", "causal-document", "prefix"}) {
    for (const auto& [suffix, length] : {std::pair{"16k", std::int64_t{1} << 14},
                                         {"128k", std::int64_t{1} << 17},
                                         {"1m", std::int64_t{1} << 20}}) {
      add(fmt::format("{}-{}", name, suffix),
          [name = std::string(name), length = length](Executor& executor) {
            return measure_build(long_mask(name, length), length, executor);
          });
    }
  }
  struct Periodic {
    const char *name, *text;
  };
  for (const Periodic& mask : {Periodic{"strided", strided_text},
                               {"fixed", fixed_text},
                               {"far-strided", far_strided_text},
                               {"far-fixed", far_fixed_text},
                               {"local-or-strided", local_or_strided_text},
                               {"dilated", dilated_text}}) {
    for (const auto& [suffix, length] : {std::pair{"64k", std::int64_t{1} << 16},
                                         {"256k", std::int64_t{1} << 18},
                                         {"1m", std::int64_t{1} << 20}}) {
      add(fmt::format("{}-{}", mask.name, suffix),
          [text = mask.text, length = length](Executor& executor) {
            return measure_choice(text, length, executor);
          });
    }
  }
  add("strided-waste", [](Executor& e) { return measure_waste(strided_text, true, e); });
  add("fixed-waste", [](Executor& e) { return measure_waste(fixed_text, false, e); });
  add("dense-50", [](Executor& e) { return measure_dense(0.5, e); });
  add("dense-02", [](Executor& e) { return measure_dense(0.02, e); });
  return cases;
}

}  // namespace treadle::cli
