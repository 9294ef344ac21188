"""Runs a traced call's kernels on torch's tensors: run_forward and run_backward."""

from __future__ import annotations

from typing import Callable, NamedTuple, Optional

import torch
from torch import Tensor

from .._layouts import Layouts
from .._program import Program, function_for


class Extras(NamedTuple):
    """What few calls have. Sinks, then the starts of packed queries and keys, then the seed of dropout, are the last of a
    call's captures, so that graphs and autograd see one list."""

    sinks: bool = False
    q_offsets: tuple = ()
    kv_offsets: tuple = ()
    packed: bool = False  # sequences of different lengths, one after the other
    relative: bool = False  # of such: mods see the distance of query and key alone, so positions may be moved
    dropout_p: float = 0  # with it there is a seed

    def split(self, captured) -> tuple:
        """What the mods read; the sinks or None; the starts, if there are any."""
        end = len(captured) - 1 if self.dropout_p else len(captured)
        starts = end - 2 if self.packed else end
        mods_read = starts - 1 if self.sinks else starts
        return captured[:mods_read], captured[mods_read] if self.sinks else None, captured[starts:end]

    def dropout(self, captured) -> Optional[tuple]:
        """Probability, seed and offset; None if nothing is dropped."""
        return (self.dropout_p, int(captured[-1]), 0) if self.dropout_p else None


NO_EXTRAS = Extras()


class Call(NamedTuple):
    """All of a call that is not a tensor of the user's."""

    program: Program
    scale: Optional[float]
    layouts: Optional[Layouts]  # packed sequences have none
    max: bool  # wanted
    threads: int
    extras: Extras = NO_EXTRAS


def empty_in_order_of(like: Tensor, shape, dtype=None) -> Tensor:
    """Memory whose strides are in the order of `like`'s, with the last one 1."""
    strides = like.stride()[:-1]
    if all([a >= b for a, b in zip(strides, strides[1:])]):
        return like.new_empty(shape, dtype=dtype)
    last = len(strides)
    order = sorted(range(last), key=lambda d: strides[d], reverse=True) + [last]
    back = [order.index(d) for d in range(last + 1)]
    return like.new_empty([shape[d] for d in order], dtype=dtype).permute(back)


def compute_type(q: Tensor, k: Tensor, v: Tensor) -> torch.dtype:
    """Of lse and max: float64 if an input is."""
    wide = torch.float64 in (q.dtype, k.dtype, v.dtype)
    return torch.float64 if wide else torch.float32


def aligned(extras: Extras, q_starts: Tensor, lengths: Callable) -> tuple:
    """q_offsets and kv_offsets. Where mods see distances alone, and none are given, the last query of each sequence stands
    at the last of lengths() keys, also if there are more queries than keys."""
    q_offsets, kv_offsets = extras.q_offsets, extras.kv_offsets
    if not extras.relative or q_offsets or kv_offsets or q_starts.dim() != 1:
        return q_offsets, kv_offsets
    before = [keys - queries for queries, keys in zip(lengths_of(q_starts), lengths())]
    if min(before, default=0) >= 0:  # as it is without
        return (), ()
    return tuple([int(max(0, n)) for n in before]), tuple([int(max(0, -n)) for n in before])


def lengths_of(starts: Tensor) -> list:
    numbers = starts.tolist()
    return [b - a for a, b in zip(numbers, numbers[1:])]


def arrays_of_extras(
    sinks: Optional[Tensor], q_offsets: tuple, kv_offsets: tuple, dropout: Optional[tuple] = None
) -> Optional[tuple]:
    """What a compiled function takes last."""
    if sinks is None and not q_offsets and not kv_offsets and dropout is None:
        return None
    return sinks, q_offsets, kv_offsets, dropout


