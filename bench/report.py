"""Measures this machine, and writes what it found: numbers, a page and plots.

    ./dev bench --report                        all of it, an hour or so on two cores
    python bench/report.py --part sparse        one part; the others stay as they were
    python bench/report.py --page-only          page and plots anew, from numbers that are there

Writes bench/results/<cpu>.json, docs/benchmarks.md and docs/plots/*.svg. A figure counts if the machine was quiet: the
loop of multiply-adds runs before and after, and where it dropped the figure is taken again, and in the end marked.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import time

here = pathlib.Path(__file__).resolve().parent
root = here.parent
sys.path.insert(0, str(here))

import report_page  # noqa: E402
import report_parts  # noqa: E402

DROPPED = 0.9  # of the best loop of the run: below it the machine was busy
TRIES = 4


class Machine:
    """The loop of multiply-adds, and figures that are taken again when it dropped."""

    def __init__(self, loop, tries: int = TRIES, say=lambda text: None):
        self.loop, self.tries, self.say = loop, tries, say
        self.best = max(loop(), loop())

    def quiet(self, now: float) -> bool:
        self.best = max(self.best, now)
        return now >= DROPPED * self.best

    def figure(self, take):
        """take() -> dict. The one that was taken when the loop was fastest; busy says that it was never fast enough."""
        best_loop, best = -1.0, None
        for turn in range(self.tries):
            before = self.loop()
            figure = take()
            loop = min(before, self.loop())
            if loop > best_loop:
                best_loop, best = loop, figure
            if self.quiet(loop):
                break
            self.say(f"  the loop dropped to {100 * loop / self.best:.0f} %; " + ("again" if turn + 1 < self.tries else "marked"))
        return {**best, "loop": round(best_loop / self.best, 3), "busy": best_loop < DROPPED * self.best}


def program() -> str:
    return str(root / "build/release/treadle")


def native(pattern: str, threads: int) -> list[dict]:
    ran = subprocess.run([program(), "bench", "--json", "--case", pattern, "--threads", str(threads)],
                         check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)  # fmt: skip
    return json.loads(ran.stdout)


def loop_of(threads: int):
    return lambda: native("loop-f32", threads)[0]["gflops"]


def commit() -> str:
    def git(*words):
        return subprocess.run(["git", "-C", str(root), *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "src", "include", "python", "cmake", "CMakeLists.txt")
    return (git("rev-parse", "--short=12", "HEAD") or "unknown") + (" with changes" if changed else "")


def about(threads: int) -> dict:
    """What a reader has to know of the machine and of what ran on it."""
    info = json.loads(subprocess.run([program(), "info", "--json"], check=True, stdout=subprocess.PIPE, text=True).stdout)
    versions = {row["name"]: row["value"] for row in info if row["about"] == "library"}
    of = {row["name"]: row["value"] for row in info if row["about"] != "library"}
    import numpy
    import torch

    versions.update(python=platform.python_version(), torch=torch.__version__, numpy=numpy.__version__,
                    treadle=of.get("version", ""), compiler=of.get("compiler", ""))  # fmt: skip
    return {
        "cpu": of.get("cpu", platform.processor()),
        "kernels": of.get("kernels", ""),
        "threads": threads,
        "system": f"{platform.system()} {platform.release()}",
        "versions": versions,
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d"),
    }


def file_name(cpu: str) -> str:
    """'AMD EPYC 9R14' -> 'amd-epyc-9r14'"""
    return re.sub(r"[^a-z0-9]+", "-", re.sub(r"\((r|tm)\)", "", cpu.lower())).strip("-") or "cpu"


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=list(report_parts.PARTS), help="only this part; repeatable")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--small", action="store_true", help="small sizes, to see that it works; numbers mean nothing")
    parser.add_argument("--page-only", action="store_true", help="measure nothing")
    parser.add_argument("--results", type=pathlib.Path, default=here / "results")
    parser.add_argument("--page", type=pathlib.Path, default=root / "docs/benchmarks.md")
    options = parser.parse_args(arguments)

    def say(text):
        print(text, file=sys.stderr, flush=True)

    machine_about = about(options.threads)
    file = options.results / f"{file_name(machine_about['cpu'])}.json"
    found = json.loads(file.read_text()) if file.exists() else {"parts": {}}
    if options.page_only:
        if not found["parts"]:
            raise SystemExit(f"report: there are no numbers in {file}; measure first")
    else:
        import torch

        torch.set_num_threads(options.threads)
        loop = loop_of(options.threads)
        if options.small:  # nobody looks at the numbers, so one look at the machine will do
            loop = functools.cache(loop)
        machine = Machine(loop, TRIES, say)
        parts = options.part or list(report_parts.PARTS)
        for number, name in enumerate(parts, 1):
            say(f"[{number}/{len(parts)}] {name}")
            bench = report_parts.Bench(machine, options.threads, options.small, native, say)
            # Each part says where it comes from: a report may be put together over several days.
            rows = report_parts.PARTS[name](bench)
            found["parts"][name] = {"about": machine_about, "small": options.small, "rows": rows}
            found["about"] = machine_about
            options.results.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(found, indent=1) + "\n")
    report_page.write(found, options.page)
    say(f"{file}\n{options.page}")


if __name__ == "__main__":
    main()
