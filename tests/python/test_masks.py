"""Masks of many shapes, with every length and with rows that see nothing."""

import mods
import pytest
import torch
from mods import name
from policy import check, check_gradients, dense, inputs
from treadle.torch import (
    AuxRequest,
    and_masks,
    create_block_mask,
    flex_attention,
    noop_mask,
    or_masks,
)


@pytest.mark.parametrize("length", [1, 15, 64, 127, 129, 200])
def test_causal(length):
    check(*inputs(Q=length), None, mods.causal_mask)


@pytest.mark.parametrize("dtype", mods.dtypes, ids=name)
def test_causal_with_captures(dtype):
    shift = torch.tensor([0, 3])
    check(*inputs(Q=131, dtype=dtype), None, lambda b, h, q, kv: q + shift[b] >= kv)


def test_lengths_that_no_block_divides():
    table = torch.randn(133)
    check(*inputs(Q=133), lambda s, b, h, q, kv: s + table[q], lambda b, h, q, kv: q * 2 >= kv, block_size=(64, 32))


def neg_causal(b, h, q, kv):
    return q < kv


@pytest.mark.parametrize(
    "mask_mod",
    [
        and_masks(mods.causal_mask, mods.window_mask),
        or_masks(mods.causal_mask, neg_causal),
        and_masks(or_masks(mods.window_mask, mods.inverse_causal_mask), noop_mask),
        or_masks(and_masks(mods.causal_mask, lambda b, h, q, kv: kv % 3 == 0), lambda b, h, q, kv: kv < 4),
    ],
)
def test_combinations(mask_mod):
    check(*inputs(Q=100), mods.alibi, mask_mod)


def test_combinations_of_nothing():
    q, k, v = inputs()
    every = create_block_mask(and_masks(), None, None, 70, 70)
    none = create_block_mask(or_masks(), None, None, 70, 70)
    assert torch.equal(flex_attention(q, k, v, None, every), flex_attention(q, k, v))
    assert flex_attention(q, k, v, None, none).count_nonzero() == 0


def test_combinations_want_functions():
    for combine in (and_masks, or_masks):
        with pytest.raises(RuntimeError, match="callable"):
            combine(mods.causal_mask, 5)


def test_noop_mask_is_no_mask():
    q, k, v = inputs()
    assert torch.equal(
        flex_attention(q, k, v, None, create_block_mask(noop_mask, None, None, 70, 70)), flex_attention(q, k, v)
    )


def test_mask_from_a_bool_tensor():
    visible = torch.rand(70, 70) > 0.5
    visible[:, 0] = True
    check(*inputs(), None, lambda b, h, q, kv: visible[q, kv])


def test_mask_from_new_ones_and_zeros():
    check(*inputs(), None, lambda b, h, q, kv: q.new_ones((), dtype=torch.bool))
    q, k, v = inputs()
    mask = create_block_mask(lambda b, h, q, kv: q.new_zeros((), dtype=torch.bool), None, None, 70, 70)
    assert flex_attention(q, k, v, None, mask).count_nonzero() == 0


def test_python_bool():
    q, k, v = inputs()
    mask = create_block_mask(lambda b, h, q, kv: True, None, None, 70, 70)
    assert torch.equal(flex_attention(q, k, v, None, mask), flex_attention(q, k, v))


@pytest.mark.parametrize("first", [1, 33, 69, 70])
def test_rows_that_see_nothing(first):
    """Zero out, lse -inf, and no gradient."""
    q, k, v = inputs(requires_grad=True)
    mask = create_block_mask(lambda b, h, q, kv: q >= first, None, None, 70, 70)
    out, aux = flex_attention(q, k, v, None, mask, return_aux=AuxRequest(lse=True, max_scores=True))
    assert out[:, :, :first].count_nonzero() == 0
    assert aux.lse[:, :, :first].isneginf().all() and aux.max_scores[:, :, :first].isneginf().all()
    assert aux.lse[:, :, first:].isfinite().all()
    (out.sum() + aux.lse[:, :, first:].sum()).backward()
    assert q.grad[:, :, :first].count_nonzero() == 0
    assert not any(t.grad.isnan().any() for t in (q, k, v))
    torch.testing.assert_close(out, dense(q, k, v, None, lambda b, h, q, kv: q >= first)[0])


