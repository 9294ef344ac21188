"""What mods read: buffers, and buffers some of whose dimensions have an index already.

Nothing here knows torch or NumPy: a front end's Trace.buffer_of says what a captured object is, as a `Buffer`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from ._errors import TraceError, where_in_user_code
from ._rows import MOST_VALUES, Row
from ._value import A_VALUE_OF, BOOLEAN, INTEGER, REAL, Value

if TYPE_CHECKING:
    from ._trace import Trace


_FLOATS = frozenset(("f64", "f32", "bf16", "f16", "e4m3", "e5m2"))


class Buffer:
    """Memory that mods read: its object, element type (as Treadle names it), and shape."""

    __slots__ = ("object", "kind", "dtype", "shape")

    def __init__(self, obj: Any, dtype: str, shape: tuple):
        self.object = obj
        self.dtype = dtype
        self.shape = shape
        self.kind = REAL if dtype in _FLOATS else BOOLEAN if dtype == "bool" else INTEGER


class Capture:
    """An array that mods read with traced indices: `treadle.capture(a)[h, q]`."""

    __slots__ = ("array", "buffer")

    def __init__(self, array, buffer: Buffer):
        self.array = array
        self.buffer = buffer

    def __getitem__(self, index):
        trace = trace_of(index)
        return self.array[index] if trace is None else read(trace, self.buffer, index)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        """torch asks this when a mod passes a capture to one of its functions; the trace's own values answer."""
        trace = trace_of(args, *(kwargs or {}).values())
        return NotImplemented if trace is None else trace.value.__torch_function__(func, types, args, kwargs)


def trace_of(*things) -> Optional[Trace]:
    """The trace of the values among these, also inside tuples and lists; None if there are none."""
    for thing in things:
        if isinstance(thing, (Value, Partial, Row)):
            return thing.trace
        if isinstance(thing, (tuple, list)):
            found = trace_of(*thing)
            if found is not None:
                return found
    return None


def read(trace: Trace, buffer: Buffer, index):
    """buffer[index]: a value, or a Partial while dimensions are open."""
    given = index if type(index) is tuple else (index,)
    if len(given) == len(buffer.shape):
        for i in given:
            if type(i) is not trace.value or i.kind != INTEGER or i.low is None or i.low < 0:
                break
        else:  # by far the most common case
            return trace.partial(trace, buffer, given)._element()
    return trace.partial(trace, buffer, [None] * len(buffer.shape))[index]


class Partial:
    """A buffer some of whose dimensions have an index: bias[b] of bias[b][h]. Front ends have classes made from it."""

    __slots__ = ("trace", "buffer", "indices")

    def __init__(self, trace: Trace, buffer: Buffer, indices):
        self.trace = trace
        self.buffer = buffer
        self.indices = indices  # by dimension; None: still open

    def __getitem__(self, index):
        given = list(index) if isinstance(index, (tuple, list)) else [index]
        open_dims = [d for d, i in enumerate(self.indices) if i is None]
        dots = [n for n, i in enumerate(given) if i is Ellipsis]
        if dots:
            missing = len(open_dims) - (len(given) - 1)
            given[dots[0] : dots[0] + 1] = [slice(None)] * missing
        if len(given) > len(open_dims):
            raise TraceError(
                f"{len(given)} indices for a tensor of {len(open_dims)} dimensions{where_in_user_code()}"
            )
        indices = list(self.indices)
        still_open = len(open_dims)
        for dim, i in zip(open_dims, given):
            if isinstance(i, slice):
                if i != slice(None):
                    raise TraceError(f"the only slice that can index a captured tensor is ':'{where_in_user_code()}")
                continue
            indices[dim] = self._index(i, self.buffer.shape[dim])
            still_open -= 1
        rest = self.trace.partial(self.trace, self.buffer, indices)
        return rest if still_open else rest._element()

    def _index(self, i, length: int) -> Value:
        trace = self.trace
        value = trace.lift(i)
        if value is None or value.kind != INTEGER:
            kind = type(i).__name__ if value is None else A_VALUE_OF[value.kind]
            raise TraceError(f"an index of a captured tensor is {kind}; it must be an integer{where_in_user_code()}")
        if value.low is not None and value.low >= 0:
            return value
        if value.high is not None and value.high < 0:
            return trace.emit("add", INTEGER, value, trace.length(length))
        return trace.emit_from_end(value, trace.length(length))

    @property
    def shape(self) -> tuple:
        """Of what is still open."""
        return tuple([n for n, i in zip(self.buffer.shape, self.indices) if i is None])

    def __len__(self) -> int:
        return self.shape[0]

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise TraceError(
            f"a mod uses .{name} of a captured tensor with open dimensions {self.shape}; mods read single elements"
            f"{where_in_user_code()}"
        )

    def operand(self):
        """What is computed with: an element, or a row if one dimension is open."""
        shape = self.shape
        if len(shape) != 1:
            return self.complete()
        if shape[0] > MOST_VALUES:
            raise TraceError(
                f"a mod computes with a row of {shape[0]} elements of a captured tensor; a row has {MOST_VALUES} at most: "
                f"Buffers cannot be created in mods{where_in_user_code()}"
            )
        trace = self.trace
        return trace.row(trace, [self[trace.value(trace, f"({i})", INTEGER, i, i)] for i in range(shape[0])])

    def complete(self) -> Value:
        if any(i is None for i in self.indices):
            raise TraceError(
                f"a captured tensor of {len(self.indices)} dimensions is used with "
                f"{sum(i is not None for i in self.indices)} indices; Buffers cannot be created in mods{where_in_user_code()}"
            )
        return self._element()

    def _element(self) -> Value:
        name = self.trace.name_of(self.buffer)
        index = f"[{', '.join([i.text for i in self.indices])}]" if self.indices else ""
        kind = self.buffer.kind
        low, high = (0, 255) if self.buffer.dtype == "u8" else (None, None)
        return self.trace.value(self.trace, name + index, kind, low, high)


def _delegate(name: str):
    """A Partial is read before it is computed with."""

    def method(self, *operands):
        return getattr(self.operand(), name)(*operands)

    method.__name__ = name
    setattr(Partial, name, method)


for _name in (
    "add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "floordiv", "rfloordiv", "mod", "rmod", "pow",
    "rpow", "and", "rand", "or", "ror", "xor", "rxor", "lshift", "rlshift", "rshift", "rrshift", "eq", "ne", "lt", "le",
    "gt", "ge", "neg", "pos", "abs", "invert", "bool",
):  # fmt: skip
    _delegate(f"__{_name}__")
for _name in ("__float__", "__int__", "__index__"):
    setattr(Partial, _name, lambda self: self.complete().__float__())
Partial.__hash__ = None  # type: ignore
