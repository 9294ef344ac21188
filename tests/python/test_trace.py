"""Traced functions and operators mean what they mean in torch and in Python.

A query with one key has as its largest score what the score mod makes of it: so a mod is evaluated on any numbers.
"""

import math
import operator

import pytest
import torch
import torch.nn.functional as F
import treadle
from hypothesis import given, settings
from hypothesis import strategies as st
from treadle import _program
from treadle._functions import functions
from treadle.torch import AuxRequest, create_mask, flex_attention

ONE = torch.ones(1, 1, 1, 1, dtype=torch.float64)


def evaluate(f, *columns):
    """f of every row of these columns, in float64, by a kernel."""
    rows = len(columns[0])
    q = torch.zeros(1, 1, rows, 1, dtype=torch.float64)

    def score_mod(score, b, h, q, kv):
        result = f(*[column[q] for column in columns])
        return torch.where(result, 1.0, 0.0) if getattr(result, "kind", "") == "bool" else result

    aux = flex_attention(q, ONE, ONE, score_mod, return_aux=AuxRequest(max_scores=True))[1]
    return aux.max_scores[0, 0]


def agree(f, *columns, reference=None):
    expected = (reference or f)(*columns).double()
    torch.testing.assert_close(evaluate(f, *columns), expected, rtol=1e-13, atol=1e-14)


def real(low, high):
    return torch.rand(20, dtype=torch.float64) * (high - low) + low


def whole(low, high):
    return torch.randint(low, high + 1, (20,))


def truth():
    return torch.randint(0, 2, (20,)).bool()


def nonzero(x):
    return torch.where(x == 0, 3, x)


anywhere = lambda: [real(-3, 3)]  # noqa: E731
above = lambda: [real(0.1, 5)]  # noqa: E731
inside = lambda: [real(-0.99, 0.99)]  # noqa: E731
two = lambda: [real(-3, 3), nonzero(real(-3, 3))]  # noqa: E731
two_whole = lambda: [whole(-20, 20), nonzero(whole(-7, 7))]  # noqa: E731
shifts = lambda: [whole(-50, 50), whole(0, 6)]  # noqa: E731
powers = lambda: [real(0.1, 3), real(-2, 2)]  # noqa: E731
bits = lambda: [whole(-50, 50), whole(-50, 50)]  # noqa: E731
bools = lambda: [truth(), truth()]  # noqa: E731
halves = lambda: [torch.arange(-10, 10) / 2]  # noqa: E731
special = lambda: [torch.tensor([0.0, 1.5, math.inf, -math.inf, math.nan, -0.0])]  # noqa: E731

