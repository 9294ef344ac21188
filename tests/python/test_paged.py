"""Keys in pages: paged_attention beside varlen_attention, and PagedAttention beside torch's own."""

import pytest
import torch
import torch._dynamo.testing
import torch.fx.experimental._config
import torch.nn.attention.flex_attention as torch_flex
from torch.nn.attention.experimental._paged_attention import PagedAttention as TorchPagedAttention

import treadle
from treadle.torch import (
    AuxRequest, PagedAttention, create_block_mask, flex_attention, paged_attention, varlen_attention,
)  # fmt: skip

LENGTHS = [(1, 133), (7, 90), (40, 40), (0, 5), (0, 0), (1, 1)]  # queries and keys of each sequence


def starts_of(counts):
    return torch.tensor([0, *counts]).cumsum(0)


def causal(b, h, q, kv):
    return q >= kv


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


# --- PagedAttention ---------------------------------------------------------------------------------------------------


def both(n_pages=20, page_size=16, batch=3):
    return PagedAttention(n_pages, page_size, batch), TorchPagedAttention(n_pages, page_size, batch, device="cpu")


def same_tables(ours, theirs):
    assert torch.equal(ours.page_table, theirs.page_table) and torch.equal(ours.capacity, theirs.capacity)
    assert ours.empty_pages == theirs.empty_pages


def one(x):
    return torch.tensor([x])


def test_page_tables_are_torchs():
    ours, theirs = both()
    for b, length in ((0, 20), (1, 100), (0, 33), (2, 16), (1, 50), (0, 70)):
        for pages in (ours, theirs):
            pages.reserve(one(b), one(length))
        same_tables(ours, theirs)
    assert torch.equal(ours.physical_to_logical, theirs.physical_to_logical)
    for pages in (ours, theirs):
        pages.erase(one(1))
        pages.reserve(one(2), one(90))
    same_tables(ours, theirs)
    assert (ours.physical_to_logical[1] == -1).all()  # torch forgets to say so
    for b in (0, 2):
        assert torch.equal(ours.physical_to_logical[b], theirs.physical_to_logical[b])
    for pages in (ours, theirs):
        with pytest.raises(AssertionError, match="requested 20 pages but there are only 9 empty pages"):
            pages.reserve(one(1), one(320))


def filled(lengths, heads=2, dim=16, n_pages=20, page_size=16, longest=96):
    """Ours and torch's with the same pages, their caches, and keys and values (B, H, longest, D)."""
    ours, theirs = both(n_pages, page_size, len(lengths))
    k, v = (torch.randn(len(lengths), heads, longest, dim) for _ in range(2))
    caches = []
    for pages in (ours, theirs):
        cache = [torch.zeros(1, heads, n_pages * page_size, dim) for _ in range(2)]
        for b in range(len(lengths)):  # in turns, so that pages of one entry do not follow each other
            pages.reserve(one(b), one(page_size))
        for b, length in enumerate(lengths):
            pages.reserve(one(b), one(length))
            at = torch.arange(length)[None]
            pages.assign(one(b), at, k[b : b + 1, :, :length], v[b : b + 1, :, :length], *cache)
        caches.append(cache)
    assert all(torch.equal(a, b) for a, b in zip(*caches))
    return ours, theirs, caches[0], k, v


def relative(score, b, h, q, kv):
    return score + (kv - q) * 0.1 + h


@pytest.mark.parametrize("score_mod", [None, relative])
@pytest.mark.parametrize("queries", [96, 1])
def test_flex_attention_over_pages(score_mod, queries):
    """As over the same keys in a row, and as torch does it with its own classes."""
    ours, theirs, cache, k, v = filled([96, 96, 96])
    q = torch.randn(3, 2, queries, 16)
    past = 96 - queries
    documents = torch.arange(96) // 40

    def mask_mod(b, h, q, kv):
        return (q + past >= kv) & (documents[kv] <= 1 + b)

    how = dict(BLOCK_SIZE=(128, 16))
    mask = create_block_mask(mask_mod, 3, None, queries, 96, **how)
    converted = ours.convert_logical_block_mask(mask)
    seen = flex_attention(q, *cache, ours.get_score_mod(score_mod), converted)
    torch.testing.assert_close(seen, flex_attention(q, k, v, score_mod, mask))
    torch_mask = torch_flex.create_block_mask(mask_mod, 3, None, queries, 96, device="cpu", **how)
    torch_converted = theirs.convert_logical_block_mask(torch_mask)
    wanted = torch_flex.flex_attention(q, *cache, theirs.get_score_mod(score_mod), torch_converted)
    torch.testing.assert_close(seen, wanted)
    for name in ("kv_num_blocks", "full_kv_num_blocks"):
        assert torch.equal(getattr(converted, name), getattr(torch_converted, name))
    for name in ("kv", "full_kv"):
        counts = getattr(converted, f"{name}_num_blocks")
        listed = torch.arange(20) < counts.unsqueeze(-1)
        a, b = (getattr(m, f"{name}_indices") for m in (converted, torch_converted))
        assert a.shape == b.shape and torch.equal(a[listed], b[listed])
    assert converted.seq_lengths == torch_converted.seq_lengths and converted.BLOCK_SIZE == torch_converted.BLOCK_SIZE
    # torch's converted mask is taken, too
    torch.testing.assert_close(flex_attention(q, *cache, ours.get_score_mod(score_mod), torch_converted), wanted)


