"""A program as arguments of torch's operations, and back: graphs hold tensors, numbers and texts only."""

from __future__ import annotations

import torch

from .._captures import Buffer
from .._program import Program
from ._arrays import NAMES

# The fields of a Program, with both spellings of its mods; `kinds` has an i or an f for every scalar.
SCHEMA = (
    "Tensor[] captures, str score_mod, str mask, str score_mod_from_end, str mask_from_end, str kinds, "
    "SymInt[] integers, float[] reals, float? scale"
)
_INTEGERS = (int, torch.SymInt)


def flattened(program: Program, scale) -> tuple:
    """All arguments but the captures."""
    scalars = program.scalars
    kinds = "".join(["i" if isinstance(x, _INTEGERS) else "f" for x in scalars])
    integers = [x for x in scalars if isinstance(x, _INTEGERS)]
    reals = [x for x in scalars if not isinstance(x, _INTEGERS)]
    return program.score_mod, program.mask, *program.from_end, kinds, integers, reals, scale


def unflattened(captures, arguments) -> tuple:
    """The program and the scale of what an operation was given."""
    score_mod, mask, score_mod_from_end, mask_from_end, kinds, integers, reals, scale = arguments
    if kinds.count("i") != len(integers) or kinds.count("f") != len(reals) or len(kinds) != len(integers) + len(reals):
        raise ValueError(f"treadle::attention: kinds {kinds!r} are not {len(integers)} i and {len(reals)} f")
    for t in captures:
        if t.dtype not in NAMES:
            raise TypeError(f"treadle::attention: a capture of {t.dtype} is not supported")
    whole, real = iter(integers), iter(reals)
    scalars = tuple([next(whole) if kind == "i" else next(real) for kind in kinds])
    buffers = tuple([Buffer(t, NAMES[t.dtype], tuple(t.shape)) for t in captures])
    return Program(score_mod, mask, buffers, scalars, (score_mod_from_end, mask_from_end)), scale
