"""lse and max besides the result."""

import warnings

import mods
import pytest
import torch
import treadle.torch._attention as attention
from policy import close, dense, inputs, of_torch
from treadle.torch import (
    AuxOutput,
    AuxRequest,
    create_block_mask,
    flex_attention,
    or_masks,
)

both = AuxRequest(lse=True, max_scores=True)


@pytest.mark.parametrize("dtype", [torch.float64, *mods.dtypes], ids=mods.name)
@pytest.mark.parametrize("score_mod", [mods.identity, mods.squared, mods.causal, mods.alibi], ids=mods.name)
def test_lse(score_mod, dtype):
    import torch.nn.attention.flex_attention as torch_flex

    q, k, v = inputs(dtype=dtype)
    out, aux = flex_attention(q, k, v, score_mod, return_aux=AuxRequest(lse=True))
    ask = torch_flex.AuxRequest(lse=True)
    ref = of_torch(q, k, v, score_mod, return_aux=ask)[1].lse
    gold = of_torch(q.double(), k.double(), v.double(), score_mod, return_aux=ask)[1].lse
    assert aux.lse.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    close(aux.lse, gold, ref, what="lse")
    assert aux.max_scores is None


@pytest.mark.parametrize("score_mod", [mods.identity, mods.squared, mods.causal, mods.alibi], ids=mods.name)
@pytest.mark.parametrize("dtype", mods.dtypes, ids=mods.name)
def test_max(score_mod, dtype):
    q, k, v = inputs(dtype=dtype)
    out, aux = flex_attention(q, k, v, score_mod, return_aux=AuxRequest(max_scores=True))
    assert aux.lse is None and aux.max_scores.dtype == torch.float32
    scores = q.double() @ k.double().transpose(-1, -2) / 4
    at = [torch.arange(n).view([-1 if d == i else 1 for i in range(4)]) for d, n in enumerate(scores.shape)]
    most = score_mod(scores, *at).amax(-1)
    torch.testing.assert_close(aux.max_scores.double(), most, rtol=1e-5, atol=1e-5)


def test_max_of_what_the_mask_shows():
    q, k, v = inputs()
    mask = create_block_mask(lambda b, h, q, kv: (q > kv), None, None, 70, 70)
    aux = flex_attention(q, k, v, None, mask, return_aux=both)[1]
    scores = (q @ k.transpose(-1, -2) / 4).masked_fill(~torch.ones(70, 70).tril(-1).bool(), -float("inf"))
    torch.testing.assert_close(aux.max_scores, scores.amax(-1))
    torch.testing.assert_close(aux.lse, scores.logsumexp(-1))
    assert aux.lse[:, :, 0].isneginf().all() and aux.max_scores[:, :, 0].isneginf().all()


def test_what_is_returned():
    q, k, v = inputs()
    assert isinstance(flex_attention(q, k, v), torch.Tensor)
    out, aux = flex_attention(q, k, v, return_aux=AuxRequest())
    assert isinstance(aux, AuxOutput) and aux == (None, None)
    out, aux = flex_attention(q, k, v, return_aux=both)
    assert out.shape == (2, 4, 70, 16) and aux.lse.shape == aux.max_scores.shape == (2, 4, 70)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out, lse = flex_attention(q, k, v, return_lse=True)
    assert torch.equal(lse, aux.lse)


def test_asking_changes_no_bit():
    q, k, v = inputs(dtype=torch.bfloat16)
    plain = flex_attention(q, k, v, mods.alibi)
    for ask in (AuxRequest(), AuxRequest(lse=True), AuxRequest(max_scores=True), both):
        assert torch.equal(flex_attention(q, k, v, mods.alibi, return_aux=ask)[0], plain)
    q.requires_grad_()
    assert torch.equal(flex_attention(q, k, v, mods.alibi), plain)


def test_torch_request_is_taken():
    import torch.nn.attention.flex_attention as torch_flex

    q, k, v = inputs()
    out, aux = flex_attention(q, k, v, return_aux=torch_flex.AuxRequest(lse=True))
    assert aux.lse is not None


