"""What is compared: one attention problem per case, as mods."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Callable, Optional

import torch


@dataclass
class Case:
    name: str
    kind: str  # forward, backward, mask
    length: int = 2048
    dim: int = 64
    heads: int = 8
    key_heads: Optional[int] = None  # as many as heads
    queries: Optional[int] = None  # as many as keys
    dtype: torch.dtype = torch.float32
    score_mod: Optional[Callable] = None
    mask_mod: Optional[Callable] = None
    is_causal: bool = False
    for_sdpa: bool = True  # as a dense mask, if nothing better

    @property
    def rounding(self) -> float:
        return 2e-4 if self.dtype == torch.float32 else 2e-2

    @property
    def backward(self) -> bool:
        return self.kind == "backward"

    def dense_mask(self) -> torch.Tensor:
        """[heads, length, length]: bool, or the bias of a score mod that only adds."""
        h = torch.arange(self.heads).view(-1, 1, 1) if self.score_mod else torch.zeros(1, 1, 1, dtype=torch.long)
        q = torch.arange(self.length).view(1, -1, 1)
        kv = torch.arange(self.length).view(1, 1, -1)
        shown = self.mask_mod(0, h, q, kv) if self.mask_mod else torch.ones(1, self.length, self.length, dtype=torch.bool)
        if self.score_mod is None:
            return shown.expand(1, self.length, self.length)
        bias = self.score_mod(torch.zeros(()), 0, h, q, kv)
        return torch.where(shown, bias, -math.inf)


def causal(b, h, q, kv):
    return q >= kv


def window(b, h, q, kv):
    return (q >= kv) & (q - kv < 1024)


def strided(b, h, q, kv):
    return (q >= kv) & ((q - kv) % 128 == 0)


def local_or_strided(b, h, q, kv):
    return (q >= kv) & ((q - kv < 128) | ((q - kv) % 128 == 0))


def fixed(b, h, q, kv):
    return (q >= kv) & ((q // 128 == kv // 128) | (kv % 128 >= 120))


def soft_cap(score, b, h, q, kv):
    return 20.0 * torch.tanh(score / 20.0)


def alibi(heads: int) -> Callable:
    slopes = torch.exp2(-8.0 * torch.arange(1, heads + 1) / heads)
    return lambda score, b, h, q, kv: score + slopes[h] * (kv - q)


def documents(length: int, count: int) -> Callable:
    ends = torch.randint(1, length, (count - 1,), generator=torch.Generator().manual_seed(2)).sort()[0]
    number = torch.bucketize(torch.arange(length), ends, right=True)
    return lambda b, h, q, kv: (number[q] == number[kv]) & (q >= kv)


def decode(name: str, dtype: torch.dtype, length: int = 8192, queries: int = 1, key_heads: int = 32) -> Case:
    return Case(
        name, "forward", length=length, dim=128, heads=32, key_heads=key_heads, queries=queries, dtype=dtype
    )


def cases() -> list[Case]:
    return [
        Case("full, D 64", "forward"),
        Case("full, D 128", "forward", dim=128),
        Case("causal, D 64", "forward", mask_mod=causal, is_causal=True),
        Case("window 1024, S 4096", "forward", length=4096, mask_mod=window),
        Case("16 documents, S 8192", "forward", length=8192, mask_mod=documents(8192, 16)),
        Case("ALiBi, causal", "forward", score_mod=alibi(8), mask_mod=causal),
        Case("soft-cap 20", "forward", score_mod=soft_cap, for_sdpa=False),
        Case("strided 128, S 4096", "forward", length=4096, mask_mod=strided),
        Case("local or strided 128, S 4096", "forward", length=4096, mask_mod=local_or_strided),
        Case("fixed 128, S 4096", "forward", length=4096, mask_mod=fixed),
        decode("decode, f32", torch.float32),
        decode("decode, bf16", torch.bfloat16),
        decode("decode, bf16, 8 key heads, S 16384", torch.bfloat16, length=16384, key_heads=8),
        decode("decode, bf16, 4 queries", torch.bfloat16, queries=4),
        Case("backward, full, D 64", "backward"),
        Case("backward, full, D 128", "backward", dim=128),
        Case("backward, causal, D 64", "backward", mask_mod=causal, is_causal=True),
        Case("backward, window 1024, S 4096", "backward", length=4096, mask_mod=window),
        Case("block mask, causal, S 16384", "mask", length=16384, mask_mod=causal),
    ]
