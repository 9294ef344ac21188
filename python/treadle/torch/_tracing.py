"""Traces mods that call torch's functions and read torch's tensors."""

from __future__ import annotations

from typing import Callable, Optional

import torch
from torch.overrides import TorchFunctionMode

from .. import _program
from .._captures import read, trace_of
from .._known import KnownPrograms
from ._arrays import is_watched
from ._functions import buffer_of_tensor, call, refuse_random, refuse_write
from ._sight import COMPARED, TorchSight
from ._values import TorchTrace

_read_element = torch.Tensor.__getitem__
_in_place = {f"__i{name}__" for name in "add sub mul truediv floordiv mod pow and or xor lshift rshift matmul".split()}

_random = frozenset((
    "rand", "rand_like", "randn", "randn_like", "randint", "randint_like", "randperm", "bernoulli", "multinomial", "normal",
    "poisson", "dropout",
))  # fmt: skip


class Tracing(TorchFunctionMode):
    """While a mod is traced: indexing a tensor with traced values reads it; writing to one is refused, and so are random
    numbers."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is _read_element and type(args[0]) is torch.Tensor:
            trace = trace_of(args[1])
            return func(*args) if trace is None else read(trace, buffer_of_tensor(args[0]), args[1])
        if trace_of(*args) is not None or (kwargs and trace_of(*kwargs.values()) is not None):
            return call(func, args, kwargs)
        name = getattr(func, "__name__", "")
        if name.endswith("_"):
            if name == "__setitem__":
                refuse_write("[...] = ")
            if name in _in_place or not (name.endswith("__") or name.startswith("_")):
                refuse_write(name)
        elif name in _random:
            refuse_random(name)
        return func(*args, **(kwargs or {}))


class Watching(Tracing):
    """note() is called when the mod learns what tensors hold, or makes one."""

    def __init__(self, note: Callable):
        super().__init__()
        self._note = note

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func not in COMPARED and trace_of(*args, *(kwargs or {}).values()) is None:
            self._note()
        return super().__torch_function__(func, types, args, kwargs)


_known = KnownPrograms(TorchSight)


def trace(score_mod: Optional[Callable], mask_mod: Optional[Callable], sizes: tuple) -> _program.Program:
    """The program of mods for batch, heads, queries and keys; a size is None where it is not known."""
    if score_mod is None and mask_mod is None:
        return _program.nothing
    if torch.compiler.is_compiling() or is_watched():  # by somebody who wants to see the mod run
        with Tracing():
            return _program.trace(TorchTrace(sizes), score_mod, mask_mod)

    def anew(note: Optional[Callable]) -> _program.Program:
        with Tracing() if note is None else Watching(note):
            return _program.trace(TorchTrace(sizes), score_mod, mask_mod)

    # torch.finfo() is of the default type.
    return _known.get(score_mod, mask_mod, sizes, torch.get_default_dtype(), anew)
