"""The examples in the package's docstrings do what they show."""

import doctest
import importlib
import pkgutil

import pytest
import treadle

names = [m.name for m in pkgutil.walk_packages(treadle.__path__, "treadle.") if not m.name.endswith("._core")]


@pytest.mark.parametrize("name", ["treadle", *names])
def test_examples(name):
    try:
        module = importlib.import_module(name)
    except ImportError as missing:
        if (missing.name or "").startswith("treadle"):
            raise
        pytest.skip(f"{name} needs {missing.name}")
    assert doctest.testmod(module).failed == 0


def test_public_names_are_documented():
    import treadle.torch

    for name in treadle.torch.__all__:
        assert getattr(treadle.torch, name).__doc__, name
    for name in ("attention", "Attention", "capture", "explain"):
        assert getattr(treadle, name).__doc__, name
