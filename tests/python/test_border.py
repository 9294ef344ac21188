"""Whatever tensor or array a call is given: it means what a plain copy of it means, or it is refused in clear words."""

import kinds
import numpy as np
import pytest
import torch
import treadle
from hypothesis import given, settings
from hypothesis import strategies as st
from policy import one_thread
from treadle.torch import AuxRequest, create_block_mask, flex_attention

floats = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
integers = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
roles = ("q", "k", "v", "capture", "document", "dout", "dlse")
sizes = st.tuples(st.integers(1, 2), st.integers(1, 2), st.integers(0, 5))
CLEAR = (
    "not supported|must be|cannot read|expected an array|not multiples|not a multiple|not aligned|null data|has no memory|"
    "runs on the CPU|byte order|on one device|on device"
)


def shapes_of(batch, heads, length):
    rows = (batch, heads, length)
    return dict(
        q=(*rows, 4), k=(*rows, 4), v=(*rows, 4), capture=(heads, length), document=(length,), dout=(*rows, 4), dlse=rows,
    )  # fmt: skip


def dtype_for(role, dtype, integer, use_integer, wide, narrow):
    """Documents are integers and captures may be; lse is never narrower than float32."""
    if role == "document" or (role == "capture" and use_integer):
        return integer
    return (wide if dtype == wide else narrow) if role == "dlse" else dtype


def same(got, wanted):
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted):
        assert a.shape == b.shape and a.dtype == b.dtype
        assert bool((kinds.plain(a) == b).all()), (a, b)


# --- torch --------------------------------------------------------------------------------------------------------


def attend(given, length, backward):
    """out, lse and the gradients of q, k and v and, if it is of floats, of what the score mod reads."""
    q, k, v, capture, document = [given[role] for role in roles[:5]]

    def score_mod(score, b, h, q, kv):
        return score + capture[h, kv]

    def mask_mod(b, h, q, kv):
        return (document[q] == document[kv]) | (q == kv)

    mask = create_block_mask(mask_mod, None, None, length, length)
    out, aux = flex_attention(q, k, v, score_mod, mask, return_aux=AuxRequest(lse=True))
    if not backward:
        return out, aux.lse
    learned = [t for t in (q, k, v, capture) if t.requires_grad]
    return out, aux.lse, *torch.autograd.grad((out, aux.lse), learned, (given["dout"], given["dlse"]))


def leaf(x):
    """The same kind of tensor with a gradient of its own."""
    return x.detach().requires_grad_() if x.dtype in floats else x


@one_thread()
def call(given, role, length):
    backward = not given[role].is_inference()
    if backward:
        given = {name: leaf(x) if name in ("q", "k", "v", "capture") else x for name, x in given.items()}
    return attend(given, length, backward)


def tensors_of(size, dtype, integer, use_integer, role, make):
    shapes = shapes_of(*size)
    dtypes = {r: dtype_for(r, dtype, integer, use_integer, torch.float64, torch.float32) for r in roles}
    return {r: (make if r == role else kinds.random)(list(shapes[r]), dtypes[r]) for r in roles}


any_call = (sizes, st.sampled_from(floats), st.sampled_from(integers), st.booleans(), st.sampled_from(roles))


@settings(max_examples=150, deadline=None)
@given(*any_call, st.sampled_from(list(kinds.tensors)))
def test_tensors(size, dtype, integer, use_integer, role, kind):
    given = tensors_of(size, dtype, integer, use_integer, role, kinds.tensors[kind])
    wanted = call({name: kinds.plain(x) for name, x in given.items()}, role, size[2])
    got = call(given, role, size[2])
    same(got, wanted[: len(got)])


