"""`functions`: all functions of traced values, by the names that torch, NumPy and Python give them.

Here are those that are made of operations; the operations themselves are in _operations.py.
"""

from __future__ import annotations

import math

from ._captures import trace_of
from ._operations import div, function, functions, lift, lift_as_given, maximum, mul, sub, where
from ._value import REAL


@function("positive", "__pos__", "detach", "clone", "contiguous", "conj", "alias", "real")
def same(x, **ignored):
    return lift(x, trace_of(x))


@function("fmod")
def fmod(a, b):
    return lift(a, trace_of(a, b)) - div(a, b, rounding_mode="trunc") * b


@function("reciprocal")
def reciprocal(x):
    return div(1.0, x)


@function("square")
def square(x):
    return x * x


@function("hypot")
def hypot(a, b):
    return functions["sqrt"](mul(a, a) + mul(b, b))


@function("isneginf")
def isneginf(x):
    return lift(x, trace_of(x)).real() == -math.inf


@function("isposinf")
def isposinf(x):
    return lift(x, trace_of(x)).real() == math.inf


@function("isfinite")
def isfinite(x):
    return ~(functions["isnan"](x) | functions["isinf"](x))


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


@function("log10")
def log10(x):
    return functions["log"](x) * (1 / math.log(10))


@function("erfc", "special_erfc")
def erfc(x):
    return 1.0 - functions["erf"](x)


@function("logit", "special_logit")
def logit(x):
    return functions["log"](div(x, sub(1.0, x)))


# Slopes where two pieces of a function meet are torch's: that of `where` is its chosen side's. Comparisons are
# written so that a NaN stays one.


@function("relu")
def relu(x, inplace=False):
    x = lift(x, trace_of(x)).number()
    return where(x <= 0, 0.0, x) if x.kind == REAL else maximum(x, 0)


@function("threshold", "_threshold")
def threshold(x, threshold, value, inplace=False):
    return where(x <= threshold, value, x)


@function("hardtanh")
def hardtanh(x, min_val=-1.0, max_val=1.0, inplace=False):
    return where(x <= min_val, min_val, where(x >= max_val, max_val, x))


@function("relu6")
def relu6(x, inplace=False):
    return hardtanh(x, 0.0, 6.0)


@function("hardsigmoid")
def hardsigmoid(x, inplace=False):
    return where(x <= -3.0, 0.0, where(x >= 3.0, 1.0, x / 6.0 + 0.5))


@function("hardswish")
def hardswish(x, inplace=False):
    return where(x <= -3.0, 0.0, where(x >= 3.0, x, x * (x + 3.0) / 6.0))


@function("hardshrink")
def hardshrink(x, lambd=0.5):
    return where(abs(x) <= lambd, 0.0, x)


@function("softshrink")
def softshrink(x, lambd=0.5):
    return where(x > lambd, x - lambd, where(x < -lambd, x + lambd, x * 0.0))


@function("tanhshrink")
def tanhshrink(x):
    return x - functions["tanh"](x)


@function("softsign")
def softsign(x):
    return x / (1.0 + abs(x))


@function("prelu")
def prelu(x, weight):
    return where(x > 0, x, mul(weight, x))


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


@function("logsigmoid", "log_sigmoid")
def logsigmoid(x):
    # Below -30 it is x to the last bit that f32 has, and exp(-x) is still far from its end above it.
    return where(x < -30.0, x, -functions["log1p"](functions["exp"](-x)))


@function("mish")
def mish(x, inplace=False):
    return x * functions["tanh"](softplus(x))


@function("elu")
def elu(x, alpha=1.0, inplace=False):
    return where(x > 0, x, functions["expm1"](x) * alpha)


@function("celu")
def celu(x, alpha=1.0, inplace=False):
    return where(x > 0, x, functions["expm1"](x / alpha) * alpha)


@function("selu")
def selu(x, inplace=False):
    return elu(x, 1.6732632423543772848170429916717) * 1.0507009873554804934193349852946
