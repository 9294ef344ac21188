"""NumPy and torch have front ends of their own: importing one changes nothing of the other, in either order."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
import treadle
import treadle.torch
from treadle._numpy import NumpyTrace, NumpyValue
from treadle.torch._values import TorchTrace, TorchValue

# Imports what it is told, in that order, then traces, runs and misuses mods of the NumPy front end, and prints all of it.
SCRIPT = """
import importlib, json, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
import numpy as np, torch, treadle
from treadle import _numpy, _program

slopes = treadle.capture(np.array([0.5, 0.25], np.float32))
table = treadle.capture(np.arange(12.0).reshape(3, 4))
tensor = torch.arange(16.0)
gain = torch.tensor(2.0)
plain = np.arange(16.0)

score_mods = {
    "identity": lambda s, b, h, q, kv: s,
    "operators": lambda s, b, h, q, kv: -s * 2 + slopes[h] * (kv - q) / 3 + (q % 5 // 2) ** 2,
    "functions of the package": lambda s, b, h, q, kv: treadle.where(q > kv, treadle.tanh(s), treadle.minimum(s, 1.5)),
    "functions of NumPy": lambda s, b, h, q, kv: np.where(np.abs(q - kv) < 9, np.tanh(s), np.maximum(s, -1.0)),
    "NumPy numbers": lambda s, b, h, q, kv: np.float32(0.5) * s + np.int64(3),
    "negative index": lambda s, b, h, q, kv: s + table[(q - kv) % 3, (kv - q) // 4],
    "part": lambda s, b, h, q, kv: s + table[h][kv % 4],
    "a number of torch's": lambda s, b, h, q, kv: s * gain,
    "a number of torch's on the left": lambda s, b, h, q, kv: gain * s,
    "method": lambda s, b, h, q, kv: s.tanh(),
    "method of an index": lambda s, b, h, q, kv: s + q.float(),
    "method of a part": lambda s, b, h, q, kv: s + table[h].sum(),
    "method of an element": lambda s, b, h, q, kv: s + table[h, kv % 4].exp(),
    "clamp of a part": lambda s, b, h, q, kv: s + table[h].clamp(0, 1),
    "attributes": lambda s, b, h, q, kv: s.dtype,
    "shape": lambda s, b, h, q, kv: s.shape,
    "has methods": lambda s, b, h, q, kv: s * hasattr(type(s), "masked_fill") + hasattr(type(table[h]), "masked_fill"),
    "function of torch": lambda s, b, h, q, kv: torch.tanh(s),
    "function of torch and a capture": lambda s, b, h, q, kv: torch.add(s, slopes),
    "function of torch on a part": lambda s, b, h, q, kv: torch.exp(table[h]),
    "where of torch": lambda s, b, h, q, kv: torch.where(q > kv, s, 0.0),
    "tensor read": lambda s, b, h, q, kv: s + tensor[q],
    "array read": lambda s, b, h, q, kv: s + plain[q],
    "tensor used whole": lambda s, b, h, q, kv: s + tensor,
    "if": lambda s, b, h, q, kv: s if q > kv else -s,
    "nothing": lambda s, b, h, q, kv: None,
    "text": lambda s, b, h, q, kv: "text",
    "unknown function": lambda s, b, h, q, kv: np.frexp(s),
}
said = {}
x = np.linspace(-1, 1, 2 * 16 * 8, dtype=np.float32).reshape(1, 2, 16, 8)
for name, mod in score_mods.items():
    try:
        program = _program.trace(_numpy.NumpyTrace((1, 2, 16, 16)), mod, lambda b, h, q, kv: q + 3 >= kv)
        said[name] = [program.score_mod, program.mask, *program.from_end, [str(s) for s in program.scalars]]
        said[name] += [treadle.explain(mod), treadle.attention(x, x, x, mod).tobytes().hex()]
    except Exception as error:
        said[name] = [type(error).__name__, str(error)]
said["names"] = sorted(name for name in vars(treadle) if not name.startswith("_") and name not in ("torch", "integrations"))

if "treadle.torch" in sys.modules:
    from treadle.torch import explain

    number = treadle.capture(np.array(2.0, np.float32))

    def mod(s, b, h, q, kv):
        return torch.where(q > kv, s.tanh(), torch.add(s, number)) + tensor[q - kv] + np.exp(s)

    said["torch"] = explain(mod)
print(json.dumps(said))
"""


def run(*imports):
    result = subprocess.run([sys.executable, "-c", SCRIPT, *imports], check=True, capture_output=True, text=True)
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def alone():
    return run("treadle")


@pytest.mark.parametrize("imports", [("treadle", "treadle.torch"), ("treadle.torch", "treadle")])
def test_importing_torchs_front_end_changes_nothing(imports, alone):
    said = run(*imports)
    assert said.pop("torch").splitlines() == [
        "score mod:", "  where(q > kv, tanh(score), score + c0) + c1[q - kv] + exp(score)",
        "captures:", "  c0: f32 []", "  c1: f32 [16]",
    ]  # fmt: skip
    assert said == alone


def test_what_mods_of_numpy_may_do(alone):
    """The cases above are of all kinds: most of them work, the others fail as they say."""
    failed = {name: said for name, said in alone.items() if len(said) == 2 and said[0].endswith("Error")}
    assert all(said[0] == "TraceError" for said in failed.values()), failed
    assert len(alone) - len(failed) >= 11 and "negative index" not in failed and "a number of torch's" not in failed
    for name, says in {
        "method": "uses .tanh of a traced value", "shape": "uses .shape of a traced value", "if": "as a Boolean",
        "function of torch": "calls torch's tanh", "function of torch and a capture": "calls torch's add",
        "function of torch on a part": "calls torch's exp", "tensor read": "treadle.capture(tensor)",
        "array read": "treadle.capture(array)", "tensor used whole": "is used whole", "unknown function": "numpy.frexp",
        "nothing": "score_mod returned nothing; it must return a number", "method of a part": "uses .sum",
        "clamp of a part": "uses .clamp", "text": "score_mod returned an object of type str",
    }.items():  # fmt: skip
        assert says in failed[name][1], failed[name]


def test_each_front_end_traces_with_its_own_classes():
    seen = []

    def mod(score, b, h, q, kv):
        seen.extend([type(score), type(q), type(score + q), type(q >= kv)])
        return score

    x = np.ones((1, 1, 4, 8), np.float32)
    treadle.attention(x, x, x, mod)
    assert set(seen) == {NumpyValue}
    seen.clear()
    t = torch.ones(1, 1, 4, 8)
    treadle.torch.flex_attention(t, t, t, mod)
    assert set(seen) == {TorchValue}
    assert NumpyTrace.value is NumpyValue and TorchTrace.value is TorchValue
