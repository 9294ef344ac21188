#!/usr/bin/env python3
"""Checks who includes whom.

  - a file in src/X includes "Y/..." only if Y is X or stands above X in src/folders.txt
  - the same for "treadle/....h", which counts as part of a folder: treadle/mod.h of trace
  - src/reference defines what is right, so it leans on nothing that it judges: only on ir and base
  - LLVM is known only to emit/llvm and jit; kernels are emitted only for jit, and only backend/cpu and cli ask jit for them
  - backends do not know one another
  - MPI, and treadle/mpi.h with it, is known only to mpi
  - a public header includes only "treadle/..." and the standard library; treadle/dlpack.h also <dlpack/dlpack.h>,
    treadle/mpi.h also <mpi.h>
  - the Python module, python/src, includes "treadle/...", "api/...", headers of its own and other people's

Tests are free. Prints each offence as file:line: message and exits with 1 if there is one.
"""

import pathlib
import re
import sys
import tempfile

INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')
SUFFIXES = {".h", ".cpp", ".def"}
REFERENCE_MAY_INCLUDE = {"base", "ir", "reference"}
LLVM_MAY_BE_INCLUDED_BY = {"emit/llvm", "jit"}
ONLY_INCLUDED_BY = {"emit/llvm": {"emit/llvm", "jit"}, "jit": {"jit", "backend/cpu", "cli"}}
# Other people's headers that a public header is about.
FOREIGN = {"dlpack.h": "dlpack/dlpack.h", "mpi.h": "mpi.h"}
# Public headers by the first folder that may include them; all others are of base.
PUBLIC_HEADERS = {
    "trace": {"capture.h", "mod.h", "mods.h", "trace.h"},
    "layout": {"block_lists.h", "key_lists.h"},
    "patterns": {"block_layout.h", "patterns.h", "sparse_transformer.h"},
    "backend": {"attention.h", "layout.h"},
    "api": {"merge_states.h", "paged_kv.h", "sparse_attention.h", "treadle.h"},
    "distributed": {"distributed.h", "exchange.h", "in_process_exchange.h"},
    "mpi": {"mpi.h"},
}


