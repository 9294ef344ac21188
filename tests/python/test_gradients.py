"""Gradients of q, k and v, and where they come from and go."""

import math
import sys

import mods
import pytest
import torch
import torch.nn.attention.flex_attention as torch_flex
from mods import name
from policy import check_gradients, close, dense, inputs, of_torch, of_treadle
from torch.utils.checkpoint import checkpoint
from treadle.torch import AuxRequest, create_block_mask, flex_attention

gradcheck_mods = [mods.identity, mods.causal, mods.times_two, mods.squared, mods.trig, mods.trig2]


def tiny(**options):
    return inputs(2, 2, 11, 4, dtype=torch.float64, requires_grad=True, **options)


@pytest.mark.parametrize("score_mod", gradcheck_mods, ids=name)
def test_gradcheck(score_mod):
    assert torch.autograd.gradcheck(lambda q, k, v: flex_attention(q, k, v, score_mod), tiny(), raise_exception=True)


def test_gradcheck_of_a_capture():
    gain = torch.randn(2, dtype=torch.float64, requires_grad=True)

    def run(q, k, v, gain):
        return flex_attention(q, k, v, lambda s, b, h, q, kv: s * gain[h])

    assert torch.autograd.gradcheck(run, (*tiny(), gain))


@pytest.mark.parametrize("score_mod", [mods.identity, mods.causal, mods.squared], ids=name)
def test_gradcheck_of_lse(score_mod):
    def run(q, k, v):
        return flex_attention(q, k, v, score_mod, return_aux=AuxRequest(lse=True))[1].lse

    assert torch.autograd.gradcheck(run, tiny())


def test_gradcheck_of_both():
    mask = create_block_mask(mods.causal_mask, None, None, 11, 11)

    def run(q, k, v):
        out, aux = flex_attention(q, k, v, mods.trig, mask, return_aux=AuxRequest(lse=True))
        return out, aux.lse

    assert torch.autograd.gradcheck(run, tiny())


def test_gradcheck_of_grouped_queries():
    q, k, v = inputs(2, 4, 7, 3, Hkv=2, Dv=5, KV=9, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda *t: flex_attention(*t, mods.squared, enable_gqa=True), (q, k, v))


@pytest.mark.parametrize("dtype", mods.dtypes, ids=name)
@pytest.mark.parametrize("score_mod", mods.score_mods, ids=name)
def test_score_mods(score_mod, dtype):
    check_gradients(*inputs(Q=64, dtype=dtype), lambda: score_mod)


@pytest.mark.parametrize("mask_mod", mods.mask_mods, ids=name)
def test_masks(mask_mod):
    check_gradients(*inputs(Q=100, D=32), lambda: mods.alibi, mask_mod)


@pytest.mark.parametrize("lengths", [(33, 100), (100, 33), (1, 60)], ids=str)
def test_lengths(lengths):
    check_gradients(*inputs(Q=lengths[0], KV=lengths[1]), lambda: mods.alibi)


@pytest.mark.parametrize("dtype", mods.dtypes, ids=name)
def test_gradient_of_lse(dtype):
    check_gradients(*inputs(dtype=dtype), lambda: mods.squared, mods.causal_mask, dlse=True)


def test_gradient_of_lse_alone():
    q, k, v = inputs(dtype=torch.float64, requires_grad=True)
    lse = flex_attention(q, k, v, mods.squared, return_aux=AuxRequest(lse=True))[1].lse
    seed = torch.randn_like(lse)
    got = torch.autograd.grad(lse, (q, k, v), seed, materialize_grads=True)
    gold = torch.autograd.grad(dense(q, k, v, mods.squared)[1], (q, k, v), seed, materialize_grads=True)
    for a, b in zip(got, gold):
        torch.testing.assert_close(a, b)


def relative(b):
    return lambda s, _, h, q, kv: s + b[h, q - kv + 40]


