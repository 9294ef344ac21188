"""The examples in the package's docstrings do what they show."""

import ast
import doctest
import importlib
import pathlib
import pkgutil

import pytest
import treadle

ROOT = pathlib.Path(__file__).parent.parent.parent
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


def test_examples_of_the_page():
    page = ROOT / "docs/python.md"
    result = doctest.testfile(str(page), module_relative=False, globs={"treadle": treadle})
    assert result.attempted > 0 and result.failed == 0


@pytest.mark.parametrize("folder", ["python/treadle", "tests/python", "examples/python"])
def test_every_file_says_what_it_does(folder):
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    for file in files:
        assert ast.get_docstring(ast.parse(file.read_text())), file


def test_public_names_are_documented():
    import treadle.sparse_transformer
    import treadle.torch

    for module in (treadle.torch, treadle.sparse_transformer):
        for name in module.__all__:
            assert getattr(module, name).__doc__, name
    for name in ("attention", "Attention", "PackedKeys", "PagedKV", "PagedKeys", "capture", "explain"):
        assert getattr(treadle, name).__doc__, name
