"""Processes as ranks of a gloo group, for tests.

    with Ranks(3) as ranks:
        ranks.run(check, argument)      # check(rank, ranks, argument) on all of them, at once

They are forked from one process that has imported what they need, so a new set is there in a fraction of a second.
"""

import multiprocessing
import os
import tempfile
import time
import traceback

_context = multiprocessing.get_context("forkserver")
_of_compile = ["torch._dynamo", "torch._inductor.codecache", "torch._inductor.output_code", "networkx"]
_context.set_forkserver_preload([*_of_compile, "treadle.torch.distributed", "rank_checks"])


class RankFailed(Exception):
    """With what every rank has said."""


def _serve(rank, ranks, store, pipe):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    while (task := pipe.recv()) is not None:
        check, arguments = task
        try:
            torch.manual_seed(0)
            pipe.send((True, check(rank, ranks, *arguments)))
        except BaseException:
            pipe.send((False, traceback.format_exc()))


class Ranks:
    def __init__(self, ranks):
        self._folder = tempfile.TemporaryDirectory()
        self.processes, self._pipes = [], []
        for rank in range(ranks):
            ours, theirs = _context.Pipe()
            store = os.path.join(self._folder.name, "store")
            process = _context.Process(target=_serve, args=(rank, ranks, store, theirs), daemon=True)
            process.start()
            theirs.close()
            self.processes.append(process)
            self._pipes.append(ours)

    def begin(self, check, *arguments):
        for pipe in self._pipes:
            pipe.send((check, arguments))

    def results(self, timeout=60, of=None):
        """What the ranks return, in their order; None for one that has died."""
        end = time.monotonic() + timeout
        said, failed = [], []
        for rank, pipe in enumerate(self._pipes):
            if of is not None and rank not in of:
                said.append(None)
                continue
            try:
                if not pipe.poll(max(0.0, end - time.monotonic())):
                    failed.append(f"rank {rank} has said nothing for {timeout} s")
                    continue
                fine, result = pipe.recv()
            except (EOFError, ConnectionResetError):
                fine, result = True, None
            said.append(result)
            if not fine:
                failed.append(f"rank {rank}:\n{result}")
        if failed:
            raise RankFailed("\n".join(failed))
        return said

    def run(self, check, *arguments, timeout=60):
        self.begin(check, *arguments)
        return self.results(timeout)

    def __enter__(self):
        return self

    def __exit__(self, *ignored):
        for pipe in self._pipes:
            try:
                pipe.send(None)
            except OSError:
                pass
        for process in self.processes:
            process.join(5)
            if process.is_alive():
                process.kill()
                process.join()
        self._folder.cleanup()
