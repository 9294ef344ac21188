"""Packed documents: many short sequences in one long row, none of which sees another."""

import time

import torch
from treadle.torch import create_block_mask, flex_attention

torch.manual_seed(0)
length = 8192
ends = torch.sort(torch.randint(1, length, (15,)))[0]
document = torch.bucketize(torch.arange(length), ends, right=True)
q, k, v = (torch.randn(1, 4, length, 64) for _ in range(3))


def same_document(b, h, q, kv):
    return (document[q] == document[kv]) & (q >= kv)


start = time.perf_counter()
mask = create_block_mask(same_document, None, None, length, length)
print(f"mask of {length} x {length} pairs made in {1e6 * (time.perf_counter() - start):.0f} us")

flex_attention(q, k, v, block_mask=mask)  # compiles, and works the layout out
start = time.perf_counter()
packed = flex_attention(q, k, v, block_mask=mask)
print(f"attention over {len(ends) + 1} documents: {1e3 * (time.perf_counter() - start):.1f} ms")

# Alone, a document gives the same.
begin, end = ends[3].item(), ends[4].item()
alone = torch.nn.functional.scaled_dot_product_attention(
    *(x[:, :, begin:end] for x in (q, k, v)), is_causal=True
)
difference = (packed[:, :, begin:end] - alone).abs().max().item()
print(f"document 4, {end - begin} tokens, alone: differs by {difference:.0e}")
assert difference < 1e-5