def test_deprecation(monkeypatch):
    q, k, v = inputs()
    monkeypatch.setattr(attention, "_warned", [])
    with pytest.warns(FutureWarning, match="return_aux"):
        flex_attention(q, k, v, return_lse=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        flex_attention(q, k, v, return_lse=True)  # once is enough
        flex_attention(q, k, v, return_aux=AuxRequest(lse=True))


def test_both_ways_of_asking():
    q, k, v = inputs()
    with pytest.raises(ValueError, match="return_aux"):
        flex_attention(q, k, v, return_lse=True, return_aux=AuxRequest(lse=True))


def merge(a, lse_a, b, lse_b):
    most = torch.maximum(lse_a, lse_b)
    weight_a, weight_b = torch.exp(lse_a - most), torch.exp(lse_b - most)
    total = weight_a + weight_b
    return (weight_a / total)[..., None] * a + (weight_b / total)[..., None] * b


def test_merge_by_lse():
    """Causal attention in two parts, near and far, put together by their lse."""
    q, k, v = inputs(Q=150, D=32)

    def near(b, h, q, kv):
        return (q >= kv) & (q - kv < 40)

    def far(b, h, q, kv):
        return q - kv >= 40

    parts = []
    for mask_mod in (near, far):
        mask = create_block_mask(mask_mod, None, None, 150, 150)
        out, aux = flex_attention(q, k, v, None, mask, return_aux=AuxRequest(lse=True))
        parts += [out, aux.lse]
    whole = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(merge(*parts), whole, rtol=1e-4, atol=1e-5)
    every = create_block_mask(or_masks(near, far), None, None, 150, 150)
    torch.testing.assert_close(flex_attention(q, k, v, None, every), whole, rtol=1e-4, atol=1e-5)


def test_gradients_through_a_merge():
    q, k, v = inputs(dtype=torch.float64, Q=40, requires_grad=True)
    parts = []
    for part in (slice(0, 17), slice(17, 40)):
        out, aux = flex_attention(q, k[:, :, part], v[:, :, part], mods.squared, return_aux=AuxRequest(lse=True))
        parts += [out, aux.lse]
    dout = torch.randn_like(q)
    got = torch.autograd.grad(merge(*parts), (q, k, v), dout)
    whole = torch.autograd.grad(dense(q, k, v, mods.squared)[0], (q, k, v), dout)
    for a, b in zip(got, whole):
        torch.testing.assert_close(a, b)


def test_large_scores():
    q, k, v = inputs()
    out, aux = flex_attention(q * 100, k * 100, v, return_aux=both)
    gold, lse = dense(q.double() * 100, k.double() * 100, v.double())
    assert out.isfinite().all()
    torch.testing.assert_close(aux.lse.double(), lse, rtol=1e-5, atol=1e-2)


def test_max_has_no_gradient():
    q, k, v = inputs(requires_grad=True)
    out, aux = flex_attention(q, k, v, return_aux=both)
    assert aux.lse.requires_grad and not aux.max_scores.requires_grad


@pytest.mark.parametrize("order", ["contiguous", "heads inside", "a part of more", "one head"])
def test_results_are_where_and_in_the_order_that_queries_are(order):
    q = torch.randn(2, 3, 5, 4)
    if order == "heads inside":
        q = torch.randn(2, 5, 3, 4).transpose(1, 2)
    elif order == "a part of more":
        q = torch.randn(2, 5, 3, 12)[..., 4:8].transpose(1, 2)
    elif order == "one head":
        q = torch.randn(2, 5, 1, 4).transpose(1, 2)
    with torch.device("meta"):  # the default for new tensors
        out, aux = flex_attention(q, q, q, return_aux=AuxRequest(lse=True, max_scores=True))
    assert out.is_cpu and aux.lse.is_cpu and aux.max_scores.is_cpu
    assert out.stride(-1) == 1 and aux.lse.is_contiguous() and aux.max_scores.is_contiguous()
    sizes = [s for s, n in zip(q.stride(), q.shape) if n > 1]
    of_out = [s for s, n in zip(out.stride(), out.shape) if n > 1]
    assert sorted(range(len(sizes)), key=sizes.__getitem__) == sorted(range(len(of_out)), key=of_out.__getitem__)
    torch.testing.assert_close(out, torch.nn.functional.scaled_dot_product_attention(q, q, q))
