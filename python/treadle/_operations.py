"""The operations of the compiler's table, src/ir/ops.def, as functions of traced values.

`functions[name](*args, **kwargs)`, by the names that the table, torch, NumPy and Python give them; an argument is a
Value or anything Trace.lift takes, and one at least is a Value. Functions made of operations are in _functions.py.

An operation needs a line here only if torch or NumPy have another name for it (`_ALIASES`), or if it does more than
the rule of its row says.
"""

from __future__ import annotations

from typing import NamedTuple

from . import _bounds, _core
from ._captures import trace_of
from ._errors import TraceError, where_in_user_code
from ._trace import Trace
from ._value import BOOLEAN, INTEGER, REAL, Value


class Operation(NamedTuple):
    """A row of the table."""

    name: str
    infix: str
    arity: int
    rule: str  # which types go in and come out


operations = {row[0]: Operation(*row) for row in _core.operations}
functions: dict = {}

# What torch and NumPy call operations, besides the table's names.
_ALIASES = {
    "exp2": ("special_exp2",), "expm1": ("special_expm1",), "log1p": ("special_log1p",), "asin": ("arcsin",),
    "acos": ("arccos",), "atan": ("arctan",), "atan2": ("arctan2",), "sigmoid": ("special_expit", "expit"),
    "erf": ("special_erf",), "trunc": ("fix",), "mod": ("remainder",), "floor_div": ("floor_divide",),
    "pow": ("power",), "bit_and": ("bitwise_and",), "bit_or": ("bitwise_or",), "bit_xor": ("bitwise_xor",),
    "bit_not": ("bitwise_not", "invert", "__invert__"), "shift_left": ("bitwise_left_shift",),
    "shift_right": ("bitwise_right_shift",), "eq": ("equal",), "ne": ("not_equal",), "lt": ("less",),
    "le": ("less_equal",), "gt": ("greater",), "ge": ("greater_equal",), "sub": ("subtract",),
    "mul": ("multiply",), "div": ("divide", "true_divide", "__div__"), "neg": ("negative", "__neg__"),
    "abs": ("absolute", "__abs__", "fabs"), "sign": ("sgn",), "min": ("minimum", "fmin"), "max": ("maximum", "fmax"),
    "clamp": ("clip",), "float": ("double", "half", "bfloat16"), "int": ("long", "short", "char", "byte"),
}  # fmt: skip

# Python's methods for what the table writes between two operands.
_METHODS = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow", "&": "and",
    "|": "or", "^": "xor", "<<": "lshift", ">>": "rshift", "==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt",
    ">=": "ge",
}  # fmt: skip


def function(*names):
    """Registers a function by these names and, for an operation of the table, its aliases."""

    def register(f):
        for name in names:
            for alias in (name, *_ALIASES.get(name, ())):
                functions[alias] = f
        return f

    return register


def lift(x, trace: Trace) -> Value:
    if trace is None:
        raise TypeError(f"a function for mods got {type(x).__name__}; it takes traced values, inside a mod")
    value = trace.lift(x)
    if value is None:
        raise TraceError(f"a mod computes with {type(x).__name__}, which is not a number{where_in_user_code()}")
    return value


def lift_as_given(x, trace: Trace):
    """Python numbers stay what they are, so that operators may take them as structural."""
    return x if isinstance(x, (bool, int, float)) else lift(x, trace)


def truth(x, trace: Trace) -> Value:
    value = lift(x, trace)
    return value if value.kind == BOOLEAN else trace.emit("bool", BOOLEAN, value)


def to_kind(x, kind: str) -> Value:
    value = lift(x, trace_of(x))
    if value.kind == kind:
        return value
    return value.number() if kind == INTEGER and value.kind == BOOLEAN else value.trace.emit(kind, kind, value)


# --- operations that do more than their rule says ----------------------------------------------------------------


def _scaled(b, alpha, trace):
    b = lift_as_given(b, trace)
    return b if alpha == 1 else lift(b, trace) * alpha


@function("add", "__add__", "__radd__")
def add(a, b, *, alpha=1):
    trace = trace_of(a, b)
    return lift(a, trace) + _scaled(b, alpha, trace)


@function("sub", "__sub__")
def sub(a, b, *, alpha=1):
    trace = trace_of(a, b)
    return lift(a, trace) - _scaled(b, alpha, trace)


@function("rsub", "__rsub__")
def rsub(a, b, *, alpha=1):
    return sub(b, a, alpha=alpha)


@function("mul", "__mul__", "__rmul__")
def mul(a, b):
    trace = trace_of(a, b)
    return lift(a, trace) * lift_as_given(b, trace)


@function("div", "__truediv__")
def div(a, b, *, rounding_mode=None):
    trace = trace_of(a, b)
    a = lift(a, trace)
    b = lift_as_given(b, trace)
    if rounding_mode is None:
        return a / b
    if rounding_mode == "floor":
        return a // b
    quotient = trace.emit("trunc", REAL, a / b)
    integers = a.kind != REAL and lift(b, trace).kind != REAL
    return trace.emit("int", INTEGER, quotient) if integers else quotient


@function("__rtruediv__", "__rdiv__")
def rdiv(a, b):
    return div(b, a)


