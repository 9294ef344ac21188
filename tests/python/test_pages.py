"""The Python of the pages under docs/ does what they say."""

import contextlib
import io
import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from cookbook import drawn, variants, weights_of  # noqa: E402


@pytest.mark.parametrize("variant", variants(), ids=lambda variant: variant.name)
def test_the_cookbook_draws_what_it_shows(variant):
    assert drawn(weights_of(variant)) == variant.picture


def test_the_cookbook_has_24_variants():
    assert len(variants()) == 24
    assert len({variant.picture for variant in variants()}) == 24


def test_a_cookbook_that_lacks_a_part_is_refused():
    text = (ROOT / "docs/cookbook.md").read_text().replace("```cpp\noptions.mask = mods::causal();\n```\n", "")
    with pytest.raises(SystemExit, match="'Causal'"):
        variants(text)


STEPS = re.compile(r"^```python\n(.*?)^```$(?:\n\n^```text\n(.*?)^```$)?", re.M | re.S)


def test_the_tutorial_prints_what_it_shows():
    """Its blocks follow one another, as when they are typed in; ... stands for what differs."""
    names, printed = {"__name__": "tutorial"}, 0
    for code, expected in STEPS.findall((ROOT / "docs/tutorial.md").read_text()):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(code, "docs/tutorial.md", "exec"), names)
        pattern = re.escape(expected.strip()).replace(re.escape("..."), ".*")
        assert re.fullmatch(pattern, said.getvalue().strip()), f"{code}\nprints\n{said.getvalue()}"
        printed += bool(expected)
    assert printed >= 6
