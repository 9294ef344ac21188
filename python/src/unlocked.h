// Calls without Python's lock, that Ctrl-C ends, and that survive the end of the interpreter.
#pragma once

#include <functional>
#include <stop_token>

namespace treadle::python {

using Work = std::function<void(const std::stop_token&)>;

// Whether somebody should look after signals meanwhile: not for what takes milliseconds.
enum class Length : bool { quick, unknown };

// Runs work(stop) without Python's lock, which the calling thread holds before and after. In
// Python's main thread a signal whose handler raises, as Ctrl-C's does, stops the work; what the
// handler raised is thrown.
void run_unlocked(Length length, const Work& work);

// No calls are running, and this thread is Python's main one: when the module is imported, and in a
// forked child, which has no other threads.
void begin_calls(unsigned long main_thread);

// Python ends: stops the calls of other threads and waits for them, some seconds at most. They do
// not come back, since a thread that asks for the lock of an interpreter that ends is killed, which
// C++ does not survive. Calls that other threads begin from now on keep the lock.
void end_calls();

}  // namespace treadle::python
