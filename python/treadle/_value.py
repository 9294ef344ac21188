"""Value: a number of every pair, as mods compute with it while they are traced.

Nothing here knows torch or NumPy. A front end has a class of its own made from this one: NumpyValue, TorchValue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _bounds
from ._errors import TraceError, where_in_user_code

if TYPE_CHECKING:
    from ._trace import Trace

REAL, INTEGER, BOOLEAN = "float", "int", "bool"  # the kinds of values, named as the text's conversions are
A_VALUE_OF = {REAL: "a float", INTEGER: "an int", BOOLEAN: "a bool"}  # for messages


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

    # --- what a traced value cannot be ---------------------------------------------------------------------------

    def __bool__(self):
        raise TraceError(
            "a mod uses a traced value as a Boolean (if, and, or, not, a chained comparison, min, max, a loop); all "
            f"pairs run the same code, so use where(), &, |, ~, minimum() and maximum(){where_in_user_code()}"
        )

    def __iter__(self):
        raise TraceError(f"a traced value is a single number and has no elements{where_in_user_code()}")

    def __len__(self):
        raise TraceError(f"a traced value is a single number and has no length{where_in_user_code()}")

    def __index__(self):
        raise TraceError(
            f"a traced value has no concrete value yet, so it cannot index a list or end a range{where_in_user_code()}"
        )

    def __float__(self):
        raise TraceError(
            "a traced value has no concrete value yet, so float(), int() and functions of Python's math cannot take "
            f"it; use those of torch, NumPy or treadle{where_in_user_code()}"
        )

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise TraceError(f"a mod uses .{name} of a traced value, which cannot be compiled{where_in_user_code()}")

    def __getitem__(self, index):
        if index is Ellipsis or index == ():
            return self
        raise TraceError(f"a traced value is a single number and has no elements{where_in_user_code()}")

    __int__ = __float__
    __hash__ = None  # type: ignore

    # --- conversions ---------------------------------------------------------------------------------------------

    def number(self) -> Value:
        """A bool as 0 or 1."""
        if self.kind != BOOLEAN:
            return self
        return self.trace.emit("int", INTEGER, self, low=0, high=1)

    def real(self) -> Value:
        return self if self.kind == REAL else self.trace.emit("float", REAL, self)

    # --- arithmetic ----------------------------------------------------------------------------------------------

    def _operands(self, other, swap=False, structural=False):
        """This and the other, in their order; bools count as integers. None if the other is not a number."""
        trace = self.trace
        if type(other) is not trace.value:
            other = trace.lift(other, structural)
            if other is None:
                return None
        a, b = self.number(), other.number()
        return (b, a) if swap else (a, b)

    def _binary(self, operation, other, swap, bounds):
        operands = self._operands(other, swap)
        if operands is None:
            return NotImplemented
        a, b = operands
        if a.kind == REAL or b.kind == REAL:
            return self.trace.emit(operation, REAL, a, b)
        low, high = bounds(a, b)
        return self.trace.emit(operation, INTEGER, a, b, low=low, high=high)

    def __add__(self, other):
        return self._binary("add", other, False, _bounds.sum_of)

    def __radd__(self, other):
        return self._binary("add", other, True, _bounds.sum_of)

    def __sub__(self, other):
        return self._binary("sub", other, False, _bounds.difference)

    def __rsub__(self, other):
        return self._binary("sub", other, True, _bounds.difference)

    def __mul__(self, other):
        return self._binary("mul", other, False, _bounds.product)

    def __rmul__(self, other):
        return self._binary("mul", other, True, _bounds.product)

    def __neg__(self):
        a = self.number()
        low, high = _bounds.negation(a)
        return self.trace.emit("neg", a.kind, a, low=low, high=high)

    def __pos__(self):
        return self.number()

    def __abs__(self):
        a = self.number()
        if a.kind == REAL:
            return self.trace.emit("abs", REAL, a)
        low, high = _bounds.magnitude(a)
        return self.trace.emit("abs", INTEGER, a, low=low, high=high)

    def _division(self, other, swap):
        operands = self._operands(other, swap)
        return NotImplemented if operands is None else self.trace.emit("div", REAL, *operands)

    def __truediv__(self, other):
        return self._division(other, False)

    def __rtruediv__(self, other):
        return self._division(other, True)

    def _floor(self, operation, other, swap, bounds):
        """//, and % by the same rule: the result of // is rounded down."""
        operands = self._operands(other, swap, structural=not swap)
        if operands is None:
            return NotImplemented
        a, b = operands
        if a.kind == REAL or b.kind == REAL:
            quotient = self.trace.emit("floor", REAL, self.trace.emit("div", REAL, a, b))
            return quotient if operation == "floor_div" else a - quotient * b
        low, high = bounds(a, b)
        return self.trace.emit(operation, INTEGER, a, b, low=low, high=high)

    def __floordiv__(self, other):
        return self._floor("floor_div", other, False, _bounds.quotient)

    def __rfloordiv__(self, other):
        return self._floor("floor_div", other, True, _bounds.quotient)

    def __mod__(self, other):
        return self._floor("mod", other, False, _bounds.remainder)

    def __rmod__(self, other):
        return self._floor("mod", other, True, _bounds.remainder)

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

    # --- comparisons ---------------------------------------------------------------------------------------------

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

    # --- bits ----------------------------------------------------------------------------------------------------

    def _bits(self, name, other, swap=False):
        """and, or, xor: of two bools a bool, else of the bits of integers."""
        b = self.trace.lift(other, structural=True)
        if b is None:
            return NotImplemented
        a, b = (b, self) if swap else (self, b)
        if REAL in (a.kind, b.kind):
            raise TraceError(f"{name} got a float; it takes integers or bools{where_in_user_code()}")
        if a.kind == BOOLEAN and b.kind == BOOLEAN:
            return self.trace.emit("logical_" + name, BOOLEAN, a, b)
        a, b = a.number(), b.number()
        low, high = _bounds.common_bits(a, b) if name == "and" else _bounds.UNKNOWN
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
            raise TraceError(f"~ got a float; it takes integers or bools{where_in_user_code()}")
        if self.kind == BOOLEAN:
            return self.trace.emit("logical_not", BOOLEAN, self)
        return self.trace.emit("bit_not", INTEGER, self)

    def _shift(self, operation, other, swap, bounds):
        operands = self._operands(other, swap, structural=True)
        if operands is None:
            return NotImplemented
        a, b = operands
        if REAL in (a.kind, b.kind):
            raise TraceError(f"a shift got a float; it takes integers{where_in_user_code()}")
        low, high = bounds(a, b)
        return self.trace.emit(operation, INTEGER, a, b, low=low, high=high)

    def __lshift__(self, other):
        return self._shift("shift_left", other, False, _bounds.shifted_left)

    def __rlshift__(self, other):
        return self._shift("shift_left", other, True, _bounds.shifted_left)

    def __rshift__(self, other):
        return self._shift("shift_right", other, False, _bounds.shifted_right)

    def __rrshift__(self, other):
        return self._shift("shift_right", other, True, _bounds.shifted_right)
