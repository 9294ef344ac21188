"""Every example runs; each checks its own result."""

import pathlib
import subprocess
import sys

import pytest

folder = pathlib.Path(__file__).resolve().parents[2] / "examples" / "python"


@pytest.mark.parametrize("script", sorted(p.name for p in folder.glob("[0-9]*.py")))
def test_example(script):
    done = subprocess.run([sys.executable, str(folder / script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout
