"""BlockMask: attributes, blocks, parts and pictures of it, against torch's."""

import copy
import math

import mods
import pytest
import torch
import torch.nn.attention.flex_attention as torch_flex
from policy import dense, inputs
from treadle.torch import (
    AuxRequest,
    BlockMask,
    create_block_mask,
    create_mask,
    flex_attention,
    noop_mask,
)

LISTS = (
    "kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices",
    "q_num_blocks", "q_indices", "full_q_num_blocks", "full_q_indices",
)  # fmt: skip


def offset_causal():
    offset = torch.arange(8)
    return lambda b, h, q, kv: q + offset[b] * 128 >= kv


def same_lists(ours, theirs):
    for name in LISTS:
        a, b = getattr(ours, name), getattr(theirs, name)
        assert (a is None) == (b is None), name
        if a is None:
            continue
        assert a.shape == b.shape and a.dtype == b.dtype, name
        if name.endswith("indices"):
            count = getattr(theirs, name.replace("indices", "num_blocks"))
            kept = torch.arange(b.shape[-1]) < count[..., None]
            assert torch.equal(a[kept], b[kept]), name
        else:
            assert torch.equal(a, b), name


def test_attributes():
    mask = create_block_mask(offset_causal(), 4, 2, 2048, 2048)
    assert mask.shape == (4, 2, 2048, 2048)
    assert mask[0].shape == (1, 2, 2048, 2048)
    assert mask[0, 0].shape == (1, 1, 2048, 2048)
    assert mask.numel() == 4 * 2 * 2048 * 2048
    assert mask.sparsity() == 38.4765625
    assert mask[0].sparsity() == 46.875
    assert mask[1, 0].sparsity() < 46.875
    assert mask.seq_lengths == (2048, 2048)
    assert mask.BLOCK_SIZE == (128, 128)


def test_sparsity_of_causal():
    assert create_block_mask(mods.causal_mask, None, None, 2048, 2048).sparsity() == 46.875


@pytest.mark.parametrize("block_size", [32, 64, 128, 256, (128, 256), (256, 128), (1, 64), (100, 30)], ids=str)
@pytest.mark.parametrize("mask_mod", [mods.causal_mask, mods.window_mask, mods.noop_mask], ids=mods.name)
def test_same_blocks_as_torch(mask_mod, block_size):
    for lengths in ((256, 256), (150, 300), (10, 10)):
        ours = create_block_mask(mask_mod, None, None, *lengths, BLOCK_SIZE=block_size)
        theirs = torch_flex.create_block_mask(mask_mod, None, None, *lengths, "cpu", BLOCK_SIZE=block_size)
        same_lists(ours, theirs)
        assert ours.shape == theirs.shape and ours.sparsity() == theirs.sparsity()
        assert torch.equal(ours.to_dense(), theirs.to_dense())


@pytest.mark.parametrize("chance", [0.0, 0.02, 0.3, 0.98, 1.0])
def test_same_blocks_as_torch_of_random_masks(chance):
    visible = torch.rand(2, 3, 70, 90) < chance
    visible[0, 1, 16:32, 32:48] = True

    def mask_mod(b, h, q, kv):
        return visible[b, h, q, kv]

    ours = create_block_mask(mask_mod, 2, 3, 70, 90, BLOCK_SIZE=16)
    same_lists(ours, torch_flex.create_block_mask(mask_mod, 2, 3, 70, 90, "cpu", BLOCK_SIZE=16))
    assert torch.equal(create_mask(mask_mod, 2, 3, 70, 90), visible)


def test_ragged_edge_is_never_full():
    mask = create_block_mask(noop_mask, None, None, 10, 10, BLOCK_SIZE=4)
    assert mask.full_kv_num_blocks.tolist() == [[[2, 2, 0]]]
    assert mask.kv_num_blocks.tolist() == [[[1, 1, 3]]]


def test_full_blocks_not_apart():
    ours = create_block_mask(mods.causal_mask, None, None, 256, 256, BLOCK_SIZE=64, separate_full_blocks=False)
    theirs = torch_flex.create_block_mask(
        mods.causal_mask, None, None, 256, 256, "cpu", BLOCK_SIZE=64, separate_full_blocks=False
    )
    same_lists(ours, theirs)
    q, k, v = inputs(Q=256)
    torch.testing.assert_close(
        flex_attention(q, k, v, None, ours), flex_attention(q, k, v, None, create_block_mask(mods.causal_mask, None, None, 256, 256))
    )


