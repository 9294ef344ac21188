"""A small serving engine: random requests come and go, their keys live in a paged cache.

    python examples/python/serve.py [--requests 24] [--dtype bfloat16]

Prompts are processed in chunks beside sequences that write, a common prompt is stored once and forked, and every step
drafts tokens and keeps those that were right. At the end every row that the engine used is compared, bit for bit, with one
plain call over its whole sequence.
"""

import argparse
import dataclasses
import random
import time
from collections import deque

import torch

from treadle.torch import PagedKV, flex_attention, paged_attention

HEADS, KEY_HEADS, DIM, PAGE_SIZE = 8, 2, 64, 16
SEQUENCES = 64  # at most at a time
VOCABULARY = 5  # small, so that some drafts are right
CHUNK = 48  # tokens of a prompt per step
DRAFTS = 3


def causal(b, h, q, kv):
    return q >= kv


class Model:
    """The rows of a token at a position, and the token that a row of results asks for."""

    def __init__(self, dtype: torch.dtype):
        generator = torch.Generator().manual_seed(1)
        heads = HEADS, KEY_HEADS, KEY_HEADS
        self.tables = [torch.randn(257, h, DIM, generator=generator).to(dtype) for h in heads]
        self.weights = torch.randint(-(2**62), 2**62, (HEADS * DIM,), generator=generator) | 1
        self.bits = {2: torch.int16, 4: torch.int32}[dtype.itemsize]

    def rows(self, tokens: list, first: int) -> list:
        """q, k and v of tokens that stand from position `first` on."""
        which = (torch.tensor(tokens) * 31 + torch.arange(first, first + len(tokens))) % 257
        return [table[which] for table in self.tables]

    def next(self, out: torch.Tensor) -> list:
        """Depends on every bit, so that a wrong one changes all that follows."""
        hashes = (out.view(self.bits).long().flatten(1) * self.weights).sum(1)
        return ((hashes >> 40) % VOCABULARY).tolist()


@dataclasses.dataclass
class Request:
    tokens: list  # the prompt, then what was written
    wanted: int
    prompt: int = 0
    slot: int = -1
    shared: int = 0  # tokens of the common prompt, whose rows are not computed again
    known: int = 0  # tokens whose keys are in the cache
    results: list = dataclasses.field(default_factory=list)
    step_tokens: list = dataclasses.field(default_factory=list)  # of the current step: known ones, then drafts

    def __post_init__(self):
        self.prompt = len(self.tokens)

    def pages(self) -> int:
        """As many as it can ever need."""
        return (self.prompt + self.wanted + DRAFTS) // PAGE_SIZE + 2

    def writes(self) -> bool:
        return self.known + 1 >= len(self.tokens)

    def done(self) -> bool:
        return len(self.tokens) >= self.prompt + self.wanted


