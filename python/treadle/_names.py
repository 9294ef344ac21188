"""What the user calls the arrays that mods read, for messages: the compiler knows them as c0, c1, ..."""

from __future__ import annotations

import functools
import inspect
import re
from typing import Callable, Iterator, Optional

_MOST_FUNCTIONS = 100  # that are looked at
_capture = re.compile(r"\bc(\d+)(?=: )")


def with_names(error: Exception, captures, mods) -> Exception:
    """The same error, with the names that mods, their closures and those of functions there have for captures."""

    def name(match) -> str:
        number = int(match[1])
        found = _name_of(captures[number].object, mods) if number < len(captures) else None
        return found or match[0]

    return type(error)(_capture.sub(name, str(error)))


def _name_of(array, mods) -> Optional[str]:
    functions, seen = [mod for mod in mods if mod is not None], set()
    while functions and len(seen) < _MOST_FUNCTIONS:
        function = functions.pop(0)
        if id(function) in seen:
            continue
        seen.add(id(function))
        for name, value in _read_by(function):
            if _is(value, array):
                return name
            if callable(value):
                functions.append(value)
    return None


def _is(value, array) -> bool:
    buffer = getattr(value, "buffer", None)  # of what treadle.capture made
    return value is array or getattr(buffer, "object", None) is array


def _read_by(function: Callable) -> Iterator[tuple]:
    """(name, value) of closures, defaults and globals, and what is in them."""
    if isinstance(function, functools.partial):
        yield "", function.func
        for i, value in enumerate(function.args):
            yield f"argument {i}", value
        yield from function.keywords.items()
        return
    own = getattr(function, "__self__", None)
    if not hasattr(function, "__code__") and not hasattr(function, "__func__"):
        own, function = function, getattr(type(function), "__call__", None)
    code = getattr(function, "__code__", None)
    if code is None:
        return
    named = {} if own is None else {"self": own}
    for name, cell in zip(code.co_freevars, function.__closure__ or ()):
        try:
            named[name] = cell.cell_contents
        except ValueError:  # an empty cell
            pass
    defaults = function.__defaults__ or ()
    arguments = code.co_varnames[: code.co_argcount]
    named.update(zip(arguments[len(arguments) - len(defaults) :], defaults))
    named.update(function.__kwdefaults__ or {})
    named.update({name: function.__globals__[name] for name in code.co_names if name in function.__globals__})
    for name, value in named.items():
        yield name, value
        if isinstance(value, (list, tuple)):
            yield from [(f"{name}[{i}]", x) for i, x in enumerate(value[:_MOST_FUNCTIONS])]
        elif isinstance(value, dict):
            yield from [(f"{name}[{key!r}]", x) for key, x in list(value.items())[:_MOST_FUNCTIONS]]
        elif not callable(value) or hasattr(value, "__dict__"):
            for attribute in code.co_names:
                held = _held_by(value, attribute)
                if held is not None:
                    yield f"{name}.{attribute}", held


def _held_by(value, attribute: str):
    """An attribute that is kept, not made, also of a torch module; or a method."""
    places = getattr(value, "__dict__", {})
    for place in (places, *[places.get(kind) or {} for kind in ("_parameters", "_buffers", "_modules")]):
        if isinstance(place, dict) and attribute in place:
            return place[attribute]
    method = getattr(type(value), attribute, None)
    return method.__get__(value) if inspect.isfunction(method) else None
