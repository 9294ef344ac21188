"""Attention that keeps nothing but its inputs for backward, which runs the forward again."""

from __future__ import annotations

from typing import Callable

import torch
from torch import Tensor
from torch.autograd import profiler
from torch.utils.checkpoint import checkpoint

from ._arrays import inside_functorch, needs_dispatcher
from ._attend import autocast, tell_compilers
from ._attention import flex_attention
from ._autograd import NO_SECOND_DERIVATIVE
from ._block_mask import BlockMask
from ._check import check_lengths, check_shapes, check_tensors
from ._flat import flattened
from ._graph_trace import trace_in_graph
from ._ops import operation
from ._run import Call, run_backward, run_forward
from ._tracing import trace


def recomputed_attention(query: Tensor, key: Tensor, value: Tensor, mask: BlockMask) -> Tensor:
    """flex_attention(query, key, value, block_mask=mask), with the same bits, for a mask that reads no tensors."""
    check_tensors(query, key, value)
    check_shapes(query, key, value, False, mask)
    check_lengths(query, key, mask)
    if torch.compiler.is_compiling() or needs_dispatcher(query, key, value):
        # A graph's compiler may take the second forward for the first and keep its results, unless torch has marked it.
        program = trace_in_graph(None, mask.compiled_mask_mod())
        out = _checkpoint(lambda q, k, v: operation(*autocast(q, k, v), program, None)[0], query, key, value)
        tell_compilers()
        return out
    if torch.is_autocast_enabled("cpu"):  # which makes copies, and they are no inputs
        return _checkpoint(lambda q, k, v: _attend(q, k, v, mask), query, key, value)
    needs_grad = torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad)
    if not (needs_grad or inside_functorch()):
        return _attend(query, key, value, mask)
    program = trace(None, mask.compiled_mask_mod(), (*query.shape[:3], key.shape[2]))
    call = Call(program, None, mask.layouts, False, torch.get_num_threads())
    if profiler._is_profiler_enabled:
        with profiler.record_function("treadle::attention"):
            return _Recomputed.apply(call, query, key, value)
    return _Recomputed.apply(call, query, key, value)


def _checkpoint(attend: Callable, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return checkpoint(attend, query, key, value, use_reentrant=False, preserve_rng_state=False)


def _attend(query: Tensor, key: Tensor, value: Tensor, mask: BlockMask) -> Tensor:
    return flex_attention(query, key, value, block_mask=mask)


class _Recomputed(torch.autograd.Function):
    """An eager call: out alone."""

    @staticmethod
    def forward(call: Call, q, k, v):
        return run_forward(call, q, k, v, (), lse=False)[0]

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.call, *tensors = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx, dout):
        inputs = ctx.saved_tensors
        if needs_dispatcher(dout):
            program = flattened(ctx.call.program, ctx.call.scale)
            out, lse, _ = torch.ops.treadle.attention(*inputs, [], *program)
            gradients = torch.ops.treadle.attention_backward(*inputs, [], *program, out, lse, dout, None, [])
        elif profiler._is_profiler_enabled:
            with profiler.record_function("treadle::attention_backward"):
                gradients = _Backward.apply(ctx.call, *inputs, dout)
        else:
            gradients = _Backward.apply(ctx.call, *inputs, dout)
        return (None, *[g if needed else None for g, needed in zip(gradients, ctx.needs_input_grad[1:])])


class _Backward(torch.autograd.Function):
    """A function of its own, so that torch.func's transformations see plain tensors inside it."""

    @staticmethod
    def forward(call: Call, q, k, v, dout):
        out, lse, _ = run_forward(call, q, k, v, (), lse=True)
        return tuple(run_backward(call, q, k, v, (), out, lse, dout, None, ()))

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, *ignored):
        raise NotImplementedError(NO_SECOND_DERIVATIVE)
