// What all kinds of kernels have: a name and a target.
#include "plan/kernel_spec.h"

namespace treadle::plan {

base::Key key(const KernelSpec& spec) {
  return std::visit([](const auto& one) { return key(one); }, spec);
}

const Target& target_of(const KernelSpec& spec) {
  return std::visit(
      [](const auto& one) -> const Target& {
        if constexpr (requires { one.plan; }) {
          return one.plan.target;
        } else {
          return one.target;
        }
      },
      spec);
}

}  // namespace treadle::plan
