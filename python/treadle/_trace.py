"""From a Python function to Treadle's text: the function is called once, with values that write down what is
done to them.

    trace = Trace(sizes=(B, H, Q, KV))
    text = trace.score_mod(lambda score, b, h, q, kv: score + slopes[h] * (kv - q))
    text              "t0 = sub(kv, q);\\nt1 = mul(c0[h], t0);\\nt2 = add(score, t1);\\nt2"
    trace.captures    [slopes]                what c0, c1, ... are
    trace.scalars     []                      the values of s0, s1, ...

Nothing here knows torch or NumPy: what a captured buffer is, a `Buffer` says.
"""

from __future__ import annotations

import math
import sys
from typing import Any, Callable, Optional

REAL, INTEGER, BOOLEAN = "real", "integer", "boolean"

_BIG = 1 << 62


class TraceError(RuntimeError):
    """A mod does something that cannot be compiled. No TypeError: torch's operators would try something else then."""


def where_in_user_code() -> str:
    """ " (file.py, line 3: return score + f(q))" of the innermost line that is not Treadle's, torch's or NumPy's."""
    import linecache

    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.split(".")[0] not in ("treadle", "torch", "numpy"):
            line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
            return f" ({frame.f_code.co_filename}, line {frame.f_lineno}: {line})"
        frame = frame.f_back
    return ""


class Buffer:
    """Memory that mods read: its object, element type (as Treadle names it), and shape."""

    __slots__ = ("object", "kind", "dtype", "shape")

    def __init__(self, obj: Any, dtype: str, shape: tuple):
        self.object = obj
        self.dtype = dtype
        self.shape = shape
        self.kind = REAL if dtype in ("f64", "f32", "bf16", "f16") else BOOLEAN if dtype == "bool" else INTEGER


