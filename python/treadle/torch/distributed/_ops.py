"""The operations that stand in graphs for calls of several ranks: treadle::group_attention and its backward. A mask is
known by a key there."""

from __future__ import annotations

import torch

from ..._program import Program, with_indices
from .._arrays import tensors_of
from .._autograd import NO_SECOND_DERIVATIVE, differentiate, save
from .._flat import SCHEMA, flattened, last_captures, unflattened
from .._graph_trace import without_symbol
from .._run import Call, Extras, empty_gradients, empty_results
from ._mask_first import mask_first
from ._plans import plans_of
from ._run import run_backward, run_forward

torch.library.define(
    "treadle::group_attention", f"(Tensor q, Tensor k, Tensor v, str mask_key, {SCHEMA}) -> (Tensor, Tensor, Tensor)"
)
torch.library.define(
    "treadle::group_attention_backward",
    f"(Tensor q, Tensor k, Tensor v, str mask_key, {SCHEMA}, Tensor out, Tensor lse, Tensor dout, Tensor? dlse, "
    "int[] gradients) -> Tensor[]",
)


def _run(key: str, captures, arguments, run):
    """run(call, captures in another order, their numbers)."""
    plans = plans_of(key)

    def work():
        program, scale, extras, given = unflattened(captures, arguments)
        program, order = mask_first(program)
        numbers = [*order, *range(len(order), len(given))]
        given, threads = [given[i] for i in numbers], torch.get_num_threads()
        return with_indices(
            program, lambda program: run(Call(program, scale, plans, True, threads, extras), given, numbers)
        )

    return plans.together(work)


@torch.library.impl("treadle::group_attention", "cpu")
def _forward(q, k, v, mask_key, captures, *arguments):
    return _run(mask_key, captures, arguments, lambda call, given, _: run_forward(call, q, k, v, given, lse=True))


@torch.library.register_fake("treadle::group_attention")
def _forward_shapes(q, k, v, mask_key, captures, *ignored):
    return empty_results(q, k, v, True, True)


@torch.library.impl("treadle::group_attention_backward", "cpu")
def _backward(q, k, v, mask_key, captures, *rest):
    *arguments, out, lse, dout, dlse, gradients = rest

    def run(call, given, numbers):
        places = tuple([numbers.index(i) for i in gradients])
        return run_backward(call, q, k, v, given, out, lse, dout, dlse, places)

    return _run(mask_key, captures, arguments, run)


@torch.library.register_fake("treadle::group_attention_backward")
def _backward_shapes(q, k, v, mask_key, captures, *rest):
    return empty_gradients(q, k, v, captures, rest[-1])


def _setup(ctx, inputs, output):
    q, k, v, ctx.mask_key, captures, *ctx.rest = inputs
    save(ctx, q, k, v, captures, output)


def _differentiate(ctx, dout, dlse, dmax):
    def run(q, k, v, captures, out, lse, dout, dlse, numbers):
        backward = torch.ops.treadle.group_attention_backward
        return backward(q, k, v, ctx.mask_key, captures, *ctx.rest, out, lse, dout, dlse, numbers)

    of_q, of_k, of_v, _, of_captures, *_ = ctx.needs_input_grad
    dq, dk, dv, *dcaptures = differentiate(ctx, (of_q, of_k, of_v, *of_captures), dout, dlse, run)
    # An empty list has a structure, one of numbers is a leaf: so torch's check of what is returned sees them.
    nothing = [[] if isinstance(x, list) and not x else None for x in ctx.rest]
    return (dq, dk, dv, None, dcaptures, *nothing)


def _differentiate_again(ctx, *ignored):
    raise NotImplementedError(NO_SECOND_DERIVATIVE)


torch.library.register_autograd("treadle::group_attention", _differentiate, setup_context=_setup)
torch.library.register_autograd("treadle::group_attention_backward", _differentiate_again)


def operation(q, k, v, program: Program, scale, last, extras: Extras, key: str):
    """out, lse, max, as one operation of torch's."""
    scale = without_symbol(scale)
    captures = [*tensors_of(program.captures), *last, *last_captures(program, scale)]
    return torch.ops.treadle.group_attention(q, k, v, key, captures, *flattened(program, scale, extras))