# Names of functions: arguments to try them with.
domains = {
    **dict.fromkeys(
        "exp exp2 special_exp2 expm1 special_expm1 sin cos tan atan arctan sinh cosh tanh sigmoid special_expit expit "
        "erf special_erf erfc special_erfc neg negative positive abs absolute fabs sign sgn square relu leaky_relu silu gelu "
        "softplus logsigmoid log_sigmoid elu relu6 hardtanh hardswish hardsigmoid mish selu celu softsign tanhshrink "
        "softshrink hardshrink double detach clone contiguous conj alias real __neg__ __pos__ __abs__".split(),
        [anywhere],
    ),
    **dict.fromkeys("sqrt rsqrt log log2 log10 log1p special_log1p reciprocal".split(), [above]),
    **dict.fromkeys("asin arcsin acos arccos".split(), [inside]),
    **dict.fromkeys("logit special_logit".split(), [lambda: [real(0.05, 0.95)]]),
    **dict.fromkeys("floor ceil trunc fix round".split(), [anywhere, halves, lambda: [whole(-9, 9)]]),
    **dict.fromkeys("isnan isinf isneginf isposinf isfinite".split(), [special]),
    **dict.fromkeys(
        "add sub subtract rsub mul multiply minimum maximum min max fmin fmax eq ne lt le gt ge equal not_equal less "
        "less_equal greater greater_equal __add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __eq__ __ne__ __lt__ __le__ "
        "__gt__ __ge__ clamp_min clamp_max".split(),
        [two, two_whole],
    ),
    **dict.fromkeys("__req__ __rne__ __rlt__ __rle__ __rgt__ __rge__".split(), [two]),
    **dict.fromkeys("div divide true_divide __truediv__ __div__ __rtruediv__ __rdiv__ hypot atan2 arctan2".split(), [two]),
    **dict.fromkeys("remainder floor_divide mod floor_div fmod __mod__ __floordiv__".split(), [two, two_whole]),
    **dict.fromkeys("__rmod__ __rfloordiv__".split(), [lambda: [nonzero(whole(-7, 7)), whole(-20, 20)]]),
    **dict.fromkeys("pow power __pow__".split(), [powers]),
    "__rpow__": [lambda: powers()[::-1]],
    **dict.fromkeys(
        "bit_and bit_or bit_xor bitwise_and bitwise_or bitwise_xor __and__ __rand__ __or__ __ror__ __xor__ __rxor__".split(),
        [bits, bools],
    ),
    **dict.fromkeys("bit_not bitwise_not invert __invert__".split(), [lambda: [whole(-50, 50)], lambda: [truth()]]),
    **dict.fromkeys("shift_left shift_right bitwise_left_shift bitwise_right_shift __lshift__ __rshift__".split(), [shifts]),
    **dict.fromkeys("__rlshift__ __rrshift__".split(), [lambda: shifts()[::-1]]),
    **dict.fromkeys("logical_and logical_or logical_xor".split(), [bools, two, lambda: [whole(-1, 1), whole(0, 1)]]),
    "logical_not": [lambda: [truth()], lambda: [whole(-1, 1)]],
    **dict.fromkeys("int long short".split(), [lambda: [real(-99, 99)], lambda: [truth()]]),
    "char": [lambda: [real(-99, 99)]],
    "byte": [lambda: [real(0, 99)]],
    "bool": [anywhere, lambda: [whole(-1, 1)]],
    **dict.fromkeys("float half bfloat16".split(), [lambda: [whole(-9, 9)]]),  # numbers are not made narrower
    **dict.fromkeys("clamp clip".split(), [lambda: [real(-3, 3), real(-2, 0), real(0, 2)], lambda: [whole(-9, 9), whole(-5, 0), whole(0, 5)]]),
    "where": [lambda: [truth(), real(-3, 3), real(-3, 3)], lambda: [truth(), whole(-3, 3), whole(-3, 3)], lambda: [truth(), truth(), truth()]],
    **dict.fromkeys("threshold _threshold".split(), [lambda: [real(-3, 3), 0.5, -2.0]]),
    "prelu": [lambda: [real(-3, 3), torch.tensor([0.25], dtype=torch.float64)]],
    "masked_fill": [lambda: [real(-3, 3), truth(), torch.tensor(2.0)]],
    **dict.fromkeys("lerp addcmul addcdiv".split(), [lambda: [real(-3, 3), real(-3, 3), real(1, 3)]]),
}  # fmt: skip

others_names = {
    "power": "pow", "invert": "bitwise_not", "fabs": "abs", "equal": "eq", "expit": "sigmoid", "alias": "clone",
    "mod": "remainder", "floor_div": "floor_divide", "bit_and": "bitwise_and", "bit_or": "bitwise_or",
    "log_sigmoid": "logsigmoid", "_threshold": "threshold", "bit_xor": "bitwise_xor", "bit_not": "bitwise_not", "shift_left": "bitwise_left_shift",
    "shift_right": "bitwise_right_shift",
}  # fmt: skip
reflected = {"__req__": operator.eq, "__rne__": operator.ne, "__rlt__": operator.lt, "__rle__": operator.le,
             "__rgt__": operator.gt, "__rge__": operator.ge, "__rmod__": operator.mod, "__rfloordiv__": operator.floordiv}  # fmt: skip


def of_torch(name):
    if name in reflected:
        return lambda a, b: reflected[name](b, a)
    name = others_names.get(name, name)
    if name.startswith("special_"):
        return getattr(torch.special, name.removeprefix("special_"))
    for place in (torch.Tensor,) if name.startswith("__") else (torch, F, torch.Tensor):
        found = getattr(place, name, None)
        if found is not None and not isinstance(found, torch.dtype):
            return found
    raise AssertionError(f"torch has no {name}")


def test_every_function_is_tried():
    assert set(domains) == set(functions)


@pytest.mark.parametrize("name", sorted(domains))
def test_function(name):
    reference = of_torch(name)
    for make in domains[name]:
        columns = make()
        count = {"masked_fill": 2, "prelu": 1, "threshold": 1, "_threshold": 1}.get(name, len(columns))
        columns, same_for_all = columns[:count], columns[count:]

        def with_same(f):
            return lambda *columns: f(*columns, *same_for_all)

        agree(with_same(functions[name]), *columns, reference=with_same(reference))


