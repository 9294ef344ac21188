"""Value: a number of every pair, as mods compute with it while they are traced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._errors import TraceError, where_in_user_code

if TYPE_CHECKING:
    from ._trace import Trace

REAL, INTEGER, BOOLEAN = "real", "integer", "boolean"


def _bounds_sum(a, b):
    if a.low is None or b.low is None or a.high is None or b.high is None:
        return None, None
    return a.low + b.low, a.high + b.high


class Value:
    """A number of every pair, while a mod is traced. Integers know how small and large they may be."""

    __slots__ = ("trace", "text", "kind", "low", "high")

    def __init__(self, trace: Trace, text: str, kind: str, low=None, high=None):
        self.trace = trace
        self.text = text
        self.kind = kind
        self.low = low
        self.high = high

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

    def _operands(self, other, swap=False, structural=False):
        """This and the other, in their order; bools count as integers. None if the other is no number."""
        if type(other) is not Value:
            other = self.trace.lift(other, structural)
            if other is None:
                return None
        a, b = self.number(), other.number()
        return (b, a) if swap else (a, b)

    def number(self) -> Value:
        if self.kind != BOOLEAN:
            return self
        return self.trace.emit("int", INTEGER, self, low=0, high=1)

    def _binary(self, operation, other, swap, bounds):
        operands = self._operands(other, swap)
        if operands is None:
            return NotImplemented
        a, b = operands
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
        operands = self._operands(other, swap)
        return NotImplemented if operands is None else self.trace.emit("div", REAL, *operands)

    def __truediv__(self, other):
        return self._division(other, False)

    def __rtruediv__(self, other):
        return self._division(other, True)

    def _floor(self, operation, other, swap):
        """//, and % by the same rule: the result of // is rounded down."""
        operands = self._operands(other, swap, structural=not swap)
        if operands is None:
            return NotImplemented
        a, b = operands
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
        operands = self._operands(other, swap, structural=True)
        if operands is None:
            return NotImplemented
        a, b = operands
        integers = a.kind == INTEGER and b.kind == INTEGER
        result = self.trace.emit("pow", REAL, a, b)
        return self.trace.emit("int", INTEGER, result) if integers else result

    # --- comparisons --------------------------------------------------------------------------------------------

    def _compare(self, operation, other):
        operands = self._operands(other)
        return NotImplemented if operands is None else self.trace.emit(operation, BOOLEAN, *operands)

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
        low = high = None
        if name == "and":  # no larger than an operand that is not negative
            for x in (a, b):
                if x.low is not None and x.low >= 0:
                    low = 0
                    high = x.high if high is None or (x.high is not None and x.high < high) else high
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
        operands = self._operands(other, swap, structural=True)
        if operands is None:
            return NotImplemented
        a, b = operands
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
