#include "plan/mod_facts.h"

namespace treadle::plan {

base::Hash hash(const ModFacts& facts) {
  base::Hasher hasher;
  hasher.add(facts.narrow).add(facts.checked).add(facts.consecutive).add(facts.unit_stride.size());
  for (const bool unit : facts.unit_stride) hasher.add(unit);
  return hasher.finish();
}

}  // namespace treadle::plan
