"""Captured tensors that learn: their gradients against those of the formula."""

import mods
import pytest
import torch
from mods import name
from policy import check_gradients, inputs
from treadle.torch import create_block_mask, flex_attention

B, H, S, D = 2, 4, 48, 16
offset = torch.randint(0, S, (S,), generator=torch.Generator().manual_seed(3))
which = torch.randint(0, 5, (S,), generator=torch.Generator().manual_seed(4))

# name: (shapes of what is learned, the score mod of it)
cases = {
    "relative 1d": ([(2 * S,)], lambda t: lambda s, b, h, q, kv: s + t[torch.abs(q - kv)]),
    "relative signed": ([(2 * S,)], lambda t: lambda s, b, h, q, kv: s + t[q - kv + S]),
    "absolute 2d": ([(S, S)], lambda t: lambda s, b, h, q, kv: s + t[q, kv]),
    "by head": ([(H, S, S)], lambda t: lambda s, b, h, q, kv: s + t[h, q, kv]),
    "by batch and head": ([(B, H, S, S)], lambda t: lambda s, b, h, q, kv: s + t[b, h, q, kv]),
    "multiplicative": ([(S, S)], lambda t: lambda s, b, h, q, kv: s * t[q, kv]),
    "local window": ([(9,)], lambda t: lambda s, b, h, q, kv: s + t[torch.clamp(q - kv, -4, 4) + 4]),
    "global tokens": ([(S,)], lambda t: lambda s, b, h, q, kv: s + t[kv]),
    "weird": ([(B, H, 4, S)], lambda t: lambda s, b, h, q, kv: s + t[b, h, 0, q]),
    "indirect": ([(S,)], lambda t: lambda s, b, h, q, kv: s + t[offset[q]]),
    "indirect twice": ([(5, 5)], lambda t: lambda s, b, h, q, kv: s + t[which[q], which[kv]]),
    "symmetric": ([(S, S)], lambda t: lambda s, b, h, q, kv: s + t[q, kv] + t[kv, q]),
    "flipped": ([(S, S)], lambda t: lambda s, b, h, q, kv: s + t[kv, q]),
    "head gate": ([(H,)], lambda t: lambda s, b, h, q, kv: s * torch.sigmoid(t[h])),
    "head gate of the weight": ([(H,)], lambda t: lambda s, b, h, q, kv: s + torch.log(torch.sigmoid(t[h]))),
    "head bias": ([(H,)], lambda t: lambda s, b, h, q, kv: s + t[h] * (kv - q)),
    "distinct": ([(S,), (H, S)], lambda t, u: lambda s, b, h, q, kv: s + t[q] * u[h, kv]),
    "twice": ([(S,)], lambda t: lambda s, b, h, q, kv: s + t[q] * t[kv]),
    "scalar": ([()], lambda t: lambda s, b, h, q, kv: s * t),
    "scalar with index": ([()], lambda t: lambda s, b, h, q, kv: s + torch.exp(t) * (kv - q)),
    "one element": ([(1,)], lambda t: lambda s, b, h, q, kv: s * t[0]),
    "chained": ([(H, S)], lambda t: lambda s, b, h, q, kv: s + t[h][q]),
    "chained of three": ([(H, S, S)], lambda t: lambda s, b, h, q, kv: s + t[h][q][kv]),
    "chained, unequal": ([(H, 2 * S)], lambda t: lambda s, b, h, q, kv: s + t[h][q + kv]),
    "transposed": ([(S, H)], lambda t: lambda s, b, h, q, kv: s + t.t()[h, q]),
    "3d transposed": ([(H, S, S)], lambda t: lambda s, b, h, q, kv: s + t.transpose(1, 2)[h, q, kv]),
    "negative": ([(2 * S,)], lambda t: lambda s, b, h, q, kv: s + t[q - kv]),
    "soft-cap": ([()], lambda t: lambda s, b, h, q, kv: t * torch.tanh(s / t)),
    "gaussian": ([(H,)], lambda t: lambda s, b, h, q, kv: s - (q - kv) ** 2 * torch.nn.functional.softplus(t[h])),
    "where": ([(S,)], lambda t: lambda s, b, h, q, kv: torch.where(q > kv, s + t[kv], s * t[q])),
}  # fmt: skip


def learned(shapes, dtype):
    return [(torch.randn(s, dtype=torch.float64) * 0.5 + 0.5).to(dtype) for s in shapes]


@pytest.mark.parametrize("case", cases)
def test_float32(case):
    shapes, make = cases[case]
    few = any(len(s) == 0 for s in shapes)  # errors of one number do not average out
    check_gradients(*inputs(B, H, S, D), make, None, learned(shapes, torch.float32), fudge=10 if few else 3)


@pytest.mark.parametrize("case", ["relative 1d", "by head", "head gate", "scalar", "symmetric", "chained", "negative"])
def test_float64_masked(case):
    shapes, make = cases[case]
    check_gradients(
        *inputs(B, H, S, D, dtype=torch.float64), make, mods.causal_mask, learned(shapes, torch.float64), fudge=4
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=name)
@pytest.mark.parametrize("case", ["relative 1d", "absolute 2d", "head bias", "distinct", "scalar"])
def test_16_bit(case, dtype):
    """Sums are taken in float32 and rounded once."""
    shapes, make = cases[case]
    check_gradients(*inputs(B, H, S, D, dtype=dtype), make, mods.causal_mask, learned(shapes, dtype), fudge=1.35)


