"""The plans of one mask: who computes what, for each kind of call that is made with it."""

from __future__ import annotations

import hashlib
import weakref
from typing import Callable, NamedTuple

import torch
from torch import Tensor

from ... import _core
from ..._program import Program, types
from .._arrays import NAMES
from ._group import Group


class Options(NamedTuple):
    """PlanOptions of include/treadle/distributed.h."""

    gigabits: float
    teraflops: float
    head_groups: int
    per_rank: bool
    patience: int  # milliseconds


class Plan:
    """What a mask's calls of one kind cost, to be printed."""

    def __init__(self, plan: _core.GroupPlan, kind: str):
        self._plan, self.kind = plan, kind

    @property
    def balance(self) -> float:
        """The largest share of the work that a rank has, over the mean."""
        return self._plan.balance

    @property
    def forward_bytes(self) -> tuple:
        """What this rank sends and receives in a forward that training needs."""
        return self._plan.forward_traffic[:2]

    @property
    def backward_bytes(self) -> tuple:
        """The same of a backward, without gradients of captures."""
        return self._plan.backward_traffic[:2]

    @property
    def moved_bytes(self) -> tuple:
        """What this rank has sent and received so far, in forward and backward calls."""
        return self._plan.forward_moved[:2] + self._plan.backward_moved[:2]

    @property
    def bytes_of_all_gather(self) -> int:
        """What this rank would receive if all ranks collected all keys and values."""
        return self._plan.bytes_of_all_gather

    @property
    def messages(self) -> int:
        """That this rank sends in a forward."""
        return self._plan.forward_traffic[2]

    @property
    def memory(self) -> int:
        """Bytes that a forward takes besides its inputs and results."""
        return self._plan.memory

    def describe(self) -> str:
        """Candidates, what they would cost, and the winner's parts."""
        return self._plan.describe()

    def __str__(self) -> str:
        all_gather = self.bytes_of_all_gather
        share = f"{self.forward_bytes[1] / all_gather:.2f} of an all-gather" if all_gather else "no keys of others"
        return f"balance {self.balance:.2f}, {share}, {self.messages} messages"

    def __repr__(self) -> str:
        return f"Plan({self.kind}: {self})"


_names = {dtype: types[name] for dtype, name in NAMES.items()}
_all: weakref.WeakValueDictionary = weakref.WeakValueDictionary()  # by key, which graphs hold
_MOST = 32


def plans_of(key: str) -> Plans:
    found = _all.get(key)
    if found is None:
        raise RuntimeError(f"the block_mask {key} of this graph is not in this process; graphs cannot outlive their masks")
    return found


class Plans:
    """Made when a call needs one, by all ranks: they depend on shapes and types, and on what a mask reads."""

    def __init__(self, group: Group, queries: tuple, keys: tuple, options: Options):
        self.group, self.queries, self.keys, self.options = group, queries, keys, options
        self._kept: dict = {}
        self._hashes: dict = {}
        self._inside = False  # a call that all ranks are in
        self.key = f"mask{id(self):x}"
        _all[self.key] = self

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        raise TypeError("a block_mask of a process group cannot be pickled; make it in each process")

    def made(self) -> list:
        return [Plan(plan, kind) for plan, kind in self._kept.values()]

    def rows(self) -> tuple:
        """Of this rank: queries and keys."""
        r = self.group.rank
        return self.queries[r + 1] - self.queries[r], self.keys[r + 1] - self.keys[r]

    def get(self, program: Program, function, gradients: tuple, q: Tensor, k: Tensor, v: Tensor, arrays, threads: int):
        """The plan for such inputs; all ranks make it if they have none."""
        heads = (q.shape[0], q.shape[1], q.shape[3]), (k.shape[0], k.shape[1]), v.shape[3]
        dtypes = q.dtype, k.dtype, v.dtype
        read = tuple([self._hash_of(program.captures[i].object) for i in program.mask_captures()])
        # What sums of captures' gradients ask of a plan.
        score = (program.score_mod, gradients) if gradients else ()
        key = (program.mask, program.mask_scalars(), read, heads, dtypes, score)
        kept = self._kept.get(key)
        if kept is not None:
            return kept[0]
        of_q = _names[q.dtype], (q.shape[0], q.shape[1], self.queries[-1], q.shape[3])
        of_k = _names[k.dtype], (k.shape[0], k.shape[1], self.keys[-1], k.shape[3])
        of_v = _names[v.dtype], (v.shape[0], v.shape[1], self.keys[-1], v.shape[3])
        plan = self.collective(
            _core.plan, function, self.group.exchange, of_q, of_k, of_v, self.queries, self.keys, arrays,
            tuple(self.options), threads,
        )  # fmt: skip
        if len(self._kept) >= _MOST:
            self._kept.clear()
        name = str(q.dtype).removeprefix("torch.")
        self._kept[key] = plan, f"{name} {of_q[1]} by {of_k[1]}"
        return plan

    def agreed(self, seed: int) -> int:
        """The first rank's."""
        return self.collective(self.group.exchange.agree, seed, self.options.patience)[0]

    def collective(self, call: Callable, *arguments):
        """What comes before the call proper. What it raises is raised on all ranks."""
        self._inside = True
        result = call(*arguments)
        self._inside = False
        return result

    def call(self, call: Callable, *arguments):
        """The call proper: what is raised from here on, also by who looks at its results, is for nobody else."""
        self._inside = True
        call(*arguments)

    def together(self, work: Callable):
        """work(), which has collective calls. What it raises before them is raised on all ranks, too: they wait there."""
        self._inside = False
        try:
            return work()
        except Exception as error:
            if self._inside:
                raise
            self._inside = True
            self.group.exchange.refuse(str(error) or type(error).__name__, self.options.patience)

    def _hash_of(self, x) -> bytes:
        """Of contents: so all ranks find the same plan, whatever memory they have."""
        tensor = x if isinstance(x, Tensor) else torch.from_numpy(x)
        try:
            state = tensor.data_ptr(), tensor._version, tensor.shape, tensor.stride(), tensor.dtype
        except RuntimeError:  # inference tensors do not count their changes
            state = None
        known = self._hashes.get(id(tensor))
        if known is not None and state is not None and known[0]() is tensor and known[1] == state:
            return known[2]
        data = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
        found = hashlib.blake2b(data, digest_size=16, person=str(tensor.dtype).encode()[:16]).digest()
        found += repr(tuple(tensor.shape)).encode()
        if len(self._hashes) >= 64:
            self._hashes.clear()
        self._hashes[id(tensor)] = weakref.ref(tensor), state, found
        return found