class Trace:
    """One call's mods: a score mod and a mask that share their captures. Sizes are batch, heads, queries and keys;
    None where they are not known.

    Indices that may be negative count from the end, as in Python, only with `wrap`. Without it they are taken to be
    inside, which is faster, and `unsure` tells that this was assumed; a read outside is an error of the call.
    """

    def __init__(self, sizes: tuple, wrap: bool = False):
        self.sizes = sizes
        self.wrap = wrap
        self.unsure = False
        self.captures: list[Buffer] = []
        self.scalars: list = []
        self.unused = 0  # how many reads, scalars and results nothing was made of
        self._names: dict[int, str] = {}
        self._lines: list[str] = []
        self._count = 0

    def score_mod(self, function: Callable) -> str:
        score = Value(self, "score", REAL)
        result = self._number(self._call(function, (score, *self._indices()), "score_mod"))
        if result.kind != REAL:
            result = self.emit("float", REAL, result)
        return self._finish(result)

    def mask_mod(self, function: Callable) -> str:
        result = self._number(self._call(function, self._indices(), "mask_mod"))
        if result.kind != BOOLEAN:
            raise TraceError(f"mask_mod gives a {result.kind} number; it has to give a bool")
        return self._finish(result)

    def _indices(self):
        # Not kept: a cycle would hold captured tensors until the garbage collector comes. An unknown or empty size stays.
        names = ("b", "h", "q", "kv")
        return [Value(self, n, INTEGER, 0, s and s - 1) for n, s in zip(names, self.sizes)]

    def _call(self, function, arguments, what):
        result = function(*arguments)
        if result is None:
            raise TraceError(f"{what} gives nothing back")
        return result

    def _finish(self, result: Value) -> str:
        self._use(result)
        text = "\n".join((*self._lines, result.text))
        self._lines = []
        return text

    def _number(self, result) -> Value:
        value = self.lift(result)
        if value is None:
            raise TraceError(f"a mod gives {type(result).__name__}, which is no number of a pair")
        return value

    # --- values -------------------------------------------------------------------------------------------------

    def emit(self, operation: str, kind: str, *operands: Value, low=None, high=None) -> Value:
        name = f"t{self._count}"
        self._count += 1
        unused = self.unused + 1
        for o in operands:
            if o.fresh:
                o.fresh = False
                unused -= 1
        self.unused = unused
        self._lines.append(f"{name} = {operation}({', '.join([o.text for o in operands])});")
        value = Value(self, name, kind, low, high)
        value.fresh = True
        return value

    def _fresh(self, value: Value) -> Value:
        value.fresh = True
        self.unused += 1
        return value

    def _use(self, value: Value) -> None:
        if value.fresh:
            value.fresh = False
            self.unused -= 1

    def name_of(self, buffer: Buffer) -> str:
        key = id(buffer.object)
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = f"c{len(self.captures)}"
            self.captures.append(buffer)
        return name

    def lift(self, x, structural: bool = False) -> Optional[Value]:
        """A value for what a mod computes with. Numbers that are not structural become run-time scalars, so that
        another one compiles nothing anew. None if it is nothing of the kind."""
        if isinstance(x, Value):
            return x
        if isinstance(x, Partial):
            return x.complete()
        if isinstance(x, bool):
            return Value(self, "true" if x else "false", BOOLEAN)
        if isinstance(x, int):
            if structural or -1 <= x <= 1:
                return Value(self, f"({x})", INTEGER, x, x)
            return self._scalar(x, INTEGER)
        if isinstance(x, float):
            if x != x:
                return Value(self, "nan", REAL)
            if math.isinf(x):
                return Value(self, "inf" if x > 0 else "(-inf)", REAL)
            if structural or x in (0.0, 1.0, -1.0):
                return Value(self, f"({x!r})", REAL)
            return self._scalar(x, REAL)
        buffer = as_buffer(x)
        if buffer is None:
            if hasattr(x, "__index__"):
                return self.lift(x.__index__(), structural)
            if hasattr(x, "__float__"):
                return self.lift(float(x), structural)
            return None
        if not isinstance(buffer, Buffer):
            return self.lift(buffer, structural)
        if buffer.shape != ():
            if math.prod(buffer.shape) == 1:
                return Partial(self, buffer, [Value(self, "(0)", INTEGER, 0, 0)] * len(buffer.shape)).complete()
            raise TraceError(
                f"a captured tensor of shape {tuple(buffer.shape)} is used whole; mods read single elements, "
                f"tensor[index, ...]{where_in_user_code()}"
            )
        return self._fresh(Value(self, self.name_of(buffer), buffer.kind))

    def length(self, x: int) -> Value:
        """Of a captured tensor: a run-time scalar, whatever it is."""
        self.scalars.append(x)
        return self._fresh(Value(self, f"s{len(self.scalars) - 1}", INTEGER))

    def _scalar(self, x, kind: str) -> Value:
        if kind == INTEGER and not -_BIG < x < _BIG:
            raise TraceError(f"the number {x} does not fit 64 bits{where_in_user_code()}")
        name = f"s{len(self.scalars)}"
        self.scalars.append(x)
        return self._fresh(Value(self, name, kind, *((x, x) if kind == INTEGER else (None, None))))


_buffer_makers: list[Callable] = []


def as_buffer(x):
    """The Buffer or the Python number that `x` is; None if neither."""
    for make in _buffer_makers:
        buffer = make(x)
        if buffer is not None:
            return buffer
    return None


def register_buffers(make: Callable) -> None:
    """`make` gives the Buffer of an object, the Python number that it is, or None."""
    _buffer_makers.append(make)


class Capture:
    """An array that mods read with traced indices: `treadle.capture(a)[h, q]`."""

    __slots__ = ("array", "buffer")

    def __init__(self, array, buffer: Buffer):
        self.array = array
        self.buffer = buffer

    def __getitem__(self, index):
        trace = trace_of(index)
        return self.array[index] if trace is None else read(trace, self.buffer, index)


def trace_of(index) -> Optional[Trace]:
    """The trace of the values in an index; None if there are none."""
    for i in index if isinstance(index, (tuple, list)) else (index,):
        if isinstance(i, Value):
            return i.trace
        if isinstance(i, Partial):
            return i.trace
        if isinstance(i, (tuple, list)):
            found = trace_of(i)
            if found is not None:
                return found
    return None


