"""A table of relative biases, learned on a CPU: it finds the table that made the targets."""

import torch
from treadle.torch import flex_attention

torch.manual_seed(0)
heads, length, reach = 2, 64, 8
q, k, v = (torch.randn(4, heads, length, 16) for _ in range(3))


def biased(table):
    def score_mod(score, b, h, q, kv):
        return score + table[h, torch.clamp(q - kv, -reach, reach) + reach]

    return score_mod


teacher = torch.randn(heads, 2 * reach + 1)
target = flex_attention(q, k, v, biased(teacher))

table = torch.zeros(heads, 2 * reach + 1, requires_grad=True)
optimizer = torch.optim.Adam([table], lr=0.1)
losses = []
for step in range(101):
    loss = (flex_attention(q, k, v, biased(table)) - target).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    if step % 25 == 0:
        print(f"step {step:3}  loss {losses[-1]:.6f}")
assert losses[-1] < 0.01 * losses[0]
