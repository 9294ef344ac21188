"""bench/report.py: what it does when the machine is busy, what it writes, and that all of it runs."""

import json
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

import report  # noqa: E402
import report_page  # noqa: E402


def machine(loops, tries=3):
    said = []
    return report.Machine(iter(loops).__next__, tries, said.append), said


def test_a_quiet_figure_is_taken_once():
    quiet, said = machine([100, 99, 98, 97])
    assert quiet.figure(lambda: {"ms": 1.0}) == {"ms": 1.0, "loop": 0.97, "busy": False}
    assert not said


def test_a_figure_is_taken_again_when_the_loop_dropped():
    machine_, said = machine([100, 100, 99, 50, 98, 99])
    times = iter([9.0, 1.0])
    assert machine_.figure(lambda: {"ms": next(times)}) == {"ms": 1.0, "loop": 0.98, "busy": False}
    assert said == ["  the loop is at 50 %, others use 0 %; again"]


def test_a_figure_of_a_machine_that_stays_busy_is_marked():
    machine_, said = machine([100, 100, 60, 50, 80, 70, 65, 55])
    times = iter([9.0, 7.0, 8.0])
    # The one beside the fastest loop.
    assert machine_.figure(lambda: {"ms": next(times)}) == {"ms": 7.0, "loop": 0.7, "busy": True}
    assert said[-1] == "  the loop is at 55 %, others use 0 %; marked"


def test_a_loop_that_gets_faster_makes_what_came_before_slow():
    machine_, _ = machine([50, 50, 100, 60, 100, 100])
    assert machine_.figure(lambda: {"ms": 1.0}) == {"ms": 1.0, "loop": 1.0, "busy": False}


def test_a_machine_that_was_busy_from_the_beginning_is_seen():
    foreign = iter([0.5, 0.4, 0.45])
    machine_ = report.Machine(lambda: 100, 3, others=foreign.__next__)
    times = iter([9.0, 7.0, 8.0])
    assert machine_.figure(lambda: {"ms": next(times)}) == {"ms": 7.0, "loop": 1.0, "busy": True}


def test_an_earlier_run_may_know_a_faster_loop():
    machine_ = report.Machine(lambda: 50, 2, best=100)
    assert machine_.figure(lambda: {"ms": 1.0}) == {"ms": 1.0, "loop": 0.5, "busy": True}


def test_others_are_a_share():
    assert 0 <= report.others(0.05) <= 1


@pytest.mark.parametrize("power", [1, 2])
def test_slopes(power):
    rows = [{"length": n, "ms": 5.0 + n**power} for n in (2**10, 2**12, 2**14, 2**16, 2**18)]
    assert report_page.slope(rows) == pytest.approx(power, abs=0.01)


@pytest.mark.parametrize("value, text", [(0.01234, "0.0123"), (1.234, "1.23"), (123.4, "123"), (12345.6, "12346"), (0, "0"), (None, "")])
def test_numbers_have_three_digits(value, text):
    assert report_page.number(value) == text


@pytest.mark.parametrize("cpu, name", [("AMD EPYC 9R14", "amd-epyc-9r14"), ("Intel(R) Xeon(R) @ 2.10GHz", "intel-xeon-2-10ghz"), ("", "cpu")])
def test_files_are_called_by_the_processor(cpu, name):
    assert report.file_name(cpu) == name


@pytest.mark.skipif(not (ROOT / "build/release/treadle").exists(), reason="needs the program")
def test_a_small_report(tmp_path):
    pytest.importorskip("matplotlib")
    parts = ["throughput", "lengths", "sparse", "decode", "masks", "compile", "cookbook", "kernels"]
    arguments = ["--small", "--results", str(tmp_path), "--page", str(tmp_path / "benchmarks.md")]
    report.main([*arguments, *(word for part in parts for word in ("--part", part))])

    (file,) = tmp_path.glob("*.json")
    found = json.loads(file.read_text())
    assert list(found["parts"]) == parts
    for part in found["parts"].values():
        assert part["rows"] and all(row["ms"] > 0 and "busy" in row for row in part["rows"])
        assert part["about"]["commit"] and part["about"]["threads"] and part["about"]["cpu"]
    assert len(found["parts"]["cookbook"]["rows"]) == 24

    page = (tmp_path / "benchmarks.md").read_text()
    for name in parts:
        assert f"## {report_page.SECTIONS[name][0]}\n" in page
    assert found["about"]["commit"] in page and "these numbers mean nothing" in page
    plots = {p.name for p in (tmp_path / "plots").iterdir()}
    assert {"throughput.svg", "lengths-forward.svg", "sparse.svg", "decode.svg", "masks.svg"} <= plots

    assert all(len(line) < 120 for line in page.splitlines() if not line.startswith("|"))

    # The same numbers make the same page and the same pictures; what is busy is marked.
    before = {p: p.read_bytes() for p in [tmp_path / "benchmarks.md", *(tmp_path / "plots").iterdir()]}
    report.main([*arguments, "--page-only"])
    assert before == {p: p.read_bytes() for p in before}
    assert report_page.MARK not in page
    found["parts"]["sparse"]["rows"][0]["busy"] = True
    file.write_text(json.dumps(found))
    report.main([*arguments, "--page-only"])
    page = (tmp_path / "benchmarks.md").read_text()
    assert page.count(report_page.MARK) == 2 and "1 of " in page  # in the row, and where it is explained
