"""From a Python function to Treadle's text: the function is called once, with values that write down what is
done to them.

    trace = Trace(sizes=(B, H, Q, KV))
    text = trace.score_mod(lambda score, b, h, q, kv: score + slopes[h] * (kv - q))
    text              "t0 = sub(kv, q);\\nt1 = mul(c0[h], t0);\\nt2 = add(score, t1);\\nt2"
    trace.captures    [slopes]                what c0, c1, ... are
    trace.scalars     []                      the values of s0, s1, ...
"""

from __future__ import annotations

import math
from typing import Callable, Optional

from ._captures import Buffer, Partial, as_buffer
from ._errors import TraceError, where_in_user_code
from ._value import BOOLEAN, INTEGER, REAL, Value

_BIG = 1 << 62


class Trace:
    """One call's mods: a score mod and a mask that share their captures. Sizes are batch, heads, queries and keys;
    None where they are not known."""

    def __init__(self, sizes: tuple):
        self.sizes = sizes
        self.captures: list[Buffer] = []
        self.scalars: list = []
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
        self._lines.append(f"{name} = {operation}({', '.join([o.text for o in operands])});")
        return Value(self, name, kind, low, high)

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
        return Value(self, self.name_of(buffer), buffer.kind)

    def length(self, x: int) -> Value:
        """Of a captured tensor: a run-time scalar, whatever it is."""
        self.scalars.append(x)
        return Value(self, f"s{len(self.scalars) - 1}", INTEGER)

    def _scalar(self, x, kind: str) -> Value:
        if kind == INTEGER and not -_BIG < x < _BIG:
            raise TraceError(f"the number {x} does not fit 64 bits{where_in_user_code()}")
        name = f"s{len(self.scalars)}"
        self.scalars.append(x)
        return Value(self, name, kind, *((x, x) if kind == INTEGER else (None, None)))
