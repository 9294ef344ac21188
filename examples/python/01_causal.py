"""Causal attention, and a training step through it."""

import torch
from treadle.torch import create_block_mask, flex_attention

torch.manual_seed(0)
q, k, v = (torch.randn(1, 4, 256, 32, requires_grad=True) for _ in range(3))

causal = create_block_mask(lambda b, h, q, kv: q >= kv, None, None, 256, 256)
out = flex_attention(q, k, v, block_mask=causal)
out.square().mean().backward()

print(causal)
print("out", tuple(out.shape), "dq", tuple(q.grad.shape))

same = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
difference = (out - same).abs().max().item()
print(f"torch's own differs by {difference:.0e}")
assert difference < 1e-5
