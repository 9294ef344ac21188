"""Keys in pages: paged_attention beside varlen_attention."""

import pytest
import torch
import torch._dynamo.testing
import torch.fx.experimental._config

import treadle
from treadle.torch import AuxRequest, paged_attention, varlen_attention

LENGTHS = [(1, 133), (7, 90), (40, 40), (0, 5), (0, 0), (1, 1)]  # queries and keys of each sequence


def starts_of(counts):
    return torch.tensor([0, *counts]).cumsum(0)


class Batch:
    def __init__(self, lengths=LENGTHS, heads=4, key_heads=2, dim=16, dtype=torch.float32):
        self.q_starts, self.k_starts = starts_of([q for q, _ in lengths]), starts_of([k for _, k in lengths])
        self.q = torch.randn(int(self.q_starts[-1]), heads, dim, dtype=dtype)
        self.k, self.v = (torch.randn(int(self.k_starts[-1]), key_heads, dim, dtype=dtype) for _ in range(2))
        self.lengths = self.k_starts.diff()

    def packed(self, **how):
        return varlen_attention(self.q, self.k, self.v, self.q_starts, self.k_starts, enable_gqa=True, **how)

    def pages(self, size, order="heads_first"):
        """Pools and a page table; pages are in no order, and what is behind a sequence is NaN."""
        counts = -(-self.lengths // size)
        numbers = torch.randperm(int(counts.sum()) + 2, dtype=torch.int32)
        table = torch.full((len(counts), int(counts.max())), -7, dtype=torch.int32)
        shape = len(numbers), self.k.shape[1], size, self.k.shape[2]
        pools = [torch.full(shape, torch.nan, dtype=self.k.dtype) for _ in range(2)]
        used = 0
        for s, count in enumerate(counts):
            for p in range(count):
                table[s, p] = numbers[used]
                used += 1
                first = int(self.k_starts[s]) + p * size
                last = min(first + size, int(self.k_starts[s + 1]))
                for pool, x in zip(pools, (self.k, self.v)):
                    pool[int(table[s, p]), :, : last - first] = x[first:last].transpose(0, 1)
        if order == "tokens_first":
            pools = [pool.transpose(1, 2).contiguous() for pool in pools]
        return *pools, table, self.lengths

    def paged(self, pages, **how):
        return paged_attention(self.q, self.q_starts, *pages, enable_gqa=True, **how)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size, order", [(16, "heads_first"), (5, "tokens_first"), (128, "tokens_first")])
def test_bits_of_packed_keys(dtype, size, order):
    batch = Batch(dtype=dtype)
    slopes = torch.randn(4)
    how = dict(
        score_mod=lambda s, b, h, q, kv: s + slopes[h] * (kv - q) + b, mask_mod=lambda b, h, q, kv: (q < 60) | (kv % 3 == 0),
        causal=True, window_size=(70, -1), scale=0.2, sinks=torch.randn(4), return_aux=AuxRequest(lse=True, max_scores=True),
    )  # fmt: skip
    seen, seen_aux = batch.paged(batch.pages(size, order), order=order, **how)
    wanted, wanted_aux = batch.packed(**how)
    assert torch.equal(seen, wanted) and seen.dtype == dtype
    assert torch.equal(seen_aux.lse, wanted_aux.lse) and torch.equal(seen_aux.max_scores, wanted_aux.max_scores)


def test_more_queries_than_keys():
    batch = Batch([(5, 3), (2, 8)])
    for how in ({}, dict(causal=True), dict(window_size=(1, 1))):
        assert torch.equal(batch.paged(batch.pages(4), **how), batch.packed(**how))


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
def test_scales_of_eight_bits(dtype):
    batch = Batch()
    k, v, *rest = batch.pages(8)
    eight = [(x.nan_to_num(0) * 30).to(dtype) for x in (k, v)]
    scales = [torch.rand(k.shape[:3]), torch.rand(k.shape[:2])]
    seen = batch.paged((*eight, *rest), causal=True, k_scales=scales[0], v_scales=scales[1])
    floats = eight[0].float() * scales[0][..., None], eight[1].float() * scales[1][..., None, None]
    assert torch.equal(seen, batch.paged((*floats, *rest), causal=True))


@torch.fx.experimental._config.patch(use_duck_shape=False)  # sizes that are equal by chance
def test_compiled():
    torch._dynamo.reset()
    slopes = torch.randn(4)

    def step(q, starts, *pages):
        out, aux = paged_attention(
            q, starts, *pages, score_mod=lambda s, b, h, q, kv: s + slopes[h] * (kv - q), causal=True, enable_gqa=True,
            return_aux=AuxRequest(lse=True),
        )  # fmt: skip
        return out * 2, aux.lse

    graphs = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(step, backend=graphs, fullgraph=True, dynamic=True)
    for lengths in ([(7, 9), (20, 60)], [(1, 80), (2, 3), (5, 5)]):
        batch = Batch(lengths)
        pages = batch.pages(16)
        for a, b in zip(compiled(batch.q, batch.q_starts, *pages), step(batch.q, batch.q_starts, *pages)):
            assert torch.equal(a, b)
    assert graphs.frame_count == 1


def test_what_is_refused():
    batch = Batch([(2, 4), (3, 3)])
    k, v, table, lengths = batch.pages(4)

    def refused(error, match, q=batch.q, starts=batch.q_starts, k=k, v=v, table=table, lengths=lengths, **more):
        with pytest.raises(error, match=match):
            paged_attention(q, starts, k, v, table, lengths, **{"enable_gqa": True, **more})

    refused(RuntimeError, "paged_attention has no gradient, and a tensor of the call requires grad",
            q=batch.q.clone().requires_grad_())  # fmt: skip
    bias = torch.zeros(9, requires_grad=True)
    refused(RuntimeError, "paged_attention has no gradient", score_mod=lambda s, b, h, q, kv: s + bias[kv])
    with torch.no_grad():
        paged_attention(batch.q.clone().requires_grad_(), batch.q_starts, k, v, table, lengths, enable_gqa=True)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(batch.q, batch.q)
        refused(RuntimeError, "no derivative in forward mode", q=dual)
    refused(ValueError, "different numbers of heads, 4 and 2; set enable_gqa=True", enable_gqa=False)
    refused(TypeError, "lengths must be a tensor, got list", lengths=[4, 3])
    refused(TypeError, "k_scales must be a tensor, got float", k_scales=0.5)
    refused(ValueError, "paged_attention: order is 'x'; it must be 'heads_first' or 'tokens_first'", order="x")
    refused(treadle.Error, r"forward: k has shape \[4, 2, 64\]; it must be \[pages, heads, page size, dim\]", k=k.flatten(2))
    refused(treadle.Error, "the page table holds i64 of shape .2, 1.; it must be .sequences, pages.", table=table.long())
    refused(treadle.Error, "page 0 of sequence 1 is 99; the pool has 4 pages, from 0 on",
            table=torch.tensor([[0], [99]], dtype=torch.int32))  # fmt: skip
    refused(treadle.Error, "sequence 1 has length 5; its 1 pages of 4 tokens hold 0 to 4", lengths=torch.tensor([4, 5]))
    refused(treadle.Error, "q_starts is for 2 sequences, lengths for 1", lengths=torch.tensor([4]))
    refused(treadle.Error, r"v_scales holds f64 of shape \[4, 2\]", v_scales=torch.ones(4, 2, dtype=torch.float64))
    refused(treadle.Error, "k_scales of sequence 0, head 0 holds a number that is not finite",
            k_scales=torch.full((4, 2), torch.nan))  # fmt: skip
    refused(treadle.Error, "the last stride of k is 4; that of a pool must be 1", k=k.mT.contiguous().mT)
