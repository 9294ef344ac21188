"""A BlockMask where others take it apart, or ask whether it is one: as torch's class in all of this."""

import copy

import pytest
import torch
import torch.nn.attention.flex_attention as torch_flex
import torch.utils._pytree as pytree
from treadle.torch import BlockMask, create_block_mask, create_key_mask, flex_attention

x = torch.randn(2, 2, 100, 16, generator=torch.Generator().manual_seed(0))
document = torch.arange(100) // 30


pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def causal(b, h, q, kv):
    return q >= kv


def same_document(b, h, q, kv):
    return document[q] == document[kv]


def closed_over(ids, window):
    return lambda b, h, q, kv: (ids[q] == ids[kv]) & (q - kv < window)


def listed():
    mask = torch_flex.create_block_mask(causal, None, None, 100, 100, "cpu", BLOCK_SIZE=20)
    return BlockMask.from_kv_blocks(
        mask.kv_num_blocks, mask.kv_indices, mask.full_kv_num_blocks, mask.full_kv_indices, 20, same_document, (100, 100)
    )


masks = {
    "function": lambda: create_block_mask(causal, None, None, 100, 100),
    "global tensor": lambda: create_block_mask(same_document, 2, 2, 100, 100, BLOCK_SIZE=16),
    "closure": lambda: create_block_mask(closed_over(document, 40), None, None, 100, 100),
    "full blocks not apart": lambda: create_block_mask(causal, None, None, 100, 100, separate_full_blocks=False),
    "lists": listed,
    "keys": lambda: create_key_mask(torch.rand(1, 1, 100, 100).topk(9).indices, lengths=(100, 100)),
}


@pytest.mark.parametrize("made", masks)
@pytest.mark.parametrize("used_before", [False, True])
def test_what_is_flattened_comes_back(made, used_before):
    mask = masks[made]()
    expected = flex_attention(x, x, x, block_mask=mask) if used_before else None
    leaves, context = mask._flatten()
    assert leaves and context
    back = BlockMask._unflatten(leaves, context)
    assert type(back) is BlockMask
    assert (back.shape, back.seq_lengths, back.BLOCK_SIZE) == (mask.shape, mask.seq_lengths, mask.BLOCK_SIZE)
    assert back.sparsity() == mask.sparsity()
    for name in BlockMask._TENSOR_ATTRS:
        a, b = getattr(mask, name), getattr(back, name)
        assert a is b is None or torch.equal(a, b)
    assert torch.equal(flex_attention(x, x, x, block_mask=back), flex_attention(x, x, x, block_mask=mask))
    assert expected is None or torch.equal(flex_attention(x, x, x, block_mask=back), expected)


@pytest.mark.parametrize("made", masks)
def test_keys_name_attributes(made):
    mask = masks[made]()
    with_keys, context = mask._flatten_with_keys()
    leaves, same = mask._flatten()
    assert context == same
    assert len(with_keys) == len(leaves)
    for (key, tensor), leaf in zip(with_keys, leaves):
        assert isinstance(key, pytree.GetAttrKey)
        assert tensor is leaf
        assert key.name.startswith("_closure_") or getattr(mask, key.name) is leaf


def test_tensors_that_a_mask_mod_closes_over_are_leaves():
    mask = create_block_mask(closed_over(document, 40), None, None, 100, 100)
    leaves, context = mask._flatten()
    assert any(leaf is document for leaf in leaves)
    others = [document * 0 if leaf is document else leaf for leaf in leaves]
    back = BlockMask._unflatten(others, context)
    assert bool(back.mask_mod(0, 0, torch.tensor(99), torch.tensor(70)))


def test_the_same_attributes_as_torchs():
    assert BlockMask._TENSOR_ATTRS == torch_flex.BlockMask._TENSOR_ATTRS
    assert BlockMask._CONTEXT_ATTRS == torch_flex.BlockMask._CONTEXT_ATTRS


@pytest.fixture
def registered():
    """Neither torch nor Treadle registers the class: some want a mask to be a leaf."""
    assert BlockMask not in pytree.SUPPORTED_NODES
    pytree.register_pytree_node(
        BlockMask, BlockMask._flatten, BlockMask._unflatten, flatten_with_keys_fn=BlockMask._flatten_with_keys,
        serialized_type_name="treadle.torch.BlockMask",
    )  # fmt: skip
    yield
    pytree._deregister_pytree_node(BlockMask)


def test_a_registered_class(registered):
    mask = listed()
    leaves, spec = pytree.tree_flatten({"mask": mask, "x": 3})
    assert len(leaves) > 5
    back = pytree.tree_unflatten(leaves, spec)["mask"]
    assert torch.equal(flex_attention(x, x, x, block_mask=back), flex_attention(x, x, x, block_mask=mask))
    copied = pytree.tree_map_only(torch.Tensor, torch.clone, mask)
    assert torch.equal(flex_attention(x, x, x, block_mask=copied), flex_attention(x, x, x, block_mask=mask))
    paths = [pytree.keystr(path) for path, _ in pytree.tree_flatten_with_path({"mask": mask})[0]]
    assert "['mask'].kv_num_blocks" in paths