class Engine:
    def __init__(self, dtype: torch.dtype, pages: int, common: list):
        self.model = Model(dtype)
        self.pool, v_pool = (torch.zeros(pages, KEY_HEADS, PAGE_SIZE, DIM, dtype=dtype) for _ in range(2))
        self.cache = PagedKV(self.pool, v_pool, sequences=SEQUENCES, pages_per_sequence=pages)
        self.waiting, self.running, self.finished = deque(), [], []
        self.random = random.Random(7)
        self.steps = self.written = self.drafted = self.kept = self.most_pages = 0
        self.seconds = self.writing_seconds = self.bytes = 0.0
        self.common, self.common_slot = common, self.cache.add()
        self.cache.append(self.common_slot, *self.model.rows(common, 0)[1:])
        self.reserved = pages - self.cache.free_pages

    def run(self, requests: list):
        self.waiting.extend(requests)
        while self.waiting or self.running:
            self.admit()
            if not self.running:
                raise SystemExit(f"a request may need {self.waiting[0].pages()} pages, more than there are for it")
            self.step()

    def admit(self):
        """New requests, as long as there is room for the longest that each can become."""
        while self.waiting and self.cache.sequences < SEQUENCES:
            if self.reserved + self.waiting[0].pages() > self.cache.pages:
                break
            request = self.waiting.popleft()
            self.reserved += request.pages()
            if request.tokens[: len(self.common)] == self.common:
                request.slot = self.cache.fork(self.common_slot)
                request.shared = request.known = len(self.common)
            else:
                request.slot = self.cache.add()
            self.running.append(request)

    def step(self):
        for request in self.running:
            self.choose_tokens(request)
        slots = [request.slot for request in self.running]
        starts = torch.tensor([0, *[len(request.step_tokens) for request in self.running]]).cumsum(0)
        parts = [self.model.rows(request.step_tokens, request.known) for request in self.running]
        q, k, v = (torch.cat(rows) for rows in zip(*parts))
        self.cache.append(slots, k, v, starts=starts)
        begin = time.perf_counter()
        out = paged_attention(q, starts, self.cache.batch(slots), causal=True, enable_gqa=True)
        took = time.perf_counter() - begin
        self.seconds += took
        if all([request.writes() for request in self.running]):  # prompts take arithmetic, not memory
            read = {page for slot in slots for page in self.cache.pages_of(slot)}  # shared ones are read once
            self.bytes += 2 * len(read) * self.pool[0].nbytes
            self.writing_seconds += took
        self.most_pages = max(self.most_pages, self.cache.pages - self.cache.free_pages)
        self.steps += 1
        asked = self.model.next(out)
        for request, first, end in zip(self.running, starts.tolist(), starts.tolist()[1:]):
            self.take(request, out[first:end], asked[first:end])
        self.retire()

    def choose_tokens(self, request: Request):
        given = request.tokens[request.known :]
        if request.writes():
            request.step_tokens = given + self.random.choices(range(VOCABULARY), k=DRAFTS)
        else:
            request.step_tokens = given[:CHUNK]

    def take(self, request: Request, rows: torch.Tensor, asked: list):
        """The step's rows: those of tokens that stand, and what the last of them asks for."""
        stands = min(len(request.tokens) - request.known, len(request.step_tokens))
        if request.writes():
            self.drafted += DRAFTS
            while True:
                request.tokens.append(asked[stands - 1])
                self.written += 1
                if request.done() or stands == len(request.step_tokens):
                    break
                if request.step_tokens[stands] != request.tokens[-1]:
                    break
                stands += 1
                self.kept += 1
        request.results.append(rows[:stands])
        request.known += stands
        self.cache.trim(request.slot, request.known)

    def retire(self):
        for request in self.running:
            if request.done():
                self.cache.free(request.slot)
                self.reserved -= request.pages()
                self.finished.append(request)
        self.running = [request for request in self.running if not request.done()]

    def check(self) -> int:
        """Every row again, in one plain call over each sequence. How many rows there were."""
        count = 0
        for request in self.finished:
            q, k, v = (x.transpose(0, 1)[None] for x in self.model.rows(request.tokens[: request.known], 0))
            plain = flex_attention(q, k, v, block_mask=causal, enable_gqa=True)[0].transpose(0, 1)
            seen = torch.cat(request.results)
            if not torch.equal(seen, plain[request.shared :]):
                raise SystemExit("rows have other bits than in a plain call")
            count += len(seen)
        return count

    def report(self):
        print(f"{self.steps} steps, {self.written} tokens written, {self.kept} drafts kept of {self.drafted}")
        print(
            f"{self.written / self.seconds:.0f} tokens/s in attention alone, "
            f"at most {self.most_pages} of {self.cache.pages} pages in use"
        )
        if self.writing_seconds > 0:
            speed = self.bytes / self.writing_seconds
            print(
                f"{speed / 1e9:.1f} GB/s of keys and values in steps without prompts, "
                f"a loop that only reads has {read_speed() / 1e9:.1f} GB/s"
            )


def read_speed() -> float:
    """Bytes per second."""
    words = torch.ones(2**24)
    best = float("inf")
    for _ in range(5):
        begin = time.perf_counter()
        words.sum()
        best = min(best, time.perf_counter() - begin)
    return words.nbytes / best


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=24)
    parser.add_argument("--common", type=int, default=600, help="tokens of the prompt that two thirds begin with")
    parser.add_argument("--longest", type=int, default=600, help="tokens of a prompt behind it")
    parser.add_argument("--pages", type=int, default=1600, help="of the pools; a page has 16 tokens")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    options = parser.parse_args(arguments)

    def requests(count: int, seed: int) -> list:
        chosen = random.Random(seed)
        made = []
        for i in range(count):
            own = chosen.choices(range(VOCABULARY), k=chosen.randrange(10, options.longest + 1))
            made.append(Request((common if i % 3 else []) + own, chosen.randrange(5, 45)))
        return made

    common = random.Random(3).choices(range(VOCABULARY), k=options.common)
    dtype = getattr(torch, options.dtype)
    Engine(dtype, options.pages, common).run(requests(3, 1))  # kernels are compiled when they are first needed
    engine = Engine(dtype, options.pages, common)
    engine.run(requests(options.requests, 2))
    engine.report()
    print(f"{engine.check()} rows have the bits of plain calls")


if __name__ == "__main__":
    main()
