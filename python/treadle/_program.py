"""A traced call, and the compiled functions behind such calls."""

from __future__ import annotations

import ctypes
import functools
import re
import threading
from typing import Callable, NamedTuple, Optional

from . import _core
from ._trace import Trace

types = dict(_core.types)
_words = re.compile(r"[a-z]\w*")
Array = tuple  # (address, element type, shape, strides in elements)


class Program(NamedTuple):
    """Mods as text, and what they read. Equal texts and types are one compiled function."""

    score_mod: str  # empty: none
    mask: str
    captures: tuple  # of Buffer: c0, c1, ...
    scalars: tuple  # the values of s0, s1, ...
    unsure: bool  # an index may be negative, which was taken not to be so

    @property
    def scalar_types(self) -> tuple:
        return tuple(types["bool" if isinstance(x, bool) else "i64" if isinstance(x, int) else "f64"] for x in self.scalars)

    def declared(self) -> list:
        """(name, element type, rank) of all captures."""
        listed = [(f"c{i}", types[c.dtype], len(c.shape)) for i, c in enumerate(self.captures)]
        return listed + [(f"s{i}", t, 0) for i, t in enumerate(self.scalar_types)]

    def mask_captures(self) -> tuple:
        """Numbers of the captures that the mask reads."""
        return _numbers_of("c", self.mask)

    def mask_scalars(self) -> tuple:
        """The scalars that the mask reads."""
        return tuple([self.scalars[i] for i in _numbers_of("s", self.mask)])


@functools.lru_cache(1024)
def _numbers_of(letter: str, text: str) -> tuple:
    """1 and 10 of "c1[q] + c10[kv]"."""
    return tuple(sorted({int(word[1:]) for word in _words.findall(text) if word[0] == letter and word[1:].isdigit()}))


def trace(score_mod: Optional[Callable], mask_mod: Optional[Callable], sizes: tuple, wrap: bool = False) -> Program:
    t = Trace(sizes, wrap)
    score_text = t.score_mod(score_mod) if score_mod is not None else ""
    mask_text = t.mask_mod(mask_mod) if mask_mod is not None else ""
    program = Program(score_text, mask_text, tuple(t.captures), tuple(t.scalars), t.unsure)
    return _without_unused(program) if t.unused else program


def _without_unused(program: Program) -> Program:
    """The same without lines, captures and scalars that have no effect: compiled functions know none of them."""
    texts = [_live(program.score_mod), _live(program.mask)]
    words = set(_words.findall(" ".join(texts)))
    names, kept = {}, {}
    for letter, things in (("c", program.captures), ("s", program.scalars)):
        used = [i for i in range(len(things)) if f"{letter}{i}" in words]
        names.update({f"{letter}{old}": f"{letter}{new}" for new, old in enumerate(used)})
        kept[letter] = tuple([things[i] for i in used])
    score_mod, mask = [_words.sub(lambda word: names.get(word[0], word[0]), text) for text in texts]
    return Program(score_mod, mask, kept["c"], kept["s"], program.unsure)


def _live(text: str) -> str:
    *lines, result = text.split("\n")
    words = set(_words.findall(result))
    kept = [result]
    for line in reversed(lines):
        name, rest = line.split(" = ", 1)
        if name in words:
            words.update(_words.findall(rest))
            kept.append(line)
    return "\n".join(reversed(kept))


class Scalars:
    """Memory for run-time scalars; it lives as long as this does."""

    def __init__(self, values: tuple):
        self._memory = []
        self.arrays = []
        for value in values:
            if isinstance(value, int):
                cell, kind = ctypes.c_int64(value), types["i64"]
            else:
                cell, kind = ctypes.c_double(value), types["f64"]
            self._memory.append(cell)
            self.arrays.append((ctypes.addressof(cell), kind, (), ()))


_functions: dict = {}
_lock = threading.Lock()


def function_for(program: Program, gradients: tuple, scale: Optional[float]) -> _core.Function:
    """The compiled function of a program whose captures with these numbers get gradients."""
    key = (
        program.score_mod,
        program.mask,
        tuple([(c.dtype, len(c.shape)) for c in program.captures]),
        tuple([type(x) for x in program.scalars]),
        gradients,
        scale,
    )
    found = _functions.get(key)
    if found is None:
        made = _core.Function(
            program.score_mod, program.mask, program.declared(), [f"c{i}" for i in gradients], scale
        )
        with _lock:
            found = _functions.setdefault(key, made)
    return found
