"""Treadle beside torch SDPA, compiled FlexAttention, ONNX Runtime, OpenVINO and vLLM, on this machine, in one run.

    ./dev bench --compare                 everything that is installed
    python bench/compare.py --case causal --out build/compare

Every engine has a process of its own, because thread pools disturb one another, and they take turns: one call each,
round after round, so that a machine that slows down slows all of them. Results are compared before anything is timed.
Writes compare.json, compare.md and, with matplotlib, compare.png.
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


def measure(case, workers, rounds: int, seconds: float) -> dict:
    prepared = {w.name: w.ask(do="prepare", case=case.name) for w in workers}
    able = [w for w in workers if prepared[w.name].get("result") is not None]
    agree(case.name, {w.name: prepared[w.name]["result"] for w in able}, case.rounding)
    times = {w.name: [] for w in able}
    start = time.perf_counter()
    turn = 0
    while turn < rounds or (time.perf_counter() - start < seconds and turn < 50):
        for w in able:
            times[w.name].append(w.ask(do="run")["seconds"])
        turn += 1
        if time.perf_counter() - start > 20 * seconds:
            break
    row = {"case": case.name, "kind": case.kind, "ms": {}, "first_ms": {}, "ratio": {}, "errors": {}}
    for name, seen in times.items():
        row["ms"][name] = 1e3 * min(seen)
        row["first_ms"][name] = 1e3 * prepared[name]["first"]
    for name in times:
        if name != "treadle":
            # Turn by turn: what the machine does to one it does to the other.
            row["ratio"][name] = statistics.median(b / a for a, b in zip(times["treadle"], times[name]))
    for w in workers:
        if "error" in prepared[w.name]:
            row["errors"][w.name] = prepared[w.name]["error"]
    return row


def table(rows: list, names: list) -> str:
    lines = ["| case | " + " | ".join(f"{n}, ms" for n in names) + " | " + " | ".join(f"{n} / treadle" for n in names[1:]) + " |"]
    lines.append("|---" * (2 * len(names)) + "|")
    for row in rows:
        def cell(group, name, text):
            return format(row[group][name], text) if name in row[group] else "-"

        ms = [cell("ms", n, ".2f") for n in names]
        ratios = [cell("ratio", n, ".2f") for n in names[1:]]
        lines.append("| " + " | ".join([row["case"], *ms, *ratios]) + " |")
    return "\n".join(lines) + "\n"


def first_calls(rows: list, names: list) -> str:
    lines = ["| first call, compiling | " + " | ".join(f"{n}, ms" for n in names) + " |", "|---" * (len(names) + 1) + "|"]
    for row in rows:
        ms = [format(row["first_ms"][n], ".0f") if n in row["first_ms"] else "-" for n in names]
        lines.append("| " + " | ".join([row["case"], *ms]) + " |")
    return "\n".join(lines) + "\n"


def plot(rows: list, names: list, path) -> bool:
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as pyplot
    except ImportError:
        return False
    figure, axes = pyplot.subplots(figsize=(10, 0.5 * len(rows) + 1.5))
    height = 0.8 / max(len(names) - 1, 1)
    for n, name in enumerate(names[1:]):
        places = [r + n * height for r, row in enumerate(rows) if name in row["ratio"]]
        axes.barh(places, [row["ratio"][name] for row in rows if name in row["ratio"]], height, label=name)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_yticks([r + 0.4 - height / 2 for r in range(len(rows))], [row["case"] for row in rows])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("time beside Treadle's (more is slower)")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", default="", help="only cases whose names contain this")
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
    rows = []
    for case in cases():
        if arguments.case not in case.name or arguments.only not in (None, case.name):
            continue
        print(f"{case.name} ...", file=sys.stderr, flush=True)
        rows.append(measure(case, workers, arguments.rounds, arguments.seconds))
    for w in workers:
        w.stop()
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "compare.json").write_text(json.dumps({"threads": arguments.threads, "rows": rows}, indent=1))
    text = table(rows, names) + "\n" + first_calls(rows, names)
    (arguments.out / "compare.md").write_text(text)
    plot(rows, names, arguments.out / "compare.png")
    print(text)
    for row in rows:
        for name, error in row["errors"].items():
            print(f"{row['case']}: {name}: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
