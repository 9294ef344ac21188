"""The C++ program of docs/tutorial.md prints what the page shows."""

import pathlib
import re
import sys

from program import arguments, printed

args = arguments(__doc__)
page = (pathlib.Path(__file__).resolve().parents[2] / "docs/tutorial.md").read_text()
steps = re.findall(r"^```cpp\n(.*?)^```$\n\n^```text\n(.*?)^```$", page, re.M | re.S)
if not steps:
    sys.exit("tutorial: there is no ```cpp block with a ```text block")
for program, expected in steps:
    said = printed(args, program)
    if said != expected:
        sys.exit(f"tutorial: the program prints\n{said}the page shows\n{expected}")
