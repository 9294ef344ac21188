"""treadle.torch.distributed: 3 processes, 4 where TREADLE_TEST_FUZZ is full. What they do is in rank_checks.py."""

import os
import re
import signal
import time

import pytest
import rank_checks as checks
import torch
import torch.distributed
from ranks import Ranks

if not torch.distributed.is_gloo_available():
    pytest.skip("torch has no gloo here", allow_module_level=True)

_full = os.environ.get("TREADLE_TEST_FUZZ") == "full"
RANKS = 4 if _full else 3


@pytest.fixture(scope="module")
def ranks():
    with Ranks(RANKS) as ranks:
        yield ranks


CALLS = [
    ("causal", torch.bfloat16, "plain"), ("causal", torch.float32, "learned"), ("window", torch.float32, "uneven"),
    ("by_head", torch.float32, "sinks"), ("every", torch.float16, "lengths"), ("causal", torch.float32, "dropout"),
]  # fmt: skip
if _full:
    CALLS += [(mask, dtype, kind) for mask in checks.MASKS for dtype in (torch.float64, torch.bfloat16)
              for kind in ("plain", "learned", "uneven", "sinks", "lengths", "dropout")]  # fmt: skip


@pytest.mark.parametrize("mask, dtype, kind", CALLS)
def test_calls_have_the_bits_of_one_process(ranks, mask, dtype, kind):
    print(ranks.run(checks.same_bits, mask, dtype, kind)[0])


def test_bytes_are_those_of_the_plan(ranks):
    plans = ranks.run(checks.rows_travel)
    for text in plans:
        assert re.fullmatch(r"balance \d+\.\d\d, \d+\.\d\d of an all-gather, \d+ messages", text), text


def test_plans_follow_what_a_mask_reads(ranks):
    ranks.run(checks.documents_change)


def test_sharded_captures(ranks):
    ranks.run(checks.sharded_captures)


def test_unshard(ranks):
    ranks.run(checks.unshard_rows)


@pytest.mark.parametrize("kind", ["eager", "checkpoint"] + ["compile"] * _full)
def test_training_has_the_bits_of_one_process(ranks, kind):
    ranks.run(checks.training, kind)


def test_beside_ddp(ranks):
    ranks.run(checks.beside_ddp)


@pytest.mark.parametrize("backend", ["aot_eager"] + ["inductor"] * _full)
def test_compiled_calls_are_one_operation(ranks, backend):
    ranks.run(checks.compiled, backend, timeout=200)


def test_mistakes_are_errors_of_all_ranks(ranks):
    said = ranks.run(checks.mistakes)
    for name, text in said[0].items():
        print(f"{name}: {text}")
        assert all(one[name] == text for one in said), [one[name] for one in said]
    texts = said[0]
    whole = "which is the whole sequence; rank {} of the block_mask's %d has 30 of 90: give its own rows" % RANKS
    if RANKS == 4:
        whole = whole.replace("30", "23")
    assert "rank 0: query has 90 rows, " + whole.format(0) in texts["whole"]
    assert "rank 1: query has 90 rows, " + whole.format(1) in texts["whole on one"]
    assert "rank 1" in texts["dims"] and "a plan" in texts["dims"]
    assert "rank 1 has another score mod" in texts["mod"]
    assert "ModError" in texts["out of range"] or "rank 0" in texts["out of range"]
    assert "shards" in texts["offset"]
    assert "rank 1: " in texts["one raises"] and "this mod does not like it here" in texts["one raises"]
    assert "rank 1 makes" in texts["order"] and "of another plan" in texts["order"]
    assert "rank 1 has q float32" in texts["lengths"] or "rank 1 has q f32 [1, 2, 90, 16]" in texts["lengths"]
    assert "rank 1 has shards of queries that start at 0, 90" in texts["shards"]
    assert "it must be the same on all ranks" in texts["options"]
    assert "rank 0 of the block_mask's 1 has 90 of 90" in texts["group of one"]


def test_local_mistakes(ranks):
    said = ranks.run(checks.local_mistakes)
    assert all(one == said[0] for one in said[1:]) or RANKS
    shard, unshard, shards, sums, group, patience = said[0]
    assert "has 2 rows in dimension 1; it must have all 90 of the sequence" in shard
    assert "has 90 rows in dimension 2; rank 0 has" in unshard
    assert f"there must be one length, 0 or more, for each of {RANKS} ranks" in shards
    assert "sums is 'all'; it must be one of" in sums
    assert "group must be a torch.distributed.ProcessGroup, got str" in group
    assert "patience is 0 s; it must be more than 0" in patience


def test_a_skipped_call(ranks):
    said = ranks.run(checks.skipped, 20)
    assert all(text == said[0] for text in said)
    assert "rank 1 makes forward as call 2 of its plan, of another plan, while rank 0 makes forward as call 2" in said[0]


@pytest.mark.parametrize("how", ["killed", "killed in a call", "stopped"])
def test_a_rank_that_goes_is_named(how):
    others = [r for r in range(RANKS) if r != 1]
    with Ranks(RANKS) as ranks:
        ranks.begin(checks.lost, how, 2 if how == "stopped" else 60)
        said = ranks.results(30, of=others)
        for first, took, second, third in [said[r] for r in others]:
            print(f"after {took:.1f} s: {first}; then {second}; then {third}")
            if how == "stopped":
                assert "waited 2 s for rank 1, which did not take part" in first
            else:
                assert "rank 1 is gone" in first
            assert "rank 1" in second and "rank 1" in third
        if how == "stopped":
            os.kill(ranks.processes[1].pid, signal.SIGKILL)


@pytest.mark.parametrize("calls", [1, 5])
def test_an_interrupt_ends_a_wait(calls):
    with Ranks(RANKS) as ranks:
        said = ranks.run(checks.interrupted, calls)
        print(said)
        assert said[0] == "KeyboardInterrupt"
        assert all("rank 0 was stopped while it waited for others" in text for text in said[1:])


def test_ranks_end_at_different_times():
    with Ranks(RANKS) as ranks:
        ranks.run(checks.ends)
        for pipe in ranks._pipes:
            pipe.send(None)
            time.sleep(0.05)
        for process in ranks.processes:
            process.join(20)
        assert [p.exitcode for p in ranks.processes] == [0] * RANKS
