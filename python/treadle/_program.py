"""A traced call, and the compiled functions behind such calls."""

from __future__ import annotations

import functools
import re
from typing import Callable, NamedTuple, Optional

from . import _core
from ._trace import Trace

types = dict(_core.types)
Array = tuple  # (address, element type, shape, strides in elements)
_words = re.compile(r"[a-z]\w*")
_wrapped = re.compile(r"= wrapped\((.*), (s\d+)\);")


class Program(NamedTuple):
    """Mods as text, and what they read. Equal texts and types are one compiled function."""

    score_mod: str  # empty: none
    mask: str
    captures: tuple  # of Buffer: c0, c1, ...
    scalars: tuple  # the values of s0, s1, ...: ints and floats

    def declared(self) -> list:
        return _declared(*self._types())

    def _types(self) -> tuple:
        return tuple([(c.dtype, len(c.shape)) for c in self.captures]), tuple([type(x) for x in self.scalars])

    def mask_captures(self) -> tuple:
        """Numbers of the captures that the mask reads."""
        return _numbers_of("c", self.mask)

    def mask_scalars(self) -> tuple:
        """The scalars that the mask reads."""
        return tuple([self.scalars[i] for i in _numbers_of("s", self.mask)])


def _declared(captures: tuple, scalars: tuple) -> list:
    """(name, element type, rank) of all captures."""
    listed = [(f"c{i}", types[dtype], rank) for i, (dtype, rank) in enumerate(captures)]
    return listed + [(f"s{i}", types["f64" if t is float else "i64"], 0) for i, t in enumerate(scalars)]


@functools.lru_cache(1024)
def _numbers_of(letter: str, text: str) -> tuple:
    """1 and 10 of "c1[q] + c10[kv]"."""
    return tuple(sorted({int(word[1:]) for word in _words.findall(text) if word[0] == letter and word[1:].isdigit()}))


def trace(score_mod: Optional[Callable], mask_mod: Optional[Callable], sizes: tuple) -> Program:
    t = Trace(sizes)
    score_text = t.score_mod(score_mod) if score_mod is not None else ""
    mask_text = t.mask_mod(mask_mod) if mask_mod is not None else ""
    return Program(score_text, mask_text, tuple(t.captures), tuple(t.scalars))


# --- indices that may be negative ------------------------------------------------------------------------------------

_negative: set = set()  # texts of programs that have met a negative index


def expand(text: str, wrap: bool) -> str:
    """The text with its "wrapped(index, length)" spelled out: an index that counts from the end where it is negative, or
    the index itself, which is faster."""
    return _wrapped.sub(r"= where(\1 < 0, \1 + \2, \1);" if wrap else r"= \1;", text)


def with_indices(program: Program, run: Callable):
    """run(wrap): first as if no index was negative, which is seldom wrong, and is an error of the call if it is."""
    texts = program.score_mod, program.mask
    if "wrapped(" not in program.score_mod and "wrapped(" not in program.mask:
        return run(False)
    if texts in _negative:
        return run(True)
    try:
        return run(False)
    except _core.ModError:
        result = run(True)
    _negative.add(texts)
    return result


def function_for(program: Program, gradients: tuple, scale: Optional[float], wrap: bool) -> _core.Function:
    """The compiled function of a program whose captures with these numbers get gradients."""
    return _function(program.score_mod, program.mask, *program._types(), gradients, scale, wrap)


@functools.lru_cache(1024)
def _function(score_mod, mask, captures, scalars, gradients, scale, wrap) -> _core.Function:
    names = [f"c{i}" for i in gradients]
    return _core.Function(expand(score_mod, wrap), expand(mask, wrap), _declared(captures, scalars), names, scale)
