// Terms: a mask as a union of disjoint parts, each with its own regularity.
//
//   "q >= kv && (q - kv < 128 || (q - kv) % 128 == 0)"
//     ->  "kv <= q && q - kv < 128",  "kv <= q && 128 <= q - kv && (q - kv) % 128 == 0"
//
// A strided part wants queries of one residue class in a tile, a local part wants neighbours; apart,
// each gets its own. The promise: at every pair at most one term is true, and one is iff the mask
// is. Where the mask reads outside a capture the terms agree with it if all read the same instead.
//
// Which terms there are follows from the mask's graph alone, not from the order in which it was
// written, and never from lengths: a row adds its keys term by term, so this decides its bits. A
// part is a term of its own only if it has a congruence (x % m) or a block quotient (x // m) of q or
// kv that the others have not. There are at most four; a mask whose terms would be many times as
// large as itself stays one.
#pragma once

#include <span>
#include <vector>

#include "ir/graph.h"
#include "treadle/view.h"

namespace treadle::passes {

inline constexpr std::size_t most_terms = 4;

// Of a simplified mask. One term, the mask itself, if nothing is gained. `memory` is bound to its
// slots: scalars (captures of rank 0) count as the numbers that they hold, and stay in the terms as
// far as these are then the same terms, so that kernels need not be made anew for every number.
std::vector<ir::Graph> terms(const ir::Graph& mask, std::span<const ConstView> memory);

// Whether any values of its scalars may give the mask several terms.
bool may_have_terms(const ir::Graph& mask);

}  // namespace treadle::passes
