"""Attention to chosen blocks of keys, as in MoBA and NSA: each block of queries scores the blocks of keys by their means
and attends to the best ones alone, forward and backward."""

import torch

from treadle.torch import create_key_mask, flex_attention

heads, length, dim, block, kept = 2, 1024, 32, 64, 4
blocks = length // block
generator = torch.Generator().manual_seed(0)
q, k, v = (torch.randn(1, heads, length, dim, generator=generator, requires_grad=True) for _ in range(3))


def causal(b, h, q, kv):
    return q >= kv


def means(x):
    return x.detach().view(1, heads, blocks, block, dim).mean(3)


scores = means(q) @ means(k).transpose(-1, -2)
scores = scores.masked_fill(torch.ones(blocks, blocks).triu(1).bool(), -torch.inf)
scores = scores + 1e6 * torch.eye(blocks)  # a block always sees itself
top = scores.topk(kept, dim=-1)
counts = (top.values > -torch.inf).sum(-1)  # the first blocks have fewer to choose from

mask = create_key_mask(
    top.indices, counts, lengths=(length, length), query_block=block, key_block=block, mask_mod=causal
)
out = flex_attention(q, k, v, block_mask=mask)
out.square().sum().backward()

# The same, dense.
listed = torch.zeros(1, heads, blocks, blocks, dtype=torch.bool)
for h in range(heads):
    for i in range(blocks):
        listed[0, h, i, top.indices[0, h, i, : counts[0, h, i]]] = True
visible = listed.repeat_interleave(block, 2).repeat_interleave(block, 3) & torch.ones(length, length).tril().bool()
expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=visible)
torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
print(f"top {kept} of {blocks} blocks: {visible.float().mean():.1%} of all pairs, the same as with a dense mask")