@settings(max_examples=80, deadline=None)
@given(*any_call, st.sampled_from(list(kinds.refused_tensors)))
def test_refused_tensors(size, dtype, integer, use_integer, role, kind):
    size = (*size[:2], size[2] + 1)
    given = tensors_of(size, dtype, integer, use_integer, role, kinds.refused_tensors[kind])
    of_torch = role in ("dout", "dlse") or kind == "fake"  # torch looks at these first
    if kind == "not aligned" and given[role].dtype.itemsize == 1:
        return
    if kind in ("float8", "uint16") and of_torch:  # and converts them
        return
    errors = (TypeError, ValueError, RuntimeError, AssertionError) if of_torch else (TypeError, ValueError, RuntimeError)
    with pytest.raises(errors, match=None if of_torch else CLEAR):
        call(given, role, size[2])


# --- NumPy --------------------------------------------------------------------------------------------------------

numpy_floats = (np.float32, np.float64, np.float16)
numpy_integers = (np.int64, np.int32, np.int16, np.int8, np.uint8, np.bool_)


def attend_numpy(given):
    capture, document = treadle.capture(given["capture"]), treadle.capture(given["document"])
    attention = treadle.Attention(
        lambda score, b, h, q, kv: score + capture[h, kv],
        lambda b, h, q, kv: (document[q] == document[kv]) | (q == kv),
        threads=1,
    )
    q, k, v = given["q"], given["k"], given["v"]
    result = attention.forward(q, k, v)
    learned = (capture,) if capture.array.dtype.kind == "f" else ()
    gradients = attention.backward(q, k, v, result, given["dout"], given["dlse"], captures=learned)
    return *result, *gradients[:3], *gradients.captures


def arrays_of(size, dtype, integer, use_integer, role, make):
    shapes = shapes_of(*size)
    dtypes = {r: dtype_for(r, dtype, integer, use_integer, np.float64, np.float32) for r in roles}
    return {r: (make if r == role else kinds.random_array)(list(shapes[r]), dtypes[r]) for r in roles}


any_numpy_call = (
    sizes, st.sampled_from(numpy_floats), st.sampled_from(numpy_integers), st.booleans(), st.sampled_from(roles),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(*any_numpy_call, st.sampled_from(list(kinds.arrays)))
def test_arrays(size, dtype, integer, use_integer, role, kind):
    if kind.startswith("mapped"):
        size = (*size[:2], size[2] + 1)  # an empty file cannot be mapped
    given = arrays_of(size, dtype, integer, use_integer, role, kinds.arrays[kind])

    def plain(x):
        return kinds.plain(x).numpy() if isinstance(x, torch.Tensor) else kinds.plain(x)

    same(attend_numpy(given), attend_numpy({name: plain(x) for name, x in given.items()}))


@settings(max_examples=80, deadline=None)
@given(*any_numpy_call, st.sampled_from(list(kinds.refused_arrays)))
def test_refused_arrays(size, dtype, integer, use_integer, role, kind):
    size = (*size[:2], size[2] + 1)
    given = arrays_of(size, dtype, integer, use_integer, role, kinds.refused_arrays[kind])
    aligned = role == "dlse" or getattr(given[role], "itemsize", 0) == 1  # dlse is converted, which makes a copy
    if (aligned and kind in ("not aligned", "field between others")) or (
        kind == "other byte order" and getattr(given[role], "itemsize", 0) == 1
    ):
        return
    with pytest.raises((TypeError, ValueError), match=CLEAR):
        attend_numpy(given)


def test_a_torch_without_a_table_for_tensors():
    from treadle import _core
    from treadle.torch._arrays import as_array

    q = torch.randn(1, 2, 8, 4).transpose(1, 2)
    bias = torch.randn(2, 8)[:, ::2]
    score_mod = lambda s, b, h, q, kv: s + bias[kv % 2, h % 4] * kv  # noqa: E731
    expected = flex_attention(q, q, q, score_mod)
    _core.read_tensors(None, as_array)
    try:
        assert torch.equal(flex_attention(q, q, q, score_mod), expected)
        with pytest.raises(TypeError, match="complex64 are not supported"):
            as_array(torch.zeros(2, dtype=torch.complex64))
    finally:
        _core.read_tensors(torch.Tensor.__dlpack_c_exchange_api__, as_array)
    assert torch.equal(flex_attention(q, q, q, score_mod), expected)
