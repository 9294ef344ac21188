"""treadle.attention and treadle.Attention, without torch's names."""

import subprocess
import sys

import numpy as np
import pytest
import torch
import treadle

rng = np.random.default_rng(0)


def arrays(B=2, H=4, Q=50, D=16, *, Hkv=None, KV=None, Dv=None, dtype=np.float32):
    Hkv, KV, Dv = Hkv or H, KV or Q, Dv or D
    return [rng.standard_normal(s).astype(dtype) for s in ((B, H, Q, D), (B, Hkv, KV, D), (B, Hkv, KV, Dv))]


def formula(q, k, v, score_mod=None, mask_mod=None, scale=None):
    """out, lse and weights in float64; mods get arrays that broadcast."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) * (1 / np.sqrt(q.shape[3]) if scale is None else scale)
    at = np.ogrid[tuple(slice(n) for n in scores.shape)]
    if score_mod is not None:
        scores = score_mod(scores, *at)
    if mask_mod is not None:
        scores = np.where(mask_mod(*at), scores, -np.inf)
    most = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isinf(most), 0, most))
    total = weights.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = (np.log(total) + np.where(np.isinf(most), 0, most))[..., 0]
    weights = weights / np.where(total == 0, 1, total)
    return weights @ v, lse, weights


def causal(b, h, q, kv):
    return q >= kv


@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-12), (np.float32, 1e-5), (np.float16, 2e-3)])
def test_attention(dtype, tolerance):
    q, k, v = arrays(dtype=dtype)
    for mask_mod in (None, causal):
        out = treadle.attention(q, k, v, mask_mod=mask_mod)
        assert isinstance(out, np.ndarray) and out.dtype == dtype
        np.testing.assert_allclose(out, formula(q, k, v, None, mask_mod)[0], rtol=tolerance, atol=tolerance)


def test_score_mod_and_scale():
    q, k, v = arrays()

    def soft_cap(score, b, h, q, kv):
        return 5 * treadle.tanh(score / 5) - 0.1 * abs(q - kv)

    out = treadle.attention(q, k, v, soft_cap, causal, 0.3)
    gold = formula(q, k, v, lambda s, b, h, i, j: 5 * np.tanh(s / 5) - 0.1 * abs(i - j), causal, 0.3)[0]
    np.testing.assert_allclose(out, gold, rtol=1e-5, atol=1e-5)


def test_grouped_heads_and_unequal_sizes():
    q, k, v = arrays(H=6, Hkv=2, Q=20, KV=33, D=8, Dv=5)
    out = treadle.attention(q, k, v)
    assert out.shape == (2, 6, 20, 5)
    np.testing.assert_allclose(out, formula(q, k, v)[0], rtol=1e-5, atol=1e-5)


def test_forward():
    q, k, v = arrays()
    result = treadle.Attention(mask_mod=lambda b, h, q, kv: q > kv).forward(q, k, v)
    out, lse, _ = formula(q, k, v, None, lambda b, h, q, kv: q > kv)
    np.testing.assert_allclose(result.out, out, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(result.lse, lse, rtol=1e-5, atol=1e-5)
    assert np.isneginf(result.lse[:, :, 0]).all() and np.isneginf(result.max[:, :, 0]).all()


def test_forward_into():
    q, k, v = arrays()
    out = np.zeros((2, 50, 4, 16), np.float32).transpose(0, 2, 1, 3)
    result = treadle.Attention().forward(q, k, v, out=out)
    assert result.out is out
    np.testing.assert_allclose(out, formula(q, k, v)[0], rtol=1e-5, atol=1e-5)


def test_memory_that_must_not_be_written(tmp_path):
    q, k, v = arrays()
    forward = treadle.Attention().forward
    expected = forward(q, k, v).out
    out = np.full_like(q, 7)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out: the array is read-only"):
        forward(q, k, v, out=out)
    assert (out == 7).all()
    np.save(tmp_path / "out.npy", np.full_like(q, 7))
    with pytest.raises(ValueError, match="read-only"):
        forward(q, k, v, out=np.load(tmp_path / "out.npy", mmap_mode="r"))
    mapped = np.load(tmp_path / "out.npy", mmap_mode="r+")
    np.testing.assert_array_equal(forward(q, k, v, out=mapped).out, expected)
    with pytest.raises(ValueError, match="read-only"):
        forward(q, k, v, out=np.broadcast_to(np.zeros(16, np.float32), q.shape))


def test_memory_that_cannot_be_written():
    q, k, v = arrays()
    forward = treadle.Attention().forward
    for out, error, message in (
        ([1, 2], TypeError, "out: expected a NumPy array to write to, got list"),
        (torch.zeros(q.shape), TypeError, "got Tensor"),
        (np.ma.array(np.zeros_like(q)), TypeError, "got MaskedArray"),
        (np.zeros(q.shape, ">f4"), TypeError, "byte order"),
        (np.zeros(q.shape, np.float64), ValueError, "out holds f64"),
        (np.frombuffer(bytearray(q.nbytes + 1), np.float32, offset=1, count=q.size).reshape(q.shape), ValueError, "address"),
        (np.lib.stride_tricks.as_strided(np.zeros(200, np.float32), q.shape, (4, 4, 4, 4)), ValueError, "share memory"),
    ):
        with pytest.raises(error, match=message):
            forward(q, k, v, out=out)


def test_a_result_in_the_memory_of_an_input():
    """What is read is read before it is written over, whether the result lies in an input or in a capture."""
    numbers = rng.standard_normal((4, 2, 4, 50, 16)).astype(np.float32)
    places = [lambda packed, i=i: packed[i] for i in range(4)]
    places.append(lambda packed: packed[1:3].reshape(-1)[100 : 100 + packed[0].size].reshape(packed[0].shape))
    results = []
    for place in places:
        packed = numbers.copy()
        bias = treadle.capture(packed[3, 0, 0, :, 0])
        attend = treadle.Attention(lambda s, b, h, q, kv: s + bias[kv])
        results.append(attend.forward(*packed[:3], out=place(packed)).out)
    bias = treadle.capture(numbers[3, 0, 0, :, 0])
    expected = treadle.attention(*numbers[:3], lambda s, b, h, q, kv: s + bias[kv])
    for result in results:
        np.testing.assert_array_equal(result, expected)
    q, k, v = numbers[:3]
    woven = np.zeros((2, 4, 50, 2, 16), np.float32)  # beside each other, without a common element
    woven[..., 0, :] = q
    q, out = woven[..., 0, :], woven[..., 1, :]
    np.testing.assert_array_equal(treadle.Attention().forward(q, k, v, out=out).out, treadle.attention(q.copy(), k, v))


class Bfloat16:
    """An array of bfloat16 that speaks DLPack and, without ml_dtypes, nothing else: as jax has them."""

    dtype = "bfloat16"

    def __init__(self, shape):
        self.tensor = torch.ones(shape, dtype=torch.bfloat16)

    def __dlpack__(self, **options):
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


def test_bfloat16_by_dlpack():
    q, k, v = arrays()
    with pytest.raises(TypeError, match="cannot read a Bfloat16 of bfloat16.*ml_dtypes"):
        treadle.attention(Bfloat16(q.shape), k, v)
    with pytest.raises(TypeError, match="ml_dtypes"):
        treadle.capture(Bfloat16(3))


def test_bfloat16_of_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")

    class Known(Bfloat16):
        def __array__(self, *ignored, **also_ignored):
            return self.tensor.float().numpy().astype(ml_dtypes.bfloat16)

    q, k, v = (Known((1, 2, 5, 8)) for _ in range(3))
    out = treadle.attention(q, k, v)
    assert out.dtype == ml_dtypes.bfloat16 and (out == 1).all()


def test_backward():
    q, k, v = arrays(dtype=np.float64, Hkv=2)
    attend = treadle.Attention(mask_mod=causal)
    result = attend.forward(q, k, v)
    dout, dlse = rng.standard_normal(result.out.shape), rng.standard_normal(result.lse.shape)
    got = attend.backward(q, k, v, result, dout, dlse)
    _, _, weights = formula(q, k, v, None, causal)
    keys, values = (np.repeat(x, 2, 1) for x in (k, v))
    ds = weights * (dout @ values.swapaxes(-1, -2) - (result.out * dout).sum(-1, keepdims=True) + dlse[..., None]) / 4

    def grouped(x):
        return x.reshape(2, 2, 2, *x.shape[2:]).sum(2)

    np.testing.assert_allclose(got.dq, ds @ keys, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(got.dk, grouped(ds.swapaxes(-1, -2) @ q), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(got.dv, grouped(weights.swapaxes(-1, -2) @ dout), rtol=1e-9, atol=1e-12)


def test_captures_and_their_gradients():
    q, k, v = arrays(dtype=np.float64)
    slopes, offsets = rng.standard_normal(4), np.arange(50) * 0.1
    c, d = treadle.capture(slopes), treadle.capture(offsets)
    attend = treadle.Attention(lambda s, b, h, q, kv: s + c[h] * (d[kv] - d[q]))
    result = attend.forward(q, k, v)
    distance = offsets[None, :] - offsets[:, None]
    out, _, weights = formula(q, k, v, lambda s, b, h, i, j: s + slopes[h] * (offsets[j] - offsets[i]))
    np.testing.assert_allclose(result.out, out, rtol=1e-9, atol=1e-12)
    dout = rng.standard_normal(out.shape)
    ds = weights * (dout @ v.swapaxes(-1, -2) - (out * dout).sum(-1, keepdims=True))
    got = attend.backward(q, k, v, result, dout, captures=(c,))
    np.testing.assert_allclose(got.captures[0], (ds * distance).sum((0, 2, 3)), rtol=1e-9, atol=1e-12)
    both = attend.backward(q, k, v, result, dout, captures=(d, c)).captures
    np.testing.assert_array_equal(both[1], got.captures[0])
    assert both[0].shape == (50,)
    with pytest.raises(ValueError, match="does not read"):
        attend.backward(q, k, v, result, dout, captures=(treadle.capture(np.zeros(3)),))


def test_changed_captures_are_seen():
    q, k, v = arrays()
    slopes = np.ones(4, np.float32)
    c = treadle.capture(slopes)
    attend = treadle.Attention(lambda s, b, h, q, kv: s * c[h])
    first = attend.forward(q, k, v).out
    slopes[:] = 3
    np.testing.assert_allclose(attend.forward(q, k, v).out, formula(q, k, v, lambda s, *at: s * 3)[0], rtol=1e-4, atol=1e-5)
    assert not np.array_equal(first, attend.forward(q, k, v).out)


def test_captures_with_plain_indices():
    a = np.arange(12).reshape(3, 4)
    c = treadle.capture(a)
    assert c[1, 2] == 6 and np.array_equal(c[0], a[0])


def test_strided_and_reversed_captures():
    q, k, v = arrays()
    table = rng.standard_normal((100, 8)).astype(np.float32)
    for view in (table[::2, ::2], table[::-2, ::-2], table.T[::2, ::2].T):
        c = treadle.capture(view)
        out = treadle.attention(q, k, v, lambda s, b, h, q, kv: s + c[q, h] * c[kv, h])
        gold = formula(q, k, v, lambda s, b, h, i, j: s + view[i, h].astype(float) * view[j, h])[0]
        np.testing.assert_allclose(out, gold, rtol=1e-4, atol=1e-5)


def test_negative_indices():
    q, k, v = arrays()
    table = rng.standard_normal(50).astype(np.float32)
    c = treadle.capture(table)
    out = treadle.attention(q, k, v, lambda s, b, h, q, kv: s + c[q - kv])
    np.testing.assert_allclose(out, formula(q, k, v, lambda s, b, h, i, j: s + table[i - j])[0], rtol=1e-5, atol=1e-5)


def test_strided_inputs():
    packed = rng.standard_normal((2, 50, 3, 4, 16)).astype(np.float32)
    q, k, v = (packed[:, :, i].swapaxes(1, 2) for i in range(3))
    np.testing.assert_allclose(treadle.attention(q, k, v), formula(q, k, v)[0], rtol=1e-5, atol=1e-5)


def test_dlpack():
    """Anything that speaks DLPack: here torch."""
    q, k, v = (torch.randn(1, 2, 30, 8) for _ in range(3))
    out = treadle.attention(q, k, v, mask_mod=causal)
    assert isinstance(out, np.ndarray)
    np.testing.assert_allclose(out, formula(q.numpy(), k.numpy(), v.numpy(), None, causal)[0], rtol=1e-5, atol=1e-5)
    slopes = treadle.capture(torch.tensor([0.5, 0.25]))
    treadle.attention(q, k, v, lambda s, b, h, q, kv: s + slopes[h])


def test_read_only_arrays():
    q, k, v = arrays()
    expected = treadle.attention(q, k, v)
    for x in (q, k, v):
        x.flags.writeable = False
    np.testing.assert_array_equal(treadle.attention(q, k, v), expected)


def test_threads_change_no_bit():
    q, k, v = arrays(Q=130)
    np.testing.assert_array_equal(treadle.attention(q, k, v, threads=1), treadle.attention(q, k, v, threads=2))


def test_numpy_scalars():
    q, k, v = arrays()
    expected = treadle.attention(q, k, v, lambda s, b, h, q, kv: s * 0.5, lambda b, h, q, kv: q - kv < 7)
    half, window = np.float32(0.5), np.int64(7)
    got = treadle.attention(q, k, v, lambda s, b, h, q, kv: s * half, lambda b, h, q, kv: q - kv < window)
    np.testing.assert_array_equal(got, expected)
    reflected = treadle.attention(q, k, v, lambda s, b, h, q, kv: half * s, lambda b, h, q, kv: window > q - kv)
    np.testing.assert_array_equal(reflected, expected)


def test_numpy_functions():
    q, k, v = arrays()

    def mod(score, b, h, i, j):
        near = np.where(np.abs(i - j) < 9, np.tanh(score), np.maximum(score, -1.0))
        return near - np.sqrt(np.abs(i - j) + 1) * np.float32(0.1)

    np.testing.assert_allclose(treadle.attention(q, k, v, mod), formula(q, k, v, mod)[0], rtol=1e-4, atol=1e-5)

    def mask_mod(b, h, i, j):
        return np.logical_or(np.less_equal(j, i), np.equal(j % 7, 0))

    got = treadle.attention(q, k, v, mask_mod=mask_mod)
    np.testing.assert_allclose(got, formula(q, k, v, None, mask_mod)[0], rtol=1e-4, atol=1e-5)


def test_zero_dimensional_capture():
    q, k, v = arrays()
    gain = treadle.capture(np.array(2.0, np.float32))
    expected = treadle.attention(q, k, v, lambda s, b, h, q, kv: s * 2)
    for mod in (lambda s, b, h, q, kv: s * gain, lambda s, b, h, q, kv: s * gain[()]):
        np.testing.assert_array_equal(treadle.attention(q, k, v, mod), expected)
    with pytest.raises(treadle.TraceError, match="whole"):
        treadle.attention(q, k, v, lambda s, b, h, q, kv: s * treadle.capture(np.zeros(3)))


def test_errors():
    q, k, v = arrays()
    with pytest.raises(ValueError, match="q has 3 dimensions"):
        treadle.attention(q[0], k, v)
    with pytest.raises(ValueError, match="4.*3|3.*4"):
        treadle.attention(q, k[:, :3], v[:, :3])
    with pytest.raises(ValueError, match="dim"):
        treadle.attention(q, k[..., :3], v)
    with pytest.raises(TypeError, match="int32|float"):
        treadle.attention(q.astype("datetime64[s]"), k, v)
    with pytest.raises(TypeError, match="list"):
        treadle.attention([[1]], k, v)
    with pytest.raises(treadle.TraceError, match="test_numpy.py, line"):
        treadle.attention(q, k, v, lambda s, b, h, q, kv: s if q > kv else -s)
    with pytest.raises(treadle.TraceError, match="bool"):
        treadle.attention(q, k, v, mask_mod=lambda b, h, q, kv: q)
    with pytest.raises(treadle.ModError):
        table = treadle.capture(np.zeros(3))
        treadle.attention(q, k, v, lambda s, b, h, q, kv: s + table[q])


def test_a_plain_array_says_what_to_do():
    q, k, v = arrays()
    table = np.zeros(50, np.float32)
    with pytest.raises(Exception, match="treadle.capture"):
        treadle.attention(q, k, v, lambda s, b, h, q, kv: s + table[q])


def test_explain_shows_both_mods_and_their_numbers():
    slopes, unused = treadle.capture(np.ones(4, np.float32)), treadle.capture(np.ones((3, 5)))
    window = 128

    def score_mod(s, b, h, q, kv):
        ignored = unused[b, h] * 7.5  # noqa: F841
        return s * 2 + slopes[h] * (kv - q)

    def mask_mod(b, h, q, kv):
        return (q >= kv) & (q - kv < window)

    assert treadle.explain(score_mod, mask_mod).splitlines() == [
        "score mod:", "  score * float(s1) + c1[h] * float(kv - q)", "mask:", "  q >= kv && q - kv < s2",
        "captures:", "  c1: f32 [4]", "numbers:", "  s1 = 2", "  s2 = 128",
    ]  # fmt: skip
    assert treadle.explain(mask_mod=mask_mod) == "mask:\n  q >= kv && q - kv < s0\nnumbers:\n  s0 = 128"
    assert treadle.explain(lambda s, b, h, q, kv: s * 1.0) == "score mod:\n  score"
    assert treadle.explain(lambda s, b, h, q, kv: s * 0.5) == "score mod:\n  score * s0\nnumbers:\n  s0 = 0.5"


def test_numbers_of_numpy_that_are_floats_of_python():
    """np.float64 is a float, but does not print as one."""
    q, k, v = arrays()
    for number in (0.0, 1.0, 0.5, 2.5):
        expected = treadle.attention(q, k, v, lambda s, b, h, q, kv: s * number + number)
        wide = np.float64(number)
        np.testing.assert_array_equal(treadle.attention(q, k, v, lambda s, b, h, q, kv: s * wide + wide), expected)
    powers = treadle.attention(q, k, v, lambda s, b, h, q, kv: (kv + 1) ** np.float64(0.5))
    np.testing.assert_array_equal(powers, treadle.attention(q, k, v, lambda s, b, h, q, kv: (kv + 1) ** 0.5))


def test_torch_is_not_needed():
    code = (
        "import sys; sys.modules['torch'] = None; import numpy as np, treadle; "
        "x = np.ones((1, 1, 4, 8), np.float32); "
        "assert treadle.attention(x, x, x, lambda s, b, h, q, kv: s * 2, lambda b, h, q, kv: q >= kv).shape == x.shape"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_layout_of_a_mask_without_captures_is_kept():
    near = treadle.Attention(mask_mod=lambda b, h, q, kv: (q >= kv) & (q - kv < window))
    x = np.random.default_rng(0).standard_normal((1, 2, 50, 8)).astype(np.float32)
    window = 5
    first = near.forward(x, x, x).out
    (kept,) = near._layouts._kept.values()
    near.forward(x, x, x)
    assert next(iter(near._layouts._kept.values())) is kept
    window = 20
    assert not np.array_equal(near.forward(x, x, x).out, first)
    assert next(iter(near._layouts._kept.values())) is not kept


def test_a_mask_that_reads_an_array_sees_it_as_it_is():
    document = np.arange(50) // 10
    read = treadle.capture(document)
    inside = treadle.Attention(mask_mod=lambda b, h, q, kv: read[q] == read[kv])
    x = np.random.default_rng(0).standard_normal((1, 1, 50, 8)).astype(np.float32)
    first = inside.forward(x, x, x).out
    document[:] = np.arange(50) // 25
    fresh = treadle.Attention(mask_mod=lambda b, h, q, kv: read[q] == read[kv])
    second = inside.forward(x, x, x).out
    assert np.array_equal(second, fresh.forward(x, x, x).out) and not np.array_equal(second, first)


def test_a_limit_on_the_size_of_mods():
    q, k, v = arrays()

    def long(s, b, h, q, kv):
        for i in range(20):
            s = s * 0.5 + i
        return s

    message = r"the score mod has \d+ nodes; Options::most_nodes allows 20"
    small = treadle.Attention(long, causal, most_nodes=20)
    with pytest.raises(ValueError, match=message):
        small.forward(q, k, v)
    with pytest.raises(ValueError, match=message):
        treadle.attention(q, k, v, long, causal, most_nodes=20)
    # The same mods compiled under another limit are not taken instead, in either order.
    out = treadle.attention(q, k, v, long, causal)
    with pytest.raises(ValueError, match=message):
        small.forward(q, k, v)
    assert (treadle.Attention(long, causal, most_nodes=1000).forward(q, k, v).out == out).all()


def test_the_limit_may_be_raised():
    q, k, v = arrays(B=1, H=1, Q=3)

    def longer(s, b, h, q, kv):
        for _ in range(33000):
            s = kv - s
        return s

    with pytest.raises(ValueError, match="most_nodes allows 32768"):
        treadle.attention(q, k, v, longer)
    assert treadle.attention(q, k, v, longer, most_nodes=1 << 20).shape == v.shape
