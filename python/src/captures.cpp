// Makes named captures of what Python declares and hands over.
//
// In: what Python declared, and the memory of a call. Out: treadle::Capture.
#include "captures.h"

namespace treadle::python {

std::vector<Capture> unbound(const std::vector<Declared>& declared) {
  static const std::int64_t zero = 0;  // an address; no element is read
  std::vector<Capture> captures;
  for (const Declared& one : declared) {
    const Dims empty(static_cast<std::size_t>(one.rank), 0);
    captures.emplace_back(one.name, ConstView(&zero, one.dtype, empty));
  }
  return captures;
}

std::vector<Capture> with_names(const std::vector<Declared>& declared, const BoundCaptures& bound) {
  std::vector<Capture> captures;
  for (std::size_t i = 0; i < declared.size(); ++i)
    captures.emplace_back(declared[i].name, bound.views[i]);
  return captures;
}

}  // namespace treadle::python
