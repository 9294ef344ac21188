"""A program as arguments of torch's operations, and back: graphs hold tensors, numbers and texts only."""

from __future__ import annotations

import torch

from .._captures import Buffer
from .._dropout import check_probability
from .._program import Program
from ._arrays import NAMES
from ._run import NO_EXTRAS, Extras

# The fields of a Program, with both spellings of its mods, and Extras. `kinds` has an i, an f or a t for every scalar:
# one of `integers`, one of `reals`, or a tensor, and an x behind them if the scale is one; such tensors are the last
# captures. Before them, with `sinks`, `packed` and `dropout_p`, are these, the starts of queries and keys, and an int64
# seed.
SCHEMA = (
    "Tensor[] captures, str score_mod, str mask, str score_mod_from_end, str mask_from_end, str kinds, "
    "SymInt[] integers, float[] reals, float? scale, bool sinks, SymInt[] q_offsets, SymInt[] kv_offsets, bool packed, "
    "bool relative, float dropout_p"
)
_INTEGERS = (int, torch.SymInt)


def _kind(scalar) -> str:
    return "t" if isinstance(scalar, torch.Tensor) else "i" if isinstance(scalar, _INTEGERS) else "f"


def _of_kind(kind: str, program: Program) -> list:
    return [x for x in program.scalars if _kind(x) == kind]


def last_captures(program: Program, scale) -> list:
    """Tensors that stand for numbers."""
    return _of_kind("t", program) + ([scale] if isinstance(scale, torch.Tensor) else [])


def _one_line(text: str) -> str:
    """Inductor writes texts into C++ as they are, where it is asked for that (cpp_wrapper). Comments end with their line."""
    return text if "#" in text else text.replace("\n", " ")


def flattened(program: Program, scale, extras: Extras = Extras()) -> tuple:
    """All arguments but the captures."""
    kinds = "".join([_kind(x) for x in program.scalars])
    integers, reals = _of_kind("i", program), _of_kind("f", program)
    if isinstance(scale, torch.Tensor):
        kinds, scale = kinds + "x", None
    texts = [_one_line(text) for text in (program.score_mod, program.mask, *program.from_end)]
    sinks, q_offsets, kv_offsets, packed, relative, dropout_p = extras
    return *texts, kinds, integers, reals, scale, sinks, list(q_offsets), list(kv_offsets), packed, relative, dropout_p


def unflattened(captures, arguments) -> tuple:
    """The program, the scale, the extras and the captures but for the tensors of scalars, of what an operation was given."""
    score_mod, mask, score_mod_from_end, mask_from_end, kinds, integers, reals, scale, *given = arguments
    extras = _extras(*given)
    scalars = ()
    if kinds or integers or reals:
        scalars, scale, captures = _numbers(captures, kinds, integers or (), reals or (), scale)
    mods_read = captures
    if extras is not NO_EXTRAS:
        _check_last(captures, extras)
        mods_read = extras.split(captures)[0]
    for t in captures:
        if t.dtype not in NAMES:
            raise TypeError(f"treadle::attention: a capture of {t.dtype} is not supported")
    buffers = tuple([Buffer(t, NAMES[t.dtype], tuple(t.shape)) for t in mods_read])
    program = Program(score_mod, mask, buffers, scalars, (score_mod_from_end, mask_from_end))
    return program, scale, extras, captures


def _extras(sinks: bool, q_offsets, kv_offsets, packed: bool, relative: bool, dropout_p: float) -> Extras:
    if not (sinks or q_offsets or kv_offsets or packed or relative or dropout_p):
        return NO_EXTRAS
    check_probability(dropout_p)
    return Extras(sinks, tuple(q_offsets or ()), tuple(kv_offsets or ()), packed, relative, dropout_p)


def _numbers(captures, kinds: str, integers, reals, scale) -> tuple:
    """The scalars, the scale, and the captures without those that stand for numbers."""
    tensors = kinds.count("t") + kinds.endswith("x")
    known = kinds.count("i") == len(integers) and kinds.count("f") == len(reals)
    if not known or len(kinds) != len(integers) + len(reals) + tensors:
        raise ValueError(f"treadle::attention: kinds {kinds!r} are not {len(integers)} i, {len(reals)} f, t and a last x")
    if len(captures) < tensors:
        raise ValueError(f"treadle::attention: {len(captures)} captures are too few for kinds {kinds!r}")
    numbers = [float(t) for t in captures[len(captures) - tensors :]]
    captures = captures[: len(captures) - tensors]
    if kinds.endswith("x"):
        kinds, scale = kinds[:-1], numbers.pop()
    given = {"i": iter(integers), "f": iter(reals), "t": iter(numbers)}
    return tuple([next(given[kind]) for kind in kinds]), scale, captures


def _check_last(captures, extras: Extras) -> None:
    """Of the captures that no mod reads."""
    sinks, packed, dropout_p = extras.sinks, extras.packed, extras.dropout_p
    if len(captures) < sinks + 2 * packed + (dropout_p > 0):
        raise ValueError(
            f"treadle::attention: {len(captures)} captures are too few for sinks={sinks}, packed={packed} and "
            f"dropout_p={dropout_p}"
        )
    if dropout_p > 0 and (captures[-1].dtype != torch.int64 or captures[-1].numel() != 1):
        raise TypeError("treadle::attention: with dropout_p the last capture must be a seed, one int64")
