"""A process group as ranks of distributed calls: waits for the messages of an exchange (python/src/group_exchange.h).

torch's Work of a gloo message cannot be asked whether it is done, only waited for. So threads wait: one for each rank
that messages come from, one for what is sent. Two more things are always on their way from every other rank: its last
words, which are a message, and its end, which is an error of that message. Who waits for anybody therefore hears at once
when somebody dies.
"""

from __future__ import annotations

import atexit
import functools
import threading
import time
import weakref
from collections import deque
from datetime import timedelta
from queue import SimpleQueue

import torch
import torch.distributed as dist

from ... import _core

# Above all tags of messages.
_WORDS, _CLOSING = 2**31 - 1, 2**31 - 2
_WORDS_BYTES = 2048
_FOR_EVER = timedelta(days=365)  # the library looks at the clock


class _Port:
    """What the exchange calls."""

    def __init__(self, backend, rank: int, ranks: int):
        self._backend = backend
        self._others = [r for r in range(ranks) if r != rank]
        self._closed = False
        self._to_close = list(self._others)
        self._closing = threading.Lock()
        # What the exchange begins messages with. It calls functions of C alone.
        self.receive, self.send = backend.recv, backend.send
        self.empty = functools.partial(torch.empty, dtype=torch.uint8, device="cpu")
        self.tensor_of = functools.partial(torch.frombuffer, dtype=torch.uint8)
        # (work, tensor, messages, number, is large or rank), for threads that wait.
        self.sent: SimpleQueue = SimpleQueue()
        self.received = {r: SimpleQueue() for r in self._others}
        self.kept: deque = deque()  # small sends, which the exchange has forgotten; nobody waits for the last ones

    def begin(self, exchange) -> None:
        self.exchange = exchange
        self._threads = [threading.Thread(target=self._await_sends, daemon=True)]
        for rank in self._others:
            words = torch.zeros(_WORDS_BYTES, dtype=torch.uint8, device="cpu")
            work = self._backend.recv([words], rank, _WORDS)
            self._threads.append(threading.Thread(target=self._await_words, args=(rank, words, work), daemon=True))
            self._threads.append(threading.Thread(target=self._await_receives, args=(rank,), daemon=True))
        for thread in self._threads:
            thread.start()

    # --- called by the exchange ----------------------------------------------------------------------------------

    def tell(self, text: str) -> None:
        """Last words to all others, who end their calls with them."""
        letter = text.encode()[: _WORDS_BYTES - 4]
        words = torch.zeros(_WORDS_BYTES, dtype=torch.uint8, device="cpu")
        words[:4] = torch.frombuffer(bytearray(len(letter).to_bytes(4, "little")), dtype=torch.uint8)
        if letter:
            words[4 : 4 + len(letter)] = torch.frombuffer(bytearray(letter), dtype=torch.uint8)

        def send(rank: int):
            try:
                self._backend.send([words], rank, _WORDS).wait(_FOR_EVER)
            except RuntimeError:
                pass

        threads = [threading.Thread(target=send, args=(rank,), daemon=True) for rank in self._others]
        for thread in threads:
            thread.start()
        end = time.monotonic() + 0.5
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))

    def close(self) -> None:
        """Cuts all connections, which ends every wait: a timeout does that to a whole group of gloo's."""
        self._closed = True
        with self._closing:
            nothing = torch.zeros(1, dtype=torch.uint8, device="cpu")
            while self._to_close:
                try:  # some may be gone, and nobody waits for those
                    self._backend.recv([nothing], self._to_close[-1], _CLOSING).wait(timedelta(milliseconds=1))
                except RuntimeError:
                    pass
                self._to_close.pop()

    def end(self) -> None:
        """At the end of Python, which threads that wait would not survive."""
        self.close()
        for queue in (self.sent, *self.received.values()):
            queue.put(None)
        end = time.monotonic() + 5
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))

    # --- threads -------------------------------------------------------------------------------------------------

    def _failed(self, rank: int, error: BaseException, messages, is_large: bool) -> None:
        self.exchange.gone(rank, str(error))
        if messages is not None:
            messages.dropped(is_large)

    def _await_receives(self, rank: int) -> None:
        while (item := self.received[rank].get()) is not None:
            work, tensor, messages, i, is_large = item
            del item
            try:
                work.wait(_FOR_EVER)
            except BaseException as error:
                del work, tensor
                self._failed(rank, error, messages, is_large)
            else:
                del work
                messages.arrived(i, 0 if is_large else tensor.data_ptr())
                del tensor
            del messages

    def _await_sends(self) -> None:
        while (item := self.sent.get()) is not None:
            work, tensor, messages, i, rank = item
            del item
            try:
                work.wait(_FOR_EVER)
            except BaseException as error:
                del work, tensor
                self._failed(rank, error, messages, messages is not None)
            else:
                del work, tensor
                if messages is not None:
                    messages.sent(i)
            del messages

    def _await_words(self, rank: int, words: torch.Tensor, work) -> None:
        try:
            work.wait(_FOR_EVER)
        except BaseException as error:
            if not self._closed:
                self.exchange.gone(rank, str(error))
            return
        length = int.from_bytes(bytes(words[:4].tolist()), "little")
        self.exchange.told(bytes(words[4 : 4 + length].tolist()).decode(errors="replace"))


class Group:
    """The ranks of a process group, with messages of their own: a gloo group beside it."""

    def __init__(self, group, patience: float):
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)
        if self.rank < 0:
            raise ValueError("this process is not in the group; only its ranks make the call")
        try:
            own = dist.new_group(
                dist.get_process_group_ranks(group), backend="gloo", use_local_synchronization=True,
                timeout=timedelta(seconds=patience), group_desc="treadle",
            )  # fmt: skip
        except RuntimeError as error:
            raise RuntimeError(
                f"rank {self.rank} waited {patience} s for all {self.ranks} ranks of the group; all of them make the "
                f"first create_block_mask or context_parallel of a group: {error}"
            ) from error
        self._port = _Port(own._get_backend(torch.device("cpu")), self.rank, self.ranks)
        self.exchange = _core.GroupExchange(self.rank, self.ranks, self._port)
        self._port.begin(self.exchange)
        self.key = f"group{id(self):x}"
        atexit.register(self._port.end)


_groups: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # by process group


def group_of(group, patience: float) -> Group:
    """Collective the first time that it is called for a group; None is the default group."""
    if not dist.is_available() or not dist.is_initialized():
        raise RuntimeError("torch.distributed has no process group; torch.distributed.init_process_group comes first")
    group = dist.group.WORLD if group is None else group
    if not isinstance(group, dist.ProcessGroup):
        raise TypeError(f"group must be a torch.distributed.ProcessGroup, got {type(group).__name__}")
    found = _groups.get(group)
    if found is None:
        found = _groups[group] = Group(group, patience)
    return found
