"""Ctrl-C ends a running call, the end of the interpreter does not wait for ever, and working memory is given back."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import treadle
from treadle import _core

# A long call of a child process: seconds of work, a few milliseconds with what it has done before.
# Interrupts are heard also where this process was started in the background, without them.
LONG = """
import signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)
import numpy as np
import treadle

def causal(b, h, q, kv):
    return q >= kv

attend = treadle.Attention(mask_mod=causal)
few = np.ones((1, 1, 64, 64), np.float32)
attend.backward(few, few, few, attend.forward(few, few, few), few)
x = np.ones((1, 4, 65536, 64), np.float32)
"""

CALLS = {
    "forward": "attend.forward(x, x, x)",
    "backward": "attend.backward(x, x, x, treadle.api.Result(x, np.zeros(x.shape[:3], np.float32)), x)",
    "layout": """treadle.attention(x, x, x, mask_mod=lambda b, h, q, kv: q * q * 7 % 1009 < kv * kv % 1013)""",
}


def child(text):
    return subprocess.Popen(
        [sys.executable, "-c", LONG + text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("call", CALLS)
def test_interrupt_ends_a_call(call):
    process = child(f"""
print("begin", flush=True)
try:
    {CALLS[call]}
    print("not interrupted")
except KeyboardInterrupt:
    print("KeyboardInterrupt", flush=True)
out = attend.forward(few, few, few).out
print(float(out.sum()))
""")
    assert process.stdout.readline() == "begin\n"
    time.sleep(0.5)
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "KeyboardInterrupt\n"
    print(f"{call}: KeyboardInterrupt after {time.monotonic() - begin:.2f} s")
    assert process.stdout.read() == "4096.0\n"  # communicate() would miss what has been read ahead
    assert process.wait(timeout=60) == 0


def test_a_handler_that_does_not_raise_changes_nothing():
    """Also one that calls attention itself."""
    process = child("""
import os, signal
seen = []

def handler(*_):
    seen.append(float(attend.forward(few, few, few).out.sum()))

signal.signal(signal.SIGUSR1, handler)
x = x[:, :, :8192]
expected = attend.forward(x, x, x).out
threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
out = attend.forward(x, x, x).out
time.sleep(0.3)
print(np.array_equal(out, expected), seen)
""")
    out, errors = process.communicate(timeout=120)
    assert out == "True [4096.0]\n" and process.returncode == 0, errors


@pytest.mark.parametrize("call", ["forward", "backward"])
def test_exit_while_a_daemon_thread_calls(call):
    for _ in range(5):
        process = child(f"""
begun = threading.Event()

def work():
    while True:
        begun.set()
        {CALLS[call]}

threading.Thread(target=work, daemon=True).start()
begun.wait()
time.sleep(0.2)
print("end", flush=True)
""")
        out, errors = process.communicate(timeout=60)
        assert (process.returncode, out, errors) == (0, "end\n", "")


def test_exit_between_short_calls_of_daemon_threads():
    for _ in range(5):
        process = child("""
def work():
    while True:
        attend.forward(few, few, few)

for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.1)
print("end", flush=True)
""")
        out, errors = process.communicate(timeout=60)
        assert (process.returncode, out, errors) == (0, "end\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_exit_of_a_child_forked_during_a_call():
    """It has no part in its parent's call, and does not wait for it."""
    process = child("""
import os
threading.Thread(target=lambda: attend.forward(x, x, x), daemon=True).start()
time.sleep(0.2)
begin = time.monotonic()
pid = os.fork()
if pid == 0:
    print(float(attend.forward(few, few, few).out.sum()), flush=True)
    sys.exit(0)
_, status = os.waitpid(pid, 0)
print(status, time.monotonic() - begin < 5, flush=True)
""")
    out, errors = process.communicate(timeout=60)
    assert out == "4096.0\n0 True\n" and process.returncode == 0, errors


def test_calls_of_other_threads_cannot_be_interrupted_but_work():
    x = np.ones((1, 1, 64, 8), np.float32)
    outs = []
    thread = threading.Thread(target=lambda: outs.append(treadle.attention(x, x, x)))
    thread.start()
    thread.join()
    assert np.array_equal(outs[0], x)


def test_release_memory():
    x = np.ones((1, 1, 640, 8), np.float32)
    attend = treadle.Attention()
    expected = attend.forward(x, x, x).out
    assert treadle.release_memory() > 0
    assert treadle.release_memory() == 0
    assert np.array_equal(attend.forward(x, x, x).out, expected)


def test_gradients_of_a_call_that_throws_are_untouched():
    """Also those on which nothing depends."""
    function = _core.Function("score", "", [("a", _core.types["f32"], 1)], ["a"], None)
    x = np.ones((1, 1, 4, 8), np.float32)
    unread = np.full(3, 7, np.float32)
    arrays = [treadle._arrays.as_array(a) for a in (x, x, x, unread, x[0], x)]
    q, k, v, a, wrong, out = arrays
    with pytest.raises(treadle.Error):
        function.backward(q, k, v, [a], None, wrong, wrong, out, None, [q, k, v, a], 1)
    assert (unread == 7).all()
