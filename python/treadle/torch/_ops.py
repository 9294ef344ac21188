"""The operations that stand for a call inside torch.compile and torch.export.

A mod is text there, and everything it reads an argument: treadle::attention(q, k, v, captures, score_mod, mask, ...).
Shapes alone are known while a graph is made; the kernels run when the graph does.
"""

from __future__ import annotations

import torch

from .._captures import Buffer
from .._layouts import Layouts
from .._program import Program, trace, with_indices
from ._attention import (
    Call,
    _compute_type,
    empty_in_order_of,
    run_backward,
    run_forward,
)
from ._tensors import Tracing, _names, tensors_of

torch.library.define(
    "treadle::attention",
    "(Tensor q, Tensor k, Tensor v, Tensor[] captures, str score_mod, str mask, str kinds, SymInt[] integers, "
    "float[] reals, float? scale) -> (Tensor, Tensor, Tensor)",
)
torch.library.define(
    "treadle::attention_backward",
    "(Tensor q, Tensor k, Tensor v, Tensor[] captures, str score_mod, str mask, str kinds, SymInt[] integers, "
    "float[] reals, float? scale, Tensor out, Tensor lse, Tensor dout, Tensor? dlse, int[] gradients) -> Tensor[]",
)


_layouts = Layouts(64)  # of all compiled and exported models


def _run(arguments, captures, run):
    """run(call) of what an operation was given."""
    score_mod, mask, kinds, integers, reals, scale = arguments
    whole, real = iter(integers), iter(reals)
    scalars = tuple([next(whole) if kind == "i" else next(real) for kind in kinds])
    buffers = tuple([Buffer(t, _names[t.dtype], tuple(t.shape)) for t in captures])
    program = Program(score_mod, mask, buffers, scalars)
    threads = torch.get_num_threads()
    return with_indices(program, lambda wrap: run(Call(program, scale, _layouts, wrap, True, threads)))


@torch.library.impl("treadle::attention", "cpu")
def _forward(q, k, v, captures, *arguments):
    return _run(arguments, captures, lambda call: run_forward(call, q, k, v, captures, lse=True))


@torch.library.register_fake("treadle::attention")
def _forward_shapes(q, k, v, captures, score_mod, mask, kinds, integers, reals, scale):
    out = empty_in_order_of(q, (*q.shape[:3], v.shape[3]))
    rows = q.new_empty(q.shape[:3], dtype=_compute_type(q, k, v))
    return out, rows, torch.empty_like(rows)


@torch.library.impl("treadle::attention_backward", "cpu")
def _backward(q, k, v, captures, *rest):
    *arguments, out, lse, dout, dlse, gradients = rest

    def run(call):
        return run_backward(call, q, k, v, captures, out, lse, dout, dlse, tuple(gradients))

    return _run(arguments, captures, run)


@torch.library.register_fake("treadle::attention_backward")
def _backward_shapes(
    q, k, v, captures, score_mod, mask, kinds, integers, reals, scale, out, lse, dout, dlse, gradients
):
    results = [empty_in_order_of(t, t.shape) for t in (q, k, v)]
    return results + [captures[i].new_empty(captures[i].shape) for i in gradients]


def _setup(ctx, inputs, output):
    q, k, v, captures, *rest = inputs
    out, lse, most = output
    ctx.rest = rest
    ctx.captures = len(captures)
    ctx.mark_non_differentiable(most)
    ctx.set_materialize_grads(False)
    ctx.learned = [i for i, t in enumerate(captures) if t.requires_grad]
    ctx.save_for_backward(q, k, v, out, lse, *captures)


def _differentiate(ctx, dout, dlse, dmax):
    q, k, v, out, lse, *captures = ctx.saved_tensors
    if dout is None:
        dout = torch.zeros_like(out)
    results = torch.ops.treadle.attention_backward(
        q, k, v, captures, *ctx.rest, out, lse, dout, dlse, ctx.learned
    )
    of_captures = [None] * ctx.captures
    for number, i in enumerate(ctx.learned):
        of_captures[i] = results[3 + number]
    # An empty list has a structure, one of numbers is a leaf: so torch's check of what is returned sees them.
    nothing = [[] if isinstance(x, list) and not x else None for x in ctx.rest]
    return (*results[:3], of_captures, *nothing)


torch.library.register_autograd("treadle::attention", _differentiate, setup_context=_setup)


def compiled_call(q, k, v, score_mod, mask_mod, scale):
    """out, lse, max, as one operation of the graph that is being made. Sizes may be symbols: nothing depends on them."""
    with Tracing():
        program = trace(score_mod, mask_mod, (None, None, None, None))
    kinds = "".join(["i" if isinstance(x, int) else "f" for x in program.scalars])
    integers = [x for x in program.scalars if isinstance(x, int)]
    reals = [x for x in program.scalars if not isinstance(x, int)]
    captures = tensors_of(program.captures)
    return torch.ops.treadle.attention(
        q, k, v, captures, program.score_mod, program.mask, kinds, integers, reals, scale
    )
