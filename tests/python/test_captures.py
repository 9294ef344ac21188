"""Tensors, arrays and numbers that mods read."""

import gc
import math
import weakref

import mods
import numpy as np
import pytest
import torch
import treadle
from mods import name
from policy import check, close, dense, inputs
from treadle.torch import create_block_mask, flex_attention

B, H, S = 2, 4, 70


def bias(*shape, dtype=torch.float32):
    return torch.randn(shape, dtype=torch.float64).to(dtype)


def test_all_dims():
    of_batch, of_head, of_query = bias(B), bias(H), bias(S)
    check(*inputs(), lambda s, b, h, q, kv: s + of_batch[b] + of_head[h] * of_query[q] - of_query[kv])


@pytest.mark.parametrize("dtype", mods.dtypes, ids=name)
def test_bias_by_pair(dtype):
    table = bias(S, S, dtype=dtype)
    check(*inputs(dtype=dtype), lambda s, b, h, q, kv: s + table[q, kv])


def test_bias_by_batch_and_pair():
    table = bias(B, S, S)
    check(*inputs(), lambda s, b, h, q, kv: s + table[b, q, kv])


def test_bias_by_head_batch_and_pair():
    table = bias(H, B, S, S)
    check(*inputs(), lambda s, b, h, q, kv: s + table[h, b, q, kv])


def test_relative_bias_table():
    table = bias(2 * S)
    check(*inputs(), lambda s, b, h, q, kv: s + table[q - kv + S])


def test_captured_scale():
    scale = torch.ones((), dtype=torch.int32) + 1
    check(*inputs(), lambda s, b, h, q, kv: s + scale)
    check(*inputs(), lambda s, b, h, q, kv: s * scale)


def test_one_element_counts_as_a_number():
    gain = torch.tensor([1.5])
    q, k, v = inputs()
    out = flex_attention(q, k, v, lambda s, b, h, q, kv: s * gain)
    assert torch.equal(out, flex_attention(q, k, v, lambda s, b, h, q, kv: s * gain[0]))


def test_chained_indices():
    table = bias(B, S)
    check(*inputs(), lambda s, b, h, q, kv: s + table[b][q])


def test_chained_indices_of_unequal_sizes():
    table = bias(H, 3, S)
    check(*inputs(), lambda s, b, h, q, kv: s + table[h][kv % 3][q])


def test_shape_of_a_part():
    table = bias(B, S, 3)
    q, k, v = inputs()
    out = flex_attention(q, k, v, lambda s, b, h, q, kv: s + table[b][q % table[b].shape[0], kv % len(table[b, q])])
    assert torch.equal(out, flex_attention(q, k, v, lambda s, b, h, q, kv: s + table[b, q % S, kv % 3]))


def test_index_by_index():
    order, table = torch.randperm(S), bias(S)
    check(*inputs(), lambda s, b, h, q, kv: s + table[order[q]] * table[order[order[kv]]])


def test_number_among_indices():
    table = bias(4, B, 4, S)
    check(*inputs(), lambda s, b, h, q, kv: s + table[0, b, h, q])
    check(*inputs(), lambda s, b, h, q, kv: s + table[-1, b, 2, kv])


def test_ellipsis_slices_and_lists():
    table = bias(H, S, S)
    q, k, v = inputs()
    plain = flex_attention(q, k, v, lambda s, b, h, q, kv: s + table[h, q, kv])
    for mod in (
        lambda s, b, h, q, kv: s + table[h, ...][q, kv],
        lambda s, b, h, q, kv: s + table[..., kv][h, q],
        lambda s, b, h, q, kv: s + table[h, :, kv][q],
        lambda s, b, h, q, kv: s + table[:, q][h][kv],
        lambda s, b, h, q, kv: s + table[[h, q, kv]],
        lambda s, b, h, q, kv: s + torch.ops.aten.index(table, [h, q, kv]),
    ):
        assert torch.equal(flex_attention(q, k, v, mod), plain)


def test_view_of_a_buffer():
    table = bias(S, 2 * B).t()[::2]
    assert not table.is_contiguous()
    check(*inputs(), lambda s, b, h, q, kv: s + table[b, q])


def test_expanded_and_flipped_views():
    row = bias(1, S).expand(H, S)
    assert row.stride(0) == 0
    check(*inputs(), lambda s, b, h, q, kv: s + row[h, q])
    check(*inputs(), lambda s, b, h, q, kv: s + row.flip(1)[h, q])


def test_views_made_in_the_mod():
    table = bias(S, H)
    check(*inputs(), lambda s, b, h, q, kv: s + table.t()[h, q] + table.sum(1)[kv] * 0.1)


