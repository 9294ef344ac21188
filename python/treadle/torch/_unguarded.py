"""What torch.compile need not look at again before every call of a graph.

Of each function and constant that dynamo meets while it traces, it makes a guard: they have to be the ones that they were.
A call of ours goes through some hundred of this package, which cost more than its kernels on a small problem. Nobody
replaces them, as nobody replaces those of the standard library, for which torch makes no guards either. What users
may change keeps its guards: their functions, closures, globals, tensors, masks and numbers, and torch's own state.
"""

from __future__ import annotations

from types import FunctionType, ModuleType
from typing import Any, Callable, Optional

_IMPORTED = "__import_"  # how dynamo's names of modules begin


def leave_unguarded() -> None:
    """To be called inside of dynamo, after what it would guard. A torch that does not know how is asked in vain."""
    from torch._dynamo.comptime import comptime

    comptime(_drop_guards)


def _drop_guards(context) -> None:
    output = context._i_will_not_complain_if_bc_breaks_InstructionTranslator().output
    resolve = getattr(output, "resolve_source_value", None)
    if resolve is None:
        return
    constants = _Constants(output.global_scope, resolve)
    kept = [guard for guard in output.guards if not _is_needless(guard, constants)]
    output.guards.clear()
    for guard in kept:
        output.guards.add(guard, collect_debug_stack=False)


def _is_needless(guard, constants: _Constants) -> bool:
    # One of two places that have to be the same thing may be ours, and the other torch's.
    other = getattr(guard.create_fn, "keywords", {}).get("source_b")
    return guard.originating_source in constants or (other is not None and other in constants)


class _Constants:
    """The sources, as dynamo calls places of values, that are this package's own."""

    def __init__(self, scope: dict, resolve: Callable):
        self._is_own_scope = _is_own(scope.get("__name__"))  # the frame that is compiled is one of ours
        self._resolve = resolve
        self._known: dict = {}

    def __contains__(self, source) -> bool:
        known = self._known.get(source)
        if known is None:
            try:
                known = self._look(source)
            except Exception:  # of what cannot be had now
                known = False
            self._known[source] = known
        return known

    def _look(self, source) -> bool:
        base = getattr(source, "base", None)
        if base is None:
            return self._is_own_global(getattr(source, "global_name", None))
        if base in self:
            # Our modules know torch's, and those may have state.
            return not _is_foreign(self._resolve(base)) or self._is_code(self._resolve(source))
        kind = type(source).__name__
        if kind == "DefaultsSource" or getattr(source, "member", None) in ("__defaults__", "__kwdefaults__"):
            owner = self._resolve(base)
            return type(owner) is FunctionType and _is_own(owner.__module__)
        if kind == "TypeDictSource":
            return _is_own(self._resolve(base).__module__)
        return False

    def _is_own_global(self, name: Optional[str]) -> bool:
        if name is None:
            return False
        if name.startswith(_IMPORTED):
            return _is_own(name.removeprefix(_IMPORTED).replace("_dot_", "."))
        return self._is_own_scope and not name.startswith("_")

    @staticmethod
    def _is_code(x: Any) -> bool:
        return isinstance(x, ModuleType) or callable(x)


def _is_foreign(x: Any) -> bool:
    return isinstance(x, ModuleType) and not _is_own(x.__name__)


def _is_own(module: Optional[str]) -> bool:
    return module is not None and module.partition(".")[0] == "treadle"
