"""Functions of traced values, by the names that torch, NumPy and Python give them.

`functions[name](*args, **kwargs)`; an argument is a Value or anything Trace.lift takes, and one at least is a Value.
"""

from __future__ import annotations

import math

from ._captures import Partial, trace_of
from ._errors import TraceError, where_in_user_code
from ._trace import Trace
from ._value import BOOLEAN, INTEGER, REAL, Value

functions: dict = {}


def function(*names):
    def register(f):
        for name in names:
            functions[name] = f
        return f

    return register


def lift(x, trace: Trace) -> Value:
    value = trace.lift(x)
    if value is None:
        raise TraceError(f"{type(x).__name__} is no number of a pair{where_in_user_code()}")
    return value


def _unary(operation: str, *names: str):
    @function(operation, *names)
    def apply(x, *, out=None):
        value = lift(x, trace_of(x))
        return value.trace.emit(operation, REAL, value.number())

    return apply


for _operation, *_names in (
    ("sqrt",), ("rsqrt",), ("exp",), ("exp2", "special_exp2"), ("expm1", "special_expm1"), ("log",), ("log2",),
    ("log1p", "special_log1p"), ("sin",), ("cos",), ("tan",), ("asin", "arcsin"), ("acos", "arccos"),
    ("atan", "arctan"), ("sinh",), ("cosh",), ("tanh",), ("sigmoid", "special_expit", "expit"),
    ("erf", "special_erf"),
):  # fmt: skip
    _unary(_operation, *_names)


def _rounding(operation: str, *names: str):
    @function(operation, *names)
    def apply(x):
        value = lift(x, trace_of(x)).number()
        return value if value.kind == INTEGER else value.trace.emit(operation, REAL, value)

    return apply


for _operation, *_names in (("floor",), ("ceil",), ("trunc", "fix"), ("round",)):
    _rounding(_operation, *_names)


def _operator(name: str, *names: str):
    method, reverse = f"__{name}__", f"__r{name}__"

    @function(*names, method)
    def apply(a, b):
        trace = trace_of(a, b)
        return getattr(lift(a, trace), method)(lift_as_given(b, trace))

    @function(reverse)
    def apply_reversed(a, b):
        return apply(b, a)

    return apply


def lift_as_given(x, trace: Trace):
    """Python numbers stay what they are, so that operators may take them as structural."""
    return x if isinstance(x, (bool, int, float)) else lift(x, trace)


for _name, *_names in (
    ("mod", "remainder"), ("floordiv", "floor_divide"), ("and", "bitwise_and"), ("or", "bitwise_or"),
    ("xor", "bitwise_xor"), ("lshift", "bitwise_left_shift"), ("rshift", "bitwise_right_shift"), ("pow", "pow", "power"),
    ("eq", "eq", "equal"), ("ne", "ne", "not_equal"), ("lt", "lt", "less"), ("le", "le", "less_equal"),
    ("gt", "gt", "greater"), ("ge", "ge", "greater_equal"),
):  # fmt: skip
    _operator(_name, *_names)


@function("mul", "multiply", "__mul__", "__rmul__")
def mul(a, b):
    trace = trace_of(a, b)
    return lift(a, trace) * lift_as_given(b, trace)


def _scaled(b, alpha, trace):
    b = lift_as_given(b, trace)
    return b if alpha == 1 else lift(b, trace) * alpha


@function("add", "__add__", "__radd__")
def add(a, b, *, alpha=1):
    trace = trace_of(a, b)
    return lift(a, trace) + _scaled(b, alpha, trace)


@function("sub", "subtract", "__sub__")
def sub(a, b, *, alpha=1):
    trace = trace_of(a, b)
    return lift(a, trace) - _scaled(b, alpha, trace)


@function("rsub", "__rsub__")
def rsub(a, b, *, alpha=1):
    return sub(b, a, alpha=alpha)


