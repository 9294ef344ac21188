"""A program as arguments of torch's operations, and back: graphs hold tensors, numbers and texts only."""

from __future__ import annotations

import torch

from .._captures import Buffer
from .._program import Program
from ._arrays import NAMES
from ._run import Extras

# The fields of a Program, with both spellings of its mods, and Extras. `kinds` has an i or an f for every scalar; with
# `sinks` and `packed` the last captures are these and the starts of queries and keys.
SCHEMA = (
    "Tensor[] captures, str score_mod, str mask, str score_mod_from_end, str mask_from_end, str kinds, "
    "SymInt[] integers, float[] reals, float? scale, bool sinks, SymInt[] q_offsets, SymInt[] kv_offsets, bool packed, "
    "bool relative"
)
_INTEGERS = (int, torch.SymInt)


def flattened(program: Program, scale, extras: Extras = Extras()) -> tuple:
    """All arguments but the captures."""
    scalars = program.scalars
    kinds = "".join(["i" if isinstance(x, _INTEGERS) else "f" for x in scalars])
    integers = [x for x in scalars if isinstance(x, _INTEGERS)]
    reals = [x for x in scalars if not isinstance(x, _INTEGERS)]
    texts = program.score_mod, program.mask, *program.from_end
    sinks, q_offsets, kv_offsets, packed, relative = extras
    return *texts, kinds, integers, reals, scale, sinks, list(q_offsets), list(kv_offsets), packed, relative


def unflattened(captures, arguments) -> tuple:
    """The program, the scale and the extras of what an operation was given."""
    score_mod, mask, score_mod_from_end, mask_from_end, kinds, integers, reals, scale, *given = arguments
    sinks, q_offsets, kv_offsets, packed, relative = given
    extras = Extras(sinks, tuple(q_offsets), tuple(kv_offsets), packed, relative)
    if kinds.count("i") != len(integers) or kinds.count("f") != len(reals) or len(kinds) != len(integers) + len(reals):
        raise ValueError(f"treadle::attention: kinds {kinds!r} are not {len(integers)} i and {len(reals)} f")
    if len(captures) < sinks + 2 * packed:
        raise ValueError(f"treadle::attention: {len(captures)} captures are too few for sinks={sinks} and packed={packed}")
    for t in captures:
        if t.dtype not in NAMES:
            raise TypeError(f"treadle::attention: a capture of {t.dtype} is not supported")
    whole, real = iter(integers), iter(reals)
    scalars = tuple([next(whole) if kind == "i" else next(real) for kind in kinds])
    buffers = tuple([Buffer(t, NAMES[t.dtype], tuple(t.shape)) for t in extras.split(captures)[0]])
    program = Program(score_mod, mask, buffers, scalars, (score_mod_from_end, mask_from_end))
    return program, scale, extras
