"""What a mod sees apart from its arguments: code, closures, globals, defaults, and attributes of what is among these.

    sight = Sight()
    holds = sight.of(mod)              Unseen if it may see something that cannot be compared later
    captures = []
    holds(mod, captures)               whether it, or another of its kind, sees the same now; captures are what it reads

Numbers have to be the same, and so have functions, by their code. Captured arrays have to be of the same kind: their
contents are read by kernels only. `found` gets arrays, functions and objects, since mods may compare them: those that
were the same have to be the same again. Whoever is in doubt is Unseen: a wrong True would be a wrong result.
"""

from __future__ import annotations

import builtins
import functools
import math
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Callable, Optional

from ._attributes import attribute_of, missing, of_class
from ._captures import Capture
from ._code import Reads, reads_of
from ._functions import functions

Holds = Callable[[Any, list], bool]
_MOST_ELEMENTS = 16
_DEEPEST = 12
_atoms = frozenset((type(None), type(Ellipsis), bool, int, str))
# Of what they are given alone; none calls back but into what is seen, too.
_pure = frozenset((
    abs, all, any, bool, divmod, enumerate, float, int, isinstance, len, list, max, min, pow, range, reversed, round, sum,
    tuple, zip,
))  # fmt: skip
# What classes define that no instruction runs while a mod reads an attribute or calls a method.
_quiet = frozenset((
    "__annotations__", "__class_getitem__", "__dataclass_fields__", "__dataclass_params__", "__dict__", "__dir__", "__doc__",
    "__firstlineno__", "__init__", "__init_subclass__", "__match_args__", "__module__", "__orig_bases__", "__parameters__",
    "__post_init__", "__qualname__", "__reduce__", "__replace__", "__repr__", "__setattr__", "__static_attributes__",
    "__str__", "__weakref__", "__annotate__", "__annotate_func__", "__annotations_cache__", "__setstate__", "__getstate__",
    "__abstractmethods__", "__delattr__", "__deepcopy__", "__copy__", "__slots__", "__eq__", "__hash__",
))  # fmt: skip
_MADE_AT_RUN_TIME = 1 << 9  # a flag of classes: they are not C's


class Unseen(Exception):
    """What a mod sees cannot be compared."""


