"""What changes between calls, and compiles nothing.

A program has a few kernels: for short and long inputs, for whole and cut tiles, with and without a mask. They are
made when they are first needed. Once that has happened, nothing is made any more.
"""

import sys

import mods
import numpy as np
import pytest
import torch
from policy import dense, inputs
from treadle import _core
from treadle.torch import create_block_mask, flex_attention


@pytest.fixture
def compiles():
    """compiles(): how many kernels were made since the last time."""
    last = [_core.kernels_made()]

    def since():
        now = _core.kernels_made()
        made, last[0] = now - last[0], now
        return made

    return since


def step(length, score_mod, mask_mod=None, batch=2, KV=None, gradients=True):
    q, k, v = inputs(B=batch, Q=length, KV=KV, requires_grad=gradients)
    mask = None if mask_mod is None else create_block_mask(mask_mod, None, None, q.size(2), k.size(2))
    out = flex_attention(q, k, v, score_mod, mask)
    torch.testing.assert_close(out, dense(q, k, v, score_mod, mask_mod)[0], rtol=1e-3, atol=1e-4)
    if gradients:
        out.sum().backward()


@pytest.mark.parametrize("mask_mod", [None, mods.causal_mask, mods.window_mask], ids=mods.name)
@pytest.mark.parametrize("score_mod", [None, mods.relative_causal, mods.alibi], ids=mods.name)
def test_other_lengths(score_mod, mask_mod, compiles):
    # Few queries have kernels of their own, by the rest of their number divided by 4.
    for length in (1, 2, 6, 12, 20, 33, 64, 100, 256):
        step(length, score_mod, mask_mod)
    compiles()
    for length in (65, 129, 17, 200, 40, 2, 10):
        step(length, score_mod, mask_mod)
    assert compiles() == 0


def test_other_batches_and_unequal_lengths(compiles):
    for length in (50, 64, 80, 128):
        step(length, mods.alibi, mods.causal_mask)
    compiles()
    for batch, length, keys in ((1, 64, 64), (3, 50, 80), (5, 80, 50)):
        step(length, mods.alibi, mods.causal_mask, batch, keys)
    assert compiles() == 0


def test_other_captured_tensors(compiles):
    q, k, v = inputs()

    def run(table):
        return flex_attention(q, k, v, lambda s, b, h, q, kv: s + table[h, kv])

    run(torch.randn(4, 70))
    run(torch.randn(70, 4).t())
    compiles()
    for table in (torch.randn(4, 70), torch.randn(9, 100), torch.randn(71, 5).t(), torch.randn(8, 200)[::2, ::2]):
        torch.testing.assert_close(run(table), dense(q, k, v, lambda s, b, h, q, kv: s + table[h, kv])[0])
    assert compiles() == 0


def test_other_numbers(compiles):
    """A window, a slope and a cap in a closure."""
    q, k, v = inputs()

    def run(window, slope, cap):
        def score_mod(s, b, h, q, kv):
            return cap * torch.tanh((s + slope * (kv - q)) / cap)

        def mask_mod(b, h, q, kv):
            return (q >= kv) & (q - kv < window)

        mask = create_block_mask(mask_mod, None, None, 70, 70)
        out = flex_attention(q, k, v, score_mod, mask)
        torch.testing.assert_close(out, dense(q, k, v, score_mod, mask_mod)[0], rtol=1e-4, atol=1e-5)

    for window in (8, 50, 500):
        run(window, 0.5, 20.0)
    compiles()
    for window, slope, cap in ((9, 0.25, 30.0), (64, 0.1, 5.0), (1000, -0.3, 50.0)):
        run(window, slope, cap)
    assert compiles() == 0


def test_length_in_the_mask(compiles):
    """Causal from the lower right: the offset is a number of the closure."""

    def lower_right(offset):
        return lambda b, h, q, kv: q + offset >= kv

    # 45 queries are a tile of three vectors with AVX-512.
    for length, keys in ((7, 90), (6, 90), (20, 50), (20, 64), (30, 33), (50, 100), (45, 90)):
        step(length, None, lower_right(keys - length), KV=keys)
    compiles()
    for length, keys in ((21, 90), (6, 64), (31, 36), (48, 99)):
        step(length, None, lower_right(keys - length), KV=keys)
    assert compiles() == 0


