"""The NumPy front end: what mods of treadle.attention compute with, and what they may read.

Mods call NumPy's functions, or those of the package (treadle.where), on NumpyValues, and read arrays by
treadle.capture. treadle.torch has classes of its own made from these; importing it changes nothing here.
"""

from __future__ import annotations

from typing import Callable, Optional

import numpy as np

from ._arrays import as_numpy, dtype_name
from ._captures import Buffer, Capture, Partial
from ._errors import TraceError, where_in_user_code
from ._functions import functions
from ._known import KnownPrograms
from ._program import Program, nothing, trace
from ._sight import Sight
from ._trace import Trace
from ._value import Value


def _call(function, args, kwargs):
    found = functions.get(function.__name__)
    if found is None or kwargs:
        options = f" with {', '.join(kwargs)}" if kwargs else ""
        raise TraceError(f"a mod calls numpy.{function.__name__}{options}, which cannot be compiled{where_in_user_code()}")
    return found(*args)


def _array_ufunc(self, ufunc, method, *args, **kwargs):
    if method != "__call__":
        raise TraceError(f"a mod calls numpy.{ufunc.__name__}.{method}, which cannot be compiled{where_in_user_code()}")
    return _call(ufunc, args, kwargs)


def _array_function(self, function, types, args, kwargs):
    return _call(function, args, kwargs)


def _torch_function(cls, func, types, args=(), kwargs=None):
    name = getattr(func, "__name__", str(func))
    if name == "__getitem__":
        raise TraceError(
            "a mod reads a tensor with a traced index; make it one that can be read so, "
            f"tensor = treadle.capture(tensor){where_in_user_code()}"
        )
    if args and not isinstance(args[0], (Value, Partial, Capture)):
        return NotImplemented  # so that of tensor * value Python asks the value next
    raise TraceError(
        f"a mod of treadle.attention calls torch's {name}; it may call functions of NumPy and treadle. For those of "
        f"torch there is treadle.torch.flex_attention{where_in_user_code()}"
    )


class NumpyValue(Value):
    __slots__ = ()
    __array_ufunc__ = _array_ufunc
    __array_function__ = _array_function
    __torch_function__ = classmethod(_torch_function)

    def __array__(self, *ignored, **also_ignored):
        raise TraceError(
            "NumPy cannot read an array with a traced index; make it one that can be read so, "
            f"array = treadle.capture(array){where_in_user_code()}"
        )


class NumpyPartial(Partial):
    __slots__ = ()
    __array_ufunc__ = _array_ufunc
    __array_function__ = _array_function
    __torch_function__ = classmethod(_torch_function)


class NumpyTrace(Trace):
    value = NumpyValue
    partial = NumpyPartial

    def readable(self, array):
        return capture(array)

    def buffer_of(self, x):
        if isinstance(x, Capture):
            return x.buffer
        if isinstance(x, np.generic):
            return x.item()
        return _buffer(as_numpy(x)) if hasattr(x, "__dlpack__") else None


_known = KnownPrograms(Sight)


def traced(score_mod: Optional[Callable], mask_mod: Optional[Callable], sizes: tuple) -> Program:
    """The program of mods for batch, heads, queries and keys."""
    if score_mod is None and mask_mod is None:
        return nothing
    return _known.get(score_mod, mask_mod, sizes, None, lambda note: trace(NumpyTrace(sizes), score_mod, mask_mod))


def _buffer(array: np.ndarray) -> Buffer:
    return Buffer(array, dtype_name(array.dtype), array.shape)


def capture(array) -> Capture:
    """Lets mods read an array with traced indices: `slopes = treadle.capture(a)`, then `slopes[h]`.

    >>> import numpy as np, treadle
    >>> slopes = treadle.capture(np.array([0.5, 0.25], np.float32))
    >>> print(treadle.explain(lambda score, b, h, q, kv: score + slopes[h] * (kv - q)))
    score mod:
      score + c0[h] * float(kv - q)
    captures:
      c0: f32 [2]
    """
    array = as_numpy(array)
    return Capture(array, _buffer(array))
