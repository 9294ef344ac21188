#!/usr/bin/env python3
"""Checks that the examples in public headers compile.

  check_examples.py --compiler c++ --include tests/headers

A paragraph of a header's opening comment is an example if its first line is indented by exactly three spaces after //;
formulas, pictures and tables are indented further. All examples of a header share one scope, in which the names of
tests/headers/context.h are known. Only types and names are checked, nothing runs. What the compiler says names header and
line. Exits with 1 if an example does not compile or if there is none at all.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def examples(text):
    """-> [(line number, code)] of the opening comment."""
    found, in_example, after_blank = [], False, True
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("//"):
            break
        body = line[2:].rstrip()
        if not body:
            in_example, after_blank = False, True
            continue
        if after_blank:
            in_example = body.startswith("   ") and not body.startswith("    ")
        after_blank = False
        if in_example:
            found.append((number, body[3:]))
    return found


def source_of(headers):
    """One member function for each header that has an example."""
    lines = ['#include "context.h"', "namespace treadle::test {"]
    for header, found in headers:
        name = header.stem + "_h"
        lines += [f"struct {name} : Context {{", "  void example() {"]
        for number, code in found:
            lines += [f'#line {number} "{header}"', code]
        lines += ["  }", "};"]
    return "\n".join(lines + ["}  // namespace treadle::test", ""])


def errors_in(headers, compiler, flags):
    """What the compiler says, empty if all examples compile."""
    with tempfile.TemporaryDirectory() as scratch:
        source = pathlib.Path(scratch) / "examples.cpp"
        source.write_text(source_of(headers))
        ran = subprocess.run([compiler, "-std=c++20", "-fsyntax-only", "-w", *flags, source],
                             stderr=subprocess.PIPE, text=True)
    return ran.stderr or "the compiler failed without a word" if ran.returncode else ""


def self_test(compiler, flags):
    # (opening comment, line numbers of its examples)
    cases = [
        ("// What it is.\n//\n//   int x = 1;\n//   ++x;\n#pragma once\n//   int y;\n", [3, 4]),
        ("// What it is.\n//\n//   if (x) {\n//     f();\n//   }\n//\n// Prose.\n", [3, 4, 5]),
        ("// Formula:\n//\n//     S = <q, k>\n//   and so on\n", []),
        ("// No example.\n#pragma once\n", []),
        ("//   int x;\n//\n//   int y;\n", [1, 3]),
    ]
    for text, expected in cases:
        got = [number for number, _ in examples(text)]
        if got != expected:
            sys.exit(f"self-test: {text!r}: examples at {got}, not {expected}")
    wrong = [(pathlib.Path("wrong.h"), [(3, "Options options;"), (7, "attention(q, k, v, options);")])]
    said = errors_in(wrong, compiler, flags)
    if "wrong.h:7:" not in said:
        sys.exit(f"self-test: an example that is wrong in line 7: the compiler said {said!r}")
    print(f"self-test: {len(cases)} comments are read as they should be, and a wrong example is found")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compiler", default="c++")
    parser.add_argument("--include", action="append", default=[], help="a folder for #include; may be repeated")
    parser.add_argument("--self-test", action="store_true")
    args = parser.parse_args()
    flags = [f"-I{folder}" for folder in [ROOT / "include", *args.include]]
    if args.self_test:
        return self_test(args.compiler, flags)

    headers = [(header, examples(header.read_text())) for header in sorted((ROOT / "include/treadle").glob("*.h"))]
    headers = [(header.relative_to(ROOT), found) for header, found in headers if found]
    if not headers:
        sys.exit("no public header has an example")
    print(f"{sum(len(found) for _, found in headers)} lines of examples in {len(headers)} headers")
    said = errors_in(headers, args.compiler, flags)
    print(said, end="")
    sys.exit(1 if said else 0)


main()
