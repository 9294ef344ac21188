"""What mods of the torch front end see."""

from __future__ import annotations

from types import BuiltinFunctionType, FunctionType
from typing import Optional

import torch

from .._attributes import missing, of_class
from .._sight import Holds, Sight, Unseen
from ._arrays import NAMES
from ._functions import methods, of_rows
from ._values import TorchPartial, TorchRow, TorchValue

_TENSORS = frozenset((torch.Tensor, torch.nn.Parameter))
_TYPES = frozenset((torch.dtype, torch.device, torch.Size, torch.finfo, torch.iinfo))
# What a tensor says of itself that _of_tensor compares.
COMPARED = frozenset((
    torch.Tensor.shape.__get__, torch.Tensor.dtype.__get__, torch.Tensor.ndim.__get__, torch.Tensor.device.__get__,
    torch.Tensor.size, torch.Tensor.dim, torch.Tensor.numel, torch.Tensor.__len__,
))  # fmt: skip


class TorchSight(Sight):
    modules = (torch.nn.Module,)
    stores = ("_parameters", "_buffers", "_modules")

    def __init__(self):
        super().__init__()
        self.called.add(torch.nn.Module.__getattr__.__code__)
        self.strange.add(torch.nn.Module.__call__.__code__)  # hooks

    def is_known(self, x) -> bool:
        """Whatever a function of these names is given, the values of a trace answer, or else Tracing sees it."""
        if type(x) in (BuiltinFunctionType, FunctionType):
            # functools.wraps gives other people's functions the names of torch's.
            module = x.__module__ if type(x) is BuiltinFunctionType else x.__globals__.get("__name__")
            if (x.__name__ in methods or x.__name__ in of_rows) and (module or "").partition(".")[0] == "torch":
                return True
        return type(x) is torch.dtype or (type(x) is type and x in _TYPES) or super().is_known(x)

    def is_of_values(self, name: str) -> bool:
        return any([hasattr(owner, name) for owner in (TorchValue, TorchPartial, TorchRow, torch.Tensor)])

    def of_capture(self, x) -> Optional[Holds]:
        if type(x) not in _TENSORS:
            return super().of_capture(x)
        for name in self._names:
            of_all = of_class(type(x), name)
            if of_all is not missing and not hasattr(type(of_all), "__get__"):
                raise Unseen("somebody has given all tensors an attribute")
        return _of_tensor(x, self._names)


def _of_tensor(x: torch.Tensor, names: frozenset) -> Holds:
    dtype = x.dtype
    if not x.is_cpu or x.layout is not torch.strided or dtype not in NAMES:
        raise Unseen("it is no plain tensor")
    try:
        shape = x.shape
    except RuntimeError:  # a nested one
        raise Unseen("it has no shape") from None

    def holds(y, found):
        if type(y) not in _TENSORS or y.dtype is not dtype or not y.is_cpu or y.layout is not torch.strided:
            return False
        try:
            if y.shape != shape:
                return False
        except RuntimeError:
            return False
        if names and not names.isdisjoint(y.__dict__):  # somebody has given it attributes
            return False
        found.append(y)
        return True

    return holds