@function("div", "divide", "true_divide", "__truediv__", "__div__")
def div(a, b, *, rounding_mode=None):
    trace = trace_of(a, b)
    a = lift(a, trace)
    b = lift_as_given(b, trace)
    if rounding_mode is None:
        return a / b
    if rounding_mode == "floor":
        return a // b
    quotient = (a / b).trace.emit("trunc", REAL, a / b)
    integers = a.kind != REAL and lift(b, trace).kind != REAL
    return trace.emit("int", INTEGER, quotient) if integers else quotient


@function("__rtruediv__", "__rdiv__")
def rdiv(a, b):
    return div(b, a)


@function("fmod")
def fmod(a, b):
    return lift(a, trace_of(a, b)) - div(a, b, rounding_mode="trunc") * b


@function("reciprocal")
def reciprocal(x):
    return div(1.0, x)


@function("square")
def square(x):
    return x * x


@function("neg", "negative", "__neg__")
def neg(x):
    return -lift(x, trace_of(x))


@function("positive", "__pos__", "detach", "clone", "contiguous", "conj", "alias", "real")
def same(x, **ignored):
    return lift(x, trace_of(x))


@function("abs", "absolute", "__abs__", "fabs")
def absolute(x):
    return abs(lift(x, trace_of(x)))


@function("sign", "sgn")
def sign(x):
    value = lift(x, trace_of(x)).number()
    low, high = (-1, 1) if value.kind == INTEGER else (None, None)
    return value.trace.emit("sign", value.kind, value, low=low, high=high)


def _choice(operation, pick, a, b):
    trace = trace_of(a, b)
    a, b = lift(a, trace).number(), lift(b, trace).number()
    kind = INTEGER if a.kind == INTEGER and b.kind == INTEGER else REAL
    low = high = None
    if kind == INTEGER:
        if a.low is not None and b.low is not None:
            low = pick(a.low, b.low)
        elif operation == "max":
            low = a.low if a.low is not None else b.low
        if a.high is not None and b.high is not None:
            high = pick(a.high, b.high)
        elif operation == "min":
            high = a.high if a.high is not None else b.high
    return trace.emit(operation, kind, a, b, low=low, high=high)


@function("minimum", "min", "fmin")
def minimum(a, b):
    return _choice("min", min, a, b)


@function("maximum", "max", "fmax")
def maximum(a, b):
    return _choice("max", max, a, b)


@function("clamp", "clip")
def clamp(x, min=None, max=None):
    if min is not None:
        x = maximum(x, min)
    return x if max is None else minimum(x, max)


@function("clamp_min")
def clamp_min(x, min):
    return maximum(x, min)


@function("clamp_max")
def clamp_max(x, max):
    return minimum(x, max)


@function("atan2", "arctan2")
def atan2(a, b):
    trace = trace_of(a, b)
    return trace.emit("atan2", REAL, lift(a, trace).number(), lift(b, trace).number())


@function("hypot")
def hypot(a, b):
    return functions["sqrt"](mul(a, a) + mul(b, b))


def truth(x, trace) -> Value:
    value = lift(x, trace)
    return value if value.kind == BOOLEAN else trace.emit("bool", BOOLEAN, value)


def _logical(name):
    @function("logical_" + name)
    def apply(a, b):
        trace = trace_of(a, b)
        return trace.emit("logical_" + name, BOOLEAN, truth(a, trace), truth(b, trace))


for _name in ("and", "or", "xor"):
    _logical(_name)


@function("logical_not")
def logical_not(x):
    trace = trace_of(x)
    return trace.emit("logical_not", BOOLEAN, truth(x, trace))


@function("bitwise_not", "invert", "__invert__")
def invert(x):
    return ~lift(x, trace_of(x))


@function("isnan")
def isnan(x):
    value = lift(x, trace_of(x))
    return value.trace.emit("isnan", BOOLEAN, value.real())


@function("isinf")
def isinf(x):
    value = lift(x, trace_of(x))
    return value.trace.emit("isinf", BOOLEAN, value.real())


@function("isneginf")
def isneginf(x):
    return lift(x, trace_of(x)).real() == -math.inf


@function("isposinf")
def isposinf(x):
    return lift(x, trace_of(x)).real() == math.inf


@function("isfinite")
def isfinite(x):
    return ~(isnan(x) | isinf(x))


