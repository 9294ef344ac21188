"""The border of the NumPy front end: NumPy arrays, and anything that supports DLPack, as arrays of Treadle.

What an array means is settled here. Memory that cannot be read as it is (another byte order, masked elements,
addresses that are not aligned) is refused, never read as something else.
"""

from __future__ import annotations

import sys

import numpy as np

from . import _core
from ._program import Array, types

_NAMES = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "int64": "i64", "int32": "i32",
    "int16": "i16", "int8": "i8", "uint8": "u8", "bool": "bool", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2",
}  # fmt: skip
_OF_ML_DTYPES = ("bfloat16", "float8_e4m3fn", "float8_e5m2")


def dtype_name(dtype) -> str:
    dtype = np.dtype(dtype)
    name = _NAMES.get(dtype.name)
    if name is None:
        raise TypeError(f"arrays of {dtype} are not supported; {', '.join(_NAMES)} are")
    if not dtype.isnative:
        raise TypeError(
            f"an array of {dtype.str} is not in the byte order of this machine, which is {sys.byteorder}-endian; "
            f"convert it: x.astype(np.{dtype.name})"
        )
    return name


def as_numpy(x) -> np.ndarray:
    """The same memory as a NumPy array."""
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError("a masked array is not supported: its mask would be ignored; fill it, x.filled(value)")
    if isinstance(x, np.ndarray):
        return x
    if not hasattr(x, "__dlpack__"):
        raise TypeError(f"expected an array, got {type(x).__name__}")
    if hasattr(x, "resolve_neg"):  # torch exports memory without saying that its values are yet to be negated
        x = x.resolve_neg()
    try:
        return np.from_dlpack(x)
    except (RuntimeError, TypeError, ValueError, BufferError, AttributeError) as error:
        return _without_dlpack(x, error)


def _without_dlpack(x, error: Exception) -> np.ndarray:
    """NumPy has no bfloat16 and no 8-bit floats, so it cannot take them by DLPack; objects that know ml_dtypes, as
    jax's do, bring theirs."""
    try:
        array = np.asarray(x)
    except Exception:
        array = None
    if type(array) is np.ndarray and array.dtype.name in _OF_ML_DTYPES:
        return array
    raise TypeError(
        f"NumPy cannot read a {type(x).__name__} of {getattr(x, 'dtype', 'unknown type')}: {error}. For "
        f"{', '.join(_OF_ML_DTYPES)} it needs ml_dtypes; for torch's tensors there is treadle.torch"
    ) from error


def as_array(x: np.ndarray) -> Array:
    """Of an array that has to be kept while this one is used."""
    code = types[dtype_name(x.dtype)]
    size = x.itemsize
    strides = x.strides
    if any(s % size for s in strides):
        raise ValueError(f"an array has strides {strides}, which are not multiples of its element size {size}")
    address = x.ctypes.data
    if address % size and x.size:
        raise ValueError(
            f"an array of {x.dtype} begins at address {address:#x}, which is not a multiple of its element size, {size}; "
            "copy it: x.copy()"
        )
    return (address, code, x.shape, tuple([s // size for s in strides]))


# The module reads arrays itself, and asks as_array for what it does not know or has to refuse.
_core.read_arrays(as_array)


def check_result(name: str, x) -> None:
    """Of an array of the user's that results go to."""
    if not isinstance(x, np.ndarray) or isinstance(x, np.ma.MaskedArray):
        raise TypeError(f"{name}: expected a NumPy array to write to, got {type(x).__name__}")
    if not x.flags.writeable:
        raise ValueError(f"{name}: the array is read-only")
