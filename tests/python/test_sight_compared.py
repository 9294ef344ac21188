"""Known mods that compare objects and functions, or read attributes where they may hide, follow what these are."""

import functools
import types

import torch

from treadle.torch import flex_attention

Q, K, V = torch.randn(3, 1, 2, 8, 4, generator=torch.Generator().manual_seed(1))


class Mode:
    def __init__(self, scale=1.0):
        self.scale = scale

    def of(self, score):
        return score * self.scale


MODES = [Mode(), Mode()]
now = MODES[0]
scale = 1.0


def several(make_mod, steps):
    """make_mod() sees the same kinds of things in every step; results follow what they are."""
    for _ in range(2):
        for step in steps:
            step()
            mod = make_mod()
            expected = mod(Q @ K.transpose(-1, -2) / 2, 0, 0, torch.arange(8)[:, None], torch.arange(8)).softmax(-1) @ V
            for _ in range(3):
                torch.testing.assert_close(flex_attention(Q, K, V, mod), expected, rtol=1e-5, atol=1e-5)


def to(i):
    def step():
        global now
        now = MODES[i]

    return step


def both(mod):
    several(lambda: mod, [to(0), to(1)])


def test_objects_compared():
    both(lambda s, b, h, q, kv: s * 5 if now == MODES[0] else s)
    both(lambda s, b, h, q, kv: s * 5 if now in (MODES[0],) else s)
    both(lambda s, b, h, q, kv: s * 5 if MODES.index(now) == 0 else s)
    layers = [torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)]
    for chosen in (0, 1, 0):
        layer = layers[chosen]
        several(lambda: lambda s, b, h, q, kv: s * 5 if layer == layers[0] else s, [lambda: None])  # noqa: B023


def test_functions_compared():
    def factory():
        return lambda x: x * 2

    one, other = factory(), factory()
    for pair in [(one, other), (MODES[0].of, MODES[1].of), (functools.partial(one), functools.partial(one))]:
        for chosen in (*pair, *pair):
            several(lambda: lambda s, b, h, q, kv: s * 5 if chosen == pair[0] else s, [lambda: None])  # noqa: B023


def test_functions_with_names_of_torchs():
    @functools.wraps(torch.tanh)
    def act(x):
        return scale * torch.tanh(x)

    def to_scale(x):
        def step():
            global scale
            scale = x

        return step

    several(lambda: lambda s, b, h, q, kv: act(s), [to_scale(1.0), to_scale(3.0), to_scale(5.0)])


def test_insides_of_objects():
    config = types.ModuleType("config")

    def set_scale(x):
        def step():
            config.__dict__["scale"] = x

        return step

    several(lambda: lambda s, b, h, q, kv: s * config.__dict__["scale"], [set_scale(2.0), set_scale(3.0)])
    part = functools.partial(lambda x: x)

    def set_part(x):
        return lambda: setattr(part, "scale", x)

    several(lambda: lambda s, b, h, q, kv: s * part.scale, [set_part(2.0), set_part(3.0)])


def test_attributes_of_all_tensors(monkeypatch):
    bias = torch.zeros(8)

    def set_all(x):
        return lambda: monkeypatch.setattr(torch.Tensor, "my_scale", x, raising=False)

    several(lambda: lambda s, b, h, q, kv: s * bias.my_scale + bias[q], [set_all(2.0), set_all(3.0)])