def test_changed_window_is_seen():
    q, k, v = inputs()
    window = 4

    def mask_mod(b, h, q, kv):
        return (q - kv).abs() < window

    mask = create_block_mask(mask_mod, None, None, 70, 70)
    for window in (4, 30, 2, 4):
        torch.testing.assert_close(flex_attention(q, k, v, None, mask), dense(q, k, v, None, mask_mod)[0])


def test_captured_tensor_changed_in_place():
    """Both what the score mod reads and what the mask reads, whose layout is kept between calls."""
    q, k, v = inputs(Q=150)
    documents, table = torch.arange(150) // 50, torch.randn(4)

    def score_mod(s, b, h, q, kv):
        return s * table[h]

    def mask_mod(b, h, q, kv):
        return documents[q] == documents[kv]

    mask = create_block_mask(mask_mod, None, None, 150, 150)
    for _ in range(3):
        for _ in range(2):
            out = flex_attention(q, k, v, score_mod, mask)
            torch.testing.assert_close(out, dense(q, k, v, score_mod, mask_mod)[0], rtol=1e-4, atol=1e-5)
        documents.copy_(torch.sort(torch.randint(0, 5, (150,))).values)
        table.mul_(-0.5)


def test_captured_tensor_replaced():
    q, k, v = inputs()
    visible = torch.rand(70) > 0.5

    def mask_mod(b, h, q, kv):
        return visible[kv] | (q == kv)

    mask = create_block_mask(mask_mod, None, None, 70, 70)
    for _ in range(4):
        torch.testing.assert_close(flex_attention(q, k, v, None, mask), dense(q, k, v, None, mask_mod)[0])
        del visible  # its memory may be given to the next one
        visible = torch.rand(70) > 0.5


def test_captured_view_of_changing_memory():
    """A change of the base is one of the view."""
    q, k, v = inputs()
    base = torch.zeros(140, dtype=torch.bool)
    base[:70] = True
    view = base[:70]
    mask = create_block_mask(lambda b, h, q, kv: view[kv] | (q == kv), None, None, 70, 70)
    flex_attention(q, k, v, None, mask)
    base[10:60] = False
    torch.testing.assert_close(
        flex_attention(q, k, v, None, mask), dense(q, k, v, None, lambda b, h, q, kv: view[kv] | (q == kv))[0]
    )


def test_structure_of_a_closure_is_seen():
    q, k, v = inputs()
    causal = True

    def mod(score, b, h, q, kv):
        return torch.where(q >= kv, score, -float("inf")) if causal else score

    first = flex_attention(q, k, v, mod)
    causal = False
    assert torch.equal(flex_attention(q, k, v, mod), flex_attention(q, k, v))
    assert not torch.equal(first, flex_attention(q, k, v))


def test_other_scale(compiles):
    q, k, v = inputs()
    flex_attention(q, k, v, mods.alibi, scale=0.5)
    compiles()
    for scale in (0.75, np.float32(0.25), torch.tensor(0.125)):
        out = flex_attention(q, k, v, mods.alibi, scale=scale)
    torch.testing.assert_close(out, dense(q, k, v, mods.alibi, scale=0.125)[0])
    assert compiles() == 0


def test_negative_indices_compile_once(compiles):
    """The second call knows of the first that indices are negative."""
    q, k, v = inputs()
    table = torch.randn(140)

    def mod(score, b, h, q, kv):
        return score + table[q - kv]

    first = flex_attention(q, k, v, mod)
    compiles()
    assert torch.equal(flex_attention(q, k, v, mod), first)
    assert compiles() == 0


def test_a_warm_call_is_light():
    """Microseconds depend on the machine; the number of Python and C functions called in Python does not."""
    q, k, v = inputs(1, 1, 4, 16)
    slopes = torch.tensor([0.5])
    mask = create_block_mask(mods.causal_mask, None, None, 4, 4)

    def score_mod(score, b, h, q, kv):
        return score + slopes[h] * (kv - q)

    calls = [0]

    def count(frame, event, argument):
        calls[0] += event in ("call", "c_call")

    for _ in range(3):
        flex_attention(q, k, v, score_mod, mask)
    sys.setprofile(count)
    try:
        flex_attention(q, k, v, score_mod, mask)
    finally:
        sys.setprofile(None)
    assert calls[0] < 220
