"""torch.nn.functional's pointwise functions in score mods: values and gradients, also where pieces of a function meet."""

import pytest
import torch
import torch.nn.functional as F

from treadle.torch import flex_attention

number = torch.tensor(0.5, dtype=torch.float64)
functions = {
    **{
        name: getattr(F, name)
        for name in "logsigmoid relu relu6 hardtanh hardswish hardsigmoid mish selu celu elu softsign tanhshrink softshrink "
        "hardshrink leaky_relu gelu silu softplus sigmoid tanh".split()
    },
    "hardtanh with limits": lambda s: F.hardtanh(s, -3.0, 0.5),
    "celu with alpha": lambda s: F.celu(s, alpha=2.0),
    "softshrink with lambd": lambda s: F.softshrink(s, 1.0),
    "threshold": lambda s: F.threshold(s, 0.5, 0.25),
    "prelu": lambda s: F.prelu(s, torch.tensor(0.25, dtype=torch.float64)),
    "clamp": lambda s: s.clamp(-1, 3),
    "clamp, one limit": lambda s: torch.clamp(s, max=3) + s.clamp(min=0.5),
    "clamp_min, clamp_max": lambda s: s.clamp_min(-1.0) + torch.clamp_max(s, 4),
    "maximum": lambda s: torch.maximum(s, number) + torch.minimum(s, number),
    "abs": lambda s: abs(s),
}

# Limits of all of the functions, and numbers beside them. Logits stay near each other, so that every key has a weight that
# its gradient shows.
limits = torch.tensor([-25.0, -4, -3, -1, -0.5, -0.1, 0, 0.1, 0.5, 1, 3, 4, 6, 7, 25], dtype=torch.float64)


def attended(attention, function):
    query = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    key = limits.view(1, 1, -1, 1).clone().requires_grad_()
    value = torch.linspace(-1, 2, limits.numel(), dtype=torch.float64).view(1, 1, -1, 1)
    out = attention(query, key, value, lambda s: function(s) * 0.1)
    out.sum().backward()
    return out.detach(), key.grad


@pytest.mark.parametrize("name", functions)
def test_values_and_gradients_are_torchs(name):
    def dense(q, k, v, f):
        return torch.softmax(f(q @ k.transpose(-1, -2)), -1) @ v

    def fused(q, k, v, f):
        return flex_attention(q, k, v, lambda s, b, h, i, j: f(s), scale=1.0)

    out, dkey = attended(fused, functions[name])
    wanted_out, wanted_dkey = attended(dense, functions[name])
    assert torch.allclose(out, wanted_out, rtol=1e-9, atol=1e-9)
    assert torch.allclose(dkey, wanted_dkey, rtol=1e-9, atol=1e-9), (dkey - wanted_dkey).flatten()


@pytest.mark.parametrize("name", functions)
def test_a_nan_stays_one(name):
    if name in ("gelu", "abs") or "clamp" in name or functions[name](torch.tensor(float("nan"), dtype=torch.float64)).isnan():
        x = torch.full((1, 1, 1, 1), float("nan"), dtype=torch.float64)
        assert flex_attention(x, x, torch.ones_like(x), lambda s, b, h, i, j: functions[name](s)).isnan().all()


def test_a_limit_learns():
    limit = torch.tensor([0.5, 3.0], dtype=torch.float64, requires_grad=True)
    fused, dense = [], []
    for to, attention in (
        (fused, lambda q, k, v, f: flex_attention(q, k, v, lambda s, b, h, i, j: f(s), scale=1.0)),
        (dense, lambda q, k, v, f: torch.softmax(f(q @ k.transpose(-1, -2)), -1) @ v),
    ):
        limit.grad = None
        attended(attention, lambda s: torch.clamp(s, min=limit[0], max=limit[1]))
        to.append(limit.grad.clone())
    assert torch.allclose(fused[0], dense[0], rtol=1e-9, atol=1e-9)
