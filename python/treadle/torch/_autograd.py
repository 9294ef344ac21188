"""The derivative of a call, in one place: what forward saves, and what backward makes of it.

There are two entries. Eager calls go through `Attention` below, which spares them torch's dispatcher; whatever needs the
dispatcher (graphs, tensor subclasses) has the operations that _ops.py registers. Both use `save` and `differentiate`.
"""

from __future__ import annotations

from typing import Callable

import torch
from torch.autograd import profiler

from ._arrays import inside_functorch, needs_dispatcher
from ._flat import flattened
from ._run import Call, run_backward, run_forward

_is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor
NO_SECOND_DERIVATIVE = "treadle: flex_attention can be differentiated once; its gradients cannot be"


def save(ctx, q, k, v, captures, output) -> None:
    out, lse, most = output
    ctx.set_materialize_grads(False)
    if most is not None:
        ctx.mark_non_differentiable(most)
    ctx.save_for_backward(q, k, v, out, lse, *captures)


def differentiate(ctx, needed, dout, dlse, run: Callable) -> list:
    """Gradients of q, k, v and of each capture; None where none is needed, in that order.

    run(q, k, v, captures, out, lse, dout, dlse, numbers) returns dq, dk, dv and those of the captures with these numbers.
    """
    q, k, v, out, lse, *captures = ctx.saved_tensors
    gradients = [None] * len(needed)
    if dout is None and dlse is None:
        return gradients
    if dout is None:
        dout = torch.zeros_like(out)
    numbers = [i for i in range(len(captures)) if needed[3 + i]]
    results = run(q, k, v, captures, out, lse, dout, dlse, numbers)
    for place, gradient in zip((0, 1, 2, *[3 + i for i in numbers]), results):
        if needed[place]:
            gradients[place] = gradient
    return gradients


def _is_differentiated(*tensors) -> bool:
    """Whether somebody may ask for derivatives of a backward, or transforms it, or has done so before."""
    if torch.is_grad_enabled() or inside_functorch():
        return True
    return any([t is not None and _is_wrapped(t) for t in tensors])


class Attention(torch.autograd.Function):
    """An eager call: out, lse and max."""

    @staticmethod
    def forward(ctx, call: Call, q, k, v, *captures):
        results = run_forward(call, q, k, v, captures, lse=True)
        ctx.call = call
        save(ctx, q, k, v, captures, results)
        return results

    @staticmethod
    def backward(ctx, dout, dlse, dmax):
        def run(q, k, v, captures, out, lse, dout, dlse, numbers):
            if needs_dispatcher(dout) if dlse is None else needs_dispatcher(dout, dlse):
                program = flattened(ctx.call.program, ctx.call.scale, ctx.call.extras)
                return torch.ops.treadle.attention_backward(q, k, v, captures, *program, out, lse, dout, dlse, numbers)
            inputs = ctx.call, tuple(numbers), q, k, v, out, lse, dout, dlse, *captures
            backward = _Backward.apply if _is_differentiated(dout, dlse, q, k, v, *captures) else _Backward.forward
            if not profiler._is_profiler_enabled:
                return backward(*inputs)
            with profiler.record_function("treadle::attention_backward"):
                return backward(*inputs)

        return (None, *differentiate(ctx, ctx.needs_input_grad[1:], dout, dlse, run))


class TransformedAttention(Attention):
    """The same for torch.func's transformations. They ask for a context apart, which costs other calls more than all else
    of them: torch looks up the signature of forward then, in every call."""

    @staticmethod
    def forward(call: Call, q, k, v, *captures):
        return run_forward(call, q, k, v, captures, lse=True)

    @staticmethod
    def setup_context(ctx, inputs, output):
        call, q, k, v, *captures = inputs
        ctx.call = call
        save(ctx, q, k, v, captures, output)


class _Backward(torch.autograd.Function):
    """A function of its own, so that torch.func's transformations see plain tensors inside it."""

    @staticmethod
    def forward(call: Call, numbers: tuple, q, k, v, out, lse, dout, dlse, *captures):
        return tuple(run_backward(call, q, k, v, captures, out, lse, dout, dlse, numbers))

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, *ignored):
        raise NotImplementedError(NO_SECOND_DERIVATIVE)
