"""Attention sinks on NumPy arrays: a logit per head that takes part in the softmax and has no value."""

import numpy as np
import pytest

import treadle


def arrays(queries=6, keys=9, heads=4):
    random = np.random.default_rng(1)
    q = random.standard_normal((2, heads, queries, 8))
    k = random.standard_normal((2, heads // 2, keys, 8))
    v = random.standard_normal((2, heads // 2, keys, 5))
    return q, k, v, random.standard_normal(heads)


def definition(q, k, v, sinks):
    k, v = (np.repeat(x, q.shape[1] // k.shape[1], axis=1) for x in (k, v))
    scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[3])
    column = np.broadcast_to(sinks[None, :, None, None], (*scores.shape[:3], 1))
    weights = np.exp(np.concatenate([scores, column], axis=3))
    total = weights.sum(axis=3)
    return weights[..., :-1] @ v / total[..., None], np.log(total)


@pytest.mark.parametrize("queries", [1, 6, 40])
def test_forward_is_the_definition(queries):
    q, k, v, sinks = arrays(queries)
    out, lse, most = treadle.Attention().forward(q, k, v, sinks=sinks)
    want, want_lse = definition(q, k, v, sinks)
    np.testing.assert_allclose(out, want, atol=1e-12)
    np.testing.assert_allclose(lse, want_lse, atol=1e-12)
    np.testing.assert_array_equal(most, treadle.Attention().forward(q, k, v).max)


def test_gradients_are_differences():
    q, k, v, sinks = arrays()
    attention = treadle.Attention()
    result = attention.forward(q, k, v, sinks=sinks)
    dout, dlse = np.cos(result.out), np.sin(result.lse)
    gradients = attention.backward(q, k, v, result, dout, dlse, sinks=sinks)

    def loss():
        out, lse = definition(q, k, v, sinks)
        return (out * dout).sum() + (lse * dlse).sum()

    for array, gradient in ((q, gradients.dq), (k, gradients.dk), (v, gradients.dv), (sinks, gradients.dsinks)):
        for index in list(np.ndindex(array.shape))[:: max(1, array.size // 20)]:
            at = array[index]
            array[index] = at + 1e-6
            above = loss()
            array[index] = at - 1e-6
            below = loss()
            array[index] = at
            assert gradient[index] == pytest.approx((above - below) / 2e-6, abs=1e-7)
    assert attention.backward(q, k, v, attention.forward(q, k, v), dout).dsinks is None


def test_errors():
    q, k, v, sinks = arrays()
    with pytest.raises(ValueError, match=r"sinks has shape \[3\]; it must be \[4\]"):
        treadle.Attention().forward(q, k, v, sinks=sinks[:3])
