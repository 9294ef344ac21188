// Evaluates and prints mods that are given as text, and reports what this process has made.
//
// In: text and captures. Out: text, or memory of the caller's. Read pairs() first.
#include "api/inspect.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "backend/cpu/make_cpu.h"
#include "base/error.h"
#include "ir/interpret.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "layout/block_kinds.h"
#include "layout/build.h"
#include "passes/simplify.h"
#include "plan/target.h"

namespace treadle::api {
namespace {

ir::Graph parsed(std::string_view mod, const std::vector<Capture>& captures) {
  std::vector<ir::Slot> slots;
  for (const Capture& capture : captures)
    slots.push_back({capture.name(), capture.view().dtype(), capture.view().rank()});
  return ir::parse(mod, slots);
}

// A graph and the memory of the captures that are left in it.
layout::Mask bound(std::string_view mod, const std::vector<Capture>& captures) {
  layout::Mask mask{passes::simplify(parsed(mod, captures)), {}};
  for (const ir::Slot& slot : mask.graph.slots())
    mask.memory.push_back(std::ranges::find(captures, slot.name, &Capture::name)->view());
  return mask;
}

void check_result(std::string_view call, const View& result, DType type) {
  if (result.dtype() != type || result.rank() != 4) {
    base::fail("{}: the result is {} with shape {}; it must be {} and have 4 axes", call,
               name_of(result.dtype()), to_string(result.shape()), name_of(type));
  }
}

// The first element of a row of the last axis.
template <class T>
T* first_of(const View& result, std::int64_t b, std::int64_t h, std::int64_t row) {
  return static_cast<T*>(result.data()) + b * result.stride(0) + h * result.stride(1) +
         row * result.stride(2);
}

// Evaluates the graph for a row of keys at a time; shown(run, key) says what becomes of a pair.
template <class Shown>
void pairs(std::string_view call, const layout::Mask& mod, const View& result, const Shown& shown) {
  check_result(call, result, DType::boolean);
  ir::Interpreter<double> run(mod.graph, mod.memory);
  const std::int64_t keys = result.size(3);
  std::vector<std::int64_t> kv(static_cast<std::size_t>(keys));
  std::iota(kv.begin(), kv.end(), 0);
  const double score = 0;
  for (std::int64_t b = 0; b < result.size(0); ++b) {
    for (std::int64_t h = 0; h < result.size(1); ++h) {
      for (std::int64_t q = 0; q < result.size(2); ++q) {
        run({.score = {&score, 1}, .b = {&b, 1}, .h = {&h, 1}, .q = {&q, 1}, .kv = kv}, keys);
        const auto poison = run.poison(0);
        if (const auto bad = std::ranges::find_if(poison, [](auto p) { return p != 0; });
            bad != poison.end()) {
          const std::int64_t k = bad - poison.begin();
          base::fail_mod("mask: {}, at (b {}, h {}, q {}, kv {})", run.poison_reason(0, k), b, h, q,
                         k);
        }
        bool* row = first_of<bool>(result, b, h, q);
        for (std::int64_t k = 0; k < keys; ++k)
          row[k * result.stride(3)] = shown(run, static_cast<std::size_t>(k));
      }
    }
  }
}

}  // namespace

std::vector<Operation> operations() {
  static constexpr Operation table[] = {
#define TREADLE_OP(name, text, infix, arity, rule) {text, infix, arity, #rule},
#include "ir/ops.def"
#undef TREADLE_OP
  };
  std::vector<Operation> named;
  std::ranges::copy_if(table, std::back_inserter(named),
                       [](const Operation& row) { return !row.name.empty(); });
  return named;
}

std::string simplified(std::string_view mod, const std::vector<Capture>& captures) {
  return ir::to_text(passes::simplify(parsed(mod, captures)));
}

std::vector<std::string> captures_read(std::string_view mod, const std::vector<Capture>& captures) {
  std::vector<std::string> names;
  const ir::Graph graph = parsed(mod, captures);
  for (const ir::Slot& slot : graph.slots()) names.push_back(slot.name);
  return names;
}

void visible_pairs(std::string_view mask, const std::vector<Capture>& captures,
                   const View& result) {
  const layout::Mask mod = bound(mask, captures);
  layout::check_mask(mod);
  pairs("visible_pairs", mod, result,
        [](const auto& run, std::size_t k) { return run.booleans(0)[k] != 0; });
}

void unmasked_pairs(std::string_view score_mod, const std::vector<Capture>& captures,
                    const View& result) {
  const layout::Mask mod = bound(score_mod, captures);
  if (mod.graph.output_type() != ir::Type::real) {
    base::fail("unmasked_pairs: the score mod returns {}; it must return a float",
               ir::name_of(mod.graph.output_type()));
  }
  pairs("unmasked_pairs", mod, result,
        [](const auto& run, std::size_t k) { return run.reals(0)[k] != -INFINITY; });
}

void block_kinds(std::string_view mask, const std::vector<Capture>& captures, const BlockGrid& grid,
                 const View& result, const base::Workers& workers) {
  check_result("block_kinds", result, DType::u8);
  if (grid.query_block < 1 || grid.key_block < 1) {
    base::fail("block_kinds: blocks of {} queries and {} keys; both must be positive",
               grid.query_block, grid.key_block);
  }
  const std::int64_t rows = layout::blocks_of(grid.queries, grid.query_block);
  const std::int64_t columns = layout::blocks_of(grid.keys, grid.key_block);
  if (result.size(2) != rows || result.size(3) != columns) {
    base::fail("block_kinds: the result has shape {}; the grid has {} rows and {} columns",
               to_string(result.shape()), rows, columns);
  }
  const layout::Extent extent{result.size(0), result.size(1), grid.queries, grid.keys};
  const layout::Tiles tiles({}, grid.queries, grid.query_block);
  const layout::Layout layout = layout::build(bound(mask, captures), extent, tiles, workers);
  for (std::int64_t b = 0; b < extent.batch; ++b) {
    for (std::int64_t h = 0; h < extent.heads; ++h) {
      const std::vector<layout::BlockKind> kinds =
          layout::block_kinds(layout, b, h, grid.key_block, layout::Tails::hidden);
      auto kind = kinds.begin();
      for (std::int64_t row = 0; row < rows; ++row) {
        auto* to = first_of<std::uint8_t>(result, b, h, row);
        for (std::int64_t column = 0; column < columns; ++column)
          to[column * result.stride(3)] = static_cast<std::uint8_t>(*kind++);
      }
    }
  }
}

std::int64_t kernels_made() { return backend::cpu::kernels_made(); }

std::string target_name() { return plan::host_target().name; }

}  // namespace treadle::api