@function("where")
def where(condition, a, b):
    trace = trace_of(condition, a, b)
    a, b = lift(a, trace), lift(b, trace)
    if a.kind != b.kind:
        a, b = (a.number(), b.number())
        if a.kind != b.kind:
            a, b = a.real(), b.real()
    low = high = None
    if a.kind == INTEGER and None not in (a.low, a.high, b.low, b.high):
        low, high = min(a.low, b.low), max(a.high, b.high)
    return trace.emit("where", a.kind, truth(condition, trace), a, b, low=low, high=high)


@function("masked_fill")
def masked_fill(x, mask, value):
    return where(mask, value, x)


@function("lerp")
def lerp(a, b, weight):
    trace = trace_of(a, b, weight)
    a = lift(a, trace)
    return a + (lift(b, trace) - a) * lift_as_given(weight, trace)


@function("addcmul")
def addcmul(x, a, b, *, value=1):
    return x + mul(a, b) * value


@function("addcdiv")
def addcdiv(x, a, b, *, value=1):
    return x + div(a, b) * value


# --- made of others ---------------------------------------------------------------------------------------------


@function("log10")
def log10(x):
    return functions["log"](x) * (1 / math.log(10))


@function("erfc", "special_erfc")
def erfc(x):
    return 1.0 - functions["erf"](x)


@function("logit", "special_logit")
def logit(x):
    return functions["log"](div(x, sub(1.0, x)))


@function("relu")
def relu(x, inplace=False):
    return maximum(x, 0.0 if lift(x, trace_of(x)).kind == REAL else 0)


@function("leaky_relu")
def leaky_relu(x, negative_slope=0.01, inplace=False):
    return where(x > 0, x, x * negative_slope)


@function("silu")
def silu(x, inplace=False):
    return x * functions["sigmoid"](x)


@function("gelu")
def gelu(x, approximate="none"):
    if approximate == "tanh":
        return 0.5 * x * (1.0 + functions["tanh"](math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    return 0.5 * x * (1.0 + functions["erf"](x * math.sqrt(0.5)))


@function("softplus")
def softplus(x, beta=1, threshold=20):
    scaled = x * beta
    return where(scaled > threshold, x, functions["log1p"](functions["exp"](scaled)) / beta)


@function("logsigmoid")
def logsigmoid(x):
    return -softplus(-x)


@function("elu")
def elu(x, alpha=1.0, inplace=False):
    return where(x > 0, x, functions["expm1"](x) * alpha)


# --- conversions ------------------------------------------------------------------------------------------------


def to_kind(x, kind: str) -> Value:
    value = lift(x, trace_of(x))
    if value.kind == kind:
        return value
    if kind == REAL:
        return value.real()
    if kind == BOOLEAN:
        return value.trace.emit("bool", BOOLEAN, value)
    return value.number() if value.kind == BOOLEAN else value.trace.emit("int", INTEGER, value)


@function("float", "double", "half", "bfloat16")
def to_float(x, **ignored):
    return to_kind(x, REAL)


@function("int", "long", "short", "char", "byte")
def to_int(x, **ignored):
    return to_kind(x, INTEGER)


@function("bool")
def to_bool(x, **ignored):
    return to_kind(x, BOOLEAN)


# --- NumPy's functions ------------------------------------------------------------------------------------------


def _of_numpy(function, args, kwargs):
    found = functions.get(function.__name__)
    if found is None or kwargs:
        options = f" with {', '.join(kwargs)}" if kwargs else ""
        raise TraceError(f"a mod calls numpy.{function.__name__}{options}, which cannot be compiled{where_in_user_code()}")
    return found(*args)


def _array_ufunc(self, ufunc, method, *args, **kwargs):
    if method != "__call__":
        raise TraceError(f"a mod calls numpy.{ufunc.__name__}.{method}, which cannot be compiled{where_in_user_code()}")
    return _of_numpy(ufunc, args, kwargs)


def _array_function(self, function, types, args, kwargs):
    return _of_numpy(function, args, kwargs)


for _class in (Value, Partial):
    _class.__array_ufunc__ = _array_ufunc
    _class.__array_function__ = _array_function
