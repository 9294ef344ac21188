"""The Sparse Transformer's patterns from the original's parameters: checked, and as masks that are values.

Masks are frozen dataclasses, so that two of the same numbers are equal, whoever made them: what is kept for one serves the
other. Their formulas are those of include/treadle/sparse_transformer.h, and so are the rules for numbers.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Callable, Optional

from ._core import Error

DENSE_MODES = ("all", "local", "strided")
MODES = (*DENSE_MODES, "fixed")


@dataclass(frozen=True)
class All:
    """Every earlier key, and the query's own."""

    def __call__(self, b, h, q, kv):
        return q >= kv


@dataclass(frozen=True)
class Local:
    """The `window` latest keys."""

    window: int

    def __call__(self, b, h, q, kv):
        return (q >= kv) & (q - kv < self.window)


@dataclass(frozen=True)
class Strided:
    """Every `stride`-th earlier key, counted from the query."""

    stride: int

    def __call__(self, b, h, q, kv):
        return (q >= kv) & ((q - kv) % self.stride == 0)


@dataclass(frozen=True)
class Fixed:
    """Windows side by side, each with columns that everybody later sees: heads take turns in which ones."""

    window: int
    columns: int  # of a group
    groups: int

    def __call__(self, b, h, q, kv):
        group = (self.window - 1 - kv % self.window) // self.columns
        seen_later = group == (0 if self.groups == 1 else h % self.groups)
        return (q >= kv) & ((kv // self.window == q // self.window) | seen_later)


def integer(call: str, name: str, value) -> int:
    """A whole number, at least 1. Neither True nor 4.0: they equal 1 and 4, and would be taken for them."""
    if isinstance(value, bool):
        raise TypeError(f"{call}: {name} is {value}; it must be an integer")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{call}: {name} is {value!r}; it must be an integer") from None
    if number < 1:
        raise Error(f"{call}: {name} is {number}; it must be at least 1")
    return number


def check_multiple(call: str, what: str, value: int, of: str, factor: int) -> None:
    if value % factor != 0:
        raise Error(f"{call}: {what} is {value}, {of} {factor}; {value} is not a multiple of {factor}")


def _check_mode(call: str, mode, modes: tuple) -> None:
    if not isinstance(mode, str):
        raise TypeError(f"{call}: attn_mode is {mode!r}; it must be a string")
    if mode not in modes:
        listed = f"{', '.join(modes[:-1])} or {modes[-1]}"
        hint = "; blocksparse_attention has it" if mode in MODES else ""
        raise Error(f'{call}: attn_mode is "{mode}"; it must be {listed}{hint}')


def _needed(call: str, mode: str, name: str, value: Optional[int]) -> int:
    if value is None:
        raise TypeError(f'{call}: attn_mode "{mode}" needs {name}, which is not given')
    return value


def dense_mask(call: str, attn_mode: str, local_attn_ctx: Optional[int]) -> Callable:
    """The mask of a mode that knows no blocks. Numbers are whole already, here and below."""
    _check_mode(call, attn_mode, DENSE_MODES)
    if attn_mode == "all":
        return All()
    reach = _needed(call, attn_mode, "local_attn_ctx", local_attn_ctx)
    return Local(reach) if attn_mode == "local" else Strided(reach)


def block_mask(
    call: str, heads: int, attn_mode: str, local_attn_ctx: Optional[int], blocksize: int, num_verts: Optional[int],
    vertsize: Optional[int],
) -> Callable:  # fmt: skip
    """The mask of a mode, for parameters that make one of whole blocks."""
    _check_mode(call, attn_mode, MODES)
    if attn_mode != "fixed":
        mask = dense_mask(call, attn_mode, local_attn_ctx)
        if attn_mode == "local":
            check_multiple(call, "local_attn_ctx", mask.window, "blocksize", blocksize)
        return mask
    window = _needed(call, attn_mode, "local_attn_ctx", local_attn_ctx)
    groups = _needed(call, attn_mode, "num_verts", num_verts)
    size = _needed(call, attn_mode, "vertsize", vertsize)
    check_multiple(call, "heads", heads, "num_verts", groups)
    blocks = window // blocksize
    if size > blocks:
        raise Error(
            f"{call}: vertsize is {size}; a local_attn_ctx of {window} has {blocks} blocks of {blocksize}, vertsize must be "
            "at most that"
        )
    check_multiple(call, "the number of blocks in local_attn_ctx", blocks, "vertsize", size)
    if groups > blocks // size:
        raise Error(
            f"{call}: num_verts is {groups}; {blocks} blocks in a local_attn_ctx of {window} make {blocks // size} groups of "
            f"{size}, num_verts must be at most that"
        )
    return Fixed(blocks * blocksize, size * blocksize, groups)


def check_length(call: str, mask: Callable, length: int, blocksize: int) -> None:
    """Whether a sequence of this length is one of whole blocks for this mask."""
    if isinstance(mask, Strided):
        # The original sorts positions by residue, and the positions of each are whole blocks.
        check_multiple(call, "the length", length, "local_attn_ctx", mask.stride)
        check_multiple(call, "length / local_attn_ctx", length // mask.stride, "blocksize", blocksize)
    check_multiple(call, "the length", length, "blocksize", blocksize)
