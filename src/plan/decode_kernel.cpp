// The name of a decode kernel: everything its code depends on.
#include "plan/decode_kernel.h"

#include <algorithm>

namespace treadle::plan {

bool decodes(const Target& target, DType compute, const layout::Layout& layout,
             std::int64_t group) {
  return layout.tiles().count() == 1 && decodes(target, compute, layout.only_tile(), group);
}

bool decodes(const Target& target, DType compute, const layout::OneTile& layout,
             std::int64_t group) {
  constexpr std::int64_t keys_per_piece = 16, few_pieces = 4;
  const layout::Extent& extent = layout.extent;
  const std::int64_t queries = extent.queries.count();
  if (queries > target.lanes(compute) || queries * group > most_decode_rows) return false;
  if (layout.per_head && group > 1) return false;
  for (std::int64_t b = 0; b < (layout.per_batch ? extent.batch : 1); ++b) {
    for (std::int64_t h = 0; h < (layout.per_head ? extent.heads : 1); ++h) {
      std::int64_t pieces = 0, keys = 0;
      for (const layout::Run& run : layout.runs(b, h)) {
        pieces += run.count();
        keys += run.length();
      }
      if (pieces > few_pieces + keys / keys_per_piece) return false;
    }
  }
  return true;
}

std::int64_t decode_block(const Target& target, DType compute, DType key_type, std::int64_t dim,
                          const RowBlocks& rows) {
  constexpr std::int64_t wanted = 4096, most = 64, cache = 32768;
  const std::int64_t lanes = target.lanes(compute);
  const std::int64_t row = dim * static_cast<std::int64_t>(size_of(key_type));
  const std::int64_t keys = std::min(most, wanted / std::max<std::int64_t>(row, 1));
  const std::int64_t at_once = groups_at_once(target) * lanes;
  const bool fits = at_once * dim * static_cast<std::int64_t>(size_of(compute)) <= cache;
  return std::max(rows.fours && fits ? at_once : 2 * lanes, keys / lanes * lanes);
}

base::Key key(const DecodeKernelSpec& spec) {
  // A binding for each member: one that is added and forgotten here does not compile.
  const auto& [target, compute, key_type, value_type, key_scales, value_scales, dim, value_dim,
               key_block, rows, score, score_facts, masked, mask, mask_facts, mods, dropout] = spec;
  base::Hasher hasher;
  hasher.add("decode").add(hash(target)).add(compute).add(key_type).add(value_type);
  hasher.add(key_scales).add(value_scales);
  hasher.add(dim).add(value_dim).add(key_block);
  hasher.add(rows.fours).add(rows.many).add(rows.rest);
  hasher.add(score.kind).add(masked).add(dropout);
  // What the code does not read does not make it another kernel.
  if (score.kind != ScoreForm::Kind::plain) hasher.add(score.graph.key()).add(hash(score_facts));
  if (masked) hasher.add(mask.key()).add(hash(mask_facts));
  if (score.kind != ScoreForm::Kind::plain || masked) hasher.add(mods.whole).add(mods.piece);
  return hasher.key();
}

}  // namespace treadle::plan
