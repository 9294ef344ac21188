"""Runs what a readme shows.

  run.py cpp       compiles and runs the ```cpp program; it prints the ```text block that follows
  run.py commands  runs every line of ```sh blocks that begins with `treadle `, in a folder of its own

The ```python program is run by tests/python/test_readme.py, where the package is installed.
"""

import argparse
import difflib
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile


def example(text, language):
    """-> (program, expected output), or ends with a sentence that says what is missing."""
    program = re.search(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)
    if not program:
        sys.exit(f"readme: there is no ```{language} block")
    output = re.compile(r"^```text\n(.*?)^```$", re.M | re.S).search(text, program.end())
    if not output:
        sys.exit(f"readme: no ```text block follows the first ```{language} block")
    return program[1], output[1]


def difference(expected, printed):
    """Empty if they are the same but for spaces at the ends of lines."""
    lines = [[line.rstrip() for line in text.rstrip().splitlines()] for text in (expected, printed)]
    return "\n".join(difflib.unified_diff(*lines, "README.md", "printed", lineterm=""))


def run_cpp(text, args):
    program, expected = example(text, "cpp")
    with tempfile.TemporaryDirectory() as scratch:
        source, binary = os.path.join(scratch, "readme.cpp"), os.path.join(scratch, "readme")
        pathlib.Path(source).write_text(program)
        subprocess.run(
            [args.compiler, "-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-I", args.include, source, args.library,
             "-Wl,-rpath," + os.path.dirname(args.library), "-o", binary],
            check=True,
        )
        printed = subprocess.run([binary], check=True, stdout=subprocess.PIPE, text=True).stdout
    sys.exit(difference(expected, printed) or 0)


def run_commands(text, args):
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S)
    commands = [line for block in blocks for line in block.splitlines() if line.startswith("treadle ")]
    if not commands:
        sys.exit("readme: no ```sh block has a line that begins with `treadle `")
    with tempfile.TemporaryDirectory() as scratch:
        for command in commands:
            words = [os.path.abspath(args.program), *shlex.split(command, comments=True)[1:]]
            ran = subprocess.run(words, cwd=scratch, capture_output=True, text=True)
            if ran.returncode or not ran.stdout:
                sys.exit(f"readme: {command}: exit code {ran.returncode}\n{ran.stderr}")
    print(f"{len(commands)} commands")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("cpp", "commands"))
    parser.add_argument("--readme", required=True)
    for name in ("compiler", "include", "library", "program"):
        parser.add_argument("--" + name)
    args = parser.parse_args()
    text = pathlib.Path(args.readme).read_text()
    run_cpp(text, args) if args.what == "cpp" else run_commands(text, args)


if __name__ == "__main__":
    main()
