"""Measures this machine, and writes what it found: numbers, a page and plots.

    ./dev bench --report                        all of it, an hour or so on two cores
    python bench/report.py --part sparse        one part; the others stay as they were
    python bench/report.py --page-only          page and plots anew, from numbers that are there

Writes bench/results/<cpu>.json, docs/benchmarks.md and docs/plots/*.svg. A figure counts if the machine was quiet: the
loop of multiply-adds runs before and after, and where it dropped, or where others were at work, the figure is taken again,
and in the end marked.
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
FOREIGN = 0.15  # of all processors, in use by others while we sleep: above it, too
TRIES = 4


def others(seconds: float = 0.1) -> float:
    """The share of the processors that somebody else uses, while we sleep; 0 where the system does not tell."""

    def times():
        with open("/proc/stat") as stat:
            numbers = [int(n) for n in stat.readline().split()[1:9]]
        return sum(numbers), numbers[3] + numbers[4]  # all, idle

    try:
        first = times()
        time.sleep(seconds)
        second = times()
    except OSError:
        return 0.0
    return 1 - (second[1] - first[1]) / max(1, second[0] - first[0])


class Machine:
    """Figures that are taken again when the machine did something else: the loop of multiply-adds dropped, or processors
    were busy while we slept, which tells of work that was there from the beginning and that no loop can drop from."""

    def __init__(self, loop, tries: int = TRIES, say=lambda text: None, others=lambda: 0.0, best: float = 0.0):
        self.loop, self.tries, self.say, self.others = loop, tries, say, others
        self.best = max(best, loop(), loop())

    def figure(self, take):
        """take() -> dict. The one that was taken when the machine was quietest; busy says that it was not quiet."""
        quietest, kept = -1.0, {}
        for turn in range(self.tries):
            foreign, before = self.others(), self.loop()
            figure = take()
            loop = min(before, self.loop())
            self.best = max(self.best, loop)
            share = loop / self.best
            quiet = share >= DROPPED and foreign <= FOREIGN
            if share - foreign > quietest or quiet:
                quietest, kept = share - foreign, {**figure, "loop": round(share, 3), "busy": not quiet}
            if quiet:
                break
            self.say(f"  the loop is at {100 * share:.0f} %, others use {100 * foreign:.0f} %; "
                     + ("again" if turn + 1 < self.tries else "marked"))  # fmt: skip
        return kept


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
        # The best loop that this machine was ever seen to run.
        machine = Machine(loop, TRIES, say, (lambda: 0.0) if options.small else others, found.get("best_loop", 0.0))
        parts = options.part or list(report_parts.PARTS)
        for number, name in enumerate(parts, 1):
            say(f"[{number}/{len(parts)}] {name}")
            bench = report_parts.Bench(machine, options.threads, options.small, native, say)
            # Each part says where it comes from: a report may be put together over several days.
            rows = report_parts.PARTS[name](bench)
            found["parts"][name] = {"about": machine_about, "small": options.small, "rows": rows}
            found["about"], found["best_loop"] = machine_about, machine.best
            options.results.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(found, indent=1) + "\n")
    report_page.write(found, options.page)
    say(f"{file}\n{options.page}")


if __name__ == "__main__":
    main()
