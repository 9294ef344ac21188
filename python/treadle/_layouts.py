"""Layouts kept between calls: the part of a call that depends on lengths and on what a mask reads."""

from __future__ import annotations

import weakref
from typing import Optional

from . import _core
from ._program import Program


class Layouts:
    """Those of one mask, or of a few. One is replaced when something that its mask reads has changed."""

    def __init__(self, most: int = 16):
        self._most = most
        self._kept: dict = {}

    def __reduce__(self):
        """Copies and pickles start empty: a layout is quickly made, and belongs to this process."""
        return Layouts, (self._most,)

    def get(
        self, program: Program, function: _core.Function, kind: tuple, inputs, arrays, threads: int,
        extras: Optional[tuple] = None,
    ) -> Optional[_core.Layout]:  # fmt: skip
        """None if there is no mask, if batch entries stand at different positions, or if changes of what the mask reads
        go unnoticed: then each call computes its own. `kind` is (batch, heads, queries), keys and the types of `inputs`;
        `extras` are those of the call."""
        if not program.mask:
            return None
        offsets = None if extras is None else extras[1:3]
        if offsets is not None and (len(set(offsets[0])) > 1 or len(set(offsets[1])) > 1):
            return None
        read, state = (), ()
        if program.captures:
            read = [program.captures[i].object for i in program.mask_captures()]
            try:
                state = tuple([(t.data_ptr(), t._version, t.stride()) for t in read])
            except (RuntimeError, AttributeError):  # inference tensors and NumPy arrays do not count their changes
                return None
        scalars = program.mask_scalars() if program.scalars else ()
        key = (program.mask, kind, offsets)
        kept = self._kept.get(key)
        if kept is not None and kept[0] == state and kept[1] == scalars:
            if not read or all([a() is b for a, b in zip(kept[2], read)]):
                return kept[3]
        layout = function.layout(*inputs, arrays, threads, extras)
        if len(self._kept) >= self._most:
            self._kept.clear()
        self._kept[key] = (state, scalars, [weakref.ref(t) for t in read], layout)
        return layout
