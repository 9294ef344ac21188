"""Positions of the first queries and keys: what q_offset and kv_offset of a call may be."""

from __future__ import annotations


def offsets_of(name: str, given) -> tuple:
    """One for all batch entries, or one for each; nothing for None."""
    if given is None:
        return ()
    if isinstance(given, int):  # also the symbols of torch.compile, which can be asked little else
        return (given,)
    if hasattr(given, "tolist"):  # arrays and tensors
        given = given.tolist()
    if isinstance(given, (list, tuple)):
        return tuple([_integer(name, x) for x in given])
    return (_integer(name, given),)


def _integer(name: str, x):
    if isinstance(x, int) or hasattr(x, "__index__"):
        return x
    raise TypeError(f"{name} must be an integer, or one for each batch entry, got {x!r}")


def reach(length, offsets: tuple):
    """How many positions there are at most, from 0 on."""
    return length if not offsets else length + max(0, *offsets)
