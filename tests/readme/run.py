"""Compiles and runs the first ```cpp block of a readme; its output must be the ```text block that follows."""

import argparse
import difflib
import os
import pathlib
import re
import subprocess
import sys
import tempfile


def example(text):
    """-> (program, expected output), or ends with a sentence that says what is missing."""
    program = re.search(r"^```cpp\n(.*?)^```$", text, re.M | re.S)
    if not program:
        sys.exit("readme: there is no ```cpp block")
    output = re.compile(r"^```text\n(.*?)^```$", re.M | re.S).search(text, program.end())
    if not output:
        sys.exit("readme: no ```text block follows the first ```cpp block")
    return program[1], output[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("readme", "compiler", "include", "library"):
        parser.add_argument("--" + name, required=True)
    args = parser.parse_args()
    program, expected = example(pathlib.Path(args.readme).read_text())

    with tempfile.TemporaryDirectory() as scratch:
        source, binary = os.path.join(scratch, "readme.cpp"), os.path.join(scratch, "readme")
        pathlib.Path(source).write_text(program)
        subprocess.run(
            [args.compiler, "-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-I", args.include, source, args.library,
             "-Wl,-rpath," + os.path.dirname(args.library), "-o", binary],
            check=True,
        )
        printed = subprocess.run([binary], check=True, stdout=subprocess.PIPE, text=True).stdout

    lines = [[line.rstrip() for line in text.rstrip().splitlines()] for text in (expected, printed)]
    difference = "\n".join(difflib.unified_diff(*lines, "README.md", "printed", lineterm=""))
    sys.exit(difference or 0)


main()
