"""Runs a traced call's kernels on torch's tensors: run_forward and run_backward."""

from __future__ import annotations

from typing import NamedTuple, Optional

import torch
from torch import Tensor

from .._layouts import Layouts
from .._program import Program, function_for
from ._arrays import as_array


class Extras(NamedTuple):
    """What few calls have. Sinks are the last of a call's captures, so that graphs and autograd see one list."""

    sinks: bool = False
    q_offsets: tuple = ()
    kv_offsets: tuple = ()


class Call(NamedTuple):
    """All of a call that is not a tensor of the user's."""

    program: Program
    scale: Optional[float]
    layouts: Layouts
    max: bool  # wanted
    threads: int
    extras: Extras = Extras()


def empty_in_order_of(like: Tensor, shape, dtype=None) -> Tensor:
    """Memory whose strides are in the order of `like`'s, with the last one 1."""
    strides = like.stride()
    if strides[0] >= strides[1] >= strides[2]:
        return like.new_empty(shape, dtype=dtype)
    order = sorted(range(3), key=lambda d: strides[d], reverse=True) + [3]
    back = [order.index(d) for d in range(4)]
    return like.new_empty([shape[d] for d in order], dtype=dtype).permute(back)


def compute_type(q: Tensor, k: Tensor, v: Tensor) -> torch.dtype:
    """Of lse and max: float64 if an input is."""
    wide = torch.float64 in (q.dtype, k.dtype, v.dtype)
    return torch.float64 if wide else torch.float32


def _prepare(call: Call, q: Tensor, k: Tensor, v: Tensor, captured, gradients: tuple):
    """The compiled function, what it takes first (q, k, v, captures, layout), and what it takes last."""
    sinks, q_offsets, kv_offsets = call.extras
    mods_read = captured[:-1] if sinks else captured
    function = function_for(call.program, tuple([i for i in gradients if i < len(mods_read)]), call.scale)
    arrays = [*map(as_array, mods_read), *call.program.scalars]
    inputs = as_array(q), as_array(k), as_array(v)
    extras = None
    if sinks or q_offsets or kv_offsets:
        extras = (as_array(captured[-1]) if sinks else None, q_offsets, kv_offsets)
    layout = call.layouts.get(call.program, function, inputs, arrays, call.threads, extras)
    return function, (*inputs, arrays, layout), extras


def run_forward(call: Call, q: Tensor, k: Tensor, v: Tensor, captured, lse: bool):
    """out, lse, max; the last two None unless wanted."""
    function, first, extras = _prepare(call, q, k, v, captured, ())
    out = empty_in_order_of(q, (*q.shape[:3], v.shape[3]))
    compute = compute_type(q, k, v)
    rows = q.new_empty(q.shape[:3], dtype=compute) if lse else None
    most = q.new_empty(q.shape[:3], dtype=compute) if call.max else None
    function.forward(
        *first, as_array(out), as_array(rows) if lse else None, as_array(most) if call.max else None, call.threads, extras
    )
    return out, rows, most


def empty_gradients(q: Tensor, k: Tensor, v: Tensor, captured, gradients) -> list:
    """Memory for dq, dk, dv and the gradients of the captures with these numbers."""
    results = [empty_in_order_of(t, t.shape) for t in (q, k, v)]
    return results + [captured[i].new_empty(captured[i].shape) for i in gradients]


def run_backward(call: Call, q, k, v, captured, out, lse, dout, dlse, gradients: tuple) -> list:
    """dq, dk, dv and the gradients of the captures with these numbers."""
    function, first, extras = _prepare(call, q, k, v, captured, gradients)
    results = empty_gradients(q, k, v, captured, gradients)
    wanted = len(results)
    if call.extras.sinks and len(captured) - 1 not in gradients:  # the kernels give it in any case
        results.append(torch.empty_like(captured[-1]))
    function.backward(
        *first, as_array(out), as_array(lse), as_array(dout), as_array(dlse) if dlse is not None else None,
        [as_array(t) for t in results], call.threads, extras,
    )  # fmt: skip
    return results[:wanted]
