"""Runs a traced call's part of this rank: run_forward and run_backward."""

from __future__ import annotations

from torch import Tensor

from ..._program import function_for
from .._run import Call, arrays_of_extras, compute_type, empty_gradients, empty_results
from ._plans import Plans


def _prepare(call: Call, q: Tensor, k: Tensor, v: Tensor, captured, gradients: tuple):
    """The plan, and what it takes first and last. All ranks come here together."""
    plans: Plans = call.layouts
    extras, program = call.extras, call.program
    mods_read, sinks, _ = extras.split(captured)
    numbers = tuple([i for i in gradients if i < len(mods_read)])
    function = function_for(program, numbers, call.scale)
    arrays = [*mods_read, *program.scalars]
    dropout = extras.dropout(captured)
    if dropout is not None:
        dropout = (dropout[0], plans.agreed(dropout[1]), dropout[2])
    plan = plans.get(program, function, numbers, q, k, v, arrays, call.threads)
    last = arrays_of_extras(sinks, extras.q_offsets, extras.kv_offsets, dropout)
    return plan, (function, q, k, v, arrays), last


def run_forward(call: Call, q: Tensor, k: Tensor, v: Tensor, captured, lse: bool):
    """out, lse, max; the last two None unless wanted."""
    plan, first, last = _prepare(call, q, k, v, captured, ())
    results = empty_results(q, k, v, lse, call.max)
    call.layouts.call(plan.forward, *first, *results, call.threads, last)
    return results


def run_backward(call: Call, q, k, v, captured, out, lse, dout, dlse, gradients: tuple) -> list:
    """dq, dk, dv of this rank's rows, and the whole gradients of the captures with these numbers."""
    plan, first, last = _prepare(call, q, k, v, captured, gradients)
    results = empty_gradients(q, k, v, captured, gradients)
    wanted = len(results)
    mods_read, sinks, _ = call.extras.split(captured)
    if sinks is not None and len(mods_read) not in gradients:
        results.append(sinks.new_empty(sinks.shape))
    call.layouts.call(plan.backward, *first, out, lse, dout, dlse, results, call.threads, last)
    return results[:wanted]