@function("neg")
def neg(x):
    return -lift(x, trace_of(x))


@function("abs")
def absolute(x):
    return abs(lift(x, trace_of(x)))


@function("sign")
def sign(x):
    value = lift(x, trace_of(x)).number()
    low, high = (-1, 1) if value.kind == INTEGER else _bounds.UNKNOWN
    return value.trace.emit("sign", value.kind, value, low=low, high=high)


def _one_of_two(operation: str, bounds, a, b):
    trace = trace_of(a, b)
    a, b = lift(a, trace).number(), lift(b, trace).number()
    if a.kind == REAL or b.kind == REAL:
        return trace.emit(operation, REAL, a, b)
    low, high = bounds(a, b)
    return trace.emit(operation, INTEGER, a, b, low=low, high=high)


@function("min")
def minimum(a, b):
    return _one_of_two("min", _bounds.smaller, a, b)


@function("max")
def maximum(a, b):
    return _one_of_two("max", _bounds.larger, a, b)


def _limit(x, bound, is_beyond, integer):
    """One side of a clamp. A float at its bound passes its gradient on; minimum and maximum would share it."""
    trace = trace_of(x, bound)
    x, bound = lift(x, trace).number(), lift(bound, trace).number()
    if x.kind != REAL and bound.kind != REAL:
        return integer(x, bound)
    # Of a NaN as bound torch makes a NaN: it is taken as one, and a comparison with it is false.
    return where(functions[is_beyond](x, bound) | functions["isnan"](bound), bound, x)


@function("clamp_min")
def clamp_min(x, min):
    return _limit(x, min, "lt", maximum)


@function("clamp_max")
def clamp_max(x, max):
    return _limit(x, max, "gt", minimum)


@function("clamp")
def clamp(x, min=None, max=None):
    if min is not None:
        x = clamp_min(x, min)
    return x if max is None else clamp_max(x, max)


@function("bit_not")
def invert(x):
    return ~lift(x, trace_of(x))


@function("where")
def where(condition, a, b):
    trace = trace_of(condition, a, b)
    a, b = lift(a, trace), lift(b, trace)
    if a.kind != b.kind:
        a, b = a.number(), b.number()
        if a.kind != b.kind:
            a, b = a.real(), b.real()
    low, high = _bounds.either(a, b) if a.kind == INTEGER else _bounds.UNKNOWN
    return trace.emit("where", a.kind, truth(condition, trace), a, b, low=low, high=high)


# --- all others, by the rules of their rows ----------------------------------------------------------------------


def _operator(row: Operation):
    method = f"__{_METHODS[row.infix]}__"

    @function(row.name, method)
    def apply(a, b):
        trace = trace_of(a, b)
        return getattr(lift(a, trace), method)(lift_as_given(b, trace))

    @function(f"__r{_METHODS[row.infix]}__")
    def apply_reversed(a, b):
        return apply(b, a)


def _lifted(row: Operation, operands: tuple) -> tuple:
    """The trace, and the operands as values."""
    if len(operands) != row.arity:
        raise TypeError(f"{row.name} takes {row.arity} operands, got {len(operands)}")
    trace = trace_of(*operands)
    return trace, [lift(x, trace) for x in operands]


def _arithmetic(row: Operation):
    @function(row.name)
    def apply(*operands):
        trace, values = _lifted(row, operands)
        kind = REAL if any([x.kind == REAL for x in values]) else INTEGER
        return trace.emit(row.name, kind, *[x.number() for x in values])


def _real(row: Operation):
    @function(row.name)
    def apply(*operands):
        trace, values = _lifted(row, operands)
        return trace.emit(row.name, REAL, *[x.number() for x in values])


def _rounding(row: Operation):
    @function(row.name)
    def apply(x):
        value = lift(x, trace_of(x)).number()
        return value if value.kind == INTEGER else value.trace.emit(row.name, REAL, value)


def _integer(row: Operation):
    @function(row.name)
    def apply(*operands):
        trace, values = _lifted(row, operands)
        if any([x.kind == REAL for x in values]):
            raise TraceError(f"{row.name} got a float; it takes integers{where_in_user_code()}")
        return trace.emit(row.name, INTEGER, *[x.number() for x in values])


def _logical(row: Operation):
    @function(row.name)
    def apply(*operands):
        trace, values = _lifted(row, operands)
        return trace.emit(row.name, BOOLEAN, *[truth(x, trace) for x in values])


def _test(row: Operation):
    @function(row.name)
    def apply(x):
        value = lift(x, trace_of(x))
        return value.trace.emit(row.name, BOOLEAN, value.real())


def _conversion(row: Operation):
    @function(row.name)
    def apply(x, **ignored):
        return to_kind(x, row.name)


_BY_RULE = {
    "arithmetic": _arithmetic, "real": _real, "rounding": _rounding, "integer": _integer, "comparison": _operator,
    "logical": _logical, "test": _test, "conversion": _conversion,
}  # fmt: skip

for _row in operations.values():
    if _row.name not in functions:
        _is_operator = _row.arity == 2 and _row.infix in _METHODS and _row.rule != "logical"
        (_operator if _is_operator else _BY_RULE[_row.rule])(_row)
