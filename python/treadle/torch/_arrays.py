"""torch tensors as arrays of Treadle."""

from __future__ import annotations

import torch

from .._program import Array, Program, types

NAMES = {
    torch.float64: "f64", torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16", torch.int64: "i64",
    torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.bool: "bool",
}  # fmt: skip
_codes = {dtype: types[name] for dtype, name in NAMES.items()}


def as_array(x: torch.Tensor) -> Array:
    return (x.data_ptr(), _codes[x.dtype], tuple(x.shape), x.stride())


def arrays_of(program: Program) -> tuple:
    """The tensors that a program reads, to be kept, and what a compiled function takes for all its captures."""
    tensors = tensors_of(program.captures)
    return tensors, [*map(as_array, tensors), *program.scalars]


def tensors_of(captures) -> list:
    """The tensors of captured buffers; NumPy arrays as tensors of the same memory, where torch can have such."""
    return [c.object if isinstance(c.object, torch.Tensor) else _of_numpy(c.object) for c in captures]


def _of_numpy(array) -> torch.Tensor:
    if not array.flags.writeable or any(s < 0 for s in array.strides):
        array = array.copy()
    return torch.from_numpy(array)
