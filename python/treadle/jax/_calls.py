"""What runs inside a program of XLA's: forward and backward of a call that is described by a text.

The text has all that is no array, so that a program that XLA has kept on disk means the same in another process.
"""

from __future__ import annotations

import functools
import json
from typing import NamedTuple, Optional

import jax

from .._captures import Buffer
from .._layouts import Layouts
from .._program import Array, Program, function_for, with_indices
from ._ffi import handler


class Description(NamedTuple):
    """Of a call. Its program's captures have no memory yet."""

    score_mod: str
    mask: str
    from_end: tuple
    captures: tuple  # (element type, shape) of each
    scalars: tuple
    scale: Optional[float]
    heads_first: bool  # [batch, heads, length, dim], or [batch, length, heads, dim]

    def text(self) -> str:
        return json.dumps(self)

    def program(self) -> Program:
        captures = tuple([Buffer(None, dtype, shape) for dtype, shape in self.captures])
        return Program(self.score_mod, self.mask, captures, self.scalars, self.from_end)


@functools.lru_cache(1024)
def described(text: str) -> Description:
    score_mod, mask, from_end, captures, scalars, scale, heads_first = json.loads(text)
    of_captures = tuple([(dtype, tuple(shape)) for dtype, shape in captures])
    return Description(score_mod, mask, tuple(from_end), of_captures, tuple(scalars), scale, heads_first)


def _heads_first(array: Array, is_so: bool) -> Array:
    if is_so or len(array[2]) != 4:
        return array
    address, dtype, (b, n, h, d), (of_b, of_n, of_h, of_d) = array
    return address, dtype, (b, h, n, d), (of_b, of_h, of_n, of_d)


_layouts = Layouts(64)  # of masks that read no array


def _run(call: Description, inputs: list, captures: list, gradients: tuple, run) -> None:
    def attempt(program: Program):
        function = function_for(program, gradients, call.scale)
        arrays = [*captures, *program.scalars]
        q, k, v = inputs  # addresses, types, shapes, strides
        kind = q[2][:3], k[2][2], q[1], k[1], v[1]
        layout = _layouts.get(program, function, kind, inputs, arrays, 0)
        run(function, (*inputs, arrays, layout))

    with_indices(call.program(), attempt)


def _forward(arguments: list, results: list, text: str) -> None:
    """q, k, v, captures; out, lse."""
    call = described(text)
    q, k, v = [_heads_first(x, call.heads_first) for x in arguments[:3]]
    out, lse = _heads_first(results[0], call.heads_first), results[1]
    _run(call, (q, k, v), arguments[3:], (), lambda f, first: f.forward(*first, out, lse, None, 0, None))


def _backward(arguments: list, results: list, text: str) -> None:
    """q, k, v, out, lse, dout, dlse, captures; dq, dk, dv, and gradients of the captures with the numbers in the text."""
    numbers, of_call = json.loads(text)
    call = described(of_call)
    q, k, v, out = [_heads_first(x, call.heads_first) for x in arguments[:4]]
    lse, dout, dlse = arguments[4], _heads_first(arguments[5], call.heads_first), arguments[6]
    gradients = [_heads_first(x, call.heads_first) for x in results[:3]] + results[3:]
    _run(
        call, (q, k, v), arguments[7:], tuple(numbers),
        lambda f, first: f.backward(*first, out, lse, dout, dlse, gradients, 0, None),
    )  # fmt: skip


_handlers = {"treadle_attention": handler(_forward), "treadle_attention_backward": handler(_backward)}  # kept for jax
for _name, _handler in _handlers.items():
    jax.ffi.register_ffi_target(_name, jax.ffi.pycapsule(_handler), platform="cpu")