@pytest.mark.parametrize("case", ["plain", "causal", "squared masked", "capture", "lse"])
def test_against_torch(case, gradients_of_torch):
    """The formula that other tests compare with is torch's: here both, and Treadle, in float64."""
    q, k, v = inputs(1, 2, 40, 8, dtype=torch.float64, requires_grad=True)
    table = torch.randn(2, 80, dtype=torch.float64, requires_grad=True)
    score_mod, mask_mod, lse, leaves = {
        "plain": (None, None, False, (q, k, v)),
        "causal": (mods.causal, None, False, (q, k, v)),
        "squared masked": (mods.squared, mods.causal_mask, False, (q, k, v)),
        "capture": (relative(table), mods.causal_mask, False, (q, k, v, table)),
        "lse": (mods.times_two, mods.causal_mask, True, (q, k, v)),
    }[case]
    dout, drows = torch.randn_like(q), torch.randn_like(q[..., 0])

    def gradients(out, rows):
        roots, seeds = ((out, rows), (dout, drows)) if lse else ((out,), (dout,))
        return torch.autograd.grad(roots, leaves, seeds)

    out, aux = of_torch(q, k, v, score_mod, mask_mod, return_aux=torch_flex.AuxRequest(lse=True))
    theirs = gradients(out, aux.lse)
    out, aux = of_treadle(q, k, v, score_mod, mask_mod, return_aux=AuxRequest(lse=True))
    ours = gradients(out, aux.lse)
    formula = gradients(*dense(q, k, v, score_mod, mask_mod))
    for a, b, c in zip(ours, theirs, formula):
        torch.testing.assert_close(a, b)
        torch.testing.assert_close(c, b)


def test_mixed_types():
    """Each gradient has the type of what it is of."""
    q, k, v = inputs()
    q, k, v = q.requires_grad_(), k.bfloat16().requires_grad_(), v.half().requires_grad_()
    got = torch.autograd.grad(flex_attention(q, k, v, mods.alibi).sum(), (q, k, v))
    wide = [t.detach().double().requires_grad_() for t in (q, k, v)]
    gold = torch.autograd.grad(dense(*wide, mods.alibi)[0].sum(), wide)
    for t, a, b in zip((q, k, v), got, gold):
        assert a.dtype == t.dtype
        torch.testing.assert_close(a.double(), b, rtol=2e-2, atol=2e-2)


def test_only_what_requires_grad():
    for which in range(3):
        tensors = inputs()
        tensors[which].requires_grad_()
        flex_attention(*tensors, mods.alibi).sum().backward()
        assert [t.grad is not None for t in tensors] == [i == which for i in range(3)]


def test_poisoned_bias():
    """NaN where the mask hides: neither results nor gradients see it."""
    table = torch.randn(4, 70, 70)
    table[:, torch.ones(70, 70).triu(1).bool()] = float("nan")
    q, k, v = inputs(requires_grad=True)
    table.requires_grad_()
    mask = create_block_mask(mods.causal_mask, None, None, 70, 70)
    out = flex_attention(q, k, v, lambda s, b, h, q, kv: s + table[h, q, kv], mask)
    got = torch.autograd.grad(out.square().sum(), (q, k, v, table))
    assert not out.isnan().any() and not any(g.isnan().any() for g in got)
    assert got[3][:, torch.ones(70, 70).triu(1).bool()].count_nonzero() == 0


def test_poisoned_forward():
    """1/score is infinite where a score is 0; masked there."""
    q, k, v = (t.abs() for t in inputs())
    k[:, :, 35:] = 0
    check_gradients(q, k, v, lambda: lambda s, b, h, q, kv: 1 / s, lambda b, h, q, kv: kv < 35)


def test_poisoned_backward():
    """The derivative of log is infinite at 0; masked there."""
    q, k, v = (t.abs() for t in inputs())
    k[:, :, 35:] = 0
    check_gradients(q, k, v, lambda: lambda s, b, h, q, kv: torch.log(s), lambda b, h, q, kv: kv < 35)


def test_poisoned_backward_of_a_learned_root():
    """torch gives NaN here where sqrt's derivative is infinite at a hidden pair."""
    table = torch.arange(70.0).requires_grad_()
    q, k, v = inputs()
    mask = create_block_mask(lambda b, h, q, kv: kv > 0, None, None, 70, 70)
    flex_attention(q, k, v, lambda s, b, h, q, kv: s + table[kv].sqrt(), mask).sum().backward()
    assert table.grad.isfinite().all() and table.grad[0] == 0


