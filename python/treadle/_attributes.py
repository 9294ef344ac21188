"""Attributes of objects, looked up without running any code: attribute_of."""

from __future__ import annotations

from types import FunctionType

missing = object()


class Strange:
    """An attribute that runs code when it is read, as a property does. It equals nothing."""

    __slots__ = ()


def attribute_of(x, kind: type, name: str, stores: tuple):
    """What x.name reads; a method as a function; `missing` if there is none. `stores` are dictionaries in x's own where
    attributes may be, too, as those of torch's modules."""
    in_class = of_class(kind, name)
    if in_class is not missing and hasattr(type(in_class), "__set__"):
        return Strange()
    values = x.__dict__
    if name in values:
        return values[name]
    if in_class is not missing:
        is_plain = type(in_class) is FunctionType or not hasattr(type(in_class), "__get__")
        return in_class if is_plain else Strange()
    for store in stores:
        if type(values.get(store)) is dict and name in values[store]:
            return values[store][name]
    return missing


def of_class(kind: type, name: str):
    """What a class or those that it is made from have by this name."""
    for owner in kind.__mro__:
        found = owner.__dict__.get(name, missing)
        if found is not missing:
            return found
    return missing
