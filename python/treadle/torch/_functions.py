"""What torch's functions and methods are for traced values."""

from __future__ import annotations

import torch

from .._captures import Buffer, Partial, read, trace_of
from .._errors import TraceError, where_in_user_code
from .._functions import functions
from .._operations import to_kind
from .._rows import Row, map_rows, reductions
from .._value import BOOLEAN, INTEGER, REAL, Value
from ._arrays import NAMES

# Values do not become narrower, which matters most for 8-bit floats: a mod that asks for those is refused.
KIND_OF = {
    dtype: REAL if dtype.is_floating_point else INTEGER
    for dtype in NAMES
    if not (dtype.is_floating_point and dtype.itemsize == 1)
}
KIND_OF[torch.bool] = BOOLEAN


def buffer_of_tensor(x: torch.Tensor) -> Buffer:
    if not x.is_cpu:
        raise ValueError(f"a mod captures a tensor on device {x.device}; Treadle runs on the CPU")
    name = NAMES.get(x.dtype)
    if name is None:
        raise TraceError(f"a mod captures a tensor of {x.dtype}, which is not supported{where_in_user_code()}")
    try:
        shape = tuple(x.shape)
    except RuntimeError:  # nested tensors have none
        raise TraceError(f"a mod captures a nested tensor, which is not supported{where_in_user_code()}") from None
    return Buffer(x, name, shape)


def call(func, args, kwargs):
    """A function of torch's, called with traced values."""
    name = getattr(func, "__name__", str(func))
    if name == "__get__":  # an attribute of a tensor
        raise TraceError(f"a mod reads an attribute of a tensor of traced values{where_in_user_code()}")
    found = where_method if func is torch.Tensor.where else methods.get(name)
    if found is None and name not in of_rows:
        raise TraceError(f"a mod calls {_full_name(func)}, which cannot be compiled{where_in_user_code()}")
    if kwargs and "out" in kwargs:
        raise TraceError(f"a mod calls {name} with out=; mods only read{where_in_user_code()}")
    return apply(found, name, args, kwargs or {})


# Arguments by these names come first, in this order.
_operands = ("condition", "input", "self", "other", "exponent", "end")


def apply(found, name: str, args, kwargs):
    if kwargs:
        args = (*args, *[kwargs[o] for o in _operands if o in kwargs])
        kwargs = {k: v for k, v in kwargs.items() if k not in _operands}
    try:
        if name != "__getitem__":
            args = [a.operand() if isinstance(a, Partial) else a for a in args]
            if any([isinstance(a, Row) for a in args]):
                return _apply_to_rows(found, name, args, kwargs)
        if found is None:
            raise TypeError("it takes a row of a captured tensor")
        return found(*args, **kwargs)
    except TypeError as wrong:
        raise TraceError(f"a mod calls {name} in a way that cannot be compiled: {wrong}{where_in_user_code()}") from None


def _apply_to_rows(found, name: str, args, kwargs):
    is_of_two = name in ("max", "min") and len(args) == 2 and isinstance(args[1], (Row, Value))
    reduction = None if is_of_two else of_rows.get(name)
    return reduction(*args, **kwargs) if reduction else map_rows(lambda *values: found(*values, **kwargs), args)


def _full_name(func) -> str:
    module = getattr(func, "__module__", None) or getattr(getattr(func, "__objclass__", None), "__name__", "torch")
    return f"{module}.{getattr(func, '__name__', func)}"


def refuse_write(how: str):
    raise TraceError(f"a mod writes to a captured tensor ({how}); mods only read{where_in_user_code()}")


def refuse_random(name: str):
    raise TraceError(
        f"a mod calls torch.{name}; it is called once, so all pairs would get the same number. Draw a tensor before, and "
        f"read it at indices{where_in_user_code()}"
    )


# --- those that only tensors have ---------------------------------------------------------------------------------


def _kind_of_dtype(dtype) -> str:
    kind = KIND_OF.get(dtype)
    if kind is None:
        raise TraceError(f"a mod converts to {dtype}, which is not supported{where_in_user_code()}")
    return kind


def _to(x, *args, **kwargs):
    for a in (*args, *kwargs.values()):
        if isinstance(a, torch.dtype):
            return to_kind(x, _kind_of_dtype(a))
        if isinstance(a, torch.Tensor):
            return to_kind(x, _kind_of_dtype(a.dtype))
        if isinstance(a, Value):
            return to_kind(x, a.kind)
    return x


def _filled(value):
    def make(x, *args, dtype=None, **ignored):
        return _full_like(x, value, dtype)

    return make


def _full_like(x, value, dtype=None, **ignored):
    kind = _kind_of_dtype(dtype) if dtype is not None else x.kind
    return to_kind(x.trace.lift(value), kind)


def _new_full(x, size, value, dtype=None, **ignored):
    return _full_like(x, value, dtype)


def _getitem(x, index):
    if isinstance(x, (Value, Partial, Row)):
        return x[index]
    return read(trace_of(index), buffer_of_tensor(x), index)


def _index(x, indices):
    """torch.ops.aten.index and the like."""
    return _getitem(x, tuple(indices))


def _setitem(x, *args):
    refuse_write("[...] = ")


def where_method(x, condition, other):
    return functions["where"](condition, x, other)


def _same(x, *ignored):
    return x


# By name: what torch.name(x, ...) and x.name(...) do.
methods = {
    **functions,
    "to": _to, "type": _to, "type_as": _to,
    "zeros_like": _filled(0), "ones_like": _filled(1), "new_zeros": _filled(0), "new_ones": _filled(1),
    "new_empty": _filled(0), "empty_like": _filled(0), "full_like": _full_like, "new_full": _new_full,
    "__getitem__": _getitem, "__setitem__": _setitem, "index": _index, "expand_as": _same, "view_as": _same,
    # A number meets rows of any shape.
    "unsqueeze": _same, "squeeze": _same, "view": _same, "reshape": _same, "flatten": _same,
}  # fmt: skip

# By name: what makes one value of a row.
of_rows = reductions(functions)
