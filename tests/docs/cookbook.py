"""The C++ examples of docs/cookbook.md draw the pictures beside them."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from cookbook import drawn, variants  # noqa: E402
from program import arguments, printed  # noqa: E402

HEAD = """
#include <treadle/treadle.h>

#include <cmath>
#include <cstdio>

using namespace treadle;

constexpr std::int64_t N = 12, H = 2, W = 4;

// Prints the weights of head 0, by attention with values that tell keys apart.
void show(const Options& options, float slope) {
  Tensor q(DType::f32, {1, H, N, 2}), k(DType::f32, {1, H, N, 2}), v(DType::f32, {1, H, N, N});
  for (std::int64_t h = 0; h < H; ++h) {
    for (std::int64_t i = 0; i < N; ++i) {
      q.at<float>({0, h, i, 0}) = 1;
      q.at<float>({0, h, i, 1}) = static_cast<float>(-i);
      k.at<float>({0, h, i, 0}) = slope * static_cast<float>(i);
      k.at<float>({0, h, i, 1}) = slope;
      v.at<float>({0, h, i, i}) = 1;
    }
  }
  const Tensor out = compile(options).forward({q, k, v}).out;
  for (std::int64_t i = 0; i < N; ++i)
    for (std::int64_t j = 0; j < N; ++j)
      std::printf("%.9g%c", static_cast<double>(out.at<float>({0, 0, i, j})), j + 1 < N ? ' ' : '\\n');
}

int main() {
"""


def main():
    args = arguments(__doc__)
    page = variants()
    program = HEAD
    for variant in page:
        program += "{\nOptions options;\noptions.scale = 1;\n" + variant.cpp + f"show(options, {int(variant.sloped)});\n}}\n"
    rows = [[float(w) for w in line.split()] for line in printed(args, program + "}\n").splitlines()]
    said = []
    for i, variant in enumerate(page):
        picture = drawn(rows[12 * i : 12 * (i + 1)])
        if picture != variant.picture:
            said.append(f"{variant.name}: the C++ example draws\n{picture}the page shows\n{variant.picture}")
    if len(page) != 24 or len(rows) != 12 * 24:
        said.append(f"the page has {len(page)} variants, which print {len(rows)} rows; 24 and 288 were expected")
    sys.exit("\n".join(said) or 0)


main()
