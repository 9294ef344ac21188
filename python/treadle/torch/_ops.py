"""The operations that stand for a call inside graphs: of torch.compile, torch.export, make_fx and torch.jit.trace.

A mod is text there, and everything it reads an argument: treadle::attention(q, k, v, captures, score_mod, mask, ...).
Shapes alone are known while a graph is made; the kernels run when the graph does. Tensor subclasses and fake tensors
see the operations, too.
"""

from __future__ import annotations

import torch

from .._layouts import Layouts
from .._program import Program, with_indices
from ._arrays import tensors_of
from ._autograd import NO_SECOND_DERIVATIVE, differentiate, save
from ._flat import SCHEMA, flattened, last_captures, unflattened
from ._graph_trace import without_symbol
from ._run import Call, Extras, empty_gradients, empty_results, run_backward, run_forward

torch.library.define(
    "treadle::attention", f"(Tensor q, Tensor k, Tensor v, {SCHEMA}) -> (Tensor, Tensor, Tensor)"
)
torch.library.define(
    "treadle::attention_backward",
    f"(Tensor q, Tensor k, Tensor v, {SCHEMA}, Tensor out, Tensor lse, Tensor dout, Tensor? dlse, int[] gradients) "
    "-> Tensor[]",
)


_layouts = Layouts(64)  # of all compiled and exported models


def _run(captures, arguments, run):
    """run(call, captures) of what an operation was given."""
    program, scale, extras, captures = unflattened(captures, arguments)
    threads = torch.get_num_threads()
    return with_indices(program, lambda program: run(Call(program, scale, _layouts, True, threads, extras), captures))


@torch.library.impl("treadle::attention", "cpu")
def _forward(q, k, v, captures, *arguments):
    return _run(captures, arguments, lambda call, captures: run_forward(call, q, k, v, captures, lse=True))


def check_devices(q, *others):
    """A single tensor on "meta" makes torch ask for shapes alone. Beside queries that have memory the results would be
    memory that nobody fills."""
    if q.device.type == "meta":
        return
    for t in others:
        if t is not None and t.device.type == "meta":
            raise ValueError(f"treadle::attention: a tensor is on meta, the queries are on {q.device}")


@torch.library.register_fake("treadle::attention")
def _forward_shapes(q, k, v, captures, *ignored):
    check_devices(q, k, v, *captures)
    return empty_results(q, k, v, True, True)


@torch.library.impl("treadle::attention_backward", "cpu")
def _backward(q, k, v, captures, *rest):
    *arguments, out, lse, dout, dlse, gradients = rest

    def run(call, captures):
        return run_backward(call, q, k, v, captures, out, lse, dout, dlse, tuple(gradients))

    return _run(captures, arguments, run)


@torch.library.register_fake("treadle::attention_backward")
def _backward_shapes(q, k, v, captures, *rest):
    *_, out, lse, dout, dlse, gradients = rest
    check_devices(q, k, v, *captures, out, lse, dout, dlse)
    return empty_gradients(q, k, v, captures, gradients)


def _setup(ctx, inputs, output):
    q, k, v, captures, *rest = inputs
    ctx.rest = rest
    save(ctx, q, k, v, captures, output)


def _differentiate(ctx, dout, dlse, dmax):
    def run(q, k, v, captures, out, lse, dout, dlse, numbers):
        return torch.ops.treadle.attention_backward(q, k, v, captures, *ctx.rest, out, lse, dout, dlse, numbers)

    of_q, of_k, of_v, of_captures, *_ = ctx.needs_input_grad
    dq, dk, dv, *dcaptures = differentiate(ctx, (of_q, of_k, of_v, *of_captures), dout, dlse, run)
    # An empty list has a structure, one of numbers is a leaf: so torch's check of what is returned sees them.
    nothing = [[] if isinstance(x, list) and not x else None for x in ctx.rest]
    return (dq, dk, dv, dcaptures, *nothing)


torch.library.register_autograd("treadle::attention", _differentiate, setup_context=_setup)


def _differentiate_again(ctx, *ignored):
    raise NotImplementedError(NO_SECOND_DERIVATIVE)


torch.library.register_autograd("treadle::attention_backward", _differentiate_again)


def operation(q, k, v, program: Program, scale, last=(), extras: Extras = Extras()):
    """out, lse, max, as one operation of torch's. `last` are the tensors that follow the captures."""
    scale = without_symbol(scale)
    captures = [*tensors_of(program.captures), *last, *last_captures(program, scale)]
    return torch.ops.treadle.attention(q, k, v, captures, *flattened(program, scale, extras))