def test_modular_indexing():
    table = bias(7, 5)
    check(*inputs(), lambda s, b, h, q, kv: s + table[q % 7, (kv // 3) % 5])


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool], ids=name)
def test_integers(dtype):
    table = torch.randint(0, 2 if dtype is torch.bool else 5, (S,)).to(dtype)
    check(*inputs(), lambda s, b, h, q, kv: s + table[q].to(torch.int32) * 2)
    check(*inputs(), None, lambda b, h, q, kv: (table[q] == table[kv]) | (kv == 0))


@pytest.mark.parametrize("dtype", [torch.float64, *mods.dtypes], ids=name)
def test_bias_of_another_type(dtype):
    table = bias(S, dtype=dtype)
    q, k, v = inputs()
    out = flex_attention(q, k, v, lambda s, b, h, q, kv: s + table[q] * table[kv])
    assert out.dtype == torch.float32
    wide = table.double()
    mod = lambda s, b, h, q, kv: s + wide[q] * wide[kv]  # noqa: E731
    gold = dense(q.double(), k.double(), v.double(), mod)[0]
    close(out, gold, dense(q, k, v, mod)[0], fudge=4)


def test_upcast():
    scale = torch.tensor(1.2, dtype=torch.float64)
    check(*inputs(dtype=torch.float16), lambda s, b, h, q, kv: s * scale)


def test_reduction_written_out():
    """A distance of 3-vectors, term by term."""
    places = bias(S, 3)

    def mod(score, b, h, q, kv):
        total = (places[q, 0] - places[kv, 0]) ** 2
        for i in (1, 2):
            total = total + (places[q, i] - places[kv, i]) ** 2
        return score - total.sqrt()

    check(*inputs(), mod)


def test_negative_indices_count_from_the_end():
    table = bias(S)
    check(*inputs(), lambda s, b, h, q, kv: s + table[q - kv])
    check(*inputs(), lambda s, b, h, q, kv: s + table[-1 - kv])
    check(*inputs(), None, lambda b, h, q, kv: (table[kv - q] > 0) | (kv == 0))


def test_index_outside_is_an_error():
    table = bias(S)
    with pytest.raises(treadle.ModError):
        flex_attention(*inputs(), lambda s, b, h, q, kv: s + table[q + kv])
    with pytest.raises(treadle.ModError):
        flex_attention(*inputs(), lambda s, b, h, q, kv: s + table[q - kv - S])


def test_changed_mod_is_seen():
    q, k, v = inputs()
    gain = 1.0

    def mod(score, b, h, q, kv):
        return score * gain

    first = flex_attention(q, k, v, mod)
    gain = 3.0
    second = flex_attention(q, k, v, mod)
    assert torch.equal(second, flex_attention(q, k, v, lambda s, b, h, q, kv: s * 3.0))
    assert not torch.equal(first, second)


@pytest.mark.parametrize("number", [0, 1, -1, 2, 7.25, 1e-6, math.inf, True, np.float32(2.5), np.int64(3)], ids=str)
def test_numbers(number):
    q, k, v = inputs(dtype=torch.float64)
    plain = float(number)
    out = flex_attention(q, k, v, lambda s, b, h, q, kv: torch.clamp(s * 0.5, max=number) - kv * 0.1)
    gold = dense(q, k, v, lambda s, b, h, q, kv: torch.clamp(s * 0.5, max=plain) - kv * 0.1)[0]
    torch.testing.assert_close(out, gold)


def test_numpy_arrays():
    table = np.random.default_rng(0).standard_normal((H, S)).astype(np.float32)
    q, k, v = inputs()
    captured, same = treadle.capture(table), torch.from_numpy(table)
    out = flex_attention(q, k, v, lambda s, b, h, q, kv: s + captured[h, q])
    assert torch.equal(out, flex_attention(q, k, v, lambda s, b, h, q, kv: s + same[h, q]))


def test_numpy_arrays_in_masks():
    documents = np.arange(S) // 20
    captured = treadle.capture(documents)
    q, k, v = inputs()
    mask = create_block_mask(lambda b, h, q, kv: captured[q] == captured[kv], None, None, S, S)
    same = torch.from_numpy(documents.copy())

    def plain(b, h, q, kv):
        return same[q] == same[kv]

    torch.testing.assert_close(flex_attention(q, k, v, None, mask), dense(q, k, v, None, plain)[0])
    documents[:] = np.arange(S) // 7  # nothing tells of this but the array itself
    same[:] = torch.arange(S) // 7
    torch.testing.assert_close(flex_attention(q, k, v, None, mask), dense(q, k, v, None, plain)[0])


def test_parameter_of_a_module():
    class Bias(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Parameter(bias(H, S))

        def forward(self, score, b, h, q, kv):
            return score + self.table[h, kv - q]

    module = Bias()
    q, k, v = inputs()
    out = flex_attention(q, k, v, module)
    out.sum().backward()
    assert module.table.grad.shape == (H, S)
    torch.testing.assert_close(out, dense(q, k, v, module)[0])


def test_autograd_function_in_a_mod():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x * 2

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, d):
            return d * 2

    q, k, v = inputs()
    out = flex_attention(q, k, v, lambda s, b, h, q, kv: Double.apply(s))
    assert torch.equal(out, flex_attention(q, k, v, mods.times_two))


def test_one_buffer_in_score_and_mask():
    table = bias(S).abs()
    check(*inputs(), lambda s, b, h, q, kv: s * table[q], lambda b, h, q, kv: (table[kv] < 1) | (q == kv))


def test_captures_are_freed():
    """Nothing of a call stays: not the tensors that its mods read."""
    q, k, v = inputs()
    table = bias(S, S)
    mask = create_block_mask(lambda b, h, q, kv: table[q, kv] > -9, None, None, S, S)
    flex_attention(q, k, v, lambda s, b, h, q, kv: s + table[q, kv], mask)
    alive = weakref.ref(table)
    gc.disable()
    try:
        del table, mask
        assert alive() is None
    finally:
        gc.enable()


def test_many_captures():
    tables = [bias(S) for _ in range(12)]

    def mod(score, b, h, q, kv):
        for i, table in enumerate(tables):
            score = score + table[q if i % 2 else kv] * 0.1
        return score

    check(*inputs(), mod, lambda b, h, q, kv: (tables[11][kv] < 1) | (q == kv))