@pytest.mark.parametrize(
    "index",
    [0, -1, 3, (0, 1), (-1, -2), slice(0, 2), (slice(0, 2), slice(1, 2)), (slice(None), 0, 1), (slice(None), slice(None), -1),
     (slice(0, 2), slice(1, 2), torch.tensor([1], dtype=torch.int32)), (slice(None), slice(None), slice(1, 3))],
    ids=str,
)  # fmt: skip
def test_getitem(index):
    ours = create_block_mask(offset_causal(), 4, 2, 512, 512)[index]
    theirs = torch_flex.create_block_mask(offset_causal(), 4, 2, 512, 512, "cpu")[index]
    same_lists(ours, theirs)
    assert ours.shape == theirs.shape and ours.seq_lengths == theirs.seq_lengths


def test_sliced_mask_is_refused():
    q, k, v = inputs(Q=256)
    mask = create_block_mask(mods.causal_mask, 2, 4, 256, 256)
    for index in (0, (0, 0), (slice(None), slice(None), 0)):
        with pytest.raises(RuntimeError, match="Cannot use mask_mod from a sliced BlockMask"):
            flex_attention(q, k, v, None, mask[index])
    with pytest.raises(RuntimeError, match="sliced"):
        flex_attention(q[:, :, :128], k, v, None, mask[:, :, 0])


def test_adjust():
    for mask_mod in (mods.causal_mask, mods.window_mask):
        ours = create_block_mask(mask_mod, None, None, 1024, 1024)
        theirs = torch_flex.create_block_mask(mask_mod, None, None, 1024, 1024, "cpu")
        for lengths in ((1024, 1024), (512, 512), (700, 700), (1, 1)):
            a, b = ours._adjust(*lengths), theirs._adjust(*lengths)
            assert a.shape == b.shape == (1, 1, *lengths)
            assert torch.equal(a.to_dense(), b.to_dense())


