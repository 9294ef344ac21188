#!/usr/bin/env python3
"""Checks that the tests of a gtest program have readable names and parameters.

  check_test_names.py build/release/tests/test_run

A parameter without a printer is shown as "48-byte object <D0-25 ...>", in every list of tests and every failure; give its
type a PrintTo. Two tests of one name would be one to ctest. Prints the first offences and exits with 1 if there is one.
"""

import collections
import re
import subprocess
import sys

UNREADABLE = re.compile(r"\d+-byte object <")


def offences(listing):
    """Yields a sentence for each unreadable or repeated name in what --gtest_list_tests prints."""
    suite, names = "", []
    for line in listing.splitlines():
        name = line.split("#")[0].strip()
        if not line.startswith("  "):
            suite = name
            continue
        names.append(suite + name)
        if UNREADABLE.search(line):
            yield f"{suite}{name}: its parameter has no printer: {line.split('#', 1)[1].strip()[:60]}"
    for name, count in collections.Counter(names).items():
        if count > 1:
            yield f"{name}: {count} tests have this name"


def self_test():
    good = ["Graph.\n  Copies\n  Hashes\n",
            "Cases/Bits.\n  AnyMemory/plain  # GetParam() = plain\n  AnyMemory/causal  # GetParam() = causal\n",
            "Floats/0.  # TypeParam = float\n  Merge\nFloats/1.  # TypeParam = double\n  Merge\n"]
    bad = ["Cases/Bits.\n  AnyMemory/plain  # GetParam() = 80-byte object <18-CA 07-93>\n",
           "Cases/Types.\n  Any/f32  # GetParam() = 1-byte object <01>\n",
           "Graph.\n  Copies\n  Copies\n"]
    for listing in good + bad:
        said = list(offences(listing))
        if bool(said) != (listing in bad):
            sys.exit(f"self-test: {listing}: said {said}")
    print(f"self-test: {len(good)} good lists pass, {len(bad)} bad ones are found")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    said = []
    for program in sys.argv[1:]:
        listing = subprocess.run([program, "--gtest_list_tests"], check=True, stdout=subprocess.PIPE, text=True).stdout
        said += offences(listing)
    print(*said[:20], sep="\n", end="\n" if said else "")
    sys.exit(1 if said else 0)


main()
