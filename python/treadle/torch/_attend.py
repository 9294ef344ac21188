"""Traces the mods of a call, and runs it now or leaves an operation in a graph: attend."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad, profiler

from .._offsets import reach
from .._program import Program, with_indices
from ._arrays import are_plain, inside_functorch, needs_dispatcher, tensors_of
from ._autograd import Attention, TransformedAttention
from ._graph_trace import trace_in_graph
from ._inductor import teach_inductor
from ._ops import operation
from ._run import Call, Extras, run_forward
from ._tracing import trace
from ._unguarded import leave_unguarded


def attend(query, key, value, score_mod, mask_mod, layouts, scale, last, extras: Extras, want_lse: bool, want_max: bool):
    """out, lse, max of tensors that are checked. `last` are sinks and starts, as `extras` says."""
    if torch.compiler.is_compiling() or needs_dispatcher(query, key, value):
        program = trace_in_graph(score_mod, mask_mod)
        results = operation(query, key, value, program, scale, last, extras)
        tell_compilers()
        return results
    has_mods = score_mod is not None or mask_mod is not None
    program = trace(score_mod, mask_mod, _sizes(query, key, last, extras) if has_mods else ())
    captured = [*tensors_of(program.captures), *last] if program.captures else last
    if captured and not are_plain(captured):
        return operation(query, key, value, program, scale, last, extras)
    needs_grad = torch.is_grad_enabled() and (
        query.requires_grad or key.requires_grad or value.requires_grad or any([t.requires_grad for t in captured])
    )
    if needs_grad:
        for i in program.mask_captures():
            if captured[i].requires_grad:
                raise AssertionError("a mask_mod reads a tensor that requires grad; a mask has no gradient")
    scale = None if scale is None else float(scale)

    def run(program: Program):
        call = Call(program, scale, layouts, want_max, torch.get_num_threads(), extras)
        if inside_functorch():
            return TransformedAttention.apply(call, query, key, value, *captured)
        if needs_grad or forward_ad._current_level >= 0:
            return Attention.apply(call, query, key, value, *captured)
        return run_forward(call, query, key, value, captured, want_lse)

    return with_indices(program, recorded("treadle::attention", run), (score_mod, mask_mod))


def tell_compilers() -> None:
    """What makes calls of a compiled graph light; behind an operation of ours in it."""
    if torch.compiler.is_dynamo_compiling():
        teach_inductor()
        leave_unguarded()


def _sizes(query: Tensor, key: Tensor, last, extras: Extras) -> tuple:
    """Batch, heads, queries and keys that mods see."""
    if extras.packed:
        return sizes_of_sequences(query, last[1 if extras.sinks else 0].numel() - 1)
    batch, heads, queries, _ = query.shape
    return batch, heads, reach(queries, extras.q_offsets), reach(key.shape[2], extras.kv_offsets)


def sizes_of_sequences(query: Tensor, sequences: int) -> tuple:
    """Positions have no common end."""
    return max(0, sequences), query.shape[1] if query.dim() == 3 else None, None, None


def recorded(name: str, run):
    """The same, known to torch's profiler by a name: it sees operations only, and this is none."""
    if not profiler._is_profiler_enabled:
        return run

    def with_name(program: Program):
        with profiler.record_function(name):
            return run(program)

    return with_name


def autocast(*tensors: Tensor) -> tuple:
    """In the type that torch.autocast asks for, where it is on; 8-bit keys and values as they are."""
    if not torch.is_autocast_enabled("cpu"):
        return tensors
    dtype = torch.get_autocast_dtype("cpu")
    return tuple([t if t.dtype == torch.float64 or t.dtype.itemsize == 1 else t.to(dtype) for t in tensors])
