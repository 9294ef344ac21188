"""The patterns of the Sparse Transformer: strided and fixed, at the grain of single keys."""

import time

import torch
from treadle.torch import create_block_mask, flex_attention

torch.manual_seed(0)
length, stride = 2048, 64
q, k, v = (torch.randn(1, 4, length, 64) for _ in range(3))


def strided(b, h, q, kv):
    return (q >= kv) & ((q - kv) % stride == 0)


def fixed(b, h, q, kv):
    return (q >= kv) & ((q // stride == kv // stride) | (kv % stride >= stride - 4))


def best_ms(attend):
    attend()
    times = []
    for _ in range(5):
        start = time.perf_counter()
        attend()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


full = best_ms(lambda: flex_attention(q, k, v))
print(f"full     {full:7.2f} ms")
for pattern in (strided, fixed):
    mask = create_block_mask(pattern, None, None, length, length)
    ms = best_ms(lambda: flex_attention(q, k, v, block_mask=mask))
    print(f"{pattern.__name__:8} {ms:7.2f} ms, blocks of 128 would skip {mask.sparsity():.0f} %")
