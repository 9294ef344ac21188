"""Keys and values of 8 bits: results have the bits of a call with the same numbers in float32."""

import numpy as np
import pytest
import torch
import treadle
from mods import name
from policy import inputs, of_torch
from treadle.torch import AuxRequest, create_block_mask, flex_attention
from treadle.torch._attend import autocast

eight_bits = [torch.float8_e4m3fn, torch.float8_e5m2, torch.int8]
float8 = eight_bits[:2]


def narrow(t, dtype):
    return (t * 20).round().to(dtype) if dtype == torch.int8 else t.to(dtype)


def causal(b, h, q, kv):
    return q + 30 >= kv


@pytest.mark.parametrize("queries", [1, 70])
@pytest.mark.parametrize("v_dtype", eight_bits, ids=name)
@pytest.mark.parametrize("k_dtype", eight_bits, ids=name)
def test_bits_of_float32(k_dtype, v_dtype, queries):
    for q_dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        q, k, v = inputs(Q=queries, KV=70, Hkv=2)
        q, k, v = q.to(q_dtype), narrow(k, k_dtype), narrow(v, v_dtype)
        mask = create_block_mask(causal, None, None, queries, 70)
        options = dict(block_mask=mask, scale=0.02, enable_gqa=True, return_aux=AuxRequest(lse=True, max_scores=True))
        out, aux = flex_attention(q, k, v, **options)
        wanted, wanted_aux = flex_attention(q, k.float(), v.float(), **options)
        assert out.dtype == q_dtype and torch.equal(out, wanted)
        assert torch.equal(aux.lse, wanted_aux.lse) and torch.equal(aux.max_scores, wanted_aux.max_scores)


@pytest.mark.parametrize("dtype", eight_bits, ids=name)
def test_as_torch_does(dtype):
    q, k, v = inputs()
    k, v = narrow(k, dtype), narrow(v, dtype)
    torch.testing.assert_close(flex_attention(q, k, v, scale=0.02), of_torch(q, k, v, scale=0.02), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("queries", [1, 40])
@pytest.mark.parametrize("dtype", eight_bits, ids=name)
def test_every_code_means_what_torch_says(dtype, queries):
    """Each is an element of the only value, so of the result."""
    v = torch.arange(256, dtype=torch.uint8).view(dtype).reshape(1, 1, 1, 256)
    out = flex_attention(torch.zeros(1, 1, queries, 4), torch.zeros(1, 1, 1, 4), v)
    torch.testing.assert_close(out[:, :, -1:], v.float(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", eight_bits, ids=name)
def test_no_gradients(dtype):
    q, k, v = inputs()
    k, v = narrow(k, dtype), narrow(v, dtype)
    plain = flex_attention(q, k, v)
    attended = flex_attention(q.requires_grad_(), k, v)
    assert torch.equal(plain, attended)
    with pytest.raises(ValueError, match="backward: k holds (e4m3|e5m2|i8); gradients need f64, f32, bf16 or f16"):
        attended.sum().backward()


@pytest.mark.parametrize("dtype", float8, ids=name)
def test_gradients_of_eight_bits_are_refused(dtype):
    q, k, v = inputs()
    learned = k.requires_grad_().to(dtype)
    with pytest.raises(ValueError, match="key is torch.float8_.* and requires grad; gradients need float64.*detach"):
        flex_attention(q, learned, v)
    with pytest.raises(ValueError, match="value is torch.float8_.* and requires grad"):
        flex_attention(q, v, learned)
    wanted = flex_attention(q, learned.detach(), v)
    with torch.no_grad():
        assert torch.equal(flex_attention(q, learned, v), wanted)


def test_refused_types():
    q, k, v = inputs()
    for dtype in eight_bits:
        with pytest.raises(ValueError, match="query must be float64, float32, bfloat16 or float16, got torch"):
            flex_attention(q.to(dtype), k, v)
    for dtype in (torch.int16, torch.uint8, torch.float8_e5m2fnuz):
        with pytest.raises(ValueError, match="key must be .*float8_e4m3fn, float8_e5m2 or int8, got torch"):
            flex_attention(q, k.to(dtype), v)
        with pytest.raises(ValueError, match="value must be .*float8_e4m3fn, float8_e5m2 or int8, got torch"):
            flex_attention(q, k, v.to(dtype))


@pytest.mark.parametrize("dtype", eight_bits, ids=name)
def test_autocast_leaves_them(dtype):
    q, k, v = inputs()
    k, v = narrow(k, dtype), narrow(v, dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = flex_attention(q, k, v)
        assert autocast(q, k, v)[1] is k  # a copy would have the same numbers
    assert torch.equal(out, flex_attention(q.bfloat16(), k, v))


@pytest.mark.parametrize("dtype", eight_bits, ids=name)
def test_inside_a_graph(dtype):
    torch._dynamo.reset()
    q, k, v = inputs()
    k, v = narrow(k, dtype), narrow(v, dtype)
    compiled = torch.compile(flex_attention, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(q, k, v), flex_attention(q, k, v))


@pytest.mark.parametrize("dtype", float8, ids=name)
def test_captures(dtype):
    q, k, v = inputs()
    table = torch.randn(4, 70).to(dtype)
    wide = table.float()
    out = flex_attention(q, k, v, lambda s, b, h, q, kv: s + table[h, kv])
    assert torch.equal(out, flex_attention(q, k, v, lambda s, b, h, q, kv: s + wide[h, kv]))
    table.requires_grad_()
    with pytest.raises(ValueError, match="capture .* holds (e4m3|e5m2); gradients need f64, f32, bf16 or f16"):
        flex_attention(q, k, v, lambda s, b, h, q, kv: s + table[h, kv]).sum().backward()
    with pytest.raises(treadle.TraceError, match="a mod converts to torch.float8_.*, which is not supported"):
        flex_attention(q, k, v, lambda s, b, h, q, kv: s.to(dtype))


# --- NumPy --------------------------------------------------------------------------------------------------------


def test_numpy_int8():
    q, k, v = (t.numpy() for t in inputs())
    k, v = ((20 * x).round().astype(np.int8) for x in (k, v))
    attention = treadle.Attention(scale=0.02)
    result = attention.forward(q, k, v)
    wanted = attention.forward(q, k.astype(np.float32), v.astype(np.float32))
    np.testing.assert_array_equal(result.out, wanted.out)
    np.testing.assert_array_equal(result.lse, wanted.lse)
    with pytest.raises(ValueError, match="backward: k holds i8; gradients need f64, f32, bf16 or f16"):
        attention.backward(q, k, v, result, q)
    with pytest.raises(ValueError, match="forward: q holds i8; it must hold f64, f32, bf16 or f16"):
        attention.forward(k, k, v)


@pytest.mark.parametrize("dtype", float8, ids=name)
def test_numpy_cannot_read_float8_of_torch(dtype):
    q, k, v = inputs()
    message = f"cannot read a Tensor of {dtype}.*float8_e4m3fn, float8_e5m2 it needs ml_dtypes.*treadle.torch"
    with pytest.raises(TypeError, match=message):
        treadle.attention(q, k.to(dtype), v)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_numpy_float8_of_ml_dtypes(dtype):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    q, k, v = (t.numpy() for t in inputs())
    k, v = (x.astype(getattr(ml_dtypes, dtype)) for x in (k, v))
    wanted = treadle.attention(q, k.astype(np.float32), v.astype(np.float32))
    np.testing.assert_array_equal(treadle.attention(q, k, v), wanted)
