"""What test_distributed.py has ranks do. Every check is called by all of them with (rank, ranks, ...)."""

import os
import signal
import threading
import time

import torch
import torch.distributed as dist
from torch.utils.checkpoint import checkpoint

import treadle
import treadle.torch.distributed as td
from treadle.torch import AuxRequest, create_block_mask, flex_attention


def causal(b, h, q, kv):
    return q >= kv


def window(b, h, q, kv):
    return (q >= kv) & (q - kv < 96)


def every(b, h, q, kv):
    return q == q


def by_head(b, h, q, kv):
    return (q >= kv) | ((h % 2 == 1) & (kv % 7 == 0))


MASKS = {"causal": causal, "window": window, "every": every, "by_head": by_head}
BOTH = AuxRequest(lse=True, max_scores=True)


def inputs(shape, keys=None, heads=None, dtype=torch.float32, value_dim=None):
    """q, k, v and dout, the same on all ranks."""
    batch, h, queries, dim = shape
    of_k = (batch, heads or h, queries if keys is None else keys)
    q, dout = torch.randn(shape), torch.randn(batch, h, queries, value_dim or dim)
    k, v = torch.randn(*of_k, dim), torch.randn(*of_k, value_dim or dim)
    return [t.to(dtype) for t in (q, k, v, dout)]


def attend(q, k, v, dout, mask, score_mod=None, learned=(), **options):
    """Everything that a call gives: results, then gradients."""
    q, k, v = [t.clone().requires_grad_() for t in (q, k, v)]
    out, aux = flex_attention(q, k, v, score_mod, mask, enable_gqa=True, return_aux=BOTH, **options)
    rows = torch.isfinite(aux.lse)
    loss = (out * dout).sum() + aux.lse[rows].sum() * 0.25
    return out.detach(), aux.lse.detach(), aux.max_scores, *torch.autograd.grad(loss, (q, k, v, *learned))


NAMES = ("out", "lse", "max", "dq", "dk", "dv")


def expect_equal(name, got, wanted):
    assert got.shape == wanted.shape, f"{name}: {got.shape}, not {wanted.shape}"
    assert torch.equal(got, wanted), f"{name}: {int((got != wanted).sum())} of {got.numel()} numbers differ"


def expect_rows(got, wanted, queries, keys):
    """Rows of this rank; what follows them is whole."""
    for i, wanted_one in enumerate(wanted):
        name = NAMES[i] if i < len(NAMES) else f"gradient {i - len(NAMES)}"
        if i < len(NAMES):
            wanted_one = (keys if name in ("dk", "dv") else queries).shard(wanted_one, dim=2)
        expect_equal(name, got[i], wanted_one)


