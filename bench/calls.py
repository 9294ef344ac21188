"""What a call from Python costs beside its kernels: microseconds of calls on a problem that is next to nothing.

    .venv/bin/python bench/calls.py            all calls in turns, the fastest round of each
    .venv/bin/python bench/calls.py --compile  also inside torch.compile, with aot_eager and inductor

The mods are made as users make them: functions with closures that read captured tensors. "fresh" makes new ones for
every call.
"""

from __future__ import annotations

import argparse
import time
from typing import Callable

import numpy as np
import torch

import treadle
from treadle.torch import create_block_mask, flex_attention

LENGTH, DIM, HEADS = 16, 16, 2


def documents(number: torch.Tensor, window: int) -> Callable:
    return lambda b, h, q, kv: (number[q] == number[kv]) & (q >= kv) & (q - kv < window)


def alibi(slopes: torch.Tensor, cap: float) -> Callable:
    return lambda score, b, h, q, kv: cap * torch.tanh((score + slopes[h] * (kv - q)) / cap)


def torch_calls() -> dict[str, Callable]:
    q, k, v = torch.randn(3, 1, HEADS, LENGTH, DIM)
    slopes, number = torch.rand(HEADS), torch.arange(LENGTH) // 8
    block_mask = create_block_mask(lambda b, h, q, kv: q >= kv, None, None, LENGTH, LENGTH)
    of_documents = create_block_mask(documents(number, 9), None, None, LENGTH, LENGTH)
    biased = alibi(slopes, 20.0)

    def fresh():
        mask = create_block_mask(documents(number, 9), None, None, LENGTH, LENGTH)
        return flex_attention(q, k, v, biased, mask)

    return {
        "torch SDPA": lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v),
        "plain": lambda: flex_attention(q, k, v),
        "block mask": lambda: flex_attention(q, k, v, block_mask=block_mask),
        "mask and score mod": lambda: flex_attention(q, k, v, biased, of_documents),
        "fresh score mod": lambda: flex_attention(q, k, v, alibi(slopes, 20.0), of_documents),
        "fresh mask_mod": lambda: flex_attention(q, k, v, biased, documents(number, 9)),
        "fresh block mask": fresh,
        "new numbers": new_numbers(q, k, v, number),
    }


def new_numbers(q, k, v, number) -> Callable:
    """A call whose mods capture other numbers each time."""
    window = [0]

    def call():
        window[0] += 1
        return flex_attention(q, k, v, None, documents(number, window[0]))

    return call


def training_calls() -> dict[str, Callable]:
    q, k, v = torch.randn(3, 1, HEADS, LENGTH, DIM).requires_grad_().unbind()
    block_mask = create_block_mask(lambda b, h, q, kv: q >= kv, None, None, LENGTH, LENGTH)
    sdpa = torch.nn.functional.scaled_dot_product_attention
    seed = torch.ones(1, HEADS, LENGTH, DIM)
    return {
        "torch SDPA, with gradients": lambda: torch.autograd.grad(sdpa(q, k, v), (q, k, v), seed),
        "block mask, with gradients": lambda: torch.autograd.grad(
            flex_attention(q, k, v, block_mask=block_mask), (q, k, v), seed
        ),
    }


def numpy_calls() -> dict[str, Callable]:
    q, k, v = np.random.default_rng(0).random((3, 1, HEADS, LENGTH, DIM), np.float32)
    plain = treadle.Attention(threads=1)
    causal = treadle.Attention(mask_mod=lambda b, h, q, kv: q >= kv, threads=1)
    return {
        "NumPy, attention": lambda: treadle.attention(q, k, v, threads=1),
        "NumPy, Attention.forward": lambda: plain.forward(q, k, v),
        "NumPy, mask_mod": lambda: causal.forward(q, k, v),
    }


def compiled_calls() -> dict[str, Callable]:
    q, k, v = torch.randn(3, 1, HEADS, LENGTH, DIM)
    slopes, number = torch.rand(HEADS), torch.arange(LENGTH) // 8
    of_documents = create_block_mask(documents(number, 9), None, None, LENGTH, LENGTH)
    biased = alibi(slopes, 20.0)

    def in_turn(backend: str) -> dict[str, Callable]:
        def compiled(function: Callable) -> Callable:
            return torch.compile(function, backend=backend, fullgraph=True)

        plain = compiled(lambda q, k, v: flex_attention(q, k, v))
        modded = compiled(lambda q, k, v: flex_attention(q, k, v, biased, of_documents))
        sdpa = compiled(lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v))
        return {
            f"{backend}, torch SDPA": lambda: sdpa(q, k, v),
            f"{backend}, plain": lambda: plain(q, k, v),
            f"{backend}, mask and score mod": lambda: modded(q, k, v),
        }

    return in_turn("aot_eager") | in_turn("inductor")


def microseconds(call: Callable, count: int) -> float:
    begin = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - begin) / count * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--compile", action="store_true", help="also inside torch.compile")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--count", type=int, default=300, help="calls per round")
    parser.add_argument("--only", default="", help="calls whose name contains this")
    given = parser.parse_args()
    torch.set_num_threads(1)
    calls = torch_calls() | training_calls() | numpy_calls() | (compiled_calls() if given.compile else {})
    calls = {name: call for name, call in calls.items() if given.only in name}
    for call in calls.values():  # compiles
        for _ in range(20):
            call()
    best = {name: min(microseconds(call, given.count) for _ in range(1)) for name, call in calls.items()}
    for _ in range(given.rounds):
        for name, call in calls.items():
            best[name] = min(best[name], microseconds(call, given.count))
    for name, time_ in best.items():
        print(f"{name:32} {time_:8.1f} us")


if __name__ == "__main__":
    main()
