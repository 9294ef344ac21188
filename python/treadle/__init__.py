"""Treadle: a compiler for attention. What to do with a score and which pairs see each other are two small functions.

    import treadle
    out = treadle.attention(q, k, v, mask_mod=lambda b, h, q, kv: q >= kv)

This is the package for NumPy and whatever speaks DLPack; `treadle.torch` has FlexAttention's names, with gradients.
"""

import os as _os

from . import _core
from ._core import Error, ModError
from ._errors import TraceError
from ._functions import functions as _functions
from ._numpy import capture
from .api import Attention, attention, explain
from .plot import plot_mask

__version__ = _core.__version__

__all__ = ["Attention", "Error", "ModError", "TraceError", "attention", "capture", "explain", "plot_mask"]

# Functions for mods: treadle.where, treadle.exp, ...
for _name in (
    "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log1p", "sin", "cos", "tan", "asin", "acos", "atan",
    "atan2", "sinh", "cosh", "tanh", "sigmoid", "erf", "floor", "ceil", "trunc", "minimum", "maximum", "clamp",
    "where", "isnan", "isinf", "logical_and", "logical_or", "logical_not", "logical_xor", "sign",
):  # fmt: skip
    globals()[_name] = _functions[_name]

# A forked child has none of the parent's threads.
_os.register_at_fork(after_in_child=_core.stay_serial)
