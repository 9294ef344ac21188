"""Distributed calls on this machine: ranks are processes under mpirun, or threads where messages are delayed.

    python bench/distributed.py                     all rows
    python bench/distributed.py balance overlap --json build/distributed.json

`./dev test` or `cmake --build --preset release --target bench_ranks` builds the program that it starts. Every row checks
first that bits repeat, that one machine's call has the same ones, and that as many bytes moved as the plan announced.
Rows that compare times take both in one run, in turns, and the best of several.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys
import time

root = pathlib.Path(__file__).resolve().parent.parent
program = root / "build" / "release" / "bench" / "bench_ranks"
mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]


def run(ranks: int, *options: str) -> dict:
    command = [*mpirun, "-n", str(ranks), str(program), *options] if ranks else [str(program), *options]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: failed\n{done.stderr}")
    row = json.loads(done.stdout.strip().splitlines()[-1])
    if not row["as_announced_and_same_bits"]:
        sys.exit(f"{' '.join(command)}: other bits, or other bytes than announced\n{row}")
    return row


def show(name: str, asked: str, measured: str, **numbers) -> dict:
    print(f"{name:<52} {asked:<26} {measured}", flush=True)
    return {"row": name, "asked": asked, "measured": measured, **numbers}


def balance(arguments):
    for mask in ("causal", "documents"):
        for ranks in (2, 4):
            row = run(ranks, "--mask", mask, "--length", str(arguments.length), "--repeat", "3")
            yield show(
                f"balance in task time, {mask} {arguments.length}, {ranks} ranks",
                "<= 1.10 (aim 1.04)",
                f"{row['measured_balance']:.3f} (planned {row['planned_balance']:.3f})",
                **row,
            )


def beside(arguments):
    for mask in ("causal", "documents"):
        row = run(
            2, "--mask", mask, "--length", str(arguments.length), "--repeat", str(arguments.repeat), "--beside", "2"
        )
        yield show(
            f"2 ranks x 1 thread / 1 rank x 2 threads, {mask} {arguments.length}",
            "<= 1.12 (aim 1.03)",
            f"{row['both'] / row['beside']:.3f} ({row['both']:.3f} s / {row['beside']:.3f} s)",
            **row,
        )


def overlap(arguments):
    """A rank's messages follow one another: begin, in, out, end. With nothing to compute they take what a tiny call does."""
    common = ["--in-process", "2", "--repeat", str(max(arguments.repeat, 5)), "--forward-only"]
    big = [*common, "--mask", "q >= kv and q - kv < 2048", "--length", str(arguments.length)]
    small = [*common, "--mask", "q >= kv", "--length", "64", "--dim", "16"]
    work = run(0, *big)["forward"]
    for share in (0.02, 0.05, 0.1, 0.25, 0.5):
        late = str(work * share * 1e6)
        messages = run(0, *small, "--delay-us", late)["forward"]
        row = run(0, *big, "--delay-us", late)
        over = row["forward"] / max(work, messages)
        yield show(
            f"overlap, window, every message {work * share * 1e3:.1f} ms late",
            "<= max + 15 % (aim 5 %)",
            f"+{(over - 1) * 100:.1f} % of max({work * 1e3:.1f} ms work, {messages * 1e3:.1f} ms messages)",
            work=work,
            messages_alone=messages,
            **row,
        )


def overhead(arguments):
    row = run(2, "--length", "64", "--heads", "2", "--key-heads", "1", "--dim", "16", "--repeat", "1000")
    slowest = max(row["forward"], row["backward"])
    yield show(
        "overhead per call, 2 ranks, tiny problem",
        "<= 300 us (aim 100)",
        f"forward {row['forward'] * 1e6:.0f} us, backward {row['backward'] * 1e6:.0f} us",
        slowest=slowest,
        **row,
    )


def faults(arguments):
    for fault, asked in (("fail", "same text on all, < 1 s"), ("die", "job ends, < 5 s"), ("silent", "patience + 1 s")):
        options = ["--fault", fault, "--length", "256", "--patience", "2"]
        done = subprocess.run(
            [*mpirun, "-n", "3", str(program), *options], capture_output=True, text=True, timeout=120
        )
        ended = time.time()
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        began = next(line["at"] for line in lines if "at" in line)
        texts = {line["threw"] for line in lines if "threw" in line}
        afters = [line["after"] for line in lines if "threw" in line]
        measured = f"job ended after {ended - began:.2f} s"
        if fault == "fail":
            measured = f"{len(afters)} of 3 ranks threw, {len(texts)} text, after {max(afters):.3f} s: {min(texts)}"
        if fault == "silent":
            named = [line for line in done.stderr.splitlines() if "did not take part" in line]
            measured += f" (patience 2 s): {named[0].strip() if named else done.stderr[:200]}"
        yield show(f"a rank: {fault}", asked, measured, status=done.returncode)


rows = {"balance": balance, "beside": beside, "overlap": overlap, "overhead": overhead, "faults": faults}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", default=[], help=f"of {', '.join(rows)}; all")
    parser.add_argument("--length", type=int, default=32768)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    unknown = set(arguments.rows) - set(rows)
    if unknown:
        parser.error(f"no rows called {', '.join(sorted(unknown))}")
    if not program.exists():
        sys.exit(f"{program} is not there; cmake --build --preset release --target bench_ranks")
    results = [row for name in arguments.rows or rows for row in rows[name](arguments)]
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