def _prepare(call: Call, q: Tensor, k: Tensor, v: Tensor, captured, gradients: tuple):
    """Forward and backward of the compiled function, what both take first, and what they take last."""
    extras, program = call.extras, call.program
    if extras is NO_EXTRAS:
        mods_read, last = captured, None
    else:
        mods_read, sinks, starts = extras.split(captured)
        dropout = extras.dropout(captured)
    if gradients:
        gradients = tuple([i for i in gradients if i < len(mods_read)])
    function = function_for(program, gradients, call.scale)
    arrays = [*mods_read, *program.scalars]
    if extras.packed:
        q_starts, k_starts = starts
        sequences = q, q_starts, k, v, k_starts
        last = arrays_of_extras(sinks, *aligned(extras, q_starts, lambda: lengths_of(k_starts.flatten())), dropout)
        return function.forward_sequences, function.backward_sequences, (sequences, arrays), last
    if extras is not NO_EXTRAS:
        last = arrays_of_extras(sinks, extras.q_offsets, extras.kv_offsets, dropout)
    layout = None
    if program.mask:
        kind = q.shape[:3], k.size(2), q.dtype, k.dtype, v.dtype
        layout = call.layouts.get(program, function, kind, (q, k, v), arrays, call.threads, last)
    return function.forward, function.backward, (q, k, v, arrays, layout), last


def empty_results(q: Tensor, k: Tensor, v: Tensor, lse: bool, most: bool) -> tuple:
    """Memory for out, lse and max; None for what is not wanted."""
    rows, compute = q.shape[:-1], compute_type(q, k, v)
    return (
        empty_in_order_of(q, (*rows, *v.shape[-1:])),
        q.new_empty(rows, dtype=compute) if lse else None,
        q.new_empty(rows, dtype=compute) if most else None,
    )


def _empty_out(q: Tensor, v: Tensor) -> Tensor:
    """As empty_in_order_of makes it, but faster where it is like q."""
    if q.dim() and v.dim() and q.size(-1) == v.size(-1):
        out = torch.empty_like(q)
        if q.is_contiguous():
            return out
        strides = q.stride()
        if strides[-1:] == (1,) and out.stride() == strides:
            return out
    return empty_in_order_of(q, (*q.shape[:-1], *v.shape[-1:]))


def _empty_rows(q: Tensor, dtype: torch.dtype) -> Tensor:
    """A number for each row of q, contiguous: torch takes given strides faster than a shape alone."""
    rows = q.shape[:-1]
    if len(rows) != 3 or 0 in rows:
        return q.new_empty(rows, dtype=dtype)
    return torch.empty_strided(rows, (rows[1] * rows[2], rows[2], 1), dtype=dtype, device=q.device)


def run_forward(call: Call, q: Tensor, k: Tensor, v: Tensor, captured, lse: bool):
    """out, lse, max; the last two None unless wanted."""
    forward, _, first, last = _prepare(call, q, k, v, captured, ())
    compute = compute_type(q, k, v) if lse or call.max else None
    results = _empty_out(q, v), _empty_rows(q, compute) if lse else None, _empty_rows(q, compute) if call.max else None
    forward(*first, *results, call.threads, last)
    return results


def empty_gradients(q: Tensor, k: Tensor, v: Tensor, captured, gradients) -> list:
    """Memory for dq, dk, dv and the gradients of the captures with these numbers."""
    results = [empty_in_order_of(t, t.shape) for t in (q, k, v)]
    return results + [captured[i].new_empty(captured[i].shape) for i in gradients]


def run_backward(call: Call, q, k, v, captured, out, lse, dout, dlse, gradients: tuple) -> list:
    """dq, dk, dv and the gradients of the captures with these numbers."""
    _, backward, first, last = _prepare(call, q, k, v, captured, gradients)
    results = empty_gradients(q, k, v, captured, gradients)
    wanted = len(results)
    mods_read, sinks, _ = call.extras.split(captured)
    if sinks is not None and len(mods_read) not in gradients:  # the kernels give it in any case
        results.append(torch.empty_like(sinks))
    backward(*first, out, lse, dout, dlse, results, call.threads, last)
    return results[:wanted]
