"""The operations that stand for a call inside graphs: of torch.compile, torch.export, make_fx and torch.jit.trace.

A mod is text there, and everything it reads an argument: treadle::attention(q, k, v, captures, score_mod, mask, ...).
Shapes alone are known while a graph is made; the kernels run when the graph does. Tensor subclasses and fake tensors
see the operations, too.
"""

from __future__ import annotations

import functools
from typing import Optional

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


_library = torch.library.Library("treadle", "FRAGMENT")
_layouts = Layouts(64)  # of all compiled and exported models


_NO_NUMBERS = ("", [], [])  # kinds, integers, reals
_NO_EXTRAS = (False, [], [], False, False, 0.0)


@functools.lru_cache(1024)
def _call_of_texts(texts: tuple, scale, most: bool, threads: int) -> Call:
    return Call(Program(*texts[:2], (), (), texts[2:]), scale, _layouts, most, threads)


def _simple_call(captures, arguments: tuple, most: bool) -> Optional[Call]:
    """Of mods that read nothing, which is the same again and again; None for all others."""
    if captures or arguments[4:7] != _NO_NUMBERS or arguments[8:] != _NO_EXTRAS or arguments[:2] != arguments[2:4]:
        return None
    return _call_of_texts(arguments[:4], arguments[7], most, torch.get_num_threads())


def _run(captures, arguments, most: bool, run):
    """run(call, captures) of what an operation was given."""
    program, scale, extras, captures = unflattened(captures, arguments)
    threads = torch.get_num_threads()
    return with_indices(program, lambda program: run(Call(program, scale, _layouts, most, threads, extras), captures))


def forward(q, k, v, captures, *arguments, lse: bool = True, most: bool = True):
    """out, lse, max; the last two None unless wanted."""
    call = _simple_call(captures, arguments, most)
    if call is not None:
        return run_forward(call, q, k, v, captures, lse)
    return _run(captures, arguments, most, lambda call, captures: run_forward(call, q, k, v, captures, lse))


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


def backward(q, k, v, captures, *rest):
    arguments, (out, lse, dout, dlse, gradients) = rest[:-5], rest[-5:]

    def run(call, captures):
        return run_backward(call, q, k, v, captures, out, lse, dout, dlse, tuple(gradients))

    call = _simple_call(captures, arguments, True)
    return _run(captures, arguments, True, run) if call is None else run(call, captures)


@torch.library.register_fake("treadle::attention_backward")
def _backward_shapes(q, k, v, captures, *rest):
    *_, out, lse, dout, dlse, gradients = rest
    check_devices(q, k, v, *captures, out, lse, dout, dlse)
    return empty_gradients(q, k, v, captures, gradients)


# --- derivatives ----------------------------------------------------------------------------------------------------
#
# torch.library.register_autograd would go through torch's dispatcher once more in every call, also where nothing is to
# be differentiated: so it is in compiled models, which have a graph of their own for gradients.

# What a call of plain tensors is dispatched by, where nobody else has to see it: the kernel comes next.
_PLAIN = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU).add(torch._C.DispatchKey.AutogradCPU).raw_repr()


def _below(operation, keyset, *arguments):
    """What comes after derivatives."""
    with torch._C._AutoDispatchBelowAutograd():
        return operation.redispatch(keyset & torch._C._after_autograd_keyset, *arguments)


def _requires_grad(*tensors) -> bool:
    return torch.is_grad_enabled() and any([t.requires_grad for t in tensors if t is not None])


class _Forward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, keyset, rest, q, k, v, *captures):
        results = _below(torch.ops.treadle.attention.default, keyset, q, k, v, list(captures), *rest)
        ctx.rest = rest
        save(ctx, q, k, v, captures, results)
        return results

    @staticmethod
    def backward(ctx, dout, dlse, dmax):
        def run(q, k, v, captures, out, lse, dout, dlse, numbers):
            backward = torch.ops.treadle.attention_backward.default
            return backward(q, k, v, captures, *ctx.rest, out, lse, dout, dlse, numbers)

        return (None, None, *differentiate(ctx, ctx.needs_input_grad[2:], dout, dlse, run))


class _Backward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, keyset, rest, gradients, q, k, v, out, lse, dout, dlse, *captures):
        operation = torch.ops.treadle.attention_backward.default
        return tuple(_below(operation, keyset, q, k, v, list(captures), *rest, out, lse, dout, dlse, gradients))

    @staticmethod
    def backward(ctx, *ignored):
        raise NotImplementedError(NO_SECOND_DERIVATIVE)


def _forward_autograd(keyset, q, k, v, captures, *rest):
    captures = captures or []  # AOTInductor's executor hands over None for an empty list
    if _requires_grad(q, k, v, *captures):
        return _Forward.apply(keyset, rest, q, k, v, *captures)
    if keyset.raw_repr() == _PLAIN:
        return forward(q, k, v, captures, *rest)
    return _below(torch.ops.treadle.attention.default, keyset, q, k, v, captures, *rest)


def _backward_autograd(keyset, q, k, v, captures, *others):
    *rest, out, lse, dout, dlse, gradients = others
    if _requires_grad(q, k, v, *captures, out, lse, dout, dlse):
        return list(_Backward.apply(keyset, rest, gradients, q, k, v, out, lse, dout, dlse, *captures))
    if keyset.raw_repr() == _PLAIN:
        return backward(q, k, v, captures, *others)
    return _below(torch.ops.treadle.attention_backward.default, keyset, q, k, v, captures, *others)


_library.impl("attention", forward, "CPU")
_library.impl("attention_backward", backward, "CPU")
_library.impl("attention", _forward_autograd, "Autograd", with_keyset=True)
_library.impl("attention_backward", _backward_autograd, "Autograd", with_keyset=True)


def operation(q, k, v, program: Program, scale, last=(), extras: Extras = Extras()):
    """out, lse, max, as one operation of torch's. `last` are the tensors that follow the captures."""
    scale = without_symbol(scale)
    captures = [*tensors_of(program.captures), *last, *last_captures(program, scale)]
    return torch.ops.treadle.attention.default(q, k, v, captures, *flattened(program, scale, extras))
