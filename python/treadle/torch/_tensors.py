"""torch tensors as arrays of Treadle, and inside mods."""

from __future__ import annotations

import torch
from torch.overrides import TorchFunctionMode

from .._captures import Buffer, Capture, Partial, read, register_buffers, trace_of
from .._errors import TraceError, where_in_user_code
from .._functions import functions, to_kind
from .._program import Array, Program, types
from .._value import BOOLEAN, INTEGER, REAL, Value

_names = {
    torch.float64: "f64", torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16", torch.int64: "i64",
    torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.bool: "bool",
}  # fmt: skip
_codes = {dtype: types[name] for dtype, name in _names.items()}
_kinds = {dtype: REAL if dtype.is_floating_point else INTEGER for dtype in _names}
_kinds[torch.bool] = BOOLEAN


def as_array(x: torch.Tensor) -> Array:
    return (x.data_ptr(), _codes[x.dtype], tuple(x.shape), x.stride())


def _buffer(x):
    if not isinstance(x, torch.Tensor):
        return None
    if not x.is_cpu:
        raise ValueError(f"a mod captures a tensor on device {x.device}; Treadle runs on the CPU")
    name = _names.get(x.dtype)
    if name is None:
        raise TraceError(f"a mod captures a tensor of {x.dtype}, which is not supported{where_in_user_code()}")
    return Buffer(x, name, tuple(x.shape))


register_buffers(_buffer)


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


def _kind_of_dtype(dtype) -> str:
    kind = _kinds.get(dtype)
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
        kind = _kind_of_dtype(dtype) if dtype is not None else x.kind
        return to_kind(x.trace.lift(value), kind)

    return make


def _full_like(x, value, dtype=None, **ignored):
    kind = _kind_of_dtype(dtype) if dtype is not None else x.kind
    return to_kind(x.trace.lift(value), kind)


def _new_full(x, size, value, dtype=None, **ignored):
    return _full_like(x, value, dtype)


def _index(x, indices):
    """torch.ops.aten.index and the like."""
    return _getitem(x, tuple(indices))


def _getitem(x, index):
    if isinstance(x, (Value, Partial)):
        return x[index]
    trace = trace_of(index)
    return read(trace, _buffer(x), index)


def _where_method(x, condition, other):
    return functions["where"](condition, x, other)


def _setitem(x, *args):
    _refuse_write("[...] = ")


def _refuse_write(how: str):
    raise TraceError(f"a mod writes to a captured tensor ({how}); mods only read{where_in_user_code()}")


_in_place = {f"__i{name}__" for name in "add sub mul truediv floordiv mod pow and or xor lshift rshift matmul".split()}


_special = {
    "to": _to, "type": _to, "type_as": _to,
    "zeros_like": _filled(0), "ones_like": _filled(1), "new_zeros": _filled(0), "new_ones": _filled(1),
    "new_empty": _filled(0), "empty_like": _filled(0), "full_like": _full_like, "new_full": _new_full,
    "__getitem__": _getitem, "__setitem__": _setitem, "index": _index, "expand_as": lambda x, *a: x,
    "view_as": lambda x, *a: x,
}  # fmt: skip


def call(func, args, kwargs):
    """What a function of torch's is for traced values."""
    name = getattr(func, "__name__", str(func))
    if name == "__get__":  # an attribute of a tensor
        raise TraceError(f"a mod asks for an attribute of a tensor of traced values{where_in_user_code()}")
    found = _special.get(name) or functions.get(name)
    if func is torch.Tensor.where:
        found = _where_method
    if found is None:
        raise TraceError(f"a mod calls {_full_name(func)}, which cannot be compiled{where_in_user_code()}")
    if kwargs and "out" in kwargs:
        raise TraceError(f"a mod calls {name} with out=; mods only read{where_in_user_code()}")
    return _apply(found, name, args, kwargs or {})


# Arguments by these names come first, in this order.
_operands = ("condition", "input", "self", "other", "exponent", "end")


def _apply(found, name: str, args, kwargs):
    if kwargs:
        args = (*args, *[kwargs[o] for o in _operands if o in kwargs])
        kwargs = {k: v for k, v in kwargs.items() if k not in _operands}
    try:
        return found(*args, **kwargs)
    except TypeError as wrong:
        raise TraceError(f"a mod calls {name} in a way that cannot be compiled: {wrong}{where_in_user_code()}") from None


def _full_name(func) -> str:
    module = getattr(func, "__module__", None) or getattr(getattr(func, "__objclass__", None), "__name__", "torch")
    return f"{module}.{getattr(func, '__name__', func)}"


def _torch_function(cls, func, types, args=(), kwargs=None):
    return call(func, args, kwargs)


Value.__torch_function__ = classmethod(_torch_function)
Partial.__torch_function__ = classmethod(_torch_function)
Capture.__torch_function__ = classmethod(_torch_function)


_read_element = torch.Tensor.__getitem__


class Tracing(TorchFunctionMode):
    """While a mod is traced: indexing a tensor with traced values reads it, and writing to one is refused."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is _read_element and type(args[0]) is torch.Tensor:
            trace = trace_of(args[1])
            return func(*args) if trace is None else read(trace, _buffer(args[0]), args[1])
        if trace_of(*args) is not None or (kwargs and trace_of(*kwargs.values()) is not None):
            return call(func, args, kwargs)
        name = getattr(func, "__name__", "")
        if name.endswith("_"):
            if name == "__setitem__":
                _setitem(None)
            if name in _in_place or not (name.endswith("__") or name.startswith("_")):
                _refuse_write(name)
        return func(*args, **(kwargs or {}))


def _method(name):
    """Values have the methods that tensors have."""

    def method(self, *args, **kwargs):
        return _apply(_special.get(name) or functions[name], name, (self, *args), kwargs)

    method.__name__ = name
    return method


Value.where = Partial.where = _where_method

for _name in (*functions, *_special):
    if not _name.startswith("__") and not hasattr(Value, _name):
        setattr(Value, _name, _method(_name))
        if not hasattr(Partial, _name):
            setattr(Partial, _name, _method(_name))


def _missing(self, name):
    if name.startswith("__"):
        raise AttributeError(name)
    if name in ("shape", "ndim", "dtype", "device", "requires_grad"):
        return {"shape": torch.Size(()), "ndim": 0, "device": torch.device("cpu"), "requires_grad": False,
                "dtype": {REAL: torch.float32, INTEGER: torch.int64, BOOLEAN: torch.bool}[self.kind]}[name]  # fmt: skip
    raise TraceError(f"a mod uses .{name} of a traced value, which cannot be compiled{where_in_user_code()}")


Value.__getattr__ = _missing
