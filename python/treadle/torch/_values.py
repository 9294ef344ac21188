"""The torch front end: what mods of flex_attention compute with, and what they may read.

Made from the NumPy front end, since mods for torch may call NumPy's functions and read treadle.capture's arrays, too.
"""

from __future__ import annotations

import torch

from .._numpy import NumpyPartial, NumpyTrace, NumpyValue
from .._rows import Row
from ._functions import KIND_OF, apply, buffer_of_tensor, call, methods, of_rows, where_method

_dtype_of = {KIND_OF[dtype]: dtype for dtype in (torch.float32, torch.int64, torch.bool)}


def _torch_function(cls, func, types, args=(), kwargs=None):
    return call(func, args, kwargs)


class TorchValue(NumpyValue):
    """Looks like a tensor of one element: it has the methods that tensors have."""

    __slots__ = ()
    __torch_function__ = classmethod(_torch_function)
    where = where_method
    shape = torch.Size(())
    ndim = 0
    device = torch.device("cpu")
    requires_grad = False

    @property
    def dtype(self):
        return _dtype_of[self.kind]


class TorchPartial(NumpyPartial):
    __slots__ = ()
    __torch_function__ = classmethod(_torch_function)
    where = where_method


class TorchRow(Row):
    """Looks like a tensor of one dimension."""

    __slots__ = ()
    __torch_function__ = classmethod(_torch_function)
    where = where_method


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

    def buffer_of(self, x):
        return buffer_of_tensor(x) if isinstance(x, torch.Tensor) else NumpyTrace.buffer_of(self, x)
