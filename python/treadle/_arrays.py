"""NumPy arrays, and anything that supports DLPack, as arrays of Treadle."""

from __future__ import annotations

import numpy as np

from ._program import Array, types

_NAMES = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "int64": "i64", "int32": "i32",
    "int16": "i16", "int8": "i8", "uint8": "u8", "bool": "bool",
}  # fmt: skip


def dtype_name(dtype) -> str:
    name = _NAMES.get(np.dtype(dtype).name)
    if name is None:
        raise TypeError(f"arrays of {dtype} are not supported; {', '.join(_NAMES)} are")
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
        raise ValueError(f"an array has strides {strides}, which are not multiples of its element size {size}")
    return (x.ctypes.data, types[dtype_name(x.dtype)], x.shape, tuple([s // size for s in strides]))
