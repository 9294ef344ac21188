"""A mod that was traced before is not traced again while it sees the same; whatever it sees may change."""

import functools
import importlib
import math
import sys
import textwrap
import types

import numpy as np
import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention as reference

import treadle
from treadle import _program
from treadle.torch import _tracing, and_masks, create_block_mask, flex_attention

SIZES = (1, 2, 8, 8)
Q, K, V = torch.randn(3, 1, 2, 8, 4, generator=torch.Generator().manual_seed(1))


def attend(score_mod, mask_mod=None):
    if mask_mod is None:
        return flex_attention(Q, K, V, score_mod)
    return flex_attention(Q, K, V, score_mod, create_block_mask(mask_mod, None, None, 8, 8))


def check(score_mod, mask_mod=None):
    """Several calls give what torch's plain implementation does."""
    if mask_mod is None:
        expected = reference(Q, K, V, score_mod)
    else:
        b, h, q, kv = torch.zeros(()).long(), torch.arange(2)[:, None, None], torch.arange(8)[:, None], torch.arange(8)
        shown = mask_mod(b, h, q, kv).expand(2, 8, 8)
        expected = torch.nn.functional.scaled_dot_product_attention(Q, K, V, shown[None])
    for _ in range(3):
        torch.testing.assert_close(attend(score_mod, mask_mod), expected, rtol=1e-5, atol=1e-5)
    return expected


def check_change(score_mod, change, mask_mod=None):
    """Results follow a change, and back."""
    mod = score_mod if mask_mod is None else None
    before = check(mod, mask_mod)
    change()
    after = check(mod, mask_mod)
    assert not torch.allclose(before, after), "the change changes nothing"


@pytest.fixture
def traces(monkeypatch):
    """A list that grows by one with every trace. Nothing is known from tests before: code whose programs were not known
    several times in a row is looked at seldom."""
    monkeypatch.setattr(_tracing._known, "_entries", {})
    # A function of the tests would be one that a mod calls without being seen.
    space = {"__name__": "treadle", "seen": [], "trace": _program.trace}
    exec("def counted(*mods):\n    seen.append(mods)\n    return trace(*mods)", space)
    monkeypatch.setattr(_program, "trace", space["counted"])
    return space["seen"]


WINDOW = 3
FACTOR = torch.tensor([1.0, 2.0])


def by_global(score, b, h, q, kv):
    return score * WINDOW + FACTOR[h] * kv


def scaled(number):
    return lambda score, b, h, q, kv: score * number


def read(table):
    return lambda score, b, h, q, kv: score + table[h] * kv


# --- what is not traced again ---------------------------------------------------------------------------------------


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
        self.register_buffer("table", torch.tensor([0.0, 3.0]))
        self.window = 5

    def mod(self, score, b, h, q, kv):
        return score * self.window + self.bias[h] * self.table[h] * kv

    def closure(self):
        return lambda score, b, h, q, kv: score * self.window + self.bias[h] * kv

    def helped(self, score, b, h, q, kv):
        return self.mod(score, b, h, q, kv) * 2


class Config:
    def __init__(self, window):
        self.window = window


class Callable:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, score, b, h, q, kv):
        return score * self.factor


def with_default(score, b, h, q, kv, factor=3.0, *, other=1.5):
    return score * factor + other * kv


MODS = {
    "number": lambda: scaled(2.5),
    "tensor": lambda: read(torch.tensor([1.0, 2.0])),
    "global": lambda: by_global,
    "default": lambda: with_default,
    "partial": lambda: functools.partial(with_default, factor=4.0),
    "method": lambda: Model().mod,
    "closure over a module": lambda: Model().closure(),
    "method that calls another": lambda: Model().helped,
    "object that is called": lambda: Callable(2.0),
    "functions of torch": lambda: lambda s, b, h, q, kv: torch.where(q > kv, torch.tanh(s), torch.nn.functional.relu(s)),
    "types of torch": lambda: lambda s, b, h, q, kv: (s.to(torch.float32) + q.float()).clamp(min=torch.finfo(s.dtype).min),
    "constants of math": lambda: lambda s, b, h, q, kv: s * math.pi + math.log(2.0),
    "function of a closure": lambda: (lambda inner: lambda s, b, h, q, kv: inner(s, b, h, q, kv) + 2)(scaled(3.0)),
    "tuple": lambda: (lambda pair: lambda s, b, h, q, kv: s * pair[0] + pair[1])((2.0, 3.0)),
    "shape": lambda: (lambda t: lambda s, b, h, q, kv: s * t.shape[0] + t[h])(torch.tensor([1.0, 2.0])),
    "other index": lambda: (lambda t: lambda s, b, h, q, kv: s + t[q - kv + 7])(torch.randn(15)),
    "if": lambda: (lambda flag: lambda s, b, h, q, kv: s * 2 if flag else s)(True),
}


