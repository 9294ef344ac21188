"""As _attend.py of the package above, for calls of several ranks: now, or as an operation in a graph."""

from __future__ import annotations

import torch
from torch.autograd import forward_ad

from ..._program import Program, with_indices
from .._arrays import are_plain, needs_dispatcher, tensors_of
from .._attend import inside_functorch, recorded
from .._autograd import NO_SECOND_DERIVATIVE, differentiate, save
from .._graph_trace import trace_in_graph
from .._run import Call, Extras
from .._tracing import trace
from ._mask_first import mask_first
from ._ops import operation
from ._run import run_backward, run_forward


def attend(query, key, value, mask, score_mod, scale, last, extras: Extras, want_lse: bool, want_max: bool):
    """out, lse, max of this rank's rows."""
    mask_mod = mask.compiled_mask_mod()
    if torch.compiler.is_compiling() or needs_dispatcher(query, key, value):
        return operation(query, key, value, trace_in_graph(score_mod, mask_mod), scale, last, extras, mask.key)
    has_mods = score_mod is not None or mask_mod is not None
    sizes = (*query.shape[:2], *mask.seq_lengths)
    program, _ = mask_first(trace(score_mod, mask_mod, sizes if has_mods else ()))
    captured = [*tensors_of(program.captures), *last]
    if captured and not are_plain(captured):
        return operation(query, key, value, program, scale, last, extras, mask.key)
    needs_grad = torch.is_grad_enabled() and any([t.requires_grad for t in (query, key, value, *captured)])
    if needs_grad:
        for i in program.mask_captures():
            if captured[i].requires_grad:
                raise AssertionError("a mask_mod reads a tensor that requires grad; a mask has no gradient")
    if inside_functorch() or forward_ad._current_level >= 0:
        raise NotImplementedError("torch.func's transformations do not go through calls of a process group")
    scale = None if scale is None else float(scale)

    def run(program: Program):
        call = Call(program, scale, mask.ranks, want_max, torch.get_num_threads(), extras)
        if needs_grad:
            return _Attention.apply(call, query, key, value, *captured)
        return run_forward(call, query, key, value, captured, want_lse)

    return with_indices(program, recorded("treadle::group_attention", run), (score_mod, mask_mod))


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, call: Call, q, k, v, *captures):
        results = run_forward(call, q, k, v, captures, lse=True)
        ctx.call = call
        save(ctx, q, k, v, captures, results)
        return results

    @staticmethod
    def backward(ctx, dout, dlse, dmax):
        call = ctx.call

        def run(q, k, v, captures, out, lse, dout, dlse, numbers):
            inputs = call, tuple(numbers), q, k, v, out, lse, dout, dlse, *captures
            return call.layouts.together(lambda: _Backward.apply(*inputs))

        return (None, *differentiate(ctx, ctx.needs_input_grad[1:], dout, dlse, run))


class _Backward(torch.autograd.Function):
    """So that a derivative of it is refused."""

    @staticmethod
    def forward(ctx, call: Call, numbers: tuple, q, k, v, out, lse, dout, dlse, *captures):
        return tuple(run_backward(call, q, k, v, captures, out, lse, dout, dlse, numbers))

    @staticmethod
    def backward(ctx, *ignored):
        raise NotImplementedError(NO_SECOND_DERIVATIVE)