def read(trace: Trace, buffer: Buffer, index):
    """buffer[index]: a value, or a Partial while dimensions are open."""
    given = index if type(index) is tuple else (index,)
    if len(given) == len(buffer.shape):
        for i in given:
            if type(i) is not Value or i.kind != INTEGER or i.low is None or i.low < 0:
                break
        else:  # by far the most common case
            return Partial(trace, buffer, given)._element()
    return Partial(trace, buffer, [None] * len(buffer.shape))[index]


class Partial:
    """A buffer some of whose dimensions have got an index: bias[b] of bias[b][h]."""

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
                    raise TraceError(f"a slice other than ':' in the index of a captured tensor{where_in_user_code()}")
                continue
            indices[dim] = self._index(i, self.buffer.shape[dim])
            still_open -= 1
        rest = Partial(self.trace, self.buffer, indices)
        return rest if still_open else rest._element()

    def _index(self, i, length: int) -> Value:
        trace = self.trace
        value = trace.lift(i)
        if value is None or value.kind != INTEGER:
            raise TraceError(
                f"an index of a captured tensor is {type(i).__name__ if value is None else 'a ' + value.kind}; "
                f"it has to be an integer{where_in_user_code()}"
            )
        if value.low is not None and value.low >= 0:
            return value
        if value.high is not None and value.high < 0:
            return trace.emit("add", INTEGER, value, trace.length(length))
        trace.unsure = True
        if not trace.wrap:
            return value
        zero = Value(trace, "(0)", INTEGER, 0, 0)
        wrapped = trace.emit("add", INTEGER, value, trace.length(length))
        return trace.emit("where", INTEGER, trace.emit("lt", BOOLEAN, value, zero), wrapped, value)

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

    def complete(self) -> Value:
        if any(i is None for i in self.indices):
            raise TraceError(
                f"a captured tensor of {len(self.indices)} dimensions is used with "
                f"{sum(i is not None for i in self.indices)} indices{where_in_user_code()}"
            )
        return self._element()

    def _element(self) -> Value:
        name = self.trace.name_of(self.buffer)
        index = f"[{', '.join([i.text for i in self.indices])}]" if self.indices else ""
        kind = self.buffer.kind
        low, high = (0, 255) if self.buffer.dtype == "u8" else (None, None)
        for i in self.indices:
            self.trace._use(i)
        return self.trace._fresh(Value(self.trace, name + index, kind, low, high))


def _bounds_sum(a, b):
    if a.low is None or b.low is None or a.high is None or b.high is None:
        return None, None
    return a.low + b.low, a.high + b.high


