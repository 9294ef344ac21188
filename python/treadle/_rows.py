"""Row: a few values of every pair, as mods get them from a captured tensor whose last dimension has no index.

    (means[q] - means[kv]).pow(2).sum(-1)     with means [tokens, 3]

A row is unrolled: what is done to it is done to each of its values, and a reduction makes one value of them again.
Nothing here knows torch or NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Sequence

from ._errors import TraceError, where_in_user_code
from ._value import BOOLEAN, Value

if TYPE_CHECKING:
    from ._trace import Trace

MOST_VALUES = 64  # of a row; each adds its operations to the kernels


class Row:
    """The values of a row, in order."""

    __slots__ = ("trace", "values")

    def __init__(self, trace: Trace, values: Sequence[Value]):
        self.trace = trace
        self.values = list(values)

    def __repr__(self):
        return f"<traced row of {len(self.values)}>"

    @property
    def shape(self) -> tuple:
        return (len(self.values),)

    @property
    def ndim(self) -> int:
        return 1

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self):
        return iter(self.values)

    def __getitem__(self, index):
        if isinstance(index, int):
            return self.values[index]
        if isinstance(index, slice):
            return type(self)(self.trace, self.values[index])
        raise TraceError(f"a row of traced values takes numbers and slices as index{where_in_user_code()}")

    def __bool__(self):
        raise TraceError(f"a row of traced values has no truth; use .any(-1) or .all(-1){where_in_user_code()}")

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise TraceError(
            f"a mod uses .{name} of a row of {len(self.values)} traced values, which cannot be compiled"
            f"{where_in_user_code()}"
        )

    __hash__ = None  # type: ignore


def map_rows(function: Callable, args: Sequence) -> Row:
    """function(*args) of each value of the rows among the arguments; what is no row goes to all of them."""
    trace = next(a.trace for a in args if isinstance(a, Row))
    args = [_as_row(trace, a) for a in args]
    rows = [a for a in args if isinstance(a, Row)]
    lengths = sorted({len(row) for row in rows if len(row) != 1})
    if len(lengths) > 1:
        raise TraceError(f"a mod puts rows of {lengths[0]} and {lengths[1]} values together{where_in_user_code()}")
    length = lengths[0] if lengths else 1

    def value(a, i):
        return a.values[i if len(a) > 1 else 0] if isinstance(a, Row) else a

    values = [function(*[value(a, i) for a in args]) for i in range(length)]
    return trace.row(trace, values)


def _as_row(trace: Trace, x):
    """A captured tensor of one dimension as a row; anything else stays what it is."""
    if isinstance(x, (Row, Value, bool, int, float)):
        return x
    buffer = trace.buffer_of(x)
    if len(getattr(buffer, "shape", ())) != 1:
        return x
    return trace.partial(trace, buffer, [None]).operand()


def _operator(name: str):
    def method(self, *operands):
        operands = [self.trace.operand(x) for x in operands]
        return map_rows(lambda *values: getattr(self.trace.lift(values[0]), name)(*values[1:]), (self, *operands))

    method.__name__ = name
    setattr(Row, name, method)


for _name in (
    "add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "floordiv", "rfloordiv", "mod", "rmod", "pow",
    "rpow", "and", "rand", "or", "ror", "xor", "rxor", "lshift", "rlshift", "rshift", "rrshift", "eq", "ne", "lt", "le",
    "gt", "ge", "neg", "pos", "abs", "invert",
):  # fmt: skip
    _operator(f"__{_name}__")


# --- reductions ----------------------------------------------------------------------------------------------------


def _check_dim(dim, name: str):
    if dim not in (None, -1, 0, (-1,), (0,), [-1], [0]):
        raise TraceError(f"a mod calls {name} over dimension {dim} of a row, which has one{where_in_user_code()}")


def _joined(row: Row, name: str, join: Callable, dim, keepdim: bool):
    _check_dim(dim, name)
    if not row.values:
        raise TraceError(f"a mod calls {name} of a row without values{where_in_user_code()}")
    result = row.values[0]
    for value in row.values[1:]:
        result = join(result, value)
    return type(row)(row.trace, [result]) if keepdim else result


def reductions(functions: dict) -> dict:
    """Functions of rows, by the names that torch and NumPy give them. `functions` are those of values."""

    def total(row, dim=None, keepdim=False, *, dtype=None):
        row = map_rows(lambda x: x.number(), [row])
        return _joined(row, "sum", lambda a, b: a + b, dim, keepdim)

    def product(row, dim=None, keepdim=False, *, dtype=None):
        row = map_rows(lambda x: x.number(), [row])
        return _joined(row, "prod", lambda a, b: a * b, dim, keepdim)

    def mean(row, dim=None, keepdim=False, *, dtype=None):
        return total(row, dim, keepdim) * (1.0 / len(row))

    def whether(name):
        def reduce(row, dim=None, keepdim=False):
            row = map_rows(lambda x: x if x.kind == BOOLEAN else functions["bool"](x), [row])
            return _joined(row, name, functions["logical_or" if name == "any" else "logical_and"], dim, keepdim)

        return reduce

    def extreme(name, join):
        def reduce(row, dim=None, keepdim=False):
            return _joined(row, name, functions[join], dim, keepdim)

        return reduce

    def without_dim(name, reduce):
        def all_values(row, *args, **kwargs):
            if args or kwargs:
                raise TraceError(
                    f"a mod calls {name} over a dimension, which also returns indices; use a{name}{where_in_user_code()}"
                )
            return reduce(row)

        return all_values

    def dot(a, b):
        if isinstance(a, Value) or isinstance(b, Value):
            raise TraceError(f"a mod calls dot of something else than two rows{where_in_user_code()}")
        return total(map_rows(lambda x, y: x * y, (a, b)))

    def norm(row, ord=2, dim=None, keepdim=False, p=None):
        if (p if p is not None else ord) not in (2, None, "fro"):
            raise TraceError(f"a mod calls norm of an order that is not 2{where_in_user_code()}")
        squares = total(map_rows(lambda x: x.real() * x.real(), [row]), dim, keepdim)
        return map_rows(functions["sqrt"], [squares]) if keepdim else functions["sqrt"](squares)

    def reshape(row, *shape, **how):
        raise TraceError(f"a mod changes the shape of a row of values, which cannot be compiled{where_in_user_code()}")

    amax, amin = extreme("amax", "max"), extreme("amin", "min")
    return {
        "sum": total, "prod": product, "mean": mean, "any": whether("any"), "all": whether("all"), "amax": amax,
        "amin": amin, "max": without_dim("max", amax), "min": without_dim("min", amin), "dot": dot, "vdot": dot,
        "inner": dot, "matmul": dot, "__matmul__": dot, "norm": norm, "vector_norm": norm, "linalg_vector_norm": norm,
        "linalg_norm": norm, "unsqueeze": reshape, "view": reshape, "reshape": reshape,
        "flatten": reshape, "squeeze": reshape,
    }  # fmt: skip

