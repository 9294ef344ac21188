"""NumPy arrays, and anything that speaks DLPack, as arrays of Treadle."""

from __future__ import annotations

import numpy as np

from ._captures import Buffer, Capture, register_buffers
from ._program import Array, types

_names = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "int64": "i64", "int32": "i32",
    "int16": "i16", "int8": "i8", "uint8": "u8", "bool": "bool",
}  # fmt: skip


def dtype_name(dtype) -> str:
    name = _names.get(np.dtype(dtype).name)
    if name is None:
        raise TypeError(f"arrays of {dtype} are not supported; {', '.join(_names)} are")
    return name


def as_numpy(x) -> np.ndarray:
    """The same memory as a NumPy array."""
    if isinstance(x, np.ndarray):
        return x
    if hasattr(x, "__dlpack__"):
        return np.from_dlpack(x)
    raise TypeError(f"expected an array, got {type(x).__name__}")


def as_array(x: np.ndarray) -> Array:
    size = x.itemsize
    strides = x.strides
    if any(s % size for s in strides):
        raise ValueError(f"an array has strides {strides}, which are no multiples of its element size {size}")
    return (x.ctypes.data, types[dtype_name(x.dtype)], x.shape, tuple([s // size for s in strides]))


def capture(array) -> Capture:
    """Lets mods read an array with traced indices: `slopes = treadle.capture(a)`, then `slopes[h]`.

    >>> import numpy as np, treadle
    >>> slopes = treadle.capture(np.array([0.5, 0.25], np.float32))
    >>> treadle.explain(lambda score, b, h, q, kv: score + slopes[h] * (kv - q)).splitlines()[-1]
    'score + c0[h] * float(kv - q)'
    """
    array = as_numpy(array)
    return Capture(array, Buffer(array, dtype_name(array.dtype), array.shape))


def _buffer(x):
    if isinstance(x, Capture):
        return x.buffer
    if isinstance(x, np.generic):
        return x.item()
    if isinstance(x, np.ndarray):
        return Buffer(x, dtype_name(x.dtype), x.shape)
    return None


register_buffers(_buffer)
