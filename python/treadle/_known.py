"""Programs of mods that were traced before: KnownPrograms.

Tracing a mod costs more than all else of a small call. A mod that sees what it saw before makes the same program, apart
from the arrays it reads, so that is kept, with what the mod saw (_sight.py).
"""

from __future__ import annotations

import re
import sys
from functools import partial
from types import FunctionType, MethodType
from typing import Callable, NamedTuple, Optional

from ._captures import Buffer, Capture, trace_of
from ._program import Program
from ._sight import Holds, Sight, Unseen

_MOST_KEPT = 512
_MOST_OF_ONE = 4  # programs of the same code that have seen different things
_EAGER, _SELDOM = 4, 64  # after 4 misses in a row only each sixty-fourth is kept
_reads = re.compile(r"c\d+\[([^\]]*)\]")
_reads_capture = Capture.__getitem__.__code__
_plain_indices = frozenset(("b", "h", "q", "kv"))


class Known(NamedTuple):
    """A program, what its mods saw, and which of the arrays that they see it reads."""

    holds: Holds
    sizes: Optional[tuple]  # None: it is the same for all
    same: list  # of each array, function and object that is seen, the first that is the same
    places: tuple  # of the captures among these
    program: Program

    def of(self, mods: tuple, sizes: tuple) -> Optional[Program]:
        """The program with the arrays that these mods see; None if they see something else."""
        if self.sizes is not None and self.sizes != sizes:
            return None
        found: list = []
        if not self.holds(mods, found) or (len(found) > 1 and _first_of_same(found) != self.same):
            return None
        program = self.program
        if not self.places:
            return program
        captures = [Buffer(found[at], old.dtype, old.shape) for at, old in zip(self.places, program.captures)]
        return Program(program.score_mod, program.mask, tuple(captures), program.scalars, program.from_end)


class _Entry:
    def __init__(self, codes: tuple):
        self.codes = codes  # kept, so that nothing else gets their ids
        self.known: list[Known] = []
        self.misses = 0


class KnownPrograms:
    """Of one front end."""

    def __init__(self, sight: Callable[[], Sight]):
        self._sight = sight
        self._entries: dict = {}

    def get(self, score_mod, mask_mod, sizes: tuple, kind, trace: Callable) -> Program:
        """trace(None), or what it would be. `kind` stands for all else that it depends on. trace(note) calls note() if a
        mod does what nobody can see."""
        codes = _code_of(score_mod), _code_of(mask_mod)
        key = id(codes[0]), id(codes[1]), kind
        entry = self._entries.get(key)
        mods = score_mod, mask_mod
        if entry is None:
            if _MOST_KEPT <= len(self._entries):
                self._entries.clear()
            entry = self._entries[key] = _Entry(codes)
        else:
            # Who sees something else each time need not compare it with everything.
            for known in entry.known if entry.misses <= _EAGER else entry.known[:1]:
                program = known.of(mods, sizes)
                if program is not None:
                    entry.misses = 0
                    return program
        entry.misses += 1
        if entry.misses > _EAGER and entry.misses % _SELDOM:
            return trace(None)
        program, known = self._looked_at(mods, sizes, trace)
        if known is not None:
            entry.known = [known, *entry.known[: _MOST_OF_ONE - 1]]
        return program

    def _looked_at(self, mods: tuple, sizes: tuple, trace: Callable) -> tuple:
        """The program, and how to know it again, if that is possible."""
        sight = self._sight()
        before: list = []
        try:
            holds = sight.of(*mods)
            if not holds(mods, before):
                raise Unseen("it differs from itself")
        except Unseen:
            return trace(None), None
        witness = _Witness(sight)
        program = witness.watch(trace)
        after: list = []
        if not witness.saw_all or not holds(mods, after) or _ids(after) != _ids(before):
            return program, None
        places = []
        for buffer in program.captures:
            at = [i for i, x in enumerate(before) if x is buffer.object]
            if not at:  # made by the mod
                return program, None
            places.append(at[0])
        # What a program is made of must not keep arrays.
        captures = tuple([Buffer(None, c.dtype, c.shape) for c in program.captures])
        kept = Program(program.score_mod, program.mask, captures, program.scalars, program.from_end)
        any_size = _for_any_size(program)
        return program, Known(holds, None if any_size else sizes, _first_of_same(before), tuple(places), kept)


def _ids(things: list) -> list:
    return [id(x) for x in things]


def _first_of_same(found: list) -> list:
    """Of each the place of the first that is the same."""
    first: dict = {}
    return [first.setdefault(id(x), i) for i, x in enumerate(found)]


def _for_any_size(program: Program) -> bool:
    """Sizes say which indices may be negative; the arguments of a mod are not."""
    texts = (program.score_mod, program.mask)
    if texts != program.from_end:
        return False
    for text in texts:
        for indices in _reads.findall(text):
            if not _plain_indices.issuperset([i.strip() for i in indices.split(",")]):
                return False
    return True


def _code_of(mod):
    """Of what is called first; of other objects their class."""
    if type(mod) is MethodType:
        mod = mod.__func__
    elif type(mod) is partial:
        mod = mod.func
    return mod.__code__ if type(mod) is FunctionType else type(mod)


class _Witness:
    """Looks on while mods are traced: whether only functions are called that are in sight."""

    def __init__(self, sight: Sight):
        self._codes = sight.codes
        self._called = sight.called
        self._strange = sight.strange
        self.saw_all = sys.getprofile() is None

    def note(self):
        self.saw_all = False

    def watch(self, trace: Callable) -> Program:
        if not self.saw_all:  # somebody else looks
            return trace(None)
        sys.setprofile(self._look)
        try:
            return trace(self.note)
        finally:
            sys.setprofile(None)

    def _look(self, frame, event, argument):
        if event != "call" or frame.f_code in self._codes or frame.f_code in self._called:
            return
        if frame.f_code is _reads_capture and trace_of(frame.f_locals["index"]) is None:
            self.saw_all = False  # what an array holds
        module = frame.f_globals.get("__name__", "").partition(".")[0]
        if module in ("treadle", "namedtuple_Text", "namedtuple_Program"):
            return
        is_library = module in ("torch", "numpy", "contextlib") and frame.f_code not in self._strange
        if not is_library or (frame.f_back is not None and frame.f_back.f_code in self._codes):
            self.saw_all = False