class Value:
    """A number of every pair, while a mod is traced. Integers know how small and large they may be."""

    __slots__ = ("trace", "text", "kind", "low", "high", "fresh")

    def __init__(self, trace: Trace, text: str, kind: str, low=None, high=None):
        self.trace = trace
        self.text = text
        self.kind = kind
        self.low = low
        self.high = high
        self.fresh = False  # counted as unused so far

    def __repr__(self):
        return f"<traced {self.kind} {self.text}>"

    def __bool__(self):
        raise TraceError(
            "a mod decides by a traced value (if, and, or, not, a chained comparison, min, max, a loop); it is the "
            f"same code for all pairs: use where(), &, |, ~, minimum() and maximum(){where_in_user_code()}"
        )

    def __iter__(self):
        raise TraceError(f"a traced value is one number and has no elements{where_in_user_code()}")

    def __len__(self):
        raise TraceError(f"a traced value is one number and has no length{where_in_user_code()}")

    def __index__(self):
        raise TraceError(f"a traced value is no number yet and cannot index a list{where_in_user_code()}")

    def __float__(self):
        raise TraceError(
            "a traced value is no number yet, so float(), int() and functions of Python's math cannot take it; use "
            f"those of torch or treadle{where_in_user_code()}"
        )

    def __array__(self, *ignored, **also_ignored):
        raise TraceError(
            "NumPy cannot read an array with a traced index; make it one that can, array = treadle.capture(array)"
            f"{where_in_user_code()}"
        )

    __int__ = __float__
    __hash__ = None  # type: ignore

    # --- arithmetic ---------------------------------------------------------------------------------------------

    def _with(self, other, structural=False):
        """The other operand; bools count as integers. NotImplemented if it is no number."""
        value = self.trace.lift(other, structural)
        return NotImplemented if value is None else value.number()

    def number(self) -> Value:
        if self.kind != BOOLEAN:
            return self
        return self.trace.emit("int", INTEGER, self, low=0, high=1)

    def _binary(self, operation, other, swap, bounds):
        if type(other) is Value and other.kind != BOOLEAN:
            b = other
        else:
            b = self._with(other)
            if b is NotImplemented:
                return b
        a = self.number()
        if swap:
            a, b = b, a
        kind = INTEGER if a.kind == INTEGER and b.kind == INTEGER else REAL
        low, high = bounds(a, b) if kind == INTEGER else (None, None)
        return self.trace.emit(operation, kind, a, b, low=low, high=high)

    @staticmethod
    def _difference(a, b):
        if a.low is None or b.low is None or a.high is None or b.high is None:
            return None, None
        return a.low - b.high, a.high - b.low

    @staticmethod
    def _product(a, b):
        if a.low is None or b.low is None or a.high is None or b.high is None:
            return None, None
        ends = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
        return min(ends), max(ends)

    def __add__(self, other):
        return self._binary("add", other, False, _bounds_sum)

    def __radd__(self, other):
        return self._binary("add", other, True, _bounds_sum)

    def __sub__(self, other):
        return self._binary("sub", other, False, Value._difference)

    def __rsub__(self, other):
        return self._binary("sub", other, True, Value._difference)

    def __mul__(self, other):
        return self._binary("mul", other, False, Value._product)

    def __rmul__(self, other):
        return self._binary("mul", other, True, Value._product)

    def __neg__(self):
        a = self.number()
        low, high = (None, None) if a.low is None or a.high is None else (-a.high, -a.low)
        return self.trace.emit("neg", a.kind, a, low=low, high=high)

    def __pos__(self):
        return self.number()

    def __abs__(self):
        a = self.number()
        if a.kind == INTEGER:
            high = None if a.low is None or a.high is None else max(abs(a.low), abs(a.high))
            return self.trace.emit("abs", INTEGER, a, low=0, high=high)
        return self.trace.emit("abs", REAL, a)

    def real(self) -> Value:
        return self if self.kind == REAL else self.trace.emit("float", REAL, self)

    def _division(self, other, swap):
        b = self._with(other)
        if b is NotImplemented:
            return b
        a = self.number()
        if swap:
            a, b = b, a
        return self.trace.emit("div", REAL, a, b)

    def __truediv__(self, other):
        return self._division(other, False)

    def __rtruediv__(self, other):
        return self._division(other, True)

    def _floor(self, operation, other, swap):
        """//, and % by the same rule: the result of // is rounded down."""
        b = self._with(other, structural=not swap)
        if b is NotImplemented:
            return b
        a = self.number()
        if swap:
            a, b = b, a
        if a.kind == REAL or b.kind == REAL:
            quotient = self.trace.emit("floor", REAL, self.trace.emit("div", REAL, a, b))
            if operation == "floor_div":
                return quotient
            return a - quotient * b
        low = high = None
        if b.low is not None and b.low == b.high and b.low > 0:
            if operation == "mod":
                low, high = 0, b.low - 1
            elif a.low is not None and a.high is not None:
                low, high = a.low // b.low, a.high // b.low
        return self.trace.emit(operation, INTEGER, a, b, low=low, high=high)

    def __floordiv__(self, other):
        return self._floor("floor_div", other, False)

    def __rfloordiv__(self, other):
        return self._floor("floor_div", other, True)

    def __mod__(self, other):
        return self._floor("mod", other, False)

    def __rmod__(self, other):
        return self._floor("mod", other, True)

    def __pow__(self, other):
        whole = isinstance(other, (int, float)) and not isinstance(other, bool) and float(other) in (2.0, 3.0, 1.0)
        if whole:
            result = a = self.number()
            for _ in range(int(other) - 1):
                result = result * a
            return result
        return self._power(other, False)

    def __rpow__(self, other):
        return self._power(other, True)

    def _power(self, other, swap):
        b = self._with(other, structural=True)
        if b is NotImplemented:
            return b
        a = self.number()
        if swap:
            a, b = b, a
        integers = a.kind == INTEGER and b.kind == INTEGER
        result = self.trace.emit("pow", REAL, a, b)
        return self.trace.emit("int", INTEGER, result) if integers else result

    # --- comparisons --------------------------------------------------------------------------------------------

    def _compare(self, operation, other):
        b = self._with(other)
        if b is NotImplemented:
            return b
        return self.trace.emit(operation, BOOLEAN, self.number(), b)

    def __eq__(self, other):  # type: ignore
        return self._compare("eq", other)

    def __ne__(self, other):  # type: ignore
        return self._compare("ne", other)

    def __lt__(self, other):
        return self._compare("lt", other)

    def __le__(self, other):
        return self._compare("le", other)

    def __gt__(self, other):
        return self._compare("gt", other)

    def __ge__(self, other):
        return self._compare("ge", other)

    # --- bits and truth -----------------------------------------------------------------------------------------

    def _bits(self, name, other, swap=False):
        b = self.trace.lift(other, structural=True)
        if b is None:
            return NotImplemented
        a = self
        if swap:
            a, b = b, a
        if REAL in (a.kind, b.kind):
            raise TraceError(f"{name} of a float; it takes integers or bools{where_in_user_code()}")
        if a.kind == BOOLEAN and b.kind == BOOLEAN:
            return self.trace.emit("logical_" + name, BOOLEAN, a, b)
        a, b = a.number(), b.number()
        low, high = (None, None)
        if name == "and" and (a.low or -1) >= 0 and a.high is not None:
            low, high = 0, a.high
        elif name == "and" and (b.low or -1) >= 0 and b.high is not None:
            low, high = 0, b.high
        return self.trace.emit("bit_" + name, INTEGER, a, b, low=low, high=high)

    def __and__(self, other):
        return self._bits("and", other)

    def __rand__(self, other):
        return self._bits("and", other, True)

    def __or__(self, other):
        return self._bits("or", other)

    def __ror__(self, other):
        return self._bits("or", other, True)

    def __xor__(self, other):
        return self._bits("xor", other)

    def __rxor__(self, other):
        return self._bits("xor", other, True)

    def __invert__(self):
        if self.kind == REAL:
            raise TraceError(f"~ of a float; it takes integers or bools{where_in_user_code()}")
        if self.kind == BOOLEAN:
            return self.trace.emit("logical_not", BOOLEAN, self)
        return self.trace.emit("bit_not", INTEGER, self)

    def _shift(self, operation, other, swap):
        b = self._with(other, structural=True)
        if b is NotImplemented:
            return b
        a = self.number()
        if swap:
            a, b = b, a
        if REAL in (a.kind, b.kind):
            raise TraceError(f"a shift of a float; it takes integers{where_in_user_code()}")
        low = high = None
        if a.low is not None and a.high is not None and b.low is not None and b.low == b.high and 0 <= b.low < 62:
            move = (lambda x: x >> b.low) if operation == "shift_right" else (lambda x: x << b.low)
            low, high = move(a.low), move(a.high)
        return self.trace.emit(operation, INTEGER, a, b, low=low, high=high)

    def __lshift__(self, other):
        return self._shift("shift_left", other, False)

    def __rlshift__(self, other):
        return self._shift("shift_left", other, True)

    def __rshift__(self, other):
        return self._shift("shift_right", other, False)

    def __rrshift__(self, other):
        return self._shift("shift_right", other, True)

    def __getitem__(self, index):
        if index is Ellipsis or index == ():
            return self
        raise TraceError(f"a traced value is one number and has no elements{where_in_user_code()}")


def _delegate(name: str):
    """A Partial is completed before it is computed with."""

    def method(self, *operands):
        return getattr(self.complete(), name)(*operands)

    method.__name__ = name
    setattr(Partial, name, method)


for _name in (
    "add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "floordiv", "rfloordiv", "mod", "rmod", "pow",
    "rpow", "and", "rand", "or", "ror", "xor", "rxor", "lshift", "rlshift", "rshift", "rrshift", "eq", "ne", "lt", "le",
    "gt", "ge", "neg", "pos", "abs", "invert", "bool", "float", "int", "index",
):  # fmt: skip
    _delegate(f"__{_name}__")
Partial.__hash__ = None  # type: ignore