@pytest.mark.parametrize("name", sorted(n for n in domains if hasattr(torch.Tensor, n) and n not in others_names))
def test_method(name):
    columns = domains[name][0]()
    if name in ("where", "masked_fill", "prelu", "half", "bfloat16", "__div__", "__rdiv__"):
        pytest.skip("its own test")
    agree(lambda x, *rest: getattr(x, name)(*rest), *columns, reference=of_torch(name))


x, y = real(-3, 3), real(0.5, 3)
i, j = whole(-20, 20), whole(1, 7)
m = truth()

spellings = {
    "torch.clamp(x, min)": lambda: agree(lambda x: torch.clamp(x, min=-0.5), x),
    "torch.clamp(x, max=)": lambda: agree(lambda x: torch.clamp(x, max=0.5), x),
    "x.clamp(a, b)": lambda: agree(lambda x: x.clamp(-0.5, 0.5), x),
    "clamp of an integer": lambda: agree(lambda i: torch.clamp(i, -3, 4), i),
    "add alpha": lambda: agree(lambda x, y: torch.add(x, y, alpha=2), x, y),
    "sub alpha": lambda: agree(lambda x, y: torch.sub(x, y, alpha=3), x, y),
    "rsub": lambda: agree(lambda x, y: torch.rsub(x, y), x, y),
    "div trunc": lambda: agree(lambda x, y: torch.div(x, y, rounding_mode="trunc"), x, y),
    "div floor": lambda: agree(lambda x, y: torch.div(x, y, rounding_mode="floor"), x, y),
    "div trunc of integers": lambda: agree(lambda i, j: torch.div(i, j, rounding_mode="trunc"), i, j),
    "div floor of integers": lambda: agree(lambda i, j: torch.div(i, j, rounding_mode="floor"), i, j),
    "where with numbers": lambda: agree(lambda x: torch.where(x > 0, 1.0, 0.0), x),
    "where of mixed kinds": lambda: agree(lambda m, i, x: torch.where(m, i, x), m, i, x),
    "x.where(m, y)": lambda: agree(lambda x, m, y: x.where(m, y), x, m, y),
    "masked_fill": lambda: agree(lambda x, m: x.masked_fill(m, -7.0), x, m),
    "keywords": lambda: agree(lambda x, y: torch.add(input=x, other=y), x, y),
    "keyword other": lambda: agree(lambda x, y: torch.mul(x, other=y), x, y),
    "keyword exponent": lambda: agree(lambda y: torch.pow(y, exponent=1.5), y),
    "where keywords": lambda: agree(lambda m, x, y: torch.where(m, input=x, other=y), m, x, y),
    "lerp": lambda: agree(lambda x, y: torch.lerp(x, y, 0.3), x, y),
    "addcmul": lambda: agree(lambda x, y: torch.addcmul(x, x, y, value=0.5), x, y),
    "softplus beta": lambda: agree(lambda x: F.softplus(x, 2, 3), x),
    "leaky slope": lambda: agree(lambda x: F.leaky_relu(x, 0.2), x),
    "elu alpha": lambda: agree(lambda x: F.elu(x, 0.7), x),
    "gelu tanh": lambda: agree(lambda x: F.gelu(x, approximate="tanh"), x),
    "F.relu": lambda: agree(lambda x: F.relu(x), x),
    "F.sigmoid": lambda: agree(lambda x: torch.special.expit(x), x),
    "logaddexp of where": lambda: agree(lambda x, y: torch.log(torch.exp(x) + torch.exp(y)), x, y),
    "number on the left": lambda: agree(lambda y: 2 / y + 3 - (1 - y) * 2**y, y),
    "integer on the left": lambda: agree(lambda j: (17 // j) * 100 + 17 % j, j),
    "powers": lambda: agree(lambda x: x**2 + x**3 + x**1, x),
    "powers of a positive": lambda: agree(lambda y: y**0.5 + y**-1 + y**2.5 + y**0 + y**4, y),
    "powers of an integer": lambda: agree(lambda i: i**2 - i**3, i),
    "to dtypes": lambda: agree(lambda x: x.to(torch.int32) + x.to(torch.int64).to(torch.float64), x),
    "type_as": lambda: agree(lambda x, i: i.type_as(x) / 2, x, i),
    "zeros_like and friends": lambda: agree(
        lambda x: torch.zeros_like(x) + torch.ones_like(x) * 2 + torch.full_like(x, 3.5), x
    ),
    "bools are numbers": lambda: agree(lambda m, i: m * 3 + (i > 0) - 0.5 * (i < m), m, i),
    "sum of bools": lambda: agree(lambda m, i: (i > 0).int() + m.int(), m, i),
    "and or not": lambda: agree(lambda m, i: (m & (i > 2)) | ~m & (i < -3) ^ (i == 0), m, i),
    "bit tricks": lambda: agree(lambda i: (i & 7) | (i >> 2) ^ (i << 1), i),
    "abs and round": lambda: agree(lambda x: abs(x) + torch.round(x) - torch.trunc(x), x),
    "-0.0": lambda: agree(lambda x: 1 / torch.where(x > 0, x, -5.0), x),
    "deep": lambda: agree(lambda x, y: torch.tanh(x * torch.sigmoid(y) - torch.exp(-x * x)).abs().sqrt(), x, y),
}  # fmt: skip


@pytest.mark.parametrize("name", spellings)
def test_spelling(name):
    spellings[name]()


def test_operators_of_every_pair_of_kinds():
    values = {"real": x, "integer": j, "boolean": m, "number": 3, "half": 0.5, "true": True}
    for operation in (operator.add, operator.sub, operator.lt, operator.eq):
        for a, left in values.items():
            for b, right in values.items():
                if operation is operator.sub and ("boolean" in (a, b) or "true" in (a, b)):
                    continue  # torch has no difference of bools
                tensors = [t for t in (left, right) if isinstance(t, torch.Tensor)]
                if not tensors:
                    continue

                def apply(*given, left=left, right=right, operation=operation):
                    given = list(given)
                    p = given.pop(0) if isinstance(left, torch.Tensor) else left
                    q = given.pop(0) if isinstance(right, torch.Tensor) else right
                    return operation(p, q)

                expected = apply(*tensors)
                if expected.dtype == torch.bool and operation is operator.add:
                    continue  # that of torch's bools is "or"
                agree(apply, *tensors)


def test_attributes_of_values():
    seen = []

    def mod(score, b, h, q, kv):
        seen.append((score.shape, score.ndim, score.dtype, q.dtype, (q > kv).dtype, score.device.type))
        return score

    flex_attention(ONE, ONE, ONE, mod)
    assert seen[0] == ((), 0, torch.float32, torch.int64, torch.bool, "cpu") or seen[0][2].is_floating_point


def test_arguments_that_no_function_takes():
    with pytest.raises(treadle.TraceError, match="round.*test_trace.py, line"):
        evaluate(lambda x: torch.round(x, decimals=2), x)
    with pytest.raises(treadle.TraceError, match="max.*test_trace.py, line"):
        evaluate(lambda x: torch.max(x), x)


def test_what_is_read_and_not_used():
    """Neither a capture nor a number of the program."""
    t, u = real(0, 1), real(0, 1)
    for mod in (
        lambda s, b, h, q, kv: (t[q], s + u[q])[1],
        lambda s, b, h, q, kv: (t[q] * 2.5, s + u[q] * 1.5)[1],
        lambda s, b, h, q, kv: (u[q], t[u[q].int()] * 2.5, s + u[q] * 1.5)[2],
        lambda s, b, h, q, kv: (t[q] * 2, s)[1],
        lambda s, b, h, q, kv: torch.zeros_like(t[q]) + s + u[q],
    ):
        one_key = flex_attention(ONE, ONE, ONE, mod)
        assert one_key.item() == 1
    x = torch.randn(1, 1, 20, 4)
    unused = torch.randn(20, requires_grad=True)
    out = flex_attention(x, x, x, lambda s, b, h, q, kv: (unused[q] * 2.5, s + t[q] * (kv - 1.5))[1])
    out.sum().backward()
    assert unused.grad.abs().max() == 0  # nothing depends on it
    assert torch.equal(out, flex_attention(x, x, x, lambda s, b, h, q, kv: s + t[q] * (kv - 1.5)))


def test_no_in_place_methods():
    with pytest.raises(treadle.TraceError, match="test_trace.py, line"):
        evaluate(lambda x: x.clamp_min_(0.0), x)
    with pytest.raises(treadle.TraceError, match="test_trace.py, line"):
        evaluate(lambda x: x.add_(1), x)


# --- integers as in Python ---------------------------------------------------------------------------------------

names = ("a", "b", "c", "q")
A, B, C = whole(-30, 30), whole(-5, 40), nonzero(whole(-6, 6))
leaves = st.one_of(st.sampled_from(names), st.integers(-9, 50))
divisors = st.one_of(st.just("c"), st.integers(1, 20), st.integers(-8, -1))


def combined(inner):
    arithmetic = st.tuples(st.sampled_from(["+", "-", "*", "min", "max"]), inner, inner)
    division = st.tuples(st.sampled_from(["//", "%"]), inner, divisors)
    other = st.one_of(
        st.tuples(st.sampled_from(["neg", "abs"]), inner),
        st.tuples(st.just("&"), inner, inner), st.tuples(st.just(">>"), inner, st.integers(0, 5)),
        st.tuples(st.just("where"), inner, inner, inner),
    )  # fmt: skip
    return st.one_of(arithmetic, division, other)


expressions = st.recursive(leaves, combined, max_leaves=6)

plain = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod, "neg": operator.neg,
    "abs": abs, "&": operator.and_, ">>": operator.rshift,
}  # fmt: skip
in_python = {**plain, "min": min, "max": max, "where": lambda c, a, b: a if c > 0 else b}
in_torch = {**plain, "min": functions["minimum"], "max": functions["maximum"], "where": lambda c, a, b: functions["where"](c > 0, a, b)}  # fmt: skip


def compute(expression, values, operations):
    if isinstance(expression, int):
        return expression
    if isinstance(expression, str):
        return values[expression]
    operands = [compute(e, values, operations) for e in expression[1:]]
    known = all(isinstance(o, int) for o in operands)
    return (in_python if known else operations)[expression[0]](*operands)


def expected_of(expression):
    rows = [dict(a=A[i].item(), b=B[i].item(), c=C[i].item(), q=i) for i in range(20)]
    return torch.tensor([compute(expression, row, in_python) for row in rows])


def traced(expression, q):
    return compute(expression, dict(a=A[q], b=B[q], c=C[q], q=q), in_torch)


@settings(max_examples=150, deadline=None)
@given(expressions)
def test_integers_interpreted(expression):
    expected = expected_of(expression)
    mask = create_mask(lambda b, h, q, kv: traced(expression, q) == expected[q], 1, 1, 20, 1)
    assert mask.all(), expression


@settings(max_examples=25, deadline=None)
@given(expressions)
def test_integers_compiled(expression):
    expected = expected_of(expression)

    def score_mod(score, b, h, q, kv):
        return traced(expression, q)

    q = torch.zeros(1, 1, 20, 1, dtype=torch.float64)
    most = flex_attention(q, ONE, ONE, score_mod, return_aux=AuxRequest(max_scores=True))[1].max_scores[0, 0]
    torch.testing.assert_close(most, expected.double(), rtol=1e-15, atol=0, msg=str(expression))


@settings(max_examples=60, deadline=None)
@given(st.integers(-20, 19), st.integers(1, 3), st.booleans())
def test_negative_indices_wrap(shift, step, flip):
    """table[i] counts from the end for a negative i, wherever the i comes from."""
    table = torch.arange(20)
    at = [(i * step * (-1 if flip else 1) + shift) for i in range(20)]
    kept = [i for i, a in enumerate(at) if -20 <= a < 20]
    expected = torch.tensor([table[a].item() if -20 <= a < 20 else 0 for a in at])
    valid = torch.tensor([i in kept for i in range(20)])
    sign = -1 if flip else 1

    def mask_mod(b, h, q, kv):
        index = torch.where(valid[q], q * step * sign + shift, 0)
        return torch.where(valid[q], table[index] == expected[q], True)

    assert create_mask(mask_mod, 1, 1, 20, 1).all()


def test_programs_with_negative_indices_are_forgotten():
    """A model that makes new mods all the time is not kept as text."""

    def run(program):
        if program.score_mod.startswith("from end"):
            return program.score_mod
        raise treadle.ModError("outside")

    for i in range(3000):
        program = _program.Program(f"{i}", "", (), (), (f"from end {i}", ""))
        assert _program.with_indices(program, run) == f"from end {i}"
    assert len(_program._negative) <= 1024
