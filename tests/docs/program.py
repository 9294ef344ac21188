"""Compiles and runs a C++ program against libtreadle, as a user would."""

import argparse
import os
import pathlib
import subprocess
import tempfile


def arguments(description):
    parser = argparse.ArgumentParser(description=description)
    for name in ("compiler", "include", "library"):
        parser.add_argument("--" + name, required=True)
    return parser.parse_args()


def printed(args, program):
    """What the program prints. Ends with what the compiler or the program says if one of them fails."""
    with tempfile.TemporaryDirectory() as scratch:
        source, binary = os.path.join(scratch, "page.cpp"), os.path.join(scratch, "page")
        pathlib.Path(source).write_text(program)
        subprocess.run(
            [args.compiler, "-std=c++20", "-O0", "-Wall", "-Wextra", "-Werror", "-pthread", "-I", args.include, source, args.library,
             "-Wl,-rpath," + os.path.dirname(args.library), "-o", binary],
            check=True,
        )
        return subprocess.run([binary], check=True, stdout=subprocess.PIPE, text=True).stdout
