"""Threads: torch's number of them is followed, Python's may call at once, and forked children go on alone."""

import concurrent.futures
import multiprocessing
import os
import sys
import threading
import time

import mods
import numpy as np
import pytest
import torch
import treadle
from policy import inputs
from treadle.torch import create_block_mask, flex_attention


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def step(q, k, v, table, mask):
    """out and all gradients, as one list."""
    leaves = [t.detach().clone().requires_grad_() for t in (q, k, v, table)]
    out = flex_attention(*leaves[:3], lambda s, b, h, q, kv: s + leaves[3][h] * (kv - q), mask)
    return [out.detach(), *torch.autograd.grad(out.square().sum(), leaves)]


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b))


def problem(length=150):
    return *inputs(Q=length, D=32), torch.rand(4), create_block_mask(mods.causal_mask, None, None, length, length)


def test_several_python_threads():
    """One mask and one program for all, others for each."""
    shared, own = problem(), [problem(40 + 10 * i) for i in range(4)]
    expected, expected_own = step(*shared), [step(*p) for p in own]
    start = threading.Barrier(4)

    def work(i):
        start.wait()
        return all(same(step(*shared), expected) and same(step(*own[i]), expected_own[i]) for _ in range(8))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


def test_first_call_of_several_threads():
    """Nothing is compiled yet: all ask for the same at once."""
    q, k, v, table, _ = problem()
    start = threading.Barrier(4)

    def work(i):
        start.wait()
        mask = create_block_mask(lambda b, h, q, kv: (q >= kv) & (q * 3 + kv != 77), None, None, 150, 150)
        return step(q, k, v, table, mask)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        results = list(pool.map(work, range(4)))
    assert all(same(r, results[0]) for r in results)


def test_number_of_threads_changes_no_bit():
    p = problem(200)
    torch.set_num_threads(1)
    expected = step(*p)
    for count in (2, 3, 4):
        torch.set_num_threads(count)
        assert same(step(*p), expected)


def test_more_threads_than_there_are_cost_nothing():
    """So many of their own would not be done for minutes."""
    x = np.random.default_rng(0).standard_normal((1, 2, 300, 8)).astype(np.float32)
    expected = treadle.attention(x, x, x, threads=1)
    start = time.monotonic()
    for threads in (1_000, 20_000, 2**31 - 1):
        np.testing.assert_array_equal(treadle.attention(x, x, x, threads=threads), expected)
    assert time.monotonic() - start < 10
    with pytest.raises(ValueError, match="-1 threads"):
        treadle.attention(x, x, x, threads=-1)


def test_torch_number_of_threads_is_followed(monkeypatch):
    import treadle.torch._attend as attention

    seen = []
    original = attention.run_forward

    def spy(call, *args, **kwargs):
        seen.append(call.threads)
        return original(call, *args, **kwargs)

    monkeypatch.setattr(attention, "run_forward", spy)
    q, k, v = inputs()
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        flex_attention(q, k, v)
    assert seen == [1, 2, 3]


def test_others_run_meanwhile():
    """The GIL is free while kernels run."""
    q, k, v = inputs(B=4, Q=1000, D=64)
    flex_attention(q, k, v)
    ticks, done = [0], threading.Event()
    started = threading.Event()

    def tick():
        started.set()
        while not done.is_set():
            ticks[0] += 1
            time.sleep(0)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(10)  # nobody is interrupted: others run only if the GIL is given away
    try:
        thread = threading.Thread(target=tick)
        thread.start()
        started.wait()
        before = ticks[0]
        flex_attention(q, k, v)
        during = ticks[0] - before
    finally:
        done.set()
        sys.setswitchinterval(interval)
        thread.join()
    assert during > 0


def in_child(work):
    """Whether `work()` is true in a forked child, which must end within 30 s."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if work() else 2
        finally:
            os._exit(code)
    for _ in range(3000):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.01)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return False


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_forked_child():
    """Forward and backward, of a program that the parent has compiled and of a new one."""
    p = problem()
    expected = step(*p)
    new_table = torch.rand(4)

    def work():
        torch.set_num_threads(1)  # torch's own threads are gone, too
        out = flex_attention(*p[:3], lambda s, b, h, q, kv: s * new_table[h] - (q - kv).abs() * 0.125)
        return same(step(*p), expected) and bool(out.isfinite().all())

    assert in_child(work)
    assert same(step(*p), expected)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_forked_child_keeps_its_number_of_threads():
    """A child that sets nothing gets through, serially. (Large operations of torch's own would wait for its threads.)"""
    p = problem()
    expected = flex_attention(*p[:3], mods.alibi, p[4]).numpy()
    assert in_child(lambda: np.array_equal(flex_attention(*p[:3], mods.alibi, p[4]).numpy(), expected))


def _forward(length):
    torch.set_num_threads(1)
    torch.manual_seed(length)
    q, k, v = inputs(Q=length)
    return flex_attention(q, k, v, mods.alibi).double().sum().item()


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork on this system")
def test_pool_of_forked_workers():
    expected = [_forward(n) for n in (20, 30, 40)]
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map_async(_forward, (20, 30, 40)).get(timeout=60) == expected


class Masked(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        torch.manual_seed(i)
        q, k, v = inputs(B=1, Q=20)
        return flex_attention(q, k, v, mods.causal)[0]


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork on this system")
def test_workers_of_a_data_loader():
    Masked()[0]
    loader = torch.utils.data.DataLoader(Masked(), num_workers=2, multiprocessing_context="fork", timeout=60)
    for i, item in enumerate(loader):
        assert torch.equal(item[0], Masked()[i])