def read_folders(root):
    lines = (root / "src/folders.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def folder_of(path, folders):
    """The folder a path lies in: emit/llvm for emit/llvm/tile.h, trace for treadle/mod.h; None if it lies in none."""
    if path.startswith("treadle/"):
        name = path.removeprefix("treadle/")
        return next((folder for folder, names in PUBLIC_HEADERS.items() if name in names), "base")
    return max((folder for folder in folders if path.startswith(folder + "/")), key=len, default=None)


def fault_in_src(here, path, quoted, folders):
    """What is wrong with including path from the folder here, or None."""
    if path.startswith(("llvm/", "llvm-c/")):
        return None if here in LLVM_MAY_BE_INCLUDED_BY else f"{here} may not include LLVM, only emit/llvm and jit may"
    if path in ("mpi.h", "treadle/mpi.h") and here != "mpi":
        return f"{here} may not include {path}, only mpi may"
    there = folder_of(path, folders)
    if there is None:
        # Angle brackets are other people's headers; quotes without a folder could hide any direction.
        return f'"{path}" does not begin with a folder of src/folders.txt' if quoted else None
    if here == "reference" and there not in REFERENCE_MAY_INCLUDE:
        return f"reference may include only ir and base, not {there}"
    if here not in ONLY_INCLUDED_BY.get(there, {here}):
        return f"{here} may not include {there}, only {', '.join(sorted(ONLY_INCLUDED_BY[there]))} may"
    if here != there and here.startswith("backend/") and there.startswith("backend/"):
        return f"{here} may not include {there}: backends do not know one another"
    if folders.index(there) > folders.index(here):
        return f"{here} may not include {there}, which comes after it in src/folders.txt"
    return None


def fault_in_public(name, path, quoted, folders):
    if path.startswith("treadle/"):
        here, there = folder_of("treadle/" + name, folders), folder_of(path, folders)
        if folders.index(there) > folders.index(here):
            return f"a header of {here} may not include one of {there}, which comes after it in src/folders.txt"
        return None
    if FOREIGN.get(name) == path:
        return None
    # Standard headers have neither a folder nor an ending.
    if quoted or "/" in path or "." in path:
        return f'a public header includes only "treadle/..." and the standard library, not {path}'
    return None


def fault_in_python(path, quoted, own, folders):
    if path.startswith(("treadle/", "api/")) or (quoted and path in own):
        return None
    if quoted or folder_of(path, folders) or path.startswith(("llvm/", "llvm-c/")):
        return f'the Python module includes only "treadle/...", "api/..." and headers of its own, not {path}'
    return None


def offences(root):
    """Yields "file:line: message"."""
    folders = read_folders(root)
    own = {file.name for file in (root / "python/src").glob("*.h")}
    for top in ("include/treadle", "src", "python/src"):
        for file in sorted((root / top).rglob("*")):
            if file.suffix not in SUFFIXES:
                continue
            name = file.relative_to(root / top).as_posix()
            here = folder_of(name, folders)
            if top == "src" and here is None:
                yield f"{top}/{name}:1: lies in no folder of src/folders.txt"
                continue
            for number, line in enumerate(file.read_text().splitlines(), 1):
                found = INCLUDE.match(line)
                if not found:
                    continue
                quoted, path = found[1] == '"', found[2]
                if top == "src":
                    fault = fault_in_src(here, path, quoted, folders)
                elif top == "python/src":
                    fault = fault_in_python(path, quoted, own, folders)
                else:
                    fault = fault_in_public(name, path, quoted, folders)
                if fault:
                    yield f"{top}/{name}:{number}: {fault}"


def self_test(root):
    """Puts one include after the other into an otherwise empty tree and looks at what is said about it."""
    good = [
        ("src/ir/a.h", '#include "base/b.h"'),
        ("src/ir/a.cpp", '#include "ir/a.h"'),
        ("src/ir/a.cpp", '#include "treadle/view.h"'),
        ("src/ir/a.cpp", "#include <vector>"),
        ("src/trace/a.cpp", '#include "treadle/mod.h"'),
        ("src/patterns/a.cpp", '#include "treadle/mods.h"'),
        ("src/cli/a.cpp", '#include "treadle/treadle.h"'),
        ("src/cli/a.cpp", '#include "picture/picture.h"'),
        ("src/base/a.cpp", "#include <fmt/format.h>"),
        ("src/jit/a.cpp", '#include "emit/llvm/tile.h"'),
        ("src/jit/a.cpp", "#include <llvm/IR/Module.h>"),
        ("src/emit/llvm/a.h", "#include <llvm/IR/Module.h>"),
        ("src/reference/a.cpp", '#include "ir/graph.h"'),
        ("src/cli/a.cpp", '#include "reference/dense.h"'),
        ("src/backend/cpu/a.cpp", '#include "jit/engine.h"'),
        ("src/backend/cpu/a.cpp", '#include "backend/backend.h"'),
        ("include/treadle/a.h", '#include "treadle/view.h"'),
        ("include/treadle/a.h", "#include <vector>"),
        ("include/treadle/dlpack.h", "#include <dlpack/dlpack.h>"),
        ("include/treadle/mpi.h", "#include <mpi.h>"),
        ("include/treadle/mpi.h", '#include "treadle/exchange.h"'),
        ("src/mpi/a.h", "#include <mpi.h>"),
        ("src/mpi/a.cpp", '#include "treadle/mpi.h"'),
        ("src/mpi/a.cpp", '#include "distributed/exchange_checks.h"'),
        ("python/src/a.cpp", '#include "api/inspect.h"'),
        ("python/src/a.cpp", '#include "treadle/attention.h"'),
        ("python/src/a.cpp", "#include <nanobind/nanobind.h>"),
        ("python/src/a.h", '#include "a.h"'),
    ]
    bad = [
        ("src/base/a.h", '#include "ir/graph.h"'),
        ("src/base/a.h", "#include <ir/graph.h>"),
        ("src/ir/a.cpp", ' #  include "passes/derive.h"'),
        ("src/plan/a.cpp", '#include "emit/llvm/tile.h"'),
        ("src/ir/a.cpp", '#include "graph.h"'),
        ("src/ir/a.cpp", '#include "treadle/trace.h"'),
        ("src/layout/a.cpp", '#include "treadle/patterns.h"'),
        ("src/run/a.h", '#include "treadle/attention.h"'),
        ("src/reference/a.h", '#include "treadle/mod.h"'),
        ("src/api/a.cpp", '#include "picture/picture.h"'),
        ("src/ir/a.cpp", '#include "../passes/derive.h"'),
        ("src/reference/a.cpp", '#include "passes/derive.h"'),
        ("src/run/a.cpp", "#include <llvm/IR/Module.h>"),
        ("src/api/a.cpp", '#include "llvm-c/Core.h"'),
        ("src/stray/a.cpp", ""),
        ("src/run/a.cpp", '#include "jit/engine.h"'),
        ("src/api/a.cpp", '#include "jit/engine.h"'),
        ("src/backend/cpu/a.cpp", '#include "emit/llvm/tile.h"'),
        ("src/backend/cpu/a.cpp", '#include "backend/reference/reference.h"'),
        ("src/backend/a.h", '#include "backend/cpu/cpu.h"'),
        ("include/treadle/a.h", '#include "ir/graph.h"'),
        ("include/treadle/a.h", "#include <fmt/format.h>"),
        ("include/treadle/a.h", '#include "treadle/mod.h"'),
        ("include/treadle/a.h", "#include <dlpack/dlpack.h>"),
        ("include/treadle/a.h", "#include <mpi.h>"),
        ("include/treadle/a.h", '#include "treadle/mpi.h"'),
        ("src/distributed/a.cpp", "#include <mpi.h>"),
        ("src/cli/a.cpp", '#include "treadle/mpi.h"'),
        ("src/distributed/a.cpp", '#include "mpi/exchange.h"'),
        ("python/src/a.cpp", '#include "ir/parse.h"'),
        ("python/src/a.cpp", "#include <layout/build.h>"),
        ("python/src/a.cpp", '#include "base/error.h"'),
        ("python/src/a.cpp", "#include <llvm/IR/Module.h>"),
        ("python/src/a.cpp", '#include "../../src/ir/parse.h"'),
        ("python/src/a.cpp", '#include "other.h"'),
    ]
    for file, line in good + bad:
        with tempfile.TemporaryDirectory() as scratch:
            tree = pathlib.Path(scratch)
            (tree / file).parent.mkdir(parents=True)
            (tree / file).write_text("\n" + line + "\n")
            (tree / "src").mkdir(exist_ok=True)
            (tree / "src/folders.txt").write_text((root / "src/folders.txt").read_text())
            said = list(offences(tree))
        if bool(said) != ((file, line) in bad):
            sys.exit(f"self-test: {file}: {line}: said {said}")
    print(f"self-test: {len(good)} good includes pass, {len(bad)} bad ones are found")


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    if sys.argv[1:] == ["--self-test"]:
        return self_test(root)
    said = list(offences(root))
    print(*said, sep="\n", end="\n" if said else "")
    sys.exit(1 if said else 0)


main()