def test_rows_masked_by_the_score():
    check(*inputs(), lambda s, b, h, q, kv: torch.where(q >= 40, s, float("-inf")))
    check_gradients(
        *inputs(), lambda: lambda s, b, h, q, kv: torch.where((q >= 40) & (q >= kv), s * 2, float("-inf"))
    )


def test_mask_comes_after_the_score():
    """What the score mod makes of a masked pair does not matter, not even NaN."""
    check(*inputs(), lambda s, b, h, q, kv: torch.where(q >= kv, s, float("nan")), mods.causal_mask)


def test_documents_of_length_one():
    documents = torch.tensor([0] * 30 + [1] + [2] + [3] * 38)
    check(*inputs(), None, lambda b, h, q, kv: (documents[q] == documents[kv]) & (q >= kv))


def test_mask_by_batch_and_head():
    window = torch.tensor([[5, 10, 20, 40], [1, 2, 3, 4]])
    check(*inputs(Q=100), None, lambda b, h, q, kv: (q - kv).abs() < window[b, h], B=2, H=4)


def test_mask_of_one_batch_for_all():
    check(*inputs(Q=100), None, lambda b, h, q, kv: q - 10 * b - h >= kv)


def test_decoding_with_an_offset():
    """The last queries alone, by a mask shifted in place."""
    q, k, v = inputs(Q=96)
    whole = flex_attention(q, k, v, None, create_block_mask(mods.causal_mask, None, None, 96, 96))
    offset = torch.tensor(0)
    step = create_block_mask(lambda b, h, q, kv: q + offset >= kv, None, None, 1, 96)
    for at in (0, 50, 95):
        offset.fill_(at)
        torch.testing.assert_close(flex_attention(q[:, :, at : at + 1], k, v, None, step), whole[:, :, at : at + 1])


def test_sliced_mask_with_a_mask_mod_of_its_own():
    """Rows of blocks of a mask, for queries from the middle."""
    q, k, v = inputs(Q=128)
    mask = create_block_mask(mods.causal_mask, None, None, 128, 128, BLOCK_SIZE=32)
    whole = flex_attention(q, k, v, None, mask)
    part = mask[:, :, 2]
    part.mask_mod = lambda b, h, q, kv: q + 64 >= kv
    part.seq_lengths = (32, 128)
    torch.testing.assert_close(flex_attention(q[:, :, 64:96], k, v, None, part), whole[:, :, 64:96])


@pytest.mark.parametrize("shape", [(2, 150), (150, 2), (1, 64), (64, 1)], ids=str)
def test_unequal_lengths(shape):
    check(*inputs(Q=shape[0], KV=shape[1]), None, lambda b, h, q, kv: q + 1 >= kv)


def test_huge_positions_do_not_overflow():
    """Squares of positions past 46340 do not fit 32 bits."""
    far = 100_000
    check(*inputs(), None, lambda b, h, q, kv: (q + far) * (q + far) >= (kv + far) * (kv + far))


def test_rows_that_see_nothing_take_no_gradient_of_lse():
    """Their lse is -inf whatever changes; what a loss makes of that is often NaN."""
    x = torch.randn(1, 2, 30, 8, requires_grad=True)
    mask = create_block_mask(lambda b, h, q, kv: (q >= kv) & (q > 9), None, None, 30, 30)
    out, aux = flex_attention(x, x, x, block_mask=mask, return_aux=AuxRequest(lse=True))
    seen = aux.lse[:, :, 10:]
    (expected,) = torch.autograd.grad(out.sum() + seen.sum(), x, retain_graph=True)
    dlse = torch.ones_like(aux.lse)
    dlse[:, :, :10] = float("nan")
    (learned,) = torch.autograd.grad((out, aux.lse), x, (torch.ones_like(out), dlse))
    assert torch.equal(learned, expected)
