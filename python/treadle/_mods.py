"""What is taken where a mod is: functions, texts in the language of C++ mods, and for masks bool arrays."""

from __future__ import annotations

from typing import Callable

from ._errors import TraceError
from ._value import BOOLEAN, REAL

_NAMES = ("b", "h", "q", "kv")


def as_score_mod(mod) -> Callable:
    """A function of score, b, h, q and kv."""
    if callable(mod):
        return mod
    if isinstance(mod, str):
        return lambda score, b, h, q, kv: _embed(mod, REAL, ("score", *_NAMES), (score, b, h, q, kv))
    hint = "; a function reads arrays at indices, score + bias[q, kv]" if hasattr(mod, "shape") else ""
    raise TypeError(f"score_mod must be a function or a text, got {type(mod).__name__}{hint}")


def as_mask_mod(mod, readable: Callable = lambda array: array) -> Callable:
    """A function of b, h, q and kv. `readable` makes of an array what mods can read."""
    if callable(mod):
        return mod
    if isinstance(mod, str):
        return lambda b, h, q, kv: _embed(mod, BOOLEAN, _NAMES, (b, h, q, kv))
    if hasattr(mod, "compiled_mask_mod"):
        raise TypeError("mask_mod is a BlockMask; treadle.torch's functions take it, others take its mask_mod")
    shape, dtype = getattr(mod, "shape", None), str(getattr(mod, "dtype", ""))
    if shape is None or dtype.removeprefix("torch.") != "bool" or not 2 <= len(shape) <= 4:
        what = f"an array of {dtype}, shape {tuple(shape)}" if shape is not None else type(mod).__name__
        raise TypeError(
            f"mask_mod must be a function, a text or a bool array [queries, keys], [heads, queries, keys] or "
            f"[batch, heads, queries, keys], got {what}"
        )
    array = readable(mod)

    def mask_mod(b, h, q, kv):
        indices = (b, h, q, kv)[4 - len(shape) :]
        return array[tuple([0 if length == 1 else i for i, length in zip(indices, shape)])]

    return mask_mod


def _embed(text: str, kind: str, names: tuple, values: tuple):
    """The value of a text, which knows the pair by its names."""
    trace = values[0].trace
    if any([value.text != name for value, name in zip(values, names)]):
        raise TraceError(f"the text {text!r} is about {', '.join(names)}; it cannot be called with other values")
    return trace.text_of(text, kind)
