"""ALiBi: a penalty that grows with distance, with a slope of its own for every head, all of which are learned."""

import torch
from treadle.torch import create_block_mask, flex_attention

torch.manual_seed(0)
heads, length = 8, 512
q, k, v = (torch.randn(2, heads, length, 64) for _ in range(3))
slopes = torch.exp2(-8.0 * torch.arange(1, heads + 1) / heads).requires_grad_()


def alibi(score, b, h, q, kv):
    return score + slopes[h] * (kv - q)


causal = create_block_mask(lambda b, h, q, kv: q >= kv, None, None, length, length)
out = flex_attention(q, k, v, alibi, causal)
out.sum().backward()
print("slopes  ", " ".join(f"{x:8.4f}" for x in slopes.tolist()))
print("gradient", " ".join(f"{x:8.2f}" for x in slopes.grad.tolist()))
assert torch.isfinite(slopes.grad).all()
