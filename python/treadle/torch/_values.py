"""The torch front end: what mods of flex_attention compute with, and what they may read.

Made from the NumPy front end, since mods for torch may call NumPy's functions and read treadle.capture's arrays, too.
"""

from __future__ import annotations

import math

import torch

from .._numpy import NumpyPartial, NumpyTrace, NumpyValue
from .._rows import Row
from .._value import REAL
from ._functions import KIND_OF, apply, buffer_of_tensor, call, methods, of_rows, where_method

_dtype_of = {KIND_OF[dtype]: dtype for dtype in (torch.float32, torch.int64, torch.bool)}


def _torch_function(cls, func, types, args=(), kwargs=None):
    return call(func, args, kwargs)


def _size(self, dim=None):
    return torch.Size(self.shape) if dim is None else self.shape[dim]


class TorchValue(NumpyValue):
    """Looks like a tensor of one element: it has the methods that tensors have."""

    __slots__ = ()
    __torch_function__ = classmethod(_torch_function)
    where = where_method
    shape = torch.Size(())
    ndim = 0
    size = _size
    device = torch.device("cpu")
    requires_grad = False

    @property
    def dtype(self):
        return _dtype_of[self.kind]

    def dim(self) -> int:
        return 0

    def numel(self) -> int:
        return 1

    def is_floating_point(self) -> bool:
        return self.kind == REAL


class TorchPartial(NumpyPartial):
    """Looks like a tensor of the dimensions that are open."""

    __slots__ = ()
    __torch_function__ = classmethod(_torch_function)
    where = where_method
    size = _size

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def dim(self) -> int:
        return len(self.shape)

    def numel(self) -> int:
        return math.prod(self.shape)


class TorchRow(Row):
    """Looks like a tensor of one dimension."""

    __slots__ = ()
    __torch_function__ = classmethod(_torch_function)
    where = where_method
    size = _size

    def dim(self) -> int:
        return 1

    def numel(self) -> int:
        return len(self)


def _method(name):
    def method(self, *args, **kwargs):
        return apply(methods.get(name), name, (self, *args), kwargs)

    method.__name__ = name
    return method


for _class in (TorchValue, TorchPartial, TorchRow):
    for _name in methods if _class is TorchValue else {**methods, **of_rows}:
        if not _name.startswith("__") and not hasattr(_class, _name):
            setattr(_class, _name, _method(_name))


class TorchTrace(NumpyTrace):
    value = TorchValue
    partial = TorchPartial
    row = TorchRow

    def readable(self, array):
        return torch.as_tensor(array)

    def buffer_of(self, x):
        return buffer_of_tensor(x) if isinstance(x, torch.Tensor) else NumpyTrace.buffer_of(self, x)
