"""The Python program of README.md prints what README.md says, and README.md stays short."""

import contextlib
import importlib.util
import io
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXT = (ROOT / "README.md").read_text()
MOST_LINES = 150


def reader():
    spec = importlib.util.spec_from_file_location("readme_run", ROOT / "tests/readme/run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_program():
    program, expected = reader().example(TEXT, "python")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(program, "README.md", "exec"), {"__name__": "readme"})
    assert reader().difference(expected, printed.getvalue()) == ""


def test_length():
    assert len(TEXT.splitlines()) <= MOST_LINES