def test_lengths_of_keys():
    """What is reserved and not yet written is hidden by kv_len; what is not reserved is hidden anyway."""
    lengths = [20, 96, 33]
    ours, theirs, cache, k, v = filled(lengths)
    kv_len = torch.tensor(lengths)
    q = torch.randn(3, 2, 5, 16)
    mask = create_block_mask(lambda b, h, q, kv: q == q, 3, None, 5, 96, BLOCK_SIZE=16, separate_full_blocks=False)
    for score_mod in (None, relative):
        over_pages = flex_attention(
            q, *cache, ours.get_score_mod(score_mod, kv_len), ours.convert_logical_block_mask(mask, kv_len=kv_len)
        )
        by_functions = flex_attention(q, cache[0].expand(3, -1, -1, -1), cache[1].expand(3, -1, -1, -1),
            ours.get_score_mod(score_mod, kv_len), ours.get_mask_mod(None, kv_len))  # fmt: skip
        for b, length in enumerate(lengths):
            own = flex_attention(q[b : b + 1], k[b : b + 1, :, :length], v[b : b + 1, :, :length], score_mod)
            torch.testing.assert_close(over_pages[b : b + 1], own)
            torch.testing.assert_close(by_functions[b : b + 1], own)


def test_some_entries_of_a_batch():
    ours, _, cache, k, v = filled([96, 96, 96])
    q = torch.randn(2, 2, 96, 16)
    mask = create_block_mask(causal, 2, None, 96, 96, BLOCK_SIZE=16)
    seen = flex_attention(q, *cache, block_mask=ours.convert_logical_block_mask(mask, torch.tensor([2, 0])))
    torch.testing.assert_close(seen, flex_attention(q, k[[2, 0]], v[[2, 0]], block_mask=mask))


def test_pages_that_others_had():
    ours, _, cache, k, v = filled([96, 96, 96])
    ours.erase(one(1))
    ours.reserve(one(0), one(160))
    new_k, new_v = torch.randn(2, 1, 2, 64, 16)
    ours.assign(one(0), torch.arange(96, 160)[None], new_k, new_v, *cache)
    q = torch.randn(3, 2, 1, 16)
    mask = create_block_mask(lambda b, h, q, kv: q == q, 3, None, 1, 160, BLOCK_SIZE=16, separate_full_blocks=False)
    seen = flex_attention(q, *cache, block_mask=ours.convert_logical_block_mask(mask))
    own = flex_attention(q[:1], torch.cat([k[:1], new_k], 2), torch.cat([v[:1], new_v], 2))
    torch.testing.assert_close(seen[:1], own)
    assert not seen[1].any()


def test_its_page_table_serves_paged_attention():
    ours, _, cache, k, v = filled([96, 20, 50])
    pools = [c[0].unflatten(1, (20, 16)).transpose(0, 1) for c in cache]
    q = torch.randn(3, 2, 16)
    lengths = torch.tensor([96, 20, 50])
    seen = paged_attention(q, torch.arange(4), *pools, ours.page_table.to(torch.int32), lengths, causal=True)
    for b, length in enumerate((96, 20, 50)):
        own = flex_attention(q[b][None, :, None], k[b : b + 1, :, :length], v[b : b + 1, :, :length])
        assert torch.equal(seen[b], own[0, :, 0])


def test_misuse_is_refused_as_by_torch():
    for pages in both():
        pages.reserve(one(0), one(32))
        cache = torch.zeros(1, 2, 320, 16)
        at = torch.arange(8)[None]

        def refused(match, k, v, at=at, batch=one(0), pages=pages, cache=cache):
            with pytest.raises(RuntimeError, match=match):
                pages.assign(batch, at, k, v, cache, cache)

        x = torch.zeros(1, 2, 8, 16)
        refused("val must not require gradient", x.clone().requires_grad_(), x)
        refused("Expect val and batch_idx have the same batch size but got B=1 and B=2.", x, x, batch=torch.tensor([0, 1]))
        refused("Expect val and cache has the same number of heads but got H=1 and H=2.", x[:, :1], x)
        refused("Expect val and input_pos has the same length but got S=7 and S=", x[:, :, :7], x)
        refused("Expect k_val and k_cache has the same hidden dim but got D=4 and D=16.", x[..., :4], x)
        refused("Expect v_val and v_cache has the same hidden dim but got D=4 and D=16.", x, x[..., :4])
        ours = isinstance(pages, PagedAttention)
        make = create_block_mask if ours else torch_flex.create_block_mask
        mask = make(causal, 1, None, 128, 128, **({} if ours else {"device": "cpu"}))
        with pytest.raises(RuntimeError, match="same column block size as page_sizebut got size=128 and size=16"):
            pages.convert_logical_block_mask(mask)
        if ours:
            refused("Expect pages to be reserved for all of input_pos", x, x, at=at + 30)
    with pytest.raises(ValueError, match="Treadle runs on the CPU"):
        PagedAttention(4, 16, 1, device="cuda")
