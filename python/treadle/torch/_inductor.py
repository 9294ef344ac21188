"""What inductor, torch.compile's usual compiler, writes for a call: that of a function instead of an operation.

A graph's compiled code is Python's, and torch's dispatcher would take every text and number of a call out of Python and
into it again; that is a third of a small call. So the code calls `at_once` of the operation, if torch has the register
that is used here, and asks only for what it goes on to use of lse and max.
"""

from __future__ import annotations

import sys

import torch
from torch.autograd import profiler

from . import _ops
from ._arrays import needs_dispatcher


def _is_seen(*tensors) -> bool:
    """Whether somebody else has to see the operation."""
    return profiler._is_profiler_enabled or needs_dispatcher(*tensors)


def _forward_at_once(q, k, v, captures, *arguments, lse: bool = True, most: bool = True):
    if _is_seen(q, k, v, *captures):
        return torch.ops.treadle.attention.default(q, k, v, captures, *arguments)
    return _ops.forward(q, k, v, captures, *arguments, lse=lse, most=most)


def _backward_at_once(q, k, v, captures, *arguments):
    if _is_seen(q, k, v, *captures):
        return torch.ops.treadle.attention_backward.default(q, k, v, captures, *arguments)
    return _ops.backward(q, k, v, captures, *arguments)


# Where compiled code finds them, which may come from a cache of another process.
torch.ops.treadle.attention.default.at_once = _forward_at_once
torch.ops.treadle.attention_backward.default.at_once = _backward_at_once


def teach_inductor() -> None:
    """To be called inside of dynamo."""
    from torch._dynamo.comptime import comptime

    comptime(_teach)


def _teach(context) -> None:
    if "torch._inductor" not in sys.modules:  # which takes seconds
        return
    try:
        from torch._inductor.codegen.custom_extern_kernel_codegen import CUSTOM_EXTERN_KERNEL_CODEGEN, CustomCodegen
    except ImportError:
        return
    for operation in (torch.ops.treadle.attention.default, torch.ops.treadle.attention_backward.default):
        CUSTOM_EXTERN_KERNEL_CODEGEN.setdefault(f"torch.ops.{operation}", CustomCodegen(python=_write))


def _write(node, writeline) -> None:
    from torch._inductor.codegen.wrapper import ExternKernelAllocLine
    from torch._inductor.virtualized import V

    options = []
    if node.op_overload is torch.ops.treadle.attention.default:
        _, lse, most = [output.get_name() not in V.graph.removed_buffers for output in node.outputs]
        options = [f"lse={lse}", f"most={most}"]

    class AtOnce(ExternKernelAllocLine):
        def codegen(self, code) -> None:
            name = self.node.python_kernel_name
            arguments = [*self.node.codegen_args(), *self.node.codegen_kwargs(), *options]
            self.node.python_kernel_name = f"{name}.at_once"
            try:
                self.wrapper._generate_extern_kernel_alloc_helper(self.node, arguments)
            finally:
                self.node.python_kernel_name = name

    writeline(AtOnce(V.graph.wrapper_code, node))