def error_of(call):
    """The text of what it raises."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was raised"


# --- the same bits --------------------------------------------------------------------------------------------------


def same_bits(rank, ranks, mask_name, dtype, kind):
    """The plan may cut small calls in many ways: networks of all speeds, so that some rows travel."""
    shape, keys, heads, options, shards, kv_shards = (2, 4, 333, 32), 333, 2, {}, None, None
    learned, score_mod = [], None
    if kind == "uneven":
        shards = [0, *[10] * (ranks - 2), 333 - 10 * (ranks - 2)]
        kv_shards = [333, *[0] * (ranks - 1)]
    elif kind == "lengths":
        shape, keys = (1, 4, 200, 32), 450
    elif kind == "dropout":
        options = {"dropout_p": 0.3, "scale": 0.2}
    elif kind == "sinks":
        learned = [torch.randn(4, requires_grad=True)]
        options = {"sinks": learned[0]}
    elif kind == "learned":
        slopes, table = torch.randn(4, requires_grad=True), torch.randn(333, requires_grad=True)
        learned = [slopes, table]

        def score_mod(s, b, h, q, kv):
            return s + slopes[h] * (kv - q) * 0.01 + table[kv]

    q, k, v, dout = inputs(shape, keys, heads, dtype)
    mask_mod, lengths = MASKS[mask_name], (shape[2], keys)
    by_heads = (None, 4 if mask_name == "by_head" else None)
    torch.manual_seed(5 if kind != "dropout" else 7)
    wanted = attend(q, k, v, dout, create_block_mask(mask_mod, *by_heads, *lengths), score_mod, learned, **options)
    queries = td.context_parallel(length=shape[2], shards=shards)
    of_keys = td.context_parallel(length=keys, shards=kv_shards)
    mine = [queries.shard(q, dim=2), *of_keys.shard(k, v, dim=2), queries.shard(dout, dim=2)]
    for gigabits in (0.01, 10000):
        # Ranks draw other seeds; the first rank's counts.
        torch.manual_seed(7 if kind == "dropout" and rank == 0 else 100 + rank)
        mask = td.create_block_mask(mask_mod, *by_heads, *lengths, shards=shards, kv_shards=kv_shards, gigabits=gigabits)
        expect_rows(attend(*mine, mask, score_mod, learned, **options), wanted, queries, of_keys)
    return str(mask.plan)


def rows_travel(rank, ranks):
    """Bytes sent are those announced, and there are some."""
    q, k, v, dout = inputs((1, 4, 512, 32))
    with td.context_parallel(length=512) as cp:
        mask = td.create_block_mask(causal, None, None, 512, 512)
        try:
            mask.plan
        except RuntimeError as error:
            assert "the first call makes it" in str(error)
        else:
            raise AssertionError("a plan without a call")
        mine = cp.shard(q, k, v, dout, dim=2)
        plain = [t.clone().requires_grad_() for t in mine[:3]]
        flex_attention(*plain, block_mask=mask).backward(mine[3])
        plan = mask.plan
        assert plan.moved_bytes == plan.forward_bytes + plan.backward_bytes, (plan.moved_bytes, plan.forward_bytes)
        for dtype in (torch.float64, torch.float32):  # another plan, and the one that is there
            attend(*[t.to(dtype) for t in mine], mask)
        assert len(mask.plans) == 2
        assert plan.balance >= 1 and plan.bytes_of_all_gather > 0 and plan.memory > 0 and plan.describe()
    received = torch.tensor([plan.moved_bytes[0] - plan.moved_bytes[1]])
    dist.all_reduce(received)
    assert received.item() == 0
    return str(plan)


def documents_change(rank, ranks):
    """What a mask reads may change in place, and be another tensor: the plan follows its contents."""
    document = torch.arange(256) // 64
    mask = td.create_block_mask(lambda b, h, q, kv: document[q] == document[kv], None, None, 256, 256)
    cp = td.context_parallel(length=256)
    q, k, v, dout = inputs((1, 2, 256, 16))
    for step in range(4):
        document.copy_(torch.arange(256) // (64 if step % 2 else 100))
        same = document.clone()
        wanted = attend(q, k, v, dout, create_block_mask(lambda b, h, q, kv: same[q] == same[kv], None, None, 256, 256))
        expect_rows(attend(*cp.shard(q, k, v, dout, dim=2), mask), wanted, cp, cp)
    assert len(mask.plans) == 2


def sharded_captures(rank, ranks):
    """What each rank has rows of goes through unshard; the gradient is that of its rows."""
    cp = td.context_parallel(length=300)
    bias, q, k, v, dout = torch.randn(4, 300), *inputs((1, 4, 300, 32))
    whole, mine = bias.clone().requires_grad_(), cp.shard(bias, dim=1).clone().requires_grad_()

    def call(q, k, v, dout, mask, bias):
        return attend(q, k, v, dout, mask, lambda s, b, h, qi, kv: s + bias[h, kv] - bias[h, qi], [bias])

    wanted = call(q, k, v, dout, create_block_mask(causal, None, None, 300, 300), whole)[-1]
    every_row = cp.unshard(mine, dim=1)
    expect_equal("unshard", every_row.detach(), bias)
    mask = td.create_block_mask(causal, None, None, 300, 300)
    got = torch.autograd.grad(every_row, mine, call(*cp.shard(q, k, v, dout, dim=2), mask, every_row)[-1])[0]
    expect_equal("gradient of a sharded capture", got, cp.shard(wanted, dim=1))


def unshard_rows(rank, ranks):
    for dtype in (torch.bfloat16, torch.int64, torch.bool, torch.float32):
        for shards in (None, [7, *[0] * (ranks - 1)], [0] * (ranks - 1) + [7]):
            x = torch.arange(42).reshape(2, 7, 3).to(dtype)
            cp = td.context_parallel(length=7, shards=shards)
            expect_equal("unshard", cp.unshard(cp.shard(x, dim=1), dim=1), x)
            expect_equal("unshard", cp.unshard(cp.shard(x, dim=-2), dim=-2), x)
    one, two = cp.shard(x, x, dim=1)
    assert one.shape == two.shape == (2, len(cp.rows), 3) and sum(cp.lengths) == 7


# --- models ---------------------------------------------------------------------------------------------------------


class RowsOfAll(torch.autograd.Function):
    """Copies of a parameter for blocks of rows. Its gradient is the sum over the blocks of all ranks, in their order, so
    its bits do not depend on where blocks are."""

    @staticmethod
    def forward(ctx, parameter, blocks, cp):
        ctx.cp = cp
        return parameter.expand(blocks, *parameter.shape)

    @staticmethod
    def backward(ctx, gradient):
        every_block = gradient if ctx.cp is None else ctx.cp.unshard(gradient, dim=0)
        total = torch.zeros_like(every_block[0])
        for block in every_block:
            total += block
        return total, None, None


BLOCK = 32  # rows that are multiplied at once: products of other shapes may have other bits


class Model(torch.nn.Module):
    """Two layers with masks of their own."""

    def __init__(self, width=32, heads=2, vocabulary=50):
        super().__init__()
        self.heads = heads
        self.table = torch.nn.Parameter(torch.randn(vocabulary, width) * 0.1)
        self.qkv = torch.nn.ParameterList([torch.randn(width, 3 * width) * 0.1 for _ in range(2)])
        self.out = torch.nn.ParameterList([torch.randn(width, width) * 0.1 for _ in range(2)])

    def forward(self, tokens, labels, masks, blocks_of_all=None, attention=flex_attention):
        """A loss for each token."""
        rows = tokens.shape[0]
        blocks = rows // BLOCK

        def times(x, parameter):
            return (x.reshape(blocks, BLOCK, -1) @ RowsOfAll.apply(parameter, blocks, blocks_of_all)).reshape(rows, -1)

        chosen = torch.nn.functional.one_hot(tokens, self.table.shape[0]).to(self.table.dtype)
        x = times(chosen, self.table)
        for qkv, out, mask in zip(self.qkv, self.out, masks):
            q, k, v = times(x, qkv).reshape(1, rows, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            x = x + times(attention(q, k, v, block_mask=mask)[0].transpose(0, 1).reshape(rows, -1), out)
        logits = times(x, self.table.t())
        return torch.nn.functional.cross_entropy(logits, labels, reduction="none")


def training(rank, ranks, attention_kind):
    """Losses and parameters have the bits of one process."""
    length, attention = 8 * BLOCK, flex_attention
    if attention_kind == "checkpoint":

        def attention(q, k, v, block_mask):
            return checkpoint(flex_attention, q, k, v, None, block_mask, use_reentrant=False)

    elif attention_kind == "compile":
        torch._dynamo.reset()
        attention = torch.compile(flex_attention, backend="aot_eager", fullgraph=True)
    tokens, labels = torch.randint(50, (2, length))
    shards = [2 * BLOCK, BLOCK, 5 * BLOCK] if ranks == 3 else None
    blocks = None if shards is None else [n // BLOCK for n in shards]

    def train(tokens, labels, masks, cp, blocks_of_all, attention):
        torch.manual_seed(1)
        model = Model()
        optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.5), []
        for _ in range(3):
            each = model(tokens, labels, masks, blocks_of_all, attention)
            loss = (each if cp is None else cp.unshard(each, dim=0)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return [torch.stack(losses), *[p.grad for p in model.parameters()], *[p.detach() for p in model.parameters()]]

    masks = [create_block_mask(mask, None, None, length, length) for mask in (causal, window)]
    wanted = train(tokens, labels, masks, None, None, flex_attention)
    assert wanted[0][-1] < wanted[0][0]
    with td.context_parallel(length=length, shards=shards) as cp:
        masks = [td.create_block_mask(mask, None, None, length, length) for mask in (causal, window)]
        blocks_of_all = td.context_parallel(length=length // BLOCK, shards=blocks)
        got = train(*cp.shard(tokens, labels, dim=0), masks, cp, blocks_of_all, attention)
    for i, (a, b) in enumerate(zip(got, wanted)):
        expect_equal(f"losses, gradients and parameters, {i}", a, b)


class Small(torch.nn.Module):
    def __init__(self, mask):
        super().__init__()
        self.project, self.mask = torch.nn.Linear(32, 96), mask

    def forward(self, x):
        q, k, v = self.project(x).reshape(1, x.shape[1], 3, 2, 16).permute(2, 0, 3, 1, 4)
        return flex_attention(q, k, v, block_mask=self.mask).sum()


def beside_ddp(rank, ranks):
    """DDP adds gradients over a group of its own, while attention runs."""
    group = dist.new_group()
    with td.context_parallel(length=256) as cp:
        model = Small(td.create_block_mask(causal, None, None, 256, 256))
        whole = Small(create_block_mask(causal, None, None, 256, 256))
        whole.load_state_dict(model.state_dict())
        parallel = torch.nn.parallel.DistributedDataParallel(model, process_group=group, bucket_cap_mb=0.001)
        x = torch.randn(1, 256, 32)
        for _ in range(3):
            model.zero_grad()
            parallel(cp.shard(x, dim=1)).backward()
    whole(x).backward()
    for got, wanted in zip(model.parameters(), whole.parameters()):
        torch.testing.assert_close(got.grad * ranks, wanted.grad, rtol=1e-4, atol=1e-4)


def compiled(rank, ranks, backend):
    """One operation, no breaks, with gradients, also of what the score mod reads."""
    torch._dynamo.reset()
    seen = []

    def count(graph, inputs):
        seen.append([n for n in graph.graph.nodes if "group_attention" in str(n.target)])
        return torch._dynamo.lookup_backend(backend)(graph, inputs)

    cp, x, table = td.context_parallel(length=96), torch.randn(1, 2, 96, 16), torch.randn(96, requires_grad=True)
    document = torch.arange(96) // 40

    def call(q, table, mask):
        out = flex_attention(q, q, q, lambda s, b, h, i, j: s * 0.5 + table[i], mask)
        return out, *torch.autograd.grad((out * out).sum(), (q, table))

    def compiled_call(q, table, mask):
        out = compiled(q, table, mask)
        return out, *torch.autograd.grad((out * out).sum(), (q, table))

    def mask_mod(b, h, q, kv):
        return (document[q] == document[kv]) & (q >= kv)

    compiled = torch.compile(
        lambda q, table, mask: flex_attention(q, q, q, lambda s, b, h, i, j: s * 0.5 + table[i], mask),
        backend=count, fullgraph=True,
    )  # fmt: skip
    mask = td.create_block_mask(mask_mod, None, None, 96, 96)
    wanted = call(x.clone().requires_grad_(), table, create_block_mask(mask_mod, None, None, 96, 96))
    for _ in range(2):
        got = compiled_call(cp.shard(x, dim=2).clone().requires_grad_(), table, mask)
        expect_equal("compiled", got[0], cp.shard(wanted[0], dim=2))
        torch.testing.assert_close(got[1], cp.shard(wanted[1], dim=2))  # torch adds dq, dk and dv in another order
        expect_equal("gradient of a table", got[2], wanted[2])
    assert [len(nodes) for nodes in seen] == [1], seen
    torch._dynamo.reset()


# --- mistakes -------------------------------------------------------------------------------------------------------


def mistakes(rank, ranks):
    """Each is an error of all ranks, and the next call is fine."""
    cp = td.context_parallel(length=90)
    x = torch.randn(1, 2, 90, 16)
    mine = cp.shard(x, dim=2)
    mask = td.create_block_mask(causal, None, None, 90, 90, patience=20)
    other = td.create_block_mask(window, None, None, 90, 90, patience=20)
    said = {}

    def fine():
        return flex_attention(mine, mine, mine, block_mask=mask)

    wanted = fine()
    flex_attention(mine, mine, mine, block_mask=other)

    def note(name, call):
        said[name] = error_of(call)
        expect_equal(f"after {name}", fine(), wanted)

    note("whole", lambda: flex_attention(x, x, x, block_mask=mask))
    wrong = x if rank == 1 else mine
    note("whole on one", lambda: flex_attention(wrong, wrong, wrong, block_mask=mask))
    wide = mine.expand(1, 2, -1, 16).repeat(1, 1, 1, 2) if rank == 1 else mine
    note("dims", lambda: flex_attention(wide, wide, wide, block_mask=mask))
    note("mod", lambda: flex_attention(mine, mine, mine, lambda s, *_: s * 2 if rank == 1 else s, mask))
    table = torch.zeros(10)  # read out of its range
    note("out of range", lambda: flex_attention(mine, mine, mine, lambda s, b, h, q, kv: s + table[q], mask))
    note("offset", lambda: flex_attention(mine, mine, mine, block_mask=mask, q_offset=3))
    note("one raises", lambda: flex_attention(mine, mine, mine, refuses if rank == 1 else None, mask))
    note("order", lambda: flex_attention(mine, mine, mine, block_mask=mask if rank == 1 else other))
    def make(length=90, **options):
        return td.create_block_mask(causal, None, None, length, length, patience=20, **options)

    one_rank = [90, *[0] * (ranks - 1)] if rank == 1 else None
    note("lengths", lambda: first_call(make(90 if rank == 1 else 91), rank, ranks))
    note("shards", lambda: first_call(make(shards=one_rank), rank, ranks))
    note("options", lambda: first_call(make(gigabits=1 + rank), rank, ranks))
    note("group of one", lambda: first_call(make(group=alone()), 1, ranks))
    return said


def alone():
    """A group of this rank alone."""
    return dist.new_group([dist.get_rank()], use_local_synchronization=True)


def refuses(s, b, h, q, kv):
    raise RuntimeError("this mod does not like it here")


def first_call(mask, rank, ranks):
    lengths = [b - a for a, b in zip(mask.ranks.queries, mask.ranks.queries[1:])]
    rows = lengths[rank] if len(lengths) == ranks else 90 // ranks
    x = torch.randn(1, 2, rows, 16)
    flex_attention(x, x, x, block_mask=mask)


def local_mistakes(rank, ranks):
    """Seen without the others: all ranks give the same."""
    cp = td.context_parallel(length=90)
    x = torch.randn(1, 2, 90, 16)
    return [
        error_of(lambda: cp.shard(x, dim=1)),
        error_of(lambda: cp.unshard(x, dim=2)),
        error_of(lambda: td.create_block_mask(causal, None, None, 90, 90, shards=[1, 2, 3])),
        error_of(lambda: td.create_block_mask(causal, None, None, 90, 90, sums="all")),
        error_of(lambda: td.create_block_mask(causal, None, None, 90, 90, group="all")),
        error_of(lambda: td.create_block_mask(causal, None, None, 90, 90, patience=0)),
    ]


def skipped(rank, ranks, patience):
    """Rank 1 leaves a call out, and makes the next."""
    x = torch.randn(1, 2, 30, 16)
    length = 30 * ranks
    mask, other = [td.create_block_mask(m, None, None, length, length, patience=patience) for m in (causal, window)]
    for m in (mask, other):
        flex_attention(x, x, x, block_mask=m)
    if rank != 1:
        return error_of(lambda: flex_attention(x, x, x, block_mask=mask))
    return error_of(lambda: flex_attention(x, x, x, block_mask=other))


# --- ranks that go --------------------------------------------------------------------------------------------------


def lost(rank, ranks, how, patience):
    """Rank 1 is killed or stopped before a call or in the middle of one; the others say what they heard, and after how
    long."""
    rows, dim = (64, 16) if how != "killed in a call" else (1000, 64)
    mask = td.create_block_mask(causal, None, None, rows * ranks, rows * ranks, patience=patience, gigabits=1000)
    x = torch.randn(1, 4, rows, dim, requires_grad=True)
    out = flex_attention(x, x, x, block_mask=mask)
    if rank == 1:
        number = signal.SIGSTOP if how == "stopped" else signal.SIGKILL
        if how != "killed in a call":
            os.kill(os.getpid(), number)
            time.sleep(60)
        threading.Timer(0.15, os.kill, (os.getpid(), number)).start()

    def calls():
        out.sum().backward()
        while how == "killed in a call":
            flex_attention(x, x, x, block_mask=mask).sum().backward()

    begin = time.monotonic()
    first = error_of(calls)
    took = time.monotonic() - begin
    second = error_of(lambda: flex_attention(x, x, x, block_mask=mask))
    third = error_of(lambda: first_call(td.create_block_mask(window, None, None, 90, 90, patience=patience), rank, ranks))
    return first, took, second, third


def interrupted(rank, ranks, calls):
    """Rank 0 waits for others, and gets a signal, after so many calls: quick ones are made another way."""
    mask = td.create_block_mask(causal, None, None, 64 * ranks, 64 * ranks, patience=60)
    x = torch.randn(1, 2, 64, 16)
    for _ in range(calls):
        flex_attention(x, x, x, block_mask=mask)
    if rank == 1:
        time.sleep(2.5)
        return error_of(lambda: flex_attention(x, x, x, block_mask=mask))
    if rank == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    begin = time.monotonic()
    try:
        flex_attention(x, x, x, block_mask=mask)
    except KeyboardInterrupt:
        text = "KeyboardInterrupt"
    except Exception as error:
        text = str(error)
    took = time.monotonic() - begin
    assert took < 4, took
    return text


def ends(rank, ranks):
    """Ranks end at different times after their last call, and nobody complains."""
    mask = td.create_block_mask(causal, None, None, 64 * ranks, 64 * ranks)
    x = torch.randn(1, 2, 64, 16)
    for _ in range(3):
        flex_attention(x, x, x, block_mask=mask)
    time.sleep(0.2 * rank)
