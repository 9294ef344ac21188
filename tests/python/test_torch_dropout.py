"""dropout_p of treadle.torch: the seed comes from torch's generator."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import treadle
from treadle.torch import create_block_mask, flex_attention, varlen_attention


def causal(b, h, q, kv):
    return q >= kv


def inputs(dtype=torch.float64, length=40):
    generator = torch.Generator().manual_seed(3)
    shape = (2, 4, length, 16)
    return [torch.randn(shape, generator=generator, dtype=dtype, requires_grad=True) for _ in range(3)]


def seed_drawn_next() -> int:
    """What the next call will draw."""
    state = torch.get_rng_state()
    seed = int(torch.randint(0, 2**63 - 1, (1,), dtype=torch.int64))
    torch.set_rng_state(state)
    return seed


def definition(q, k, v, p, seed):
    scores = (q @ k.transpose(2, 3)) / q.shape[-1] ** 0.5
    scores = scores.masked_fill(torch.ones(scores.shape[-2:]).tril() == 0, -torch.inf)
    kept = torch.from_numpy(treadle.dropout_mask(tuple(scores.shape), p, seed))
    return (scores.softmax(-1) * kept / (1 - p)) @ v


def gradients(out, tensors, retain=False):
    return torch.autograd.grad(out.square().sum(), tensors, retain_graph=retain)


def test_is_the_definition_with_gradients():
    tensors = inputs()
    torch.manual_seed(5)
    seed = seed_drawn_next()
    out = flex_attention(*tensors, block_mask=causal, dropout_p=0.3)
    expected = definition(*tensors, 0.3, seed)
    torch.testing.assert_close(out, expected)
    for got, want in zip(gradients(out, tensors), gradients(expected, tensors)):
        torch.testing.assert_close(got, want)


def test_follows_the_generator():
    tensors = inputs()
    torch.manual_seed(1)
    first, second = (flex_attention(*tensors, dropout_p=0.3) for _ in range(2))
    torch.manual_seed(1)
    assert torch.equal(flex_attention(*tensors, dropout_p=0.3), first)
    assert torch.equal(flex_attention(*tensors, dropout_p=0.3), second)
    assert not torch.equal(first, second)


def test_nothing_dropped_draws_nothing():
    tensors = inputs()
    state = torch.get_rng_state()
    assert torch.equal(flex_attention(*tensors, dropout_p=0), flex_attention(*tensors))
    assert torch.equal(torch.get_rng_state(), state)
    assert not flex_attention(*tensors, dropout_p=1.0).any()


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_recomputes_the_same_choice(reentrant):
    tensors = inputs()

    def layer(q, k, v):
        return flex_attention(q, k, v, block_mask=causal, dropout_p=0.3).sin()

    torch.manual_seed(8)
    plain = gradients(layer(*tensors), tensors)
    torch.manual_seed(8)
    out = checkpoint(layer, *tensors, use_reentrant=reentrant)
    if reentrant:
        out.square().sum().backward()
        again = [t.grad for t in tensors]
    else:
        again = gradients(out, tensors)
    for a, b in zip(again, plain):
        assert torch.equal(a, b)


def test_varlen_is_flex_for_equal_lengths():
    q, k, v = inputs(torch.float32)
    packed = [t.transpose(1, 2).reshape(80, 4, 16) for t in (q, k, v)]
    torch.manual_seed(2)
    whole = flex_attention(q, k, v, block_mask=causal, dropout_p=0.2)
    torch.manual_seed(2)
    out = varlen_attention(*packed, torch.tensor([0, 40, 80]), causal=True, dropout_p=0.2)
    assert torch.equal(out.reshape(2, 40, 4, 16).transpose(1, 2), whole)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled(backend):
    """One graph draws another seed in each run; gradients are those of the choice that forward made."""
    tensors = inputs()
    mask = create_block_mask(causal, None, None, 40, 40)

    @torch.compile(backend=backend, fullgraph=True)
    def compiled(q, k, v):
        return flex_attention(q, k, v, block_mask=mask, dropout_p=0.5)

    torch.manual_seed(4)
    first = compiled(*tensors)
    second = compiled(*tensors)
    assert not torch.equal(first, second)
    torch.manual_seed(4)
    assert torch.equal(compiled(*tensors), first)
    # out is linear in v, so its slope along v is out itself, if backward sees the same choice.
    dout = torch.randn_like(first)
    (dv,) = torch.autograd.grad(first, tensors[2], dout)
    torch.testing.assert_close((dv * tensors[2]).sum(), (first * dout).sum())


def test_compiled_checkpoint():
    tensors = inputs()

    def layer(q, k, v):
        return flex_attention(q, k, v, dropout_p=0.5)

    @torch.compile(backend="aot_eager", fullgraph=True)
    def compiled(q, k, v):
        return checkpoint(layer, q, k, v, use_reentrant=False)

    out = compiled(*tensors)
    dout = torch.randn_like(out)
    (dv,) = torch.autograd.grad(out, tensors[2], dout)
    torch.testing.assert_close((dv * tensors[2]).sum(), (out * dout).sum())


def test_errors():
    tensors = inputs()
    with pytest.raises(ValueError, match="dropout_p is -0.5; it must be from 0 to 1"):
        flex_attention(*tensors, dropout_p=-0.5)
    with pytest.raises(ValueError, match="dropout_p is 2.0; it must be from 0 to 1"):
        varlen_attention(*[t[0].transpose(0, 1) for t in tensors], torch.tensor([0, 40]), dropout_p=2.0)


def test_the_operation_checks_what_it_is_given():
    q = torch.randn(1, 1, 8, 4)
    mods = ("score", "", "score", "", "", [], [], None, False, [], [], False, False)
    with pytest.raises(ValueError, match=r"0 captures are too few for sinks=False, packed=False and dropout_p=0.5"):
        torch.ops.treadle.attention(q, q, q, [], *mods, 0.5)
    with pytest.raises(TypeError, match="the last capture must be a seed, one int64"):
        torch.ops.treadle.attention(q, q, q, [torch.zeros(2)], *mods, 0.5)
    with pytest.raises(ValueError, match="dropout_p is 7.0; it must be from 0 to 1"):
        torch.ops.treadle.attention(q, q, q, [], *mods, 7.0)