def test_no_grad():
    q, k, v = inputs(requires_grad=True)
    with torch.no_grad():
        out = flex_attention(q, k, v, mods.alibi)
    assert not out.requires_grad
    assert torch.equal(out, flex_attention(q, k, v, mods.alibi))


def test_inference_mode():
    visible = torch.rand(70) > 0.3
    q, k, v = inputs()
    plain = flex_attention(q, k, v, mods.alibi)
    with torch.inference_mode():
        out = flex_attention(q, k, v, mods.alibi)
        mask = create_block_mask(lambda b, h, q, kv: visible[kv], None, None, 70, 70)
        masked = flex_attention(q + 0, k + 0, v, None, mask)
        inside = torch.rand(70) > 0.3  # counts no changes
        mask = create_block_mask(lambda b, h, q, kv: inside[kv], None, None, 70, 70)
        flex_attention(q, k, v, None, mask)
    assert torch.equal(out, plain)
    torch.testing.assert_close(masked, dense(q, k, v, None, lambda b, h, q, kv: visible[kv])[0])


def test_detached():
    q, k, v = inputs(requires_grad=True)
    assert not flex_attention(q.detach(), k.detach(), v.detach()).requires_grad


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=name)
def test_autocast(dtype):
    q, k, v = inputs(requires_grad=True)
    with torch.autocast("cpu", dtype=dtype):
        out = flex_attention(q, k, v, mods.alibi)
    assert out.dtype == dtype
    assert torch.equal(out, flex_attention(q.to(dtype), k.to(dtype), v.to(dtype), mods.alibi))
    out.sum().backward()
    assert q.grad.dtype == torch.float32


def test_autocast_leaves_float64():
    q, k, v = inputs(dtype=torch.float64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert flex_attention(q, k, v).dtype == of_torch(q, k, v).dtype


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(reentrant):
    q, k, v = inputs(requires_grad=True)
    bias = torch.randn(4, requires_grad=True)

    def block(q, k, v):
        return flex_attention(q * 2, k, v, lambda s, b, h, q, kv: s + bias[h] * (q - kv))

    plain = torch.autograd.grad(block(q, k, v).square().sum(), (q, k, v, bias))
    out = checkpoint(block, q, k, v, use_reentrant=reentrant).square().sum()
    out.backward()
    for t, p in zip((q, k, v, bias), plain):
        torch.testing.assert_close(t.grad, p)


def test_func_grad():
    q, k, v = inputs(requires_grad=False)
    bias = torch.randn(4)

    def loss(q, bias):
        return flex_attention(q, k, v, lambda s, b, h, q, kv: s + bias[h] * (q - kv)).square().sum()

    dq, dbias = torch.func.grad(loss, argnums=(0, 1))(q, bias)
    q.requires_grad_(), bias.requires_grad_()
    plain = torch.autograd.grad(loss(q, bias), (q, bias))
    torch.testing.assert_close((dq, dbias), plain)


def test_a_step_looks_up_no_signatures():
    """torch does so, in every call, for functions that have a context apart, and torch.func alone needs that."""
    q, k, v = inputs(B=1, H=2, Q=8, D=8, requires_grad=True)
    seen = []

    def look(frame, event, argument):
        if event == "call" and frame.f_globals.get("__name__") == "inspect":
            seen.append(frame.f_code.co_name)

    def step():
        return torch.autograd.grad(flex_attention(q, k, v).sum(), (q, k, v))

    expected = step()
    sys.setprofile(look)
    try:
        got = step()
    finally:
        sys.setprofile(None)
    assert not seen
    for a, b in zip(got, expected):
        assert torch.equal(a, b)


def test_func_vjp():
    q, k, v = inputs()
    out, pull = torch.func.vjp(lambda q, k, v: flex_attention(q, k, v, mods.alibi), q, k, v)
    seed = torch.randn_like(out)
    leaves = [t.clone().requires_grad_() for t in (q, k, v)]
    torch.testing.assert_close(pull(seed), torch.autograd.grad(flex_attention(*leaves, mods.alibi), leaves, seed))


def test_no_second_derivative():
    q, k, v = inputs(requires_grad=True)
    (dq,) = torch.autograd.grad(flex_attention(q, k, v).square().sum(), q, create_graph=True)
    with pytest.raises(NotImplementedError, match="once"):
        dq.sum().backward()


def test_mask_has_no_gradient():
    table = torch.randn(70, requires_grad=True)
    q, k, v = inputs(requires_grad=True)
    mask = create_block_mask(lambda b, h, q, kv: table[kv] > 0, None, None, 70, 70)
    with pytest.raises(AssertionError, match="mask"):
        flex_attention(q, k, v, None, mask)
    with torch.no_grad():
        flex_attention(q, k, v, None, mask)


def test_mask_of_many_captures_has_no_gradient():
    """c1 and c10 are two different captures."""
    learned = torch.randn(70, requires_grad=True)
    others = [torch.randn(70) for _ in range(10)]

    def mod(score, b, h, q, kv):
        score = score + others[0][q] + learned[kv]
        for t in others[1:9]:
            score = score + t[kv]
        return score

    q, k, v = inputs()
    mask = create_block_mask(lambda b, h, q, kv: (others[9][kv] > 0) | (kv == q), None, None, 70, 70)
    flex_attention(q, k, v, mod, mask).sum().backward()
    assert learned.grad is not None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=name)
