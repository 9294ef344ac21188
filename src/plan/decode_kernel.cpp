// The name of a decode kernel: everything its code depends on.
#include "plan/decode_kernel.h"

#include <algorithm>

namespace treadle::plan {

std::int64_t decode_block(const Target& target, DType compute, DType key_type, std::int64_t dim) {
  constexpr std::int64_t wanted = 4096, most = 64;
  const std::int64_t lanes = target.lanes(compute);
  const std::int64_t row = dim * static_cast<std::int64_t>(size_of(key_type));
  const std::int64_t keys = std::min(most, wanted / std::max<std::int64_t>(row, 1));
  return std::max(lanes, keys / lanes * lanes);
}

base::Key key(const DecodeKernelSpec& spec) {
  // A binding for each member: one that is added and forgotten here does not compile.
  const auto& [target, compute, key_type, value_type, dim, value_dim, key_block, score, score_facts,
               masked, mask, mask_facts, mods] = spec;
  base::Hasher hasher;
  hasher.add("decode").add(hash(target)).add(compute).add(key_type).add(value_type);
  hasher.add(dim).add(value_dim).add(key_block).add(score.kind).add(masked);
  // What the code does not read does not make it another kernel.
  if (score.kind != ScoreForm::Kind::plain) hasher.add(score.graph.key()).add(hash(score_facts));
  if (masked) hasher.add(mask.key()).add(hash(mask_facts));
  if (score.kind != ScoreForm::Kind::plain || masked) hasher.add(mods.whole).add(mods.piece);
  return hasher.key();
}

}  // namespace treadle::plan
