"""What the report measures: a function for each part, from a Bench to rows. PARTS, at the end, lists them."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import Any, Callable

here = pathlib.Path(__file__).resolve().parent


@dataclass
class Bench:
    machine: Any  # report.Machine
    threads: int
    small: bool
    native: Callable
    say: Callable

    def sizes(self, full: list, small: list) -> list:
        return small if self.small else full

    def rows_of(self, cases: str) -> list[dict]:
        """Rows of `treadle bench`, each a figure of its own."""
        listed = subprocess.run([str(here.parent / "build/release/treadle"), "bench", "--list", "--case", cases],
                                check=True, stdout=subprocess.PIPE, text=True).stdout.split()  # fmt: skip
        rows = []
        for case in listed:
            self.say(f"  {case}")
            rows.append(self.machine.figure(lambda case=case: self.native(case, self.threads)[0]))
        return rows

    def seconds(self, work: Callable, **labels) -> dict:
        """The time of a call that was made before, in a row with these labels."""
        self.say("  " + ", ".join(f"{name} {value}" for name, value in labels.items()))
        work()

        def take():
            best, total, turns = 1e300, 0.0, 0
            while turns < 3 or (total < (0.05 if self.small else 0.5) and turns < 200):
                start = time.perf_counter()
                work()
                seconds = time.perf_counter() - start
                best, total, turns = min(best, seconds), total + seconds, turns + 1
                if total > 20:
                    break
            return {"ms": 1e3 * best}

        return {**labels, **self.machine.figure(take)}


def tensors(heads, length, dim, dtype="float32", keys=None):
    import torch

    torch.manual_seed(0)
    lengths = (length, keys or length, keys or length)
    return tuple(torch.randn(1, heads, n, dim).to(getattr(torch, dtype)) for n in lengths)


def causal(b, h, q, kv):
    return q >= kv


def window_of(size):
    return lambda b, h, q, kv: (q >= kv) & (q - kv < size)


def strided_of(stride):
    return lambda b, h, q, kv: (q >= kv) & ((q - kv) % stride == 0)


def mask_of(mod, length):
    from treadle.torch import create_block_mask

    return create_block_mask(mod, None, None, length, length) if mod else None


def throughput(bench: Bench) -> list[dict]:
    """Full attention by head dim and type."""
    from treadle.torch import flex_attention

    heads, length = (2, 128) if bench.small else (8, 2048)
    peaks = {"float64": bench.native("loop-f64", bench.threads)[0]["gflops"]}
    peaks["float32"] = peaks["bfloat16"] = peaks["float16"] = bench.machine.best
    rows = []
    for dtype in bench.sizes(["float32", "bfloat16", "float16", "float64"], ["float32", "bfloat16"]):
        for dim in bench.sizes([16, 32, 64, 80, 96, 128, 192, 256], [32, 64]):
            q, k, v = tensors(heads, length, dim, dtype)
            row = bench.seconds(lambda: flex_attention(q, k, v), dtype=dtype, dim=dim)
            row["gflops"] = 4 * heads * length * length * dim / row["ms"] / 1e6
            row["share"] = row["gflops"] / (peaks[dtype] * row["loop"])
            rows.append(row)
    return rows


def lengths(bench: Bench) -> list[dict]:
    """Time by length, forward, and forward with backward."""
    from treadle.torch import flex_attention

    mods = {"full": None, "causal": causal, "window 1024": window_of(1024), "strided 128": strided_of(128)}
    most_full = 512 if bench.small else 16384
    rows = []
    for name, mod in mods.items():
        for length in bench.sizes([512, 1024, 2048, 4096, 8192, 16384, 32768, 65536], [256, 512]):
            if length > most_full and name in ("full", "causal"):
                continue
            q, k, v = (x.requires_grad_() for x in tensors(4, length, 64))
            mask = mask_of(mod, length)

            def forward():
                return flex_attention(q.detach(), k.detach(), v.detach(), block_mask=mask)

            def training():
                flex_attention(q, k, v, block_mask=mask).sum().backward()

            rows.append(bench.seconds(forward, mask=name, direction="forward", length=length))
            if length <= most_full // 2 or name not in ("full", "causal"):
                rows.append(bench.seconds(training, mask=name, direction="forward and backward", length=length))
    return rows


def sparse(bench: Bench) -> list[dict]:
    """How much faster than full attention a mask is, by its share of visible pairs."""
    from treadle.torch import flex_attention

    length = 512 if bench.small else 8192
    q, k, v = tensors(4, length, 64)
    full = bench.seconds(lambda: flex_attention(q, k, v), mask="full", density=1.0)
    rows = [{**full, "speedup": 1.0}]

    def add(name, mod, density):
        mask = mask_of(mod, length)
        row = bench.seconds(lambda: flex_attention(q, k, v, block_mask=mask), mask=name, density=density)
        rows.append({**row, "speedup": full["ms"] / row["ms"], "busy": row["busy"] or full["busy"]})

    pairs = length * length
    add("causal", causal, (length * (length + 1) // 2) / pairs)
    for part in bench.sizes([2, 4, 8, 16, 32, 64, 128], [4, 16]):
        size = length // part
        add("window", window_of(size), (size * length - size * (size - 1) // 2) / pairs)
        add("blocks", lambda b, h, q, kv, size=size: q // size == kv // size, 1 / part)
        add("strided", strided_of(part), sum(q // part + 1 for q in range(length)) / pairs)
    return rows


def decode(bench: Bench) -> list[dict]:
    """One query against a cache: bytes of keys and values read in a second."""
    from treadle.torch import flex_attention

    rows = []
    for dtype in bench.sizes(["float32", "bfloat16"], ["float32"]):
        for heads, key_heads in ((8, 8), (32, 8)):
            for keys in bench.sizes([1024, 4096, 16384, 65536], [256]):
                q = tensors(heads, 1, 128, dtype)[0]
                _, k, v = tensors(key_heads, 1, 128, dtype, keys)
                row = bench.seconds(lambda: flex_attention(q, k, v, enable_gqa=heads != key_heads),
                                    dtype=dtype, heads=f"{heads}/{key_heads}", keys=keys)  # fmt: skip
                row["gigabytes"] = 2 * k.numel() * k.element_size() / row["ms"] / 1e6
                rows.append(row)
    return rows


def cookbook(bench: Bench) -> list[dict]:
    """The variants of docs/cookbook.md."""
    import cookbook as page
    from treadle.torch import flex_attention

    length, heads, width = (128, 2, 16) if bench.small else (4096, 8, 64)
    q, k, v = tensors(heads, length, 64)
    qs, ks, vs = (x.clone().requires_grad_() for x in (q, k, v))
    rows = []
    for variant in page.variants():
        score_mod, mask_mod = variant.mods(length, heads, width)
        mask = mask_of(mask_mod, length)
        row = bench.seconds(lambda: flex_attention(q, k, v, score_mod, mask), variant=variant.name, direction="forward")
        training = bench.seconds(lambda: flex_attention(qs, ks, vs, score_mod, mask).sum().backward(),
                                 variant=variant.name, direction="forward and backward")  # fmt: skip
        row["training_ms"], row["busy"] = training["ms"], row["busy"] or training["busy"]
        rows.append(row)
    return rows


def kernels(bench: Bench) -> list[dict]:
    """Of `treadle bench`: shares of the loop of multiply-adds."""
    if bench.small:
        return bench.rows_of("forward-full-d32")
    return [row for cases in ("forward-*", "backward-*", "sparse-*", "decode-*", "paged-*") for row in bench.rows_of(cases)]


def compile_time(bench: Bench) -> list[dict]:
    return bench.rows_of("compile-warm-call" if bench.small else "compile-*")


def masks(bench: Bench) -> list[dict]:
    """How long it takes to know where a mask's keys are."""
    return bench.rows_of("layout-causal-16k" if bench.small else "layout-*k") + ([] if bench.small else bench.rows_of("layout-*-1m"))


def others(bench: Bench) -> list[dict]:
    """bench/compare.py, case by case: other engines, in turns."""
    from cases import cases

    rows = []
    for case in cases()[: 1 if bench.small else None]:
        bench.say(f"  {case.name}")
        with tempfile.TemporaryDirectory() as scratch:
            command = [sys.executable, str(here / "compare.py"), "--out", scratch, "--threads", str(bench.threads), "--only", case.name]
            if bench.small:
                command += ["--rounds", "1", "--seconds", "0.1"]

            def take(command=command, scratch=scratch):
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                return json.loads((pathlib.Path(scratch) / "compare.json").read_text())["rows"][0]

            rows.append(bench.machine.figure(take))
    return rows


PARTS = {
    "throughput": throughput,
    "lengths": lengths,
    "sparse": sparse,
    "decode": decode,
    "masks": masks,
    "compile": compile_time,
    "cookbook": cookbook,
    "kernels": kernels,
    "others": others,
}