class Sight:
    """Looks at mods of one call. A front end says what else than Python's own objects they may see."""

    # Classes whose __getattr__ is known: it finds what these dictionaries of an instance hold.
    modules: tuple = ()
    stores: tuple = ()

    def __init__(self):
        self.codes: dict[CodeType, Optional[Reads]] = {}  # of all functions that are seen
        self.called: set[CodeType] = set()  # of functions that are known by their names
        self.strange: set[CodeType] = set()  # of functions of libraries that call whatever was given to them before
        self._names: frozenset = frozenset()  # of attributes that some code reads
        self._inside: list = []

    def is_known(self, x) -> bool:
        """Whether a callable does the same, whenever it gets the same."""
        if type(x) is BuiltinFunctionType:
            return x.__module__ == "math"
        return type(x).__module__ == "numpy" and getattr(x, "__name__", "") in functions

    def of_capture(self, x) -> Optional[Holds]:
        """Of an array that mods may read; None if it is none."""
        if type(x) is not Capture:
            return None
        if not self._names.isdisjoint(Capture.__slots__):
            raise Unseen("its memory is in reach")
        return _of_capture(x)

    def of(self, *mods) -> Holds:
        while True:  # names of attributes that one function reads may be read of what another one gives it
            names = self._names
            parts = [self._value(mod) for mod in mods]
            self._names = frozenset().union(*[reads.attributes for reads in self.codes.values()])
            if self._names == names:
                return _all(parts)

    # --- values -------------------------------------------------------------------------------------------------

    def _value(self, x) -> Holds:
        kind = type(x)
        if kind in _atoms:
            return _of_atom(x)
        if kind is float:
            return _of_float(x)
        if any([x is other for other in self._inside]) or len(self._inside) >= _DEEPEST:
            raise Unseen("it is part of itself, or very deep")
        self._inside.append(x)
        try:
            return self._of_kind(x, kind)
        finally:
            self._inside.pop()

    def _of_kind(self, x, kind) -> Holds:
        if self._is_pure(x):
            code = getattr(x, "__code__", None)
            if code is None:
                return lambda y, found: y is x
            self.called.add(code)
            return lambda y, found: y is x and y.__code__ is code
        if kind is FunctionType:
            return self._function(x)
        if kind is MethodType:
            function, owner = self._value(x.__func__), self._value(x.__self__)
            return lambda y, found: (
                type(y) is MethodType and function(y.__func__, found) and owner(y.__self__, found)
            )
        if kind is functools.partial:
            return self._partial(x)
        if kind is ModuleType:
            return self._module(x)
        if kind in (tuple, list):
            return self._sequence(x, kind)
        if kind is dict:
            return self._dict(x)
        array = self.of_capture(x)
        return array if array is not None else self._object(x, kind)

    def _is_pure(self, x) -> bool:
        if type(x) in (type, BuiltinFunctionType) and x in _pure:
            return True
        return self.is_known(x) or (type(x) is FunctionType and functions.get(x.__name__) is x)

    def _sequence(self, x, kind) -> Holds:
        if len(x) > _MOST_ELEMENTS:
            raise Unseen("it is long")
        elements = [self._value(y) for y in x]
        holds = _all(elements)
        return lambda y, found: type(y) is kind and len(y) == len(elements) and holds(y, found)

    def _dict(self, x: dict) -> Holds:
        if len(x) > _MOST_ELEMENTS or any([type(key) not in (str, int) for key in x]):
            raise Unseen("its keys are many, or no names")
        keys, types_of_keys = list(x), [type(key) for key in x]
        holds = _all([self._value(y) for y in x.values()])

        def dict_holds(y, found):
            same = type(y) is dict and list(y) == keys and [type(key) for key in y] == types_of_keys
            return same and holds(y.values(), found)

        return dict_holds

    def _partial(self, x: functools.partial) -> Holds:
        names = self._names
        whole = _all([self._value(x.func), self._value(x.args), self._value(x.keywords)])

        def holds(y, found):
            if type(y) is not functools.partial or not names.isdisjoint(y.__dict__):
                return False
            found.append(y)
            return whole((y.func, y.args, y.keywords), found)

        return holds

    def _function(self, x: FunctionType) -> Holds:
        code = x.__code__
        reads = self.codes[code] if code in self.codes else reads_of(code)
        if reads is None:
            raise Unseen(f"{x.__name__} does more than to compute")
        self.codes[code] = reads
        names = self._names
        defaults, by_name = self._value(x.__defaults__), self._value(x.__kwdefaults__)
        cells = [self._value(_contents(cell)) for cell in x.__closure__ or ()]
        parts = [(name, self._value(_global(x, name))) for name in reads.globals]

        def holds(y, found):
            if type(y) is not FunctionType or (y.__code__ is not code and y.__code__ != code):
                return False
            if y.__dict__ and not names.isdisjoint(y.__dict__):
                return False
            found.append(y)
            if not defaults(y.__defaults__, found) or not by_name(y.__kwdefaults__, found):
                return False
            try:
                for cell, part in zip(y.__closure__ or (), cells):
                    if not part(cell.cell_contents, found):
                        return False
                for name, part in parts:
                    if not part(_global(y, name), found):
                        return False
            except (ValueError, Unseen):  # a cell or a name is empty now
                return False
            return True

        return holds

    # --- attributes ---------------------------------------------------------------------------------------------

    def _module(self, x: ModuleType) -> Holds:
        values = x.__dict__
        parts = []
        for name in sorted(self._names):
            if name in values:
                parts.append((name, self._value(values[name])))
            elif "__getattr__" in values and not (_is_library(x) and self.is_of_values(name)):
                raise Unseen("a module may find it")

        def holds(y, found):
            if y is not x:
                return False
            return all([part(values.get(name, missing), found) for name, part in parts])

        return holds

    def is_of_values(self, name: str) -> bool:
        """Whether traced values or captured arrays have such an attribute, so that a module need not."""
        return False

    def _object(self, x, kind: type) -> Holds:
        """An instance of a class that is written in Python."""
        if type(kind) is not type or not kind.__flags__ & _MADE_AT_RUN_TIME or not hasattr(x, "__dict__"):
            raise Unseen("its class is not a plain one that is written in Python")
        called = []
        for owner in kind.__mro__[:-1]:
            if owner in self.modules:
                continue
            for name in vars(owner):
                if not (name.startswith("__") and name.endswith("__")) or name in _quiet:
                    continue
                if name not in ("__call__", "__getitem__"):
                    raise Unseen(f"its class defines {name}")
                called.append(name)
        parts = [(name, self._value(of_class(kind, name))) for name in called]
        attributes = []
        for name in sorted(self._names):
            value = attribute_of(x, kind, name, self.stores)
            if value is not missing:
                attributes.append((name, self._value(value)))
        stores = self.stores

        def holds(y, found):
            if type(y) is not kind:
                return False
            found.append(y)
            for name, part in parts:
                if not part(of_class(kind, name), found):
                    return False
            for name, part in attributes:
                if not part(attribute_of(y, kind, name, stores), found):
                    return False
            return True

        return holds


def _is_library(x: ModuleType) -> bool:
    return x.__name__.partition(".")[0] in ("numpy", "torch")


def _contents(cell):
    try:
        return cell.cell_contents
    except ValueError:
        raise Unseen("a cell is empty") from None


def _global(function: FunctionType, name: str):
    values = function.__globals__
    if name in values:
        return values[name]
    known = function.__builtins__
    found = known.get(name, missing) if type(known) is dict else getattr(builtins, name, missing)
    if found is missing:
        raise Unseen(f"{name} is not defined")
    return found


def _all(parts: list) -> Holds:
    """Of things in this order."""

    def holds(values, found):
        for part, value in zip(parts, values):
            if not part(value, found):
                return False
        return True

    return holds


def _of_atom(x) -> Holds:
    kind = type(x)
    return lambda y, found: y is x or (type(y) is kind and y == x)


def _of_float(x: float) -> Holds:
    if x != x:
        raise Unseen("it is not equal to itself")
    sign = math.copysign(1.0, x)
    return lambda y, found: type(y) is float and y == x and (y != 0.0 or math.copysign(1.0, y) == sign)


def _of_capture(x: Capture) -> Holds:
    dtype, shape = x.buffer.dtype, x.buffer.shape

    def holds(y, found):
        if type(y) is not Capture or y.buffer.dtype != dtype or y.buffer.shape != shape:
            return False
        found.append(y.buffer.object)
        return True

    return holds


