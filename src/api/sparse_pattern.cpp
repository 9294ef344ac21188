// Arguments to patterns. Masks are those of treadle/sparse_transformer.h.
#include "api/sparse_pattern.h"

#include <optional>

#include "base/error.h"
#include "treadle/sparse_transformer.h"

namespace treadle::api {
namespace {

using base::fail;
using Mode = SparsePattern::Mode;
using Number = std::optional<std::int64_t>;

void check_number(std::string_view call, std::string_view name, const Number& number) {
  if (number && *number < 1) fail("{}: {} is {}; it must be at least 1", call, name, *number);
}

void check_multiple(std::string_view call, std::string_view what, std::int64_t value,
                    std::string_view of, std::int64_t factor) {
  if (value % factor != 0) {
    fail("{}: {} is {}, {} {}; {} is not a multiple of {}", call, what, value, of, factor, value,
         factor);
  }
}

std::int64_t needed(std::string_view call, std::string_view mode, std::string_view name,
                    const Number& number) {
  if (!number) fail("{}: attn_mode \"{}\" needs {}, which is not given", call, mode, name);
  return *number;
}

// A mode without columns; none if it is none of these.
std::optional<SparsePattern> plain_pattern(std::string_view call, std::string_view mode,
                                           const Number& reach) {
  if (mode == "all") return SparsePattern{};
  if (mode == "local")
    return SparsePattern{.mode = Mode::local, .reach = needed(call, mode, "local_attn_ctx", reach)};
  if (mode == "strided") {
    return SparsePattern{.mode = Mode::strided,
                         .reach = needed(call, mode, "local_attn_ctx", reach)};
  }
  return std::nullopt;
}

SparsePattern fixed_pattern(std::string_view call,
                            const sparse_transformer::BlocksparseArguments& how) {
  const std::int64_t window = needed(call, "fixed", "local_attn_ctx", how.local_attn_ctx);
  const std::int64_t groups = needed(call, "fixed", "num_verts", how.num_verts);
  const std::int64_t size = needed(call, "fixed", "vertsize", how.vertsize);
  check_multiple(call, "heads", how.heads, "num_verts", groups);
  const std::int64_t blocks = window / how.blocksize;
  if (size > blocks) {
    fail(
        "{}: vertsize is {}; a local_attn_ctx of {} has {} blocks of {}, vertsize must be at most "
        "that",
        call, size, window, blocks, how.blocksize);
  }
  check_multiple(call, "the number of blocks in local_attn_ctx", blocks, "vertsize", size);
  if (groups > blocks / size) {
    fail(
        "{}: num_verts is {}; {} blocks in a local_attn_ctx of {} make {} groups of {}, num_verts "
        "must be at most that",
        call, groups, blocks, window, blocks / size, size);
  }
  return {.mode = Mode::fixed,
          .reach = blocks * how.blocksize,
          .columns = size * how.blocksize,
          .groups = groups};
}

}  // namespace

SparsePattern dense_pattern(std::string_view call, const sparse_transformer::DenseArguments& how) {
  check_number(call, "heads", how.heads);
  check_number(call, "local_attn_ctx", how.local_attn_ctx);
  const auto pattern = plain_pattern(call, how.attn_mode, how.local_attn_ctx);
  if (!pattern) {
    fail("{}: attn_mode is \"{}\"; it must be all, local or strided{}", call, how.attn_mode,
         how.attn_mode == "fixed" ? "; blocksparse_attention has it" : "");
  }
  return *pattern;
}

SparsePattern block_pattern(std::string_view call,
                            const sparse_transformer::BlocksparseArguments& how) {
  check_number(call, "heads", how.heads);
  check_number(call, "blocksize", how.blocksize);
  check_number(call, "local_attn_ctx", how.local_attn_ctx);
  check_number(call, "num_verts", how.num_verts);
  check_number(call, "vertsize", how.vertsize);
  if (how.attn_mode == "fixed") return fixed_pattern(call, how);
  const auto pattern = plain_pattern(call, how.attn_mode, how.local_attn_ctx);
  if (!pattern) {
    fail("{}: attn_mode is \"{}\"; it must be all, local, strided or fixed", call, how.attn_mode);
  }
  if (pattern->mode == Mode::local)
    check_multiple(call, "local_attn_ctx", pattern->reach, "blocksize", how.blocksize);
  return *pattern;
}

void check_length(std::string_view call, const SparsePattern& pattern, std::int64_t length,
                  std::int64_t blocksize) {
  if (pattern.mode == Mode::strided) {
    // The original sorts positions by residue, and the positions of each are whole blocks.
    check_multiple(call, "the length", length, "local_attn_ctx", pattern.reach);
    check_multiple(call, "length / local_attn_ctx", length / pattern.reach, "blocksize", blocksize);
  }
  check_multiple(call, "the length", length, "blocksize", blocksize);
}

MaskMod mask_of(const SparsePattern& pattern) {
  switch (pattern.mode) {
    case Mode::all: return patterns::all();
    case Mode::local: return patterns::local({.window = pattern.reach});
    case Mode::strided: return patterns::strided({.stride = pattern.reach});
    case Mode::fixed:  // a group of columns as one block, which gives the same columns
      return patterns::fixed({.window = pattern.reach, .num_verts = pattern.groups, .vertsize = 1},
                             {.size = pattern.columns, .heads = pattern.groups});
  }
  base::internal_error("mask_of: no such mode");
}

}  // namespace treadle::api
