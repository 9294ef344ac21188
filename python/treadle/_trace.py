"""From a Python function to Treadle's text: the function is called once, with values that write down what is
done to them.

    trace = NumpyTrace(sizes=(B, H, Q, KV))
    text = trace.score_mod(lambda score, b, h, q, kv: score + slopes[h] * (kv - q))
    text.text         "t0 = sub(kv, q);\\nt1 = mul(c0[h], t0);\\nt2 = add(score, t1);\\nt2"
    trace.captures    [slopes]                what c0, c1, ... are
    trace.scalars     []                      the values of s0, s1, ...

A front end makes a class from Trace that names its own values and says what objects its mods may read:
NumpyTrace, TorchTrace.
"""

from __future__ import annotations

import math
from typing import Callable, NamedTuple, Optional

from ._captures import Buffer, Partial
from ._errors import TraceError, where_in_user_code
from ._rows import Row
from ._value import A_VALUE_OF, BOOLEAN, INTEGER, REAL, Value

_BIG = 1 << 62


class Text(NamedTuple):
    """A traced mod, in two spellings. They differ if an index may be negative, which is seldom so."""

    text: str  # every index is read as it is, which is faster
    from_end: str  # an index that is negative counts from the end


class Trace:
    """One call's mods: a score mod and a mask that share their captures. Sizes are batch, heads, queries and keys;
    None where they are not known."""

    value = Value  # the class of traced values
    partial = Partial
    row = Row

    def buffer_of(self, x):
        """The Buffer or the Python number that `x` is; None if it is neither."""
        return None

    def readable(self, array):
        """What mods can read of it."""
        return array

    def __init__(self, sizes: tuple):
        self.sizes = sizes
        self.captures: list[Buffer] = []
        self.scalars: list = []
        self._lines: list[str] = []
        self._lines_from_end: dict[int, str] = {}  # by their number in _lines
        self._count = 0

    def score_mod(self, function: Callable) -> Text:
        score = self.value(self, "score", REAL)
        result = self._result(function(score, *self._indices()), "score_mod", "a number")
        return self._finish(result.real())

    def mask_mod(self, function: Callable) -> Text:
        result = self._result(function(*self._indices()), "mask_mod", "a bool")
        if result.kind != BOOLEAN:
            raise TraceError(f"mask_mod returned {A_VALUE_OF[result.kind]}; it must return a bool")
        return self._finish(result)

    def _indices(self):
        # Not kept: a cycle would hold captured tensors until the garbage collector comes. An unknown or empty size stays.
        names = ("b", "h", "q", "kv")
        return [self.value(self, n, INTEGER, 0, s and s - 1) for n, s in zip(names, self.sizes)]

    def _result(self, result, mod: str, wanted: str) -> Value:
        value = None if result is None else self.lift(result)
        if value is None:
            got = "nothing" if result is None else f"an object of type {type(result).__name__}"
            if isinstance(result, (Row, Partial)):
                got = f"a row of {len(result)} values"
            raise TraceError(f"{mod} returned {got}; it must return {wanted}")
        return value

    def _finish(self, result: Value) -> Text:
        lines, others = self._lines, self._lines_from_end
        text = from_end = "\n".join((*lines, result.text))
        if others:
            from_end = "\n".join((*[others.get(i, line) for i, line in enumerate(lines)], result.text))
        self._lines, self._lines_from_end = [], {}
        return Text(text, from_end)

    # --- values -------------------------------------------------------------------------------------------------

    def emit(self, operation: str, kind: str, *operands: Value, low=None, high=None) -> Value:
        name = f"t{self._count}"
        self._count += 1
        self._lines.append(f"{name} = {operation}({', '.join([o.text for o in operands])});")
        return self.value(self, name, kind, low, high)

    def text_of(self, text: str, kind: str) -> Value:
        """What a text of its own gives; names that it gives to values are its own, too."""
        *statements, last = text.split(";")
        if statements:
            self._lines.append(";".join(statements) + ";")
        name = f"t{self._count}"
        self._count += 1
        self._lines.append(f"{name} = {last};")
        return self.value(self, name, kind)

    def emit_from_end(self, index: Value, length: Value) -> Value:
        """An index that may be negative."""
        name = f"t{self._count}"
        self._count += 1
        i = index.text
        self._lines_from_end[len(self._lines)] = f"{name} = where({i} < 0, {i} + {length.text}, {i});"
        self._lines.append(f"{name} = {i};")
        return self.value(self, name, INTEGER)

    def name_of(self, buffer: Buffer) -> str:
        # Not by id(): torch.compile would compile again for every new tensor.
        for i, known in enumerate(self.captures):
            if known.object is buffer.object:
                return f"c{i}"
        self.captures.append(buffer)
        return f"c{len(self.captures) - 1}"

    def lift(self, x, structural: bool = False) -> Optional[Value]:
        """A value for what a mod computes with. Numbers that are not structural become run-time scalars, so that
        another number compiles nothing. None if it is nothing of the kind."""
        if isinstance(x, Value):
            return x
        if isinstance(x, Partial):
            x = x.operand()
            return x if isinstance(x, Value) else None
        if isinstance(x, Row):
            return None
        if isinstance(x, bool):
            return self.value(self, "true" if x else "false", BOOLEAN)
        if isinstance(x, int):
            if structural or -1 <= x <= 1:
                return self.value(self, f"({x})", INTEGER, x, x)
            return self._scalar(x, INTEGER)
        if isinstance(x, float):
            if type(x) is not float:  # np.float64 is one, but does not print as one
                x = float(x)
            if x != x:
                return self.value(self, "nan", REAL)
            if x in (math.inf, -math.inf):  # torch.compile may have made it a symbol, of which isinf knows nothing
                return self.value(self, "inf" if x > 0 else "(-inf)", REAL)
            if structural or x in (0.0, 1.0, -1.0):
                return self.value(self, f"({x!r})", REAL)
            return self._scalar(x, REAL)
        buffer = self.buffer_of(x)
        if buffer is None:
            if hasattr(x, "__index__"):
                return self.lift(x.__index__(), structural)
            if hasattr(x, "__float__"):
                return self.lift(float(x), structural)
            return None
        return self._element(buffer) if isinstance(buffer, Buffer) else self.lift(buffer, structural)

    def operand(self, x):
        """An argument of an operation: rows of captured tensors are read."""
        return x.operand() if isinstance(x, Partial) else x

    def _element(self, buffer: Buffer) -> Value:
        """The only one of a buffer that is used without indices."""
        if buffer.shape == ():
            return self.value(self, self.name_of(buffer), buffer.kind)
        if math.prod(buffer.shape) == 1:
            zero = self.value(self, "(0)", INTEGER, 0, 0)
            return self.partial(self, buffer, [zero] * len(buffer.shape)).complete()
        raise TraceError(
            f"a captured tensor of shape {tuple(buffer.shape)} is used whole; mods read single elements, "
            f"tensor[index, ...]; Buffers cannot be created in mods{where_in_user_code()}"
        )

    def length(self, x: int) -> Value:
        """Of a captured tensor: a run-time scalar, whatever it is."""
        self.scalars.append(x)
        return self.value(self, f"s{len(self.scalars) - 1}", INTEGER)

    def _scalar(self, x, kind: str) -> Value:
        if kind == INTEGER and not -_BIG < x < _BIG:
            raise TraceError(f"the number {x} does not fit into 64 bits{where_in_user_code()}")
        name = f"s{len(self.scalars)}"
        self.scalars.append(x)
        return self.value(self, name, kind, *((x, x) if kind == INTEGER else (None, None)))