def test_adjust_of_far_blocks():
    """Blocks 1 and 6 of 8, cropped to 4: torch fails here."""

    def mask_mod(b, h, q, kv):
        return (kv // 16 == 1) | (kv // 16 == 6)

    mask = create_block_mask(mask_mod, None, None, 128, 128, BLOCK_SIZE=16)
    listed = BlockMask.from_kv_blocks(
        mask.kv_num_blocks, mask.kv_indices, mask.full_kv_num_blocks, mask.full_kv_indices, 16, mask_mod
    )
    q, k, v = inputs(Q=64)
    for m in (mask, listed):
        cropped = m._adjust(64, 64)
        assert cropped.to_dense()[0, 0].tolist() == [[0, 1, 0, 0]] * 4
        torch.testing.assert_close(flex_attention(q, k, v, None, cropped), dense(q, k, v, None, mask_mod)[0])


def test_adjust_then_attend():
    q, k, v = inputs(Q=200)
    mask = create_block_mask(mods.causal_mask, None, None, 256, 256)
    assert torch.equal(
        flex_attention(q, k, v, None, mask._adjust(200, 200)),
        flex_attention(q, k, v, None, create_block_mask(mods.causal_mask, None, None, 200, 200)),
    )


def lists_of(rows):
    """kv_num_blocks and kv_indices of lists of blocks by row."""
    columns = len(rows)
    num = torch.tensor([[[len(r) for r in rows]]], dtype=torch.int32)
    indices = torch.zeros(1, 1, len(rows), columns, dtype=torch.int32)
    for i, row in enumerate(rows):
        indices[0, 0, i, : len(row)] = torch.tensor(row, dtype=torch.int32)
    return num, indices


@pytest.mark.parametrize("with_full", [False, True])
def test_from_kv_blocks(with_full):
    """Listed blocks alone exist; in partial ones the mask_mod decides, in full ones nothing does."""
    partial, full = [[0], [1, 3], [2, 0], []], [[2], [], [1], [3]]
    arguments = lists_of(partial) + (lists_of(full) if with_full else ())
    ours = BlockMask.from_kv_blocks(*arguments, BLOCK_SIZE=16, mask_mod=mods.causal_mask)
    theirs = torch_flex.BlockMask.from_kv_blocks(*arguments, BLOCK_SIZE=16, mask_mod=mods.causal_mask)
    same_lists(ours, theirs)
    assert ours.shape == theirs.shape and ours.sparsity() == theirs.sparsity()
    assert torch.equal(ours.to_dense(), theirs.to_dense())
    kinds = torch.zeros(4, 4, dtype=torch.int64)
    for row, columns in enumerate(partial):
        kinds[row, columns] = 1
    for row, columns in enumerate(full if with_full else []):
        kinds[row, columns] = 2

    def mask_mod(b, h, q, kv):
        kind = kinds[q // 16, kv // 16]
        return (kind == 2) | ((kind == 1) & (q >= kv))

    q, k, v = inputs(Q=64, requires_grad=True)
    gold = dense(q, k, v, None, mask_mod)[0]
    dout = torch.randn_like(q)
    for mask in (ours, theirs):
        out = flex_attention(q, k, v, None, mask)
        torch.testing.assert_close(out, gold)
        for a, b in zip(
            torch.autograd.grad(out, (q, k, v), dout), torch.autograd.grad(gold, (q, k, v), dout, retain_graph=True)
        ):
            torch.testing.assert_close(a, b)


def test_from_kv_blocks_without_q():
    num, indices = lists_of([[0], [0, 1]])
    mask = BlockMask.from_kv_blocks(num, indices, BLOCK_SIZE=32, compute_q_blocks=False)
    assert mask.q_num_blocks is None and mask.q_indices is None
    q, k, v = inputs(Q=64, requires_grad=True)
    out = flex_attention(q, k, v, None, mask)
    out.sum().backward()  # torch needs q_indices for this
    torch.testing.assert_close(out, dense(q, k, v, None, lambda b, h, q, kv: q // 32 >= kv // 32)[0])


def test_from_kv_blocks_by_head_and_batch():
    dense_blocks = torch.rand(2, 4, 5, 5) < 0.5
    num = dense_blocks.sum(-1, dtype=torch.int32)
    indices = torch.argsort(dense_blocks.int(), dim=-1, descending=True, stable=True).int()
    mask = BlockMask.from_kv_blocks(num, indices, BLOCK_SIZE=16, mask_mod=mods.causal_mask, seq_lengths=(70, 75))
    assert mask.shape == (2, 4, 70, 75)
    q, k, v = inputs(Q=70, KV=75)

    def mask_mod(b, h, q, kv):
        return dense_blocks[b, h, q // 16, kv // 16] & (q >= kv)

    torch.testing.assert_close(flex_attention(q, k, v, None, mask), dense(q, k, v, None, mask_mod)[0])


def test_mismatched_lists():
    num, indices = lists_of([[0], [0, 1]])
    with pytest.raises(AssertionError, match="both provided or omitted"):
        BlockMask.from_kv_blocks(num, indices, full_kv_num_blocks=num)
    with pytest.raises(AssertionError, match="both provided or omitted"):
        BlockMask((256, 256), num, indices, full_q_indices=indices)
    with pytest.raises(RuntimeError, match="at least 2 dimensions"):
        BlockMask.from_kv_blocks(torch.zeros(()), torch.zeros(3))


def test_torch_mask_is_taken():
    documents = torch.arange(200) // 60

    def mask_mod(b, h, q, kv):
        return (documents[q] == documents[kv]) & (q >= kv)

    q, k, v = inputs(Q=200)
    theirs = torch_flex.create_block_mask(mask_mod, None, None, 200, 200, "cpu", BLOCK_SIZE=32)
    ours = create_block_mask(mask_mod, None, None, 200, 200)
    for _ in range(2):
        torch.testing.assert_close(flex_attention(q, k, v, mods.alibi, theirs), flex_attention(q, k, v, mods.alibi, ours))
    with pytest.raises(RuntimeError, match="sliced"):
        flex_attention(q, k, v, None, theirs[0])


def test_torch_mask_changed_in_place():
    q, k, v = inputs(Q=64)
    num, indices = lists_of([[0], [0, 1]])
    theirs = torch_flex.BlockMask.from_kv_blocks(num, indices, BLOCK_SIZE=32)
    first = flex_attention(q, k, v, None, theirs)
    num[0, 0, 1] = 1  # block 0 alone
    torch.testing.assert_close(
        flex_attention(q, k, v, None, theirs), dense(q, k, v, None, lambda b, h, q, kv: kv < 32)[0]
    )
    assert not torch.equal(first, flex_attention(q, k, v, None, theirs))


def test_given_lists_changed_in_place():
    q, k, v = inputs(Q=64)
    num, indices = lists_of([[0], [0, 1]])
    mask = BlockMask.from_kv_blocks(num, indices, BLOCK_SIZE=32)
    flex_attention(q, k, v, None, mask)
    num[0, 0, 1] = 1
    torch.testing.assert_close(
        flex_attention(q, k, v, None, mask), dense(q, k, v, None, lambda b, h, q, kv: kv < 32)[0]
    )


def test_torch_noop_mask_has_any_length():
    q, k, v = inputs()
    empty = torch_flex._create_empty_block_mask(q, k)
    assert torch.equal(flex_attention(q, k, v, None, empty), flex_attention(q, k, v))


def test_mask_is_made_when_needed():
    """Making a mask evaluates nothing, whatever its size."""
    mask = create_block_mask(mods.causal_mask, 64, 64, 1 << 20, 1 << 20)
    assert mask._lists.kv_num_blocks is None
    assert mask.numel() == 1 << 52


def test_as_tuple():
    ours = create_block_mask(mods.causal_mask, 2, 3, 200, 300)
    theirs = torch_flex.create_block_mask(mods.causal_mask, 2, 3, 200, 300, "cpu")
    for flatten in (True, False):
        a, b = ours.as_tuple(flatten), theirs.as_tuple(flatten)
        assert len(a) == len(b)
        for x, y in zip(a, b):
            assert type(x) is type(y)
            if not isinstance(x, torch.Tensor):
                assert x == y
    assert len(ours.as_tuple()) == 17


@pytest.mark.parametrize("options", [{}, {"grid_size": -1}, {"grid_size": 5}, {"grid_size": (3, 7)}, {"limit": 1}], ids=str)
def test_pictures(options):
    ours = create_block_mask(offset_causal(), 2, 2, 3000, 2000, BLOCK_SIZE=(64, 128))
    theirs = torch_flex.create_block_mask(offset_causal(), 2, 2, 3000, 2000, "cpu", BLOCK_SIZE=(64, 128))
    a, b = ours.to_string(**options), theirs.to_string(**options)
    assert a.split("...")[0] == b.split("...")[0]


def test_str():
    mask = create_block_mask(mods.causal_mask, 1, 1, 512, 512)
    theirs = torch_flex.create_block_mask(mods.causal_mask, 1, 1, 512, 512, "cpu")
    assert str(mask) == str(theirs)
    assert "██" in str(mask) and "causal_mask" in repr(mask)


def test_to():
    mask = create_block_mask(mods.causal_mask, 1, 1, 512, 512)
    copy = mask.to("cpu")
    assert copy is not mask and torch.equal(copy.kv_indices, mask.kv_indices)
    copy.mask_mod = mods.window_mask
    assert mask.mask_mod is mods.causal_mask
    with pytest.raises(ValueError, match="CPU"):
        mask.to("meta")


def test_create_mask():
    documents = torch.randint(0, 3, (2, 20))

    def mask_mod(b, h, q, kv):
        return (documents[b, q] == documents[b, kv]) & (q + h >= kv)

    assert torch.equal(create_mask(mask_mod, 2, 3, 20, 20), torch_flex.create_mask(mask_mod, 2, 3, 20, 20, "cpu"))
    assert create_mask(mods.causal_mask, None, None, 3, 4).shape == (1, 1, 3, 4)


def test_create_mask_of_a_score_mod():
    for mod in (mods.causal, mods.relative_causal, mods.identity):
        assert torch.equal(create_mask(mod, 2, 2, 9, 12), torch_flex.create_mask(mod, 2, 2, 9, 12, "cpu"))


def test_mask_of_other_mask_mod():
    """A mask takes a new mask_mod, and forgets what it knew of the old one."""
    q, k, v = inputs()
    mask = create_block_mask(mods.causal_mask, None, None, 70, 70)
    flex_attention(q, k, v, None, mask)
    mask.mask_mod = mods.window_mask
    assert torch.equal(
        flex_attention(q, k, v, None, mask), flex_attention(q, k, v, None, create_block_mask(mods.window_mask, None, None, 70, 70))
    )


def test_options_that_do_not_matter():
    with pytest.warns(DeprecationWarning):
        create_block_mask(mods.causal_mask, 1, 1, 64, 64, _compile=True)
    create_block_mask(mods.causal_mask, 1, 1, 64, 64, compute_dq_write_order=True)
    with pytest.raises(ValueError, match="dq_kv_order"):
        create_block_mask(mods.causal_mask, 1, 1, 64, 64, dq_kv_order=torch.arange(3))
    with pytest.raises(TypeError):
        create_block_mask(mods.causal_mask, 1, 1, 64, 64, BLOCKSIZE=64)


def test_one_mask_for_many_calls():
    mask = create_block_mask(mods.causal_mask, None, None, 70, 70)
    for heads, dtype in ((1, torch.float32), (4, torch.bfloat16), (2, torch.float64)):
        q, k, v = inputs(H=heads, dtype=dtype, requires_grad=True)
        out, aux = flex_attention(q, k, v, None, mask, return_aux=AuxRequest(lse=True))
        out.sum().backward()
        torch.testing.assert_close(out, dense(q, k, v, None, mods.causal_mask)[0], rtol=2e-2, atol=2e-2)


def test_no_batches_and_no_blocks():
    mask = create_block_mask(mods.causal_mask, None, None, 0, 0)
    assert mask.kv_num_blocks.shape == (1, 1, 0) and mask.numel() == 0


@pytest.mark.parametrize("made_by", [BlockMask, torch_flex.BlockMask], ids=["treadle", "torch"])
def test_lists_as_long_as_they_are_used(made_by):
    """4 x 4 blocks, of which a row uses two at most."""
    counts = torch.tensor([[[1, 1, 2, 2]]], dtype=torch.int32)
    indices = torch.tensor([[[[0, 0], [1, 0], [0, 3], [2, 3]]]], dtype=torch.int32)

    def causal(b, h, q, kv):
        return q >= kv

    mask = made_by((500, 500), counts, indices, None, None, None, None, None, None, (128, 128), causal)
    q, k, v = (torch.randn(1, 1, 500, 16) for _ in range(3))
    blocks = torch.zeros(4, 4, dtype=torch.bool)
    for row, columns in enumerate([[0], [1], [0, 3], [2, 3]]):
        blocks[row, columns] = True
    visible = blocks.repeat_interleave(128, 0).repeat_interleave(128, 1)[:500, :500].tril()
    scores = (q @ k.transpose(-1, -2) / 4).masked_fill(~visible, -math.inf)
    assert torch.allclose(flex_attention(q, k, v, block_mask=mask), torch.softmax(scores, -1) @ v, atol=1e-5)


def test_short_lists_keep_their_blocks():
    counts = torch.tensor([[[1, 2, 2]]], dtype=torch.int32)
    indices = torch.tensor([[[[4, 0], [0, 3], [2, 4]]]], dtype=torch.int32)
    mask = BlockMask.from_kv_blocks(counts, indices, BLOCK_SIZE=16, seq_lengths=(48, 80))
    wanted = torch.zeros(1, 1, 3, 5, dtype=torch.int32)
    for row, columns in enumerate([[4], [0, 3], [2, 4]]):
        wanted[0, 0, row, columns] = 1
    assert torch.equal(mask.to_dense(), wanted)
    assert torch.equal(mask.q_num_blocks, wanted.sum(-2, dtype=torch.int32))
    for same in (mask.to("cpu"), copy.deepcopy(mask), mask[:, :, :]):
        assert torch.equal(same.to_dense(), wanted)
    assert torch.equal(mask._adjust(32, 64).to_dense(), wanted[:, :, :2, :4])