@pytest.mark.parametrize("make", MODS.values(), ids=MODS.keys())
def test_what_sees_the_same_is_traced_once(make, traces):
    _, first = attend(make()), len(traces)
    for _ in range(3):  # new closures, tensors and modules, of the same kind
        check(make())
    assert first <= 1 and len(traces) == first


def test_masks_are_traced_once(traces):
    number = torch.arange(8) // 3
    mask = lambda window, number: lambda b, h, q, kv: (q - kv < window) & (number[q] == number[kv])  # noqa: E731
    attend(None, mask(4, number))
    first = len(traces)
    for start in range(3):
        check(None, mask(4, (torch.arange(8) + start) // 3))
    both = and_masks(mask(4, number), lambda b, h, q, kv: q >= kv)
    attend(None, both)
    after = len(traces)
    check(None, both)
    assert first <= 1 and len(traces) == after


# --- what follows ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "before, after",
    [(2, 3), (2.5, 3.5), (2, 2.5), (True, False), (0.0, 3.0), (1, True), (1.0, 2.0), (2, torch.tensor(4.0)), (2.0, math.nan)],
)
def test_closures_numbers(before, after):
    number = before
    mod = lambda score, b, h, q, kv: score * number  # noqa: E731
    check(mod)
    number = after
    if after == after:
        check(mod)
    else:
        assert attend(mod).isnan().all()
    number = before
    check(mod)


def test_a_zeros_sign():
    zero = 0.0
    mod = lambda score, b, h, q, kv: 1 / (zero * (q + 1))  # noqa: E731
    assert attend(mod).isnan().all() and attend(mod).isnan().all()  # inf - inf
    zero = -0.0
    torch.testing.assert_close(attend(mod), reference(Q, K, V, mod), equal_nan=True)


def test_a_flag_that_chooses():
    flag = True
    mod = lambda score, b, h, q, kv: score * 3 if flag else score  # noqa: E731

    def change():
        nonlocal flag
        flag = False

    check_change(mod, change)


def test_tensors_contents_in_place():
    table = torch.tensor([1.0, 2.0])
    mod = lambda score, b, h, q, kv: score * table[h]  # noqa: E731
    check_change(mod, lambda: table.fill_(3.0))
    check_change(mod, lambda: table.data.fill_(5.0))


def test_contents_that_a_mod_looks_at():
    table = torch.tensor([1.0, 2.0])
    mods = [
        lambda score, b, h, q, kv: score * table[1].item(),
        lambda score, b, h, q, kv: score * float(table[1]),
        lambda score, b, h, q, kv: score * table.tolist()[1],
        lambda score, b, h, q, kv: score * (table * 2)[h],
        lambda score, b, h, q, kv: score * torch.exp(table)[h],
        lambda score, b, h, q, kv: score * 2 if table[0] > 2 else score,
        lambda score, b, h, q, kv: score * table[1],
        lambda score, b, h, q, kv: score * table.max(),
        lambda score, b, h, q, kv: score * sum(table),
        lambda score, b, h, q, kv: score * table.numpy()[1],
    ]
    for mod in mods:
        table.copy_(torch.tensor([1.0, 2.0]))
        check_change(mod, lambda: table.mul_(3.0))


def test_arrays():
    array = np.array([1.0, 2.0], np.float32)
    captured = treadle.capture(array)
    mods = [
        lambda score, b, h, q, kv: score * captured[h],
        lambda score, b, h, q, kv: score * captured[1],
        lambda score, b, h, q, kv: score * captured.array[1],
        lambda score, b, h, q, kv: score * float(array[1]),
        lambda score, b, h, q, kv: score * max(captured),
    ]
    for mod in mods:
        array[:] = 1, 2
        for factors in ((1.0, 2.0), (3.0, 3.0), (4.0, 5.0)):
            array[:] = factors
            expected = [scaled(f) for f in (factors if mod is mods[0] else factors[1:] * 2)]
            for _ in range(3):
                result = attend(mod)
                numpy = treadle.attention(*[t.numpy() for t in (Q, K, V)], mod, threads=1)
                torch.testing.assert_close(torch.from_numpy(numpy), result)
                for h in range(2):
                    torch.testing.assert_close(result[:, h], attend(expected[h])[:, h])


def test_tensors_rebound_resized_retyped():
    table = torch.tensor([1.0, 2.0])
    mod = lambda score, b, h, q, kv: score * table[h - 1]  # noqa: E731

    def rebind(new):
        def change():
            nonlocal table
            table = new

        return change

    check_change(mod, rebind(torch.tensor([3.0, 5.0])))
    check_change(mod, rebind(torch.tensor([3.0, 5.0, 9.0])))
    check_change(mod, rebind(torch.tensor([3.0, 7.0], dtype=torch.float64).float().bfloat16()))
    check_change(mod, rebind(torch.tensor([2, 3])))
    check_change(mod, rebind(torch.tensor([9, 2, 4, 3])[::2]))
    check_change(mod, rebind(torch.nn.Parameter(torch.tensor([8.0, 1.0]))))
    check_change(mod, lambda: table.data.resize_(5).copy_(torch.arange(5.0)))
    table = torch.tensor([1.0, 2.0])
    check(mod)
    check_change(mod, lambda: setattr(table, "data", torch.arange(3)))


def test_a_device_that_is_refused():
    table = torch.tensor([1.0, 2.0])
    mod = lambda score, b, h, q, kv: score * table[h]  # noqa: E731
    check(mod)
    table = table.to("meta")
    with pytest.raises(ValueError, match="meta"):
        attend(mod)


def test_tensors_that_become_one():
    first, second = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    mod = lambda score, b, h, q, kv: score * first[h] + second[h] * kv  # noqa: E731
    check(mod)
    second = first
    check(mod)
    second = torch.tensor([5.0, 4.0])
    check(mod)


def test_globals(monkeypatch):
    module = sys.modules[__name__]
    check_change(by_global, lambda: monkeypatch.setattr(module, "WINDOW", 4))
    check_change(by_global, lambda: monkeypatch.setattr(module, "FACTOR", torch.tensor([5.0, 1.0])))


def test_defaults(monkeypatch):
    check_change(with_default, lambda: monkeypatch.setattr(with_default, "__defaults__", (2.0,)))
    check_change(with_default, lambda: monkeypatch.setattr(with_default, "__kwdefaults__", {"other": 9.0}))
    monkeypatch.setattr(with_default, "__code__", by_global.__code__.replace(co_name="other"))
    check(with_default)


def test_partial():
    check(functools.partial(with_default, factor=4.0))
    check(functools.partial(with_default, factor=5.0))
    check(functools.partial(with_default, other=5.0))


def test_attributes_of_objects():
    config, called, model = Config(2.0), Callable(3.0), Model()
    check_change(lambda s, b, h, q, kv: s * config.window, lambda: setattr(config, "window", 3.0))
    check_change(called, lambda: setattr(called, "factor", 7.0))
    for mod in (model.mod, model.closure(), model.helped):
        model.__init__()
        check_change(mod, lambda: setattr(model, "window", 2))
        check_change(mod, lambda: model.bias.data.add_(3.0))
        check_change(mod, lambda: setattr(model, "bias", torch.nn.Parameter(torch.tensor([2.0, 9.0]))))
    check_change(model.mod, lambda: setattr(model, "table", torch.tensor([2.0, 1.0])))


def test_attributes_of_tensors_and_functions():
    table, inner = torch.tensor([1.0, 2.0]), scaled(1.0)
    table.window, inner.window = 2.0, 2.0
    check_change(lambda s, b, h, q, kv: s * table.window + table[h], lambda: setattr(table, "window", 5.0))
    check_change(lambda s, b, h, q, kv: inner(s, b, h, q, kv) * inner.window, lambda: setattr(inner, "window", 5.0))


def test_modules_that_find_attributes(monkeypatch):
    module, value = types.ModuleType("finds"), 2.0
    module.__getattr__ = lambda name: value
    mod = lambda s, b, h, q, kv: s * module.shape + kv * module.window  # noqa: E731

    def change():
        nonlocal value
        value = 3.0

    check_change(mod, change)
    check_change(mod, lambda: setattr(module, "window", 9.0))


def test_modules_that_are_mods():
    class Mod(torch.nn.Module):
        factor = 2.0

        def forward(self, s, b, h, q, kv):
            self.forward
            return s * self.factor

    mod = Mod()
    check_change(mod, lambda: setattr(mod, "factor", 5.0))
    check_change(mod, lambda: mod.register_forward_hook(lambda module, inputs, output: output * 3))


def test_classes(monkeypatch):
    model = Model()
    check_change(model.helped, lambda: monkeypatch.setattr(Model, "mod", lambda self, s, b, h, q, kv: s * 3))
    check_change(model.helped, lambda: setattr(model, "mod", scaled(7.0)))

    class WithConstant:
        window = 2.0

        @property
        def changing(self):
            return self.__dict__.get("x", 2.0)

    thing = WithConstant()
    check_change(lambda s, b, h, q, kv: s * thing.window, lambda: setattr(WithConstant, "window", 5.0))
    check_change(lambda s, b, h, q, kv: s * thing.window, lambda: setattr(thing, "window", 7.0))
    check_change(lambda s, b, h, q, kv: s * thing.changing, lambda: setattr(thing, "x", 7.0))
    check_change(lambda s, b, h, q, kv: s * WithConstant.window, lambda: setattr(WithConstant, "window", 9.0))


def test_modules_that_are_called():
    class Mod(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.act = torch.nn.LeakyReLU(0.5)

        def forward(self, s, b, h, q, kv):
            return self.act(s) * 2

    mod = Mod()
    check_change(mod, lambda: setattr(mod.act, "negative_slope", -3.0))
    check_change(mod, lambda: setattr(mod, "act", torch.nn.Softplus()))
    check_change(mod, lambda: mod.register_forward_hook(lambda module, inputs, output: output * 3))


def test_functions_that_are_called():
    inner = scaled(2.0)
    mod = lambda s, b, h, q, kv: inner(s, b, h, q, kv) + 1  # noqa: E731

    def change(new):
        nonlocal inner
        inner = new

    check_change(mod, lambda: change(scaled(3.0)))
    check_change(mod, lambda: change(lambda s, b, h, q, kv: s * q))
    check_change(mod, lambda: change(Callable(0.5)))
    check_change(mod, lambda: change(torch.compiler.disable(lambda s, b, h, q, kv: s * 7.0)))


def test_functions_of_torch_that_are_replaced(monkeypatch):
    mod = lambda s, b, h, q, kv: torch.tanh(s) + torch.nn.functional.softplus(s)  # noqa: E731
    sine = torch.sin
    check_change(mod, lambda: monkeypatch.setattr(torch, "tanh", sine))
    check_change(mod, lambda: monkeypatch.setattr(torch, "tanh", lambda x: x * 4))
    check_change(mod, lambda: monkeypatch.setattr(torch.nn.functional, "softplus", sine))


def test_builtins_that_are_replaced(monkeypatch):
    number = -2.0
    mod = lambda s, b, h, q, kv: s * abs(number)  # noqa: E731
    check_change(mod, lambda: monkeypatch.setitem(globals(), "abs", lambda x: x * 3))


def test_containers():
    numbers, table, pair = [2.0, 3.0], {"window": 2.0, "more": {"x": 1.5}}, ([4.0],)
    mod = lambda s, b, h, q, kv: s * numbers[1] + table["window"] * kv * 0.1 * table["more"]["x"] + pair[0][0] * kv  # noqa: E731
    check_change(mod, lambda: numbers.__setitem__(1, 5.0))
    check_change(mod, lambda: numbers.insert(0, 7.0))
    check_change(mod, lambda: table.update(window=3.0))
    check_change(mod, lambda: table["more"].update(x=4.0))
    check_change(mod, lambda: pair[0].__setitem__(0, 1.0))


def test_a_nested_functions_closure():
    factor = 2.0

    def outer(s, b, h, q, kv):
        return inner(s) + 1

    def inner(s):
        return s * factor

    def change():
        nonlocal factor
        factor = 5.0

    check_change(outer, change)


def test_state_that_nobody_sees():
    calls = iter(range(1, 1000))
    mod = lambda s, b, h, q, kv: s * 0 + next(calls) * kv  # noqa: E731
    results = [attend(mod) for _ in range(6)]
    assert all(not torch.equal(a, b) for a, b in zip(results, results[1:]))
    state = []

    def appending(s, b, h, q, kv):
        state.append(1)
        return s * len(state)

    for count in range(1, 7):
        torch.testing.assert_close(attend(appending), attend(scaled(float(count))))


def test_the_default_type():
    mod = lambda s, b, h, q, kv: s * torch.finfo().bits  # noqa: E731
    check(mod)
    torch.set_default_dtype(torch.float64)
    try:
        torch.testing.assert_close(attend(mod), attend(scaled(64.0)))
    finally:
        torch.set_default_dtype(torch.float32)


def test_state_of_torch():
    mod = lambda s, b, h, q, kv: s * (3.0 if torch.is_grad_enabled() else 1.5)  # noqa: E731
    torch.testing.assert_close(attend(mod), attend(scaled(3.0)))
    with torch.no_grad():
        torch.testing.assert_close(attend(mod), attend(scaled(1.5)))


def test_a_module_that_is_loaded_again(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    text = "FACTOR = {}\ndef mod(s, b, h, q, kv):\n    return s * FACTOR + {} * kv\n"
    (tmp_path / "reloaded_mod.py").write_text(text.format(2.0, 1.5))
    module = importlib.import_module("reloaded_mod")
    through = lambda s, b, h, q, kv: module.mod(s, b, h, q, kv)  # noqa: E731
    for factor, step in ((2.0, 1.5), (7.0, 1.5), (7.0, 4.0)):
        (tmp_path / "reloaded_mod.py").write_text(text.format(factor, step))
        module = importlib.reload(module)
        check(module.mod)
        check(through)
    module.FACTOR = 11.0
    check(module.mod)
    check(through)


def test_code_that_is_equal_but_elsewhere():
    text = textwrap.dedent("""
        def mod(s, b, h, q, kv):
            return s * factor
    """)
    first, second = {"factor": 2.0}, {"factor": 3.0}
    exec(text, first)
    exec(text, second)
    check(first["mod"])
    check(second["mod"])
    check(types.FunctionType(first["mod"].__code__, {"factor": 5.0}))


def test_sizes():
    table = torch.arange(32.0)
    mod = lambda s, b, h, q, kv: s + table[q - kv]  # noqa: E731
    for length in (8, 4, 8, 16):
        q, k, v = torch.randn(3, 1, 1, length, 4)
        for _ in range(2):
            torch.testing.assert_close(flex_attention(q, k, v, mod), reference(q, k, v, mod), rtol=1e-5, atol=1e-5)


def test_a_profiler_that_looks_itself(traces):
    seen = []
    sys.setprofile(lambda frame, event, argument: seen.append(event))
    try:
        check(scaled(31.0))
        looking = sys.getprofile()
    finally:
        sys.setprofile(None)
    assert seen and looking is not None


def test_errors_leave_no_profiler():
    def wrong(s, b, h, q, kv):
        return s if q > kv else -s

    for _ in range(3):
        with pytest.raises(treadle.TraceError, match="Boolean"):
            attend(wrong)
        assert sys.getprofile() is None


def test_captured_tensors_are_not_kept():
    import gc
    import weakref

    table = torch.tensor([1.0, 2.0])
    gone = weakref.ref(table)
    attend(read(table))
    attend(read(table))
    del table
    gc.collect()
    assert gone() is None


def test_graphs_have_what_a_mod_reads():
    model = Model()
    mod = model.mod
    attend(mod)
    attend(mod)

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, x):
            return flex_attention(x, x, x, self.model.mod)

    traced, x = torch.jit.trace(Layer(), Q), torch.randn_like(Q)
    with torch.no_grad():
        model.bias.mul_(3.0)
    torch.testing.assert_close(traced(x), reference(x, x, x, mod), rtol=1e-5, atol=1e-5)
