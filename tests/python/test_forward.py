"""Forward with the common mods, against torch's flex_attention."""

import mods
import pytest
import torch
from mods import name
from policy import check, close, dense, inputs, of_torch
from treadle.torch import and_masks, create_block_mask, flex_attention

lengths = [(70, 70), (128, 128), (33, 150), (150, 33), (256, 256)]


@pytest.mark.parametrize("dtype", mods.dtypes, ids=name)
@pytest.mark.parametrize("score_mod", mods.score_mods, ids=name)
def test_score_mod(score_mod, dtype):
    check(*inputs(Q=128, D=32, dtype=dtype), score_mod)


@pytest.mark.parametrize("lengths", lengths, ids=str)
@pytest.mark.parametrize("score_mod", mods.score_mods, ids=name)
def test_lengths(score_mod, lengths):
    check(*inputs(Q=lengths[0], KV=lengths[1]), score_mod)


@pytest.mark.parametrize("score_mod", mods.score_mods, ids=name)
def test_float64(score_mod):
    q, k, v = inputs(dtype=torch.float64)
    out = flex_attention(q, k, v, score_mod)
    torch.testing.assert_close(out, of_torch(q, k, v, score_mod), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", mods.dtypes, ids=name)
@pytest.mark.parametrize("mask_mod", mods.mask_mods, ids=name)
def test_mask_mod(mask_mod, dtype):
    check(*inputs(Q=100, dtype=dtype), None, mask_mod)


@pytest.mark.parametrize("mask_mod", mods.mask_mods[1:], ids=name)
@pytest.mark.parametrize("score_mod", [mods.alibi, mods.squared, mods.trig], ids=name)
def test_score_and_mask(score_mod, mask_mod):
    check(*inputs(Q=150), score_mod, mask_mod)


@pytest.mark.parametrize("block_size", [16, 128, 256, (128, 256), (32, 16)], ids=str)
def test_block_size_changes_no_bit(block_size):
    q, k, v = inputs(Q=150)
    out = check(q, k, v, mods.alibi, mods.window_mask, block_size=block_size)
    assert torch.equal(out, check(q, k, v, mods.alibi, mods.window_mask))


@pytest.mark.parametrize("scale", [None, 1.0, 0.3, -0.5])
def test_scale(scale):
    check(*inputs(), mods.relative_bias, scale=scale)


def test_scale_zero():
    check(*inputs(), mods.relative_bias, scale=0.0, fudge=4)  # scores are whole numbers: only exp is rounded


def test_skip_odd_keys():
    check(*inputs(Q=128), lambda s, b, h, q, kv: torch.where(kv % 2 == 0, s, float("-inf")))


def test_function_composition():
    def first(score, b, h, m, n):
        return torch.tanh(score) * 3

    def second(score, b, h, m, n):
        return torch.where(m <= n, first(score, b, h, m, n), float("-inf"))

    check(*inputs(Q=128), lambda s, b, h, q, kv: mods.alibi(second(s, b, h, q, kv), b, h, q, kv))


def test_silu_on_score():
    check(*inputs(), lambda s, b, h, q, kv: torch.nn.functional.silu(s))


def test_soft_cap():
    check(*inputs(dtype=torch.bfloat16, D=64), lambda s, b, h, q, kv: 20 * torch.tanh(s / 20))


def test_natten_2d():
    width, window = 12, 3

    def natten(b, h, q, kv):
        q_x, q_y, kv_x, kv_y = q // width, q % width, kv // width, kv % width
        return ((q_x - kv_x).abs() <= window) & ((q_y - kv_y).abs() <= window)

    q, k, v = inputs(Q=width * width)
    out = check(q, k, v, lambda s, *at: torch.where(natten(*at), s, float("-inf")))
    torch.testing.assert_close(out, check(q, k, v, None, natten))


def test_jagged_causal():
    """Sequences of several lengths packed into one, by a table of offsets."""
    lengths = torch.tensor([20, 1, 50, 29])
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    of_token = torch.repeat_interleave(torch.arange(4), lengths)

    def jagged(score, b, h, q, kv):
        at_q, at_kv = q - offsets[of_token[q]], kv - offsets[of_token[kv]]
        return torch.where((of_token[q] == of_token[kv]) & (at_q >= at_kv), score + (at_kv - at_q), float("-inf"))

    q, k, v = inputs(B=1, Q=100)
    out = check(q, k, v, jagged)
    start, end = offsets[2].item(), offsets[3].item()
    alone = flex_attention(*(t[:, :, start:end] for t in (q, k, v)), mods.relative_causal_back)
    torch.testing.assert_close(out[:, :, start:end], alone)


def test_padded_dense_causal():
    lengths = torch.tensor([100, 37])

    def padded(b, h, q, kv):
        return (q >= kv) & (kv < lengths[b])

    check(*inputs(Q=100), None, padded)
    check(*inputs(Q=100), lambda s, b, h, q, kv: torch.where(padded(b, h, q, kv), s, -float("inf")))


def test_dependent_causal_bidirectional():
    prefix = torch.tensor([10, 64])

    def mod(score, b, h, q, kv):
        return torch.where((kv < prefix[b]) | (q >= kv), score, -float("inf"))

    check(*inputs(Q=100, dtype=torch.bfloat16), mod)


def test_seq_masking():
    documents = torch.zeros(96, dtype=torch.bool)
    documents[40:] = True
    check(*inputs(Q=96), lambda s, b, h, q, kv: torch.where(documents[q] == documents[kv], s, float("-inf")))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=name)
def test_documents(dtype):
    documents = torch.sort(torch.randint(0, 7, (2, 200), dtype=torch.int32)).values

    def same_document(b, h, q, kv):
        return documents[b, q] == documents[b, kv]

    check(*inputs(Q=200, dtype=dtype), mods.alibi, and_masks(same_document, mods.causal_mask), B=2)


def test_mixed_types():
    """Keys and values may have other types than queries, whose type the result has."""
    for types in (
        (torch.float32, torch.bfloat16, torch.bfloat16),
        (torch.bfloat16, torch.float32, torch.float32),
        (torch.float32, torch.float16, torch.float32),
    ):
        q, k, v = (t.to(d) for t, d in zip(inputs(), types))
        out = flex_attention(q, k, v, mods.alibi)
        gold = dense(q.double(), k.double(), v.double(), mods.alibi)[0]
        assert out.dtype == q.dtype
        close(out, gold, dense(q, k, v, mods.alibi)[0])


def test_several_calls_in_one_program():
    q, k, v = inputs()
    causal = create_block_mask(mods.causal_mask, None, None, 70, 70)
    once = flex_attention(q, k, v, mods.times_two)
    again = flex_attention(once, k, v, mods.alibi, causal)
    assert torch.equal(again, flex_attention(flex_attention(q, k, v, mods.times_two), k, v, mods.alibi, causal))


def test_same_bits_each_time():
    q, k, v = inputs(Q=256, D=64, dtype=torch.bfloat16)
    first = flex_attention(q, k, v, mods.alibi)
    assert all(torch.equal(first, flex_attention(q, k, v, mods.alibi)) for _ in range(5))
