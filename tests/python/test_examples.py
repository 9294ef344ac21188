"""Every example runs; each checks its own result."""

import importlib.util
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


@pytest.fixture(scope="module")
def sparse_transformer():
    """Loaded once: its runs are many, and imports take longer than they do."""
    spec = importlib.util.spec_from_file_location("example_sparse_transformer", folder / "sparse_transformer.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


small = "--context 128 --stride 16 --layers 2 --width 32 --steps 4 --sample 5".split()


@pytest.mark.parametrize("pattern", ["strided", "fixed", "merged", "all"])
def test_a_sparse_transformer_learns(sparse_transformer, capsys, tmp_path, pattern):
    # Not from the project's own text, which changes.
    text = tmp_path / "text"
    text.write_text("A treadle is worked with the foot, and turns a wheel.\n" * 50)
    sparse_transformer.main([*small, "--text", str(text), "--pattern", pattern, "--steps", "24"])
    said = capsys.readouterr().out
    assert "It writes:" in said
    bits = [float(line.split(" bits per byte")[0].split()[-1]) for line in said.splitlines() if "bits per byte" in line]
    assert bits[0] > 7.9 and bits[-1] < 7.5


def test_a_sparse_transformer_beside_dense_ones(sparse_transformer, capsys):
    """It checks itself that the dense ones agree."""
    sparse_transformer.main([*small, "--compare", "--steps", "12"])
    assert "differ by at most" in capsys.readouterr().out


def test_losses_of_a_sparse_transformer_tell_masks_apart(sparse_transformer, capsys):
    """So that to agree means something."""
    options = sparse_transformer.parse([*small, "--steps", "12"])
    text = sparse_transformer.text_of(None)
    dense = sparse_transformer.train(options, "sdpa", text)[1]
    for pattern in ("strided", "fixed", "merged"):
        other = sparse_transformer.train(options, pattern, text)[1]
        assert sparse_transformer.difference(other, dense) > 3 * sparse_transformer.AGREE, pattern


def test_a_sparse_transformer_recomputes_to_the_same_losses(sparse_transformer, capsys):
    for pattern in ("strided", "fixed"):
        curves = []
        for option in ("--recompute", "--no-recompute"):
            options = sparse_transformer.parse([*small, option])
            curves.append(sparse_transformer.train(options, pattern, sparse_transformer.text_of(None))[1])
        assert curves[0] == curves[1]


def test_a_sparse_transformer_says_what_it_cannot_do(sparse_transformer, capsys, tmp_path):
    with pytest.raises(SystemExit):
        sparse_transformer.main(["--context", "100", "--stride", "16"])
    assert "--context 100 must be a multiple of --stride 16" in capsys.readouterr().err
    (tmp_path / "text").write_bytes(b"short")
    with pytest.raises(SystemExit, match="the text has 5 bytes; a context of 4096 needs more"):
        sparse_transformer.main(["--text", str(tmp_path / "text")])


def test_generation_beside_sdpa():
    pytest.importorskip("transformers")
    small = "--prompt 70 --tokens 6 --layers 2 --hidden 64 --heads 4 --dtype float32".split()
    done = subprocess.run([sys.executable, str(folder / "generate.py"), *small], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "6 of 6 tokens are the same" in done.stdout


def test_a_serving_engine(capsys):
    """It compares every row itself. Few pages, so that requests wait for others."""
    spec = importlib.util.spec_from_file_location("example_serve", folder / "serve.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for dtype in ("float32", "bfloat16"):
        module.main(f"--requests 8 --common 70 --longest 100 --pages 60 --dtype {dtype}".split())
        said = capsys.readouterr().out
        assert "of 60 pages in use" in said and "rows have the bits of plain calls" in said
