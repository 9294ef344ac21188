"""Rows of captured tensors in mods: reduced to a number, with gradients, or refused."""

import pytest
import torch
import treadle
from policy import dense
from treadle.torch import create_block_mask, flex_attention

torch.manual_seed(7)
S = 40
means = torch.randn(S, 3, dtype=torch.float64)
table = torch.randn(2, S, 5, dtype=torch.float64)
weights = torch.rand(3, dtype=torch.float64)
chosen = torch.rand(S, 4) > 0.5
codes = torch.randint(0, 6, (S, 4))


def inputs():
    return [torch.randn(1, 2, S, 8, dtype=torch.float64, requires_grad=True) for _ in range(3)]


score_mods = {
    "distance": lambda s, b, h, q, kv: s - ((means[q] - means[kv]).pow(2).sum(-1) + 0.1).sqrt(),
    "operators": lambda s, b, h, q, kv: s - ((means[q] - 2 * means[kv]) ** 2 / 3 + 1.0).sum(),
    "a number and a row": lambda s, b, h, q, kv: s + (s * means[q]).sum(-1) - (q - means[kv]).mean(-1) * 0.1,
    "dot": lambda s, b, h, q, kv: s + torch.dot(means[q], means[kv]),
    "weighted": lambda s, b, h, q, kv: s + (means[q] * weights).sum(-1) + torch.dot(means[kv], weights),
    "two indices": lambda s, b, h, q, kv: s + (table[h, q] * table[h, kv]).sum(dim=-1),
    "row by row": lambda s, b, h, q, kv: s + torch.sum(table[h][q] - table[h][kv], -1),
    "extremes": lambda s, b, h, q, kv: s + means[q].amax(-1) - torch.amin(means[kv], -1),
    "extremes of all": lambda s, b, h, q, kv: s + means[q].max() - means[kv].min(),
    "of two rows": lambda s, b, h, q, kv: s + torch.maximum(means[q], means[kv]).prod(-1),
    "functions": lambda s, b, h, q, kv: s + torch.tanh(means[q] + means[kv]).abs().mean(-1),
    "where": lambda s, b, h, q, kv: s + torch.where(means[q] > means[kv], means[q], 0.5).sum(-1),
    "norm": lambda s, b, h, q, kv: s - torch.linalg.vector_norm(means[q] + means[kv] + 0.1, dim=-1),
    "elements": lambda s, b, h, q, kv: s + means[q][0] * means[kv][-1] + (means[q] * 2)[1],
    "parts": lambda s, b, h, q, kv: s + (means[q] * 2)[:2].sum(-1),
    "kept": lambda s, b, h, q, kv: s + (means[q] / (means[q].abs().sum(-1, keepdim=True) + 1)).sum(-1),
}


@pytest.mark.parametrize("name", score_mods)
def test_scores(name):
    tensors = inputs()
    learned = [means, table, weights]
    results = []
    for t in learned:
        t.requires_grad_()
    for attention in (flex_attention, lambda *args: dense(*args)[0]):
        for t in (*tensors, *learned):
            t.grad = None
        out = attention(*tensors, score_mods[name])
        (out * torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view(out.shape)).sum().backward()
        results.append([out.detach(), *[torch.zeros_like(t) if t.grad is None else t.grad for t in (*tensors, *learned)]])
    for t in learned:
        t.requires_grad_(False)
    for a, b in zip(*results):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)


masks = {
    "any": lambda b, h, q, kv: (chosen[q] & chosen[kv]).any(-1) | (q == kv),
    "all": lambda b, h, q, kv: (chosen[q] | ~chosen[kv]).all(dim=-1) | (q == kv),
    "a number among some": lambda b, h, q, kv: (codes[q] == (kv % 6).unsqueeze(-1)).any(-1) | (q == kv),
    "count": lambda b, h, q, kv: ((codes[q] == codes[kv]).sum(-1) >= 1) | (q == kv),
}


@pytest.mark.parametrize("name", masks)
def test_masks(name):
    q, k, v = inputs()
    out = flex_attention(q, k, v, block_mask=create_block_mask(masks[name], None, None, S, S))
    i, j = torch.meshgrid(torch.arange(S), torch.arange(S), indexing="ij")
    zero = torch.zeros((), dtype=torch.int64)
    visible = torch.stack([torch.stack([masks[name](zero, zero, a, b) for a, b in zip(*row)]) for row in zip(i, j)])
    scores = (q @ k.transpose(-1, -2) / 8**0.5).masked_fill(~visible, -torch.inf)
    torch.testing.assert_close(out, torch.softmax(scores, -1) @ v)


def test_inside_a_compiled_function():
    torch._dynamo.reset()
    q, k, v = inputs()
    wanted = flex_attention(q, k, v, score_mods["distance"])
    compiled = torch.compile(flex_attention, fullgraph=True, backend="eager")
    assert torch.equal(compiled(q, k, v, score_mods["distance"]), wanted)


long = torch.randn(S, 65)
refused = {
    "score_mod returned a row of 3 values": lambda s, b, h, q, kv: s + means[q],
    "a row of 65 elements": lambda s, b, h, q, kv: s + long[q].sum(-1),
    "rows of 3 and 5 values": lambda s, b, h, q, kv: s + (means[q] + table[h, kv]).sum(-1),
    "over dimension 1": lambda s, b, h, q, kv: s + means[q].sum(1),
    "used with 1 indices": lambda s, b, h, q, kv: s + (table[h] * 2).sum(),
    "use amax": lambda s, b, h, q, kv: s + means[q].max(-1)[0],
    "another dimension": lambda s, b, h, q, kv: s + means[q].unsqueeze(0).sum(-1),
    "uses .sort": lambda s, b, h, q, kv: s + means[q].sort()[0].sum(),
    "has no truth": lambda s, b, h, q, kv: s if means[q] > 0 else -s,
    "takes a row": lambda s, b, h, q, kv: torch.sum(s),
}


@pytest.mark.parametrize("says", refused)
def test_refused(says):
    q, k, v = inputs()
    with pytest.raises(treadle.TraceError, match=says):
        flex_attention(q, k, v, refused[says])
