"""Traces mods inside torch.compile, torch.export and make_fx, where numbers may be symbols of the graph.

Dynamo, the tracer of torch.compile, runs mods itself, on its own picture of their values. It is asked here through
torch's `comptime`, which calls a function with dynamo's state while it traces.
"""

from __future__ import annotations

import operator
from typing import Callable, Optional

import torch

from .. import _program
from .._captures import Partial
from .._errors import is_of_package, place
from .._rows import Row
from .._value import INTEGER, REAL, Value
from ._functions import refuse_random
from ._tracing import RANDOM, Tracing
from ._values import TorchTrace, TorchValue


def trace_in_graph(score_mod: Optional[Callable], mask_mod: Optional[Callable]) -> _program.Program:
    """The program of mods for any sizes. Symbols become run-time scalars: another number compiles nothing."""
    if score_mod is None and mask_mod is None:
        return _program.nothing
    mode = Tracing()
    if not torch.compiler.is_dynamo_compiling():
        with mode:
            return _program.trace(_GraphTrace(), score_mod, mask_mod)
    from torch._dynamo.comptime import comptime

    # `with mode` would count as a change of the program's state, which checkpoints refuse.
    comptime(_enter)
    random = None
    try:
        program = _program.trace(_GraphTrace(), score_mod, mask_mod)
    finally:
        comptime(_leave)
    if random is not None:  # of some functions dynamo does not tell the mode
        refuse_random(random)
    return program


def is_symbol(x) -> bool:
    """Whether it is a number that the graph has not fixed."""
    if not torch.compiler.is_dynamo_compiling():
        return isinstance(x, (torch.SymInt, torch.SymFloat))
    from torch._dynamo.comptime import comptime

    symbol = False
    comptime(_look)
    return symbol


def without_symbol(x):
    """A float symbol as a tensor: an operation takes symbols for ints alone. AOTAutograd takes those of floats out of a
    product with a tensor; anywhere else it would fix their values."""
    if x is None or isinstance(x, torch.Tensor) or not is_symbol(x):
        return x
    return torch.ones((), dtype=torch.float64) * x


def fixed(x) -> int:
    """The same number, which the graph is then made for."""
    if not torch.compiler.is_dynamo_compiling():
        return int(x)
    from torch._dynamo.comptime import comptime

    comptime(_fix)
    return x


class _GraphValue(TorchValue):
    __slots__ = ()

    def __pow__(self, other):
        return self._power(other, False) if is_symbol(other) else TorchValue.__pow__(self, other)


class _GraphTrace(TorchTrace):
    value = _GraphValue

    def __init__(self):
        TorchTrace.__init__(self, (None, None, None, None))

    def lift(self, x, structural: bool = False) -> Optional[Value]:
        if isinstance(x, (Value, Partial, Row)) or not is_symbol(x):
            return TorchTrace.lift(self, x, structural)
        kind = INTEGER if isinstance(x, (int, torch.SymInt)) else REAL
        self.scalars.append(x if kind == INTEGER else without_symbol(x))
        return self.value(self, f"s{len(self.scalars) - 1}", kind)


# --- what dynamo runs while it traces the functions above, and their locals -----------------------------------------


def where_in_user_code() -> str:
    """treadle._errors' function of that name, where there are no frames to look at."""
    from torch._dynamo.comptime import comptime

    where = ""
    comptime(_locate)
    return where


def _locate(context):
    from torch._dynamo.variables import ConstantVariable

    translator = _translator(context)
    known = translator.symbolic_locals
    while translator is not None and is_of_package(translator.f_globals):
        translator = translator.parent
    if translator is not None:
        line = translator.current_instruction.positions.lineno
        known["where"] = ConstantVariable.create(place(translator.f_code.co_filename, line))


def _translator(context):
    return context._i_will_not_complain_if_bc_breaks_InstructionTranslator()


def _enter(context):
    _teach_comparisons()
    translator = _translator(context)
    mode = translator.symbolic_locals["mode"].realize()
    mode.nodes_before = set(translator.output.current_tracer.graph.nodes)
    translator.symbolic_torch_function_state.push_torch_function_mode(mode)


def _leave(context):
    from torch._dynamo.variables import ConstantVariable

    translator = _translator(context)
    mode = translator.symbolic_torch_function_state.pop_torch_function_mode()
    for node in translator.output.current_tracer.graph.nodes:
        name = getattr(node.target, "__name__", node.target)
        if node not in mode.nodes_before and name in RANDOM:
            translator.symbolic_locals["random"] = ConstantVariable.create(name)


def _look(context):
    from torch._dynamo.variables import ConstantVariable, SymNodeVariable

    known = _translator(context).symbolic_locals
    if isinstance(known["x"].realize(), SymNodeVariable):
        known["symbol"] = ConstantVariable.create(True)


def _fix(context):
    from torch._dynamo.variables import ConstantVariable, SymNodeVariable

    known = _translator(context).symbolic_locals
    x = known["x"].realize()
    if isinstance(x, SymNodeVariable):
        known["x"] = ConstantVariable.create(x.evaluate_expr())


_taught: list = []


def _teach_comparisons():
    """Dynamo takes an object and a symbolic number for different things: == is False without a word, and < fails. Ours
    know how to compare, so they are asked first."""
    if _taught:
        return
    _taught.append(True)
    from torch._dynamo.variables import SymNodeVariable, UserDefinedObjectVariable
    from torch._dynamo.variables.builtin import BuiltinVariable
    from torch._dynamo.variables.object_protocol import generic_richcompare

    def ask(name: str):
        def compare(translator, ours, symbol):
            is_ours = issubclass(ours.value_type, (Value, Partial, Row))
            return generic_richcompare(translator, ours, symbol, f"__{name}__") if is_ours else None

        return compare

    known = BuiltinVariable._binop_handlers()
    for name, turned in (("eq", "eq"), ("ne", "ne"), ("lt", "gt"), ("le", "ge"), ("gt", "lt"), ("ge", "le")):
        compare, reverse = getattr(operator, name), ask(turned)
        known[compare].insert(0, ((UserDefinedObjectVariable, SymNodeVariable), ask(name)))
        known[compare].insert(
            0, ((SymNodeVariable, UserDefinedObjectVariable), lambda translator, a, b, ask=reverse: ask(translator, b, a))
        )
        for key in [key for key in BuiltinVariable.call_function_handler_cache if key[0] is compare]:
            del BuiltinVariable.call_function_handler_cache[key]
