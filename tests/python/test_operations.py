"""Every operation of the compiler's table is a function of the package, and means what it means in text."""

import numpy as np
import pytest
import treadle
from treadle import _core
from treadle._functions import functions
from treadle._operations import operations
from treadle._program import types

ROWS = 24
rng = np.random.default_rng(0)
real = [rng.uniform(-3, 3, ROWS) for _ in range(3)]
whole = [rng.integers(-9, 9, ROWS), rng.integers(1, 6, ROWS), rng.integers(1, 6, ROWS)]
truth = [rng.integers(0, 2, ROWS).astype(bool) for _ in range(3)]

# Columns to try the operations of a rule with.
columns_of = {
    "arithmetic": [real, whole], "real": [real], "rounding": [real], "integer": [whole], "comparison": [real, whole],
    "logical": [truth], "test": [[np.array([np.nan, np.inf, -np.inf, 0.0] * 6)]],
    "choice": [[truth[0], *real[:2]], [truth[0], *whole[:2]]], "conversion": [real, whole, truth],
}  # fmt: skip

ONE = np.ones((1, 1, 1, 1))
QUERIES = np.zeros((1, 1, ROWS, 1))


def by_package(row, columns):
    """The operation of every row, as the largest score of a query with one key."""
    captures = [treadle.capture(c) for c in columns]

    def score_mod(score, b, h, q, kv):
        return treadle.float(getattr(treadle, row.name)(*[c[q] for c in captures]))

    return treadle.Attention(score_mod).forward(QUERIES, ONE, ONE).max[0, 0]


def by_text(row, columns):
    from treadle._arrays import as_array, dtype_name

    names = [f"c{i}" for i in range(len(columns))]
    declared = [(name, types[dtype_name(c.dtype)], 1) for name, c in zip(names, columns)]
    text = f"float({row.name}({', '.join(f'{name}[q]' for name in names)}))"
    function = _core.Function(text, "", declared, [], None)
    out, lse, most = np.empty((1, 1, ROWS, 1)), np.empty((1, 1, ROWS)), np.empty((1, 1, ROWS))
    arrays = [as_array(c) for c in columns]
    inputs = [as_array(a) for a in (QUERIES, ONE, ONE)]
    function.forward(*inputs, arrays, None, as_array(out), as_array(lse), as_array(most), 1)
    return most[0, 0]


@pytest.mark.parametrize("name", operations)
def test_is_a_function_of_the_package(name):
    row = operations[name]
    for columns in columns_of[row.rule]:
        columns = columns[: row.arity]
        np.testing.assert_array_equal(by_package(row, columns), by_text(row, columns))


def test_the_table_is_whole():
    assert len(operations) == len(_core.operations) >= 56
    assert set(operations) <= set(functions)
    assert {row.rule for row in operations.values()} == set(columns_of)
    assert operations["atan2"] == ("atan2", "", 2, "real") and operations["floor_div"].infix == "//"


def test_misuse():
    with pytest.raises(TypeError, match="exp got float; it takes traced values|got float"):
        treadle.exp(2.0)
    x = np.ones((1, 1, 2, 2))
    for mod, says in (
        (lambda s, b, h, q, kv: treadle.exp(s, s), "exp takes 1 operands, got 2"),
        (lambda s, b, h, q, kv: treadle.atan2(s), "atan2 takes 2 operands, got 1"),
    ):
        with pytest.raises(TypeError, match=says):
            treadle.attention(x, x, x, mod)