def test_grouped_queries():
    shapes, make = cases["by head"]
    q, k, v = inputs(B, H, S, D, Hkv=2)
    check_gradients(q, k, v, make, mods.causal_mask, learned(shapes, torch.float32), enable_gqa=True, fudge=3)


def test_only_the_bias_learns():
    q, k, v = inputs(B, H, S, D)
    table = torch.randn(2 * S, requires_grad=True)
    flex_attention(q, k, v, lambda s, b, h, q, kv: s + table[q - kv + S]).sum().backward()
    assert table.grad is not None and q.grad is None


def test_of_two_captures_one_learns():
    q, k, v = inputs(B, H, S, D)
    fixed, table = torch.randn(H), torch.randn(S, requires_grad=True)
    flex_attention(q, k, v, lambda s, b, h, q, kv: s * fixed[h] + table[kv]).sum().backward()
    assert table.grad is not None and fixed.grad is None


def test_gradients_reach_what_a_bias_is_made_of():
    small = torch.randn(H, 8, requires_grad=True)
    q, k, v = inputs(B, H, S, D)

    def run(attend_bias):
        out = flex_attention(q, k, v, lambda s, b, h, q, kv: s + attend_bias[h, q, kv])
        return torch.autograd.grad(out.square().sum(), small)[0]

    made = torch.einsum("hi,hj->hij", small.repeat(1, 6), small.repeat(1, 6))
    got = run(made)
    assert got.shape == small.shape and got.abs().sum() > 0


def test_views_of_a_parameter_made_in_the_mod():
    table = torch.randn(S, H, requires_grad=True)
    q, k, v = inputs(B, H, S, D)
    results = []
    for mod in (
        lambda s, b, h, q, kv: s + table.t()[h, q] * table[kv, 0],
        lambda s, b, h, q, kv: s + table[q, h] * table[kv, 0],
    ):
        results += torch.autograd.grad(flex_attention(q, k, v, mod).square().sum(), table)
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", ["1d", "2d", "transposed"])
def test_no_worse_than_sdpa(case):
    """A bias made dense for SDPA learns the same."""
    q, k, v = inputs(B, H, S, D)
    at_q, at_kv = torch.arange(S)[:, None], torch.arange(S)
    table = torch.randn((S, S) if case != "1d" else (2 * S,), requires_grad=True)
    if case == "1d":
        mod, make_dense = (lambda s, b, h, q, kv: s + table[q - kv + S]), (lambda t: t[at_q - at_kv + S])
    elif case == "2d":
        mod, make_dense = (lambda s, b, h, q, kv: s + table[q, kv]), (lambda t: t)
    else:
        mod, make_dense = (lambda s, b, h, q, kv: s + table.T[q, kv]), (lambda t: t.T)

    def sdpa(convert):
        t = convert(table.detach()).clone().requires_grad_()
        out = torch.nn.functional.scaled_dot_product_attention(
            *(convert(x) for x in (q, k, v)), attn_mask=make_dense(t).expand(B, H, S, S)
        )
        return torch.autograd.grad(out, t, convert(dout))[0]

    dout = torch.randn_like(q)
    got = torch.autograd.grad(flex_attention(q, k, v, mod), table, dout)[0]
    gold, theirs = sdpa(lambda t: t.double()), sdpa(lambda t: t)
    rms = (got.double() - gold).square().mean().sqrt()
    few_roundings = 1e-6 * gold.abs().mean()
    assert rms <= max(1.2 * (theirs.double() - gold).square().mean().sqrt(), few_roundings)


def test_same_bits_each_time():
    """Sums of a bias are taken in a fixed order."""
    q, k, v = inputs(B, H, 200, D, requires_grad=True)
    table = torch.randn(400, requires_grad=True)
    mask = create_block_mask(mods.causal_mask, None, None, 200, 200)

    def run():
        out = flex_attention(q, k, v, lambda s, b, h, q, kv: s + table[q - kv + 200], mask)
        return torch.autograd.grad(out.square().sum(), (q, k, v, table))

    first = run()
    for _ in range(3):
        assert all(torch.equal(a, b) for a, b in zip(first, run()))


def test_expanded_parameter():
    one = torch.randn(1, S, requires_grad=True)
    wide = one.expand(H, S)
    q, k, v = inputs(B, H, S, D)
    results = []
    for mod in (lambda s, b, h, q, kv: s + wide[h, kv], lambda s, b, h, q, kv: s + one[0, kv]):
        results += torch.autograd.grad(flex_attention(q, k, v, mod).square().sum(), one)
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)


def test_frozen_and_thawed():
    table = torch.randn(S)
    q, k, v = inputs(B, H, S, D)

    def mod(score, b, h, q, kv):
        return score + table[kv]

    assert not flex_attention(q, k, v, mod).requires_grad
    table.requires_grad_()
    assert flex_attention(q, k, v, mod).requires_grad
