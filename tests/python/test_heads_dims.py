"""Numbers of heads, head dims, and the smallest lengths."""

import mods
import pytest
import torch
from mods import name
from policy import check, check_gradients, dense, inputs
from treadle.torch import AuxRequest, create_block_mask, flex_attention


@pytest.mark.parametrize("dtype", mods.dtypes, ids=name)
@pytest.mark.parametrize("heads", [(4, 2), (4, 1), (6, 3), (8, 8)], ids=str)
def test_grouped_queries(heads, dtype):
    check(*inputs(H=heads[0], Hkv=heads[1], dtype=dtype), mods.alibi, enable_gqa=True)


@pytest.mark.parametrize("heads", [(4, 2), (6, 1)], ids=str)
def test_grouped_queries_with_mask_and_gradients(heads):
    q, k, v = inputs(H=heads[0], Hkv=heads[1])
    check(q, k, v, mods.alibi, mods.causal_mask, enable_gqa=True)
    check_gradients(q, k, v, lambda: mods.alibi, mods.causal_mask, enable_gqa=True)


def test_grouped_queries_with_a_mask_by_head():
    check(*inputs(H=4, Hkv=2), None, lambda b, h, q, kv: (q - kv).abs() <= 4 * h, H=4, enable_gqa=True)


@pytest.mark.parametrize("batches", [3, 5])
def test_one_batch_of_keys_for_all(batches):
    q, k, v = inputs(B=batches, Bkv=1)
    check(q, k, v, mods.relative_bias, mods.noop_mask, B=batches)
    check(q, k, v, mods.alibi, lambda b, h, q, kv: q + b >= kv, B=batches)


def test_gradients_of_keys_for_all_batches():
    q, k, v = inputs(B=3, Bkv=1, H=4, Hkv=2)
    check_gradients(q, k, v, lambda: mods.alibi, mods.causal_mask, B=3, enable_gqa=True)


@pytest.mark.parametrize("dims", [(32, 16), (16, 32), (64, 8), (3, 1)], ids=str)
@pytest.mark.parametrize("dtype", mods.dtypes, ids=name)
def test_unequal_head_dims(dims, dtype):
    out = check(*inputs(D=dims[0], Dv=dims[1], dtype=dtype), mods.alibi)
    assert out.shape[-1] == dims[1]


def test_gradients_of_unequal_head_dims():
    check_gradients(*inputs(D=24, Dv=10), lambda: mods.times_two, mods.causal_mask)


@pytest.mark.parametrize("dim", [1, 2, 17, 24, 94, 121, 160])
def test_odd_head_dims(dim):
    check(*inputs(D=dim), mods.alibi, mods.causal_mask)


@pytest.mark.parametrize("dim", [17, 94])
def test_gradients_of_odd_head_dims(dim):
    check_gradients(*inputs(D=dim), lambda: mods.squared, mods.causal_mask)


@pytest.mark.parametrize("dtype", mods.dtypes, ids=name)
@pytest.mark.parametrize("lengths", [(1, 1), (1, 70), (70, 1), (2, 3)], ids=str)
def test_small_lengths(lengths, dtype):
    check(*inputs(Q=lengths[0], KV=lengths[1], dtype=dtype), mods.times_two)


def test_gradients_of_length_one():
    check_gradients(*inputs(Q=1), lambda: mods.relative_bias)


@pytest.mark.parametrize("lengths", [(0, 5), (5, 0), (0, 0)], ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_length_zero(lengths, masked):
    """torch refuses some of these. A query without keys is like one that sees none of them."""
    q, k, v = inputs(Q=lengths[0], KV=lengths[1], requires_grad=True)
    mask = create_block_mask(mods.causal_mask, None, None, *lengths) if masked else None
    out, aux = flex_attention(q, k, v, mods.times_two, mask, return_aux=AuxRequest(lse=True, max_scores=True))
    assert out.shape == q.shape and out.count_nonzero() == 0
    assert aux.lse.shape == q.shape[:3] and aux.lse.isneginf().all() and aux.max_scores.isneginf().all()
    out.sum().backward()
    assert all(t.grad.shape == t.shape and t.grad.count_nonzero() == 0 for t in (q, k, v))


def test_no_batches():
    q, k, v = (torch.randn(0, 4, 16, 8) for _ in range(3))
    assert flex_attention(q, k, v).shape == (0, 4, 16, 8)


def test_many_batches_and_heads():
    q, k, v = inputs(B=70, H=33, Q=3, D=4)
    torch.testing.assert_close(
        flex_attention(q, k, v, mods.relative_bias), dense(q, k, v, mods.relative_bias)[0], rtol=1e-5, atol=1e-6
    )
