"""Dropout of weights on NumPy arrays: `dropout_p` and `seed`."""

import numpy as np
import pytest

import treadle


def arrays(queries=6, keys=40, heads=4):
    random = np.random.default_rng(1)
    q = random.standard_normal((2, heads, queries, 8))
    k = random.standard_normal((2, heads // 2, keys, 8))
    v = random.standard_normal((2, heads // 2, keys, 5))
    return q, k, v


def definition(q, k, v, factor):
    k, v = (np.repeat(x, q.shape[1] // k.shape[1], axis=1) for x in (k, v))
    scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[3])
    weights = np.exp(scores - scores.max(axis=3, keepdims=True))
    return (weights / weights.sum(axis=3, keepdims=True) * factor) @ v


@pytest.mark.parametrize("queries", [1, 6, 50])
@pytest.mark.parametrize("seed", [0, 5, (2**64 - 1, 3)])
def test_forward_is_the_definition(queries, seed):
    q, k, v = arrays(queries)
    kept = treadle.dropout_mask((2, 4, queries, 40), 0.3, seed)
    out, lse, most = treadle.Attention().forward(q, k, v, dropout_p=0.3, seed=seed)
    np.testing.assert_allclose(out, definition(q, k, v, kept / 0.7), atol=1e-12)
    without = treadle.Attention().forward(q, k, v)
    np.testing.assert_array_equal(lse, without.lse)
    np.testing.assert_array_equal(most, without.max)
    np.testing.assert_array_equal(out, treadle.attention(q, k, v, dropout_p=0.3, seed=seed))


def test_gradients_are_differences():
    q, k, v = arrays(keys=9)
    attention = treadle.Attention()
    given = dict(dropout_p=0.4, seed=11)
    kept = treadle.dropout_mask((2, 4, 6, 9), 0.4, 11) / 0.6
    result = attention.forward(q, k, v, **given)
    dout = np.cos(result.out)
    gradients = attention.backward(q, k, v, result, dout, **given)
    for array, gradient in ((q, gradients.dq), (k, gradients.dk), (v, gradients.dv)):
        for index in list(np.ndindex(array.shape))[:: max(1, array.size // 20)]:
            at = array[index]
            array[index] = at + 1e-6
            above = (definition(q, k, v, kept) * dout).sum()
            array[index] = at - 1e-6
            below = (definition(q, k, v, kept) * dout).sum()
            array[index] = at
            assert gradient[index] == pytest.approx((above - below) / 2e-6, abs=1e-7)


def test_positions_decide():
    q, k, v = arrays(50)
    attention = treadle.Attention(mask_mod=lambda b, h, q, kv: kv >= 10)
    whole = attention.forward(q, k, v, dropout_p=0.3, seed=4).out
    part = attention.forward(q[:, :, 20:23], k[:, :, 7:], v[:, :, 7:], q_offset=20, kv_offset=7, dropout_p=0.3, seed=4)
    np.testing.assert_array_equal(part.out, whole[:, :, 20:23])
    kept = treadle.dropout_mask((2, 4, 50, 40), 0.3, 4)
    np.testing.assert_array_equal(
        treadle.dropout_mask((2, 4, 3, 33), 0.3, 4, q_offset=20, kv_offset=7), kept[:, :, 20:23, 7:]
    )


def test_sequences_are_batch_entries():
    q, k, v = arrays(6, 6)
    packed = [np.ascontiguousarray(x.swapaxes(1, 2)).reshape(12, x.shape[1], x.shape[3]) for x in (q, k, v)]
    starts = np.array([0, 6, 12])
    keys = treadle.PackedKeys(packed[1], packed[2], starts)
    attention = treadle.Attention()
    given = dict(dropout_p=0.5, seed=9)
    result = attention.forward_sequences(packed[0], starts, keys, **given)
    whole = attention.forward(q, k, v, **given)
    np.testing.assert_array_equal(result.out.reshape(2, 6, 4, 5).swapaxes(1, 2), whole.out)
    gradients = attention.backward_sequences(packed[0], starts, keys, result, result.out, **given)
    expected = attention.backward(q, k, v, whole, whole.out, **given)
    np.testing.assert_array_equal(gradients.dq.reshape(2, 6, 4, 8).swapaxes(1, 2), expected.dq)
    np.testing.assert_array_equal(gradients.dv.reshape(2, 6, 2, 5).swapaxes(1, 2), expected.dv)


def test_layouts_do_not_depend_on_seeds():
    q, k, v = arrays(50)
    attention = treadle.Attention(mask_mod=lambda b, h, q, kv: q >= kv)
    outs = [attention.forward(q, k, v, dropout_p=p, seed=s).out for p, s in ((0, 0), (0.2, 1), (0.2, 2), (0.2, 1), (1, 1))]
    np.testing.assert_array_equal(outs[0], attention.forward(q, k, v).out)
    np.testing.assert_array_equal(outs[1], outs[3])
    assert (outs[1] != outs[2]).any() and not outs[4].any()


def test_errors():
    q, k, v = arrays()
    attention = treadle.Attention()
    with pytest.raises(ValueError, match="dropout_p is 1.5; it must be from 0 to 1"):
        attention.forward(q, k, v, dropout_p=1.5)
    with pytest.raises(ValueError, match="dropout_p is nan"):
        treadle.attention(q, k, v, dropout_p=float("nan"))
    with pytest.raises(ValueError, match="seed is -1; its numbers must be from 0 to"):
        attention.forward(q, k, v, dropout_p=0.5, seed=-1)
    with pytest.raises(ValueError, match="seed has 3 numbers"):
        attention.forward(q, k, v, dropout_p=0.5, seed=(1, 2, 3))
    with pytest.raises(TypeError):
        attention.forward(q, k, v, dropout_p=0.5, seed=1.5)
    with pytest.raises(ValueError, match="shape has 3 dimensions"):
        treadle.dropout_mask((1, 2, 3), 0.5)
