"""How small and how large the integers of a mod can be: (low, high), each None where it is not known.

An index that cannot be negative is read as it is; see _captures.Partial. Operands are Values, or anything else with
`low` and `high`.
"""

from __future__ import annotations

UNKNOWN = (None, None)


def are_known(a, b) -> bool:
    return a.low is not None and a.high is not None and b.low is not None and b.high is not None


def sum_of(a, b):
    return (a.low + b.low, a.high + b.high) if are_known(a, b) else UNKNOWN


def difference(a, b):
    return (a.low - b.high, a.high - b.low) if are_known(a, b) else UNKNOWN


def product(a, b):
    if not are_known(a, b):
        return UNKNOWN
    ends = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    return min(ends), max(ends)


def negation(a):
    return (-a.high, -a.low) if are_known(a, a) else UNKNOWN


def magnitude(a):
    return 0, max(abs(a.low), abs(a.high)) if are_known(a, a) else None


def _is_one_number(x) -> bool:
    return x.low is not None and x.low == x.high


def quotient(a, b):
    """a // b."""
    if _is_one_number(b) and b.low > 0 and are_known(a, a):
        return a.low // b.low, a.high // b.low
    return UNKNOWN


def remainder(a, b):
    """a % b."""
    return (0, b.low - 1) if _is_one_number(b) and b.low > 0 else UNKNOWN


def shifted_left(a, b):
    return (a.low << b.low, a.high << b.low) if are_known(a, a) and _is_shift(b) else UNKNOWN


def shifted_right(a, b):
    return (a.low >> b.low, a.high >> b.low) if are_known(a, a) and _is_shift(b) else UNKNOWN


def _is_shift(x) -> bool:
    return _is_one_number(x) and 0 <= x.low < 62


def common_bits(a, b):
    """a & b: no larger than an operand that is not negative."""
    low = high = None
    for x in (a, b):
        if x.low is not None and x.low >= 0:
            low, high = 0, _least(high, x.high)
    return low, high


def smaller(a, b):
    """min(a, b)."""
    return (None if a.low is None or b.low is None else min(a.low, b.low)), _least(a.high, b.high)


def larger(a, b):
    """max(a, b)."""
    return _most(a.low, b.low), (None if a.high is None or b.high is None else max(a.high, b.high))


def _least(x, y):
    """Of what is known."""
    return y if x is None else x if y is None else min(x, y)


def _most(x, y):
    return y if x is None else x if y is None else max(x, y)


def either(a, b):
    """What where() takes one of."""
    return (min(a.low, b.low), max(a.high, b.high)) if are_known(a, b) else UNKNOWN