def test_a_registered_mask_as_an_argument_of_an_exported_model(registered):
    class Model(torch.nn.Module):
        def forward(self, x, mask):
            return flex_attention(x, x, x, block_mask=mask)

    exported = torch.export.export(Model(), (x, listed()), strict=False)
    assert [n for n in exported.graph.nodes if "treadle.attention" in str(n.target)]
    assert len(exported.graph_signature.user_inputs) > 5  # the query, and lists


def test_it_is_one_of_torchs():
    for mask in [make() for make in masks.values()]:
        assert isinstance(mask, torch_flex.BlockMask)
        assert isinstance(copy.deepcopy(mask), BlockMask)
        assert (mask.dq_write_order, mask.dq_write_order_full, mask.dq_kv_order, mask.dq_kv_order_spt) == (None,) * 4
        assert mask.ndim == len(mask.shape)
        assert mask.contiguous() is mask


@pytest.mark.filterwarnings("ignore")
def test_torchs_functions_take_it():
    """Uncompiled they read the mask_mod alone."""
    for name, mask_mod in (("function", causal), ("lists", same_document)):
        out = torch_flex.flex_attention(x, x, x, block_mask=masks[name]())
        torch.testing.assert_close(out, flex_attention(x, x, x, block_mask=mask_mod))


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("made", ["function", "lists", "torch's"])
def test_a_mask_of_four_batches_for_queries_of_one(made, compile):
    """As torch has it: batch 0 is read."""
    per_batch = torch.tensor([5, 20, 50, 100])

    def mask_mod(b, h, q, kv):
        return (q - kv).abs() < per_batch[b]

    mask = (torch_flex.create_block_mask if made == "torch's" else create_block_mask)(
        mask_mod, 4, None, 100, 100, "cpu", BLOCK_SIZE=20
    )
    if made == "lists":
        mask = BlockMask.from_kv_blocks(
            mask.kv_num_blocks, mask.kv_indices, mask.full_kv_num_blocks, mask.full_kv_indices, 20, mask_mod, (100, 100)
        )
    attend = torch.compile(flex_attention, fullgraph=True, backend="eager") if compile else flex_attention
    q = x[:1].requires_grad_()
    out = attend(q, q, q, block_mask=mask)
    expected = flex_attention(q, q, q, block_mask=lambda b, h, q, kv: (q - kv).abs() < 5)
    torch.testing.assert_close(out, expected)
    wanted, got = torch.autograd.grad(expected.sum(), q), torch.autograd.grad(out.sum(), q)
    torch.testing.assert_close(got, wanted)


def test_a_mask_of_four_batches_for_queries_of_two_is_refused():
    with pytest.raises(ValueError, match="block_mask has batch 4, query has 2; the mask's must be 1 or the same"):
        flex_attention(x, x, x, block_mask=create_block_mask(causal, 4, None, 100, 100))


@pytest.mark.parametrize("block", [5, 6, 100, -1])
@pytest.mark.parametrize("kind", ["partial", "full"])
def test_a_listed_block_behind_the_last_one_is_refused(block, kind):
    num = torch.ones(1, 1, 5, dtype=torch.int32)
    indices = torch.tensor([0, 1, 2, 3, block], dtype=torch.int32).reshape(1, 1, 5, 1)
    lists = (num, indices) if kind == "partial" else (num, indices * 0, num, indices)
    mask = BlockMask((100, 100), *lists, BLOCK_SIZE=(20, 20), mask_mod=causal)
    with pytest.raises(RuntimeError, match=f"BlockMask: the lists name block {block} of a row; there are 5 blocks, 0 to 4"):
        flex_attention(x, x, x, block_mask=mask)
    with pytest.raises(RuntimeError, match="index"):
        torch.compile(flex_attention, fullgraph=True, backend="eager")(x, x, x, block_mask=mask)


def test_what_stands_behind_the_used_part_of_a_list_means_nothing():
    num = torch.ones(1, 1, 5, dtype=torch.int32)
    indices = torch.arange(5, dtype=torch.int32).reshape(1, 1, 5, 1)
    junk = torch.cat([indices, torch.full_like(indices, 99), torch.full_like(indices, -7)], -1)
    masks = [BlockMask((100, 100), num, i, BLOCK_SIZE=(20, 20), mask_mod=causal) for i in (indices, junk)]
    outs = [flex_attention(x, x, x, block_mask=mask) for mask in masks]
    assert torch.equal(*outs)