def test_no_further_from_gold_than_sdpa(dtype):
    q, k, v = inputs(Q=128, D=64, dtype=dtype)
    dout = torch.randn_like(q)

    def gradients(attend, convert):
        leaves = [convert(t).clone().requires_grad_() for t in (q, k, v)]
        return torch.autograd.grad(attend(*leaves), leaves, convert(dout))

    def sdpa(q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    mask = create_block_mask(mods.causal_mask, None, None, 128, 128)
    ours = gradients(lambda q, k, v: flex_attention(q, k, v, None, mask), lambda t: t)
    for a, g, s in zip(ours, gradients(sdpa, lambda t: t.double()), gradients(sdpa, lambda t: t)):
        close(a, g, s, fudge=1.0)


def test_backward_twice():
    q, k, v = inputs(requires_grad=True)
    out = flex_attention(q, k, v, mods.alibi).sum()
    first = torch.autograd.grad(out, (q, k, v), retain_graph=True)
    again = torch.autograd.grad(out, (q, k, v))
    assert all(torch.equal(a, b) for a, b in zip(first, again))


def test_changed_inputs_are_noticed():
    q, k, v = inputs(requires_grad=True)
    bias = torch.randn(4)
    out = flex_attention(q, k, v, lambda s, b, h, q, kv: s * bias[h])
    bias.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_gradient_is_that_of_the_mod_at_the_call():
    """Numbers of a closure may change between forward and backward."""
    q, k, v = inputs(requires_grad=True)
    gain = 2.0

    def mod(score, b, h, q, kv):
        return score * gain

    out = flex_attention(q, k, v, mod)
    expected = torch.autograd.grad(out.sum(), q, retain_graph=True)[0]
    gain = math.pi
    assert torch.equal(torch.autograd.grad(out.sum(), q)[0], expected)


def test_training_step_lowers_the_loss():
    torch.manual_seed(1)
    x, target = torch.randn(2, 24, 32), torch.randn(2, 24, 32)
    project, output = torch.nn.Linear(32, 96), torch.nn.Linear(32, 32)
    slopes = torch.nn.Parameter(torch.zeros(4))
    mask = create_block_mask(mods.causal_mask, None, None, 24, 24)
    optimizer = torch.optim.Adam([*project.parameters(), *output.parameters(), slopes], 1e-2)
    losses = []
    for _ in range(15):
        q, k, v = project(x).view(2, 24, 3, 4, 8).permute(2, 0, 3, 1, 4)
        out = flex_attention(q, k, v, lambda s, b, h, q, kv: s + slopes[h] * (kv - q), mask)
        loss = (output(out.transpose(1, 2).reshape(2, 24, 32)) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0] and slopes.grad is not None
