"""A traced call, and the compiled functions behind such calls."""

from __future__ import annotations

import functools
import re
from typing import Callable, NamedTuple, Optional

from . import _core
from ._mods import as_mask_mod, as_score_mod
from ._names import with_names
from ._trace import Trace

types = dict(_core.types)
Array = tuple  # (address, element type, shape, strides in elements)
_words = re.compile(r"[a-z]\w*")


class Program(NamedTuple):
    """Mods as text, and what they read. Equal texts and types are one compiled function."""

    score_mod: str  # empty: none
    mask: str
    captures: tuple  # of Buffer: c0, c1, ...
    scalars: tuple  # the values of s0, s1, ...: ints and floats
    from_end: tuple  # both texts where negative indices count from the end; equal to the others if none may be negative

    def counting_from_end(self) -> Program:
        return Program(*self.from_end, self.captures, self.scalars, self.from_end)

    def declared(self) -> list:
        return _declared(*self._types())

    def _types(self) -> tuple:
        if not self.captures and not self.scalars:
            return (), ()
        return tuple([(c.dtype, len(c.shape)) for c in self.captures]), tuple([type(x) for x in self.scalars])

    def mask_captures(self) -> tuple:
        """Numbers of the captures that the mask reads."""
        return numbers_of("c", self.mask)

    def mask_scalars(self) -> tuple:
        """The scalars that the mask reads."""
        return tuple([self.scalars[i] for i in numbers_of("s", self.mask)])


nothing = Program("", "", (), (), ("", ""))  # no mods


def _declared(captures: tuple, scalars: tuple) -> list:
    """(name, element type, rank) of all captures."""
    listed = [(f"c{i}", types[dtype], rank) for i, (dtype, rank) in enumerate(captures)]
    return listed + [(f"s{i}", types["f64" if t is float else "i64"], 0) for i, t in enumerate(scalars)]


@functools.lru_cache(1024)
def numbers_of(letter: str, text: str) -> tuple:
    """1 and 10 of "c1[q] + c10[kv]"."""
    return tuple(sorted({int(word[1:]) for word in _words.findall(text) if word[0] == letter and word[1:].isdigit()}))


def trace(t: Trace, score_mod: Optional[Callable], mask_mod: Optional[Callable]) -> Program:
    """The program of mods, written down by a new trace of the front end they are for."""
    if score_mod is not None and not callable(score_mod):
        score_mod = as_score_mod(score_mod)
    if mask_mod is not None and not callable(mask_mod):
        mask_mod = as_mask_mod(mask_mod, t.readable)
    score, score_from_end = ("", "") if score_mod is None else t.score_mod(score_mod)
    mask, mask_from_end = ("", "") if mask_mod is None else t.mask_mod(mask_mod)
    return Program(score, mask, tuple(t.captures), tuple(t.scalars), (score_from_end, mask_from_end))


_negative: set = set()  # texts of programs that have met a negative index, some of the last
_MOST_NEGATIVE = 1024


def with_indices(program: Program, run: Callable, mods: tuple = ()):
    """run(program): first as if no index was negative, which is seldom wrong, and is an error of the call if it is. Errors
    name captures as mods do."""
    try:
        return _with_indices(program, run)
    except _core.ModError as error:
        raise with_names(error, program.captures, mods) from None


def _with_indices(program: Program, run: Callable):
    texts = (program.score_mod, program.mask)
    if texts == program.from_end:
        return run(program)
    if texts in _negative:
        return run(program.counting_from_end())
    try:
        return run(program)
    except _core.ModError:
        result = run(program.counting_from_end())
    if len(_negative) >= _MOST_NEGATIVE:  # who comes again is met again
        _negative.clear()
    _negative.add(texts)
    return result


def function_for(
    program: Program, gradients: tuple, scale: Optional[float], most_nodes: Optional[int] = None
) -> _core.Function:
    """The compiled function of a program whose captures with these numbers get gradients."""
    return _function(program.score_mod, program.mask, *program._types(), gradients, scale, most_nodes)


@functools.lru_cache(1024)
def _function(score_mod, mask, captures, scalars, gradients, scale, most_nodes) -> _core.Function:
    declared = _declared(captures, scalars)
    return _core.Function(score_mod, mask, declared, [f"c{i}" for i in gradients], scale, most_nodes)
