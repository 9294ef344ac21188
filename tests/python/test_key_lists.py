"""Keys chosen from data: lists against a dense mask of the same pairs, forward and backward."""

import numpy as np
import pytest
import torch

import treadle
from treadle.torch import create_key_mask, flex_attention


def causal(b, h, q, kv):
    return q >= kv


def lists(rng, shape, blocks):
    """Indices without duplicates, and how many of each list count."""
    longest = min(3, blocks)
    indices = np.stack([rng.permutation(blocks)[:longest] for _ in range(int(np.prod(shape)))])
    return indices.reshape(*shape, longest), rng.integers(0, longest + 1, shape)


def visible_pairs(indices, counts, query_block, key_block, queries, keys):
    visible = np.zeros((*indices.shape[:2], queries, keys), bool)
    for b, h, row in np.ndindex(*indices.shape[:3]):
        for block in indices[b, h, row, : counts[b, h, row]]:
            rows = slice(row * query_block, (row + 1) * query_block)
            visible[b, h, rows, block * key_block : (block + 1) * key_block] = True
    return visible & np.tril(np.ones((queries, keys), bool))


CASES = [
    # query block, key block, queries, keys, lists of
    (1, 1, 9, 13, (1, 1)),
    (4, 1, 22, 17, (2, 4)),
    (8, 5, 30, 33, (1, 4)),
    (16, 16, 64, 64, (2, 1)),
]


def dense(q, k, v, visible):
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    scores = scores.masked_fill(~torch.from_numpy(visible), -torch.inf)
    weights = torch.softmax(scores, -1).nan_to_num(0.0)
    return weights @ v


@pytest.mark.parametrize("query_block, key_block, queries, keys, of", CASES)
def test_lists_are_a_mask(query_block, key_block, queries, keys, of):
    rng = np.random.default_rng(queries)
    rows = -(-queries // query_block)
    indices, counts = lists(rng, (*of, rows), -(-keys // key_block))
    visible = visible_pairs(indices, counts, query_block, key_block, queries, keys)
    q, k, v, dout = (
        torch.from_numpy(rng.standard_normal((2, 4, n, 8))).requires_grad_() for n in (queries, keys, keys, queries)
    )
    expected = dense(q, k, v, visible)
    gradients = torch.autograd.grad(expected, (q, k, v), dout)

    mask = create_key_mask(
        torch.from_numpy(indices), torch.from_numpy(counts), lengths=(queries, keys), query_block=query_block,
        key_block=key_block, mask_mod=causal,
    )  # fmt: skip
    out = flex_attention(q, k, v, block_mask=mask)
    torch.testing.assert_close(out, expected)
    for seen, wanted in zip(torch.autograd.grad(out, (q, k, v), dout), gradients):
        torch.testing.assert_close(seen, wanted)

    attention = treadle.Attention(mask_mod=causal)
    arrays = [x.detach().numpy() for x in (q, k, v)]
    chosen = treadle.KeyLists(indices, counts, query_block, key_block)
    result = attention.forward(*arrays, keys=chosen)
    np.testing.assert_allclose(result.out, expected.detach().numpy(), atol=1e-10)
    got = attention.backward(*arrays, result, dout.detach().numpy(), keys=chosen)
    for seen, wanted in zip((got.dq, got.dk, got.dv), gradients):
        np.testing.assert_allclose(seen, wanted.numpy(), atol=1e-10)


def test_all_entries_count_without_counts():
    x = torch.zeros(1, 1, 4, 2)
    v = torch.arange(8.0).reshape(1, 1, 4, 2)
    mask = create_key_mask(torch.tensor([[[[0, 1], [3, 2]]]]), lengths=(4, 4), query_block=2)
    assert flex_attention(x, x, v, block_mask=mask)[0, 0, :, 0].tolist() == [1, 1, 5, 5]


@pytest.mark.parametrize(
    "indices, message",
    [
        (torch.zeros(1, 1, 2, dtype=torch.int64), "indices has shape (1, 1, 2); it must have 4 axes"),
        (torch.zeros(1, 1, 3, 1, dtype=torch.int64), "indices has 3 lists; 4 queries in blocks of 2 need 2"),
        (torch.tensor([[[[0], [4]]]]), "indices lists block 0 to 4; 4 keys in blocks of 1 make 4 blocks"),
        (torch.tensor([[[[0], [-1]]]]), "indices lists block -1 to 0; 4 keys in blocks of 1 make 4 blocks"),
        (torch.tensor([[[[0, 0], [1, 2]]]]), "indices lists a block twice"),
    ],
)
def test_bad_lists(indices, message):
    with pytest.raises(ValueError) as error:
        create_key_mask(indices, lengths=(4, 4), query_block=2)
    assert str(error.value) == f"create_key_mask: {message}"


def test_bad_lists_of_numpy():
    x = np.zeros((1, 1, 4, 2), np.float32)
    with pytest.raises(treadle.Error, match="4"):
        treadle.Attention().forward(x, x, x, keys=treadle.KeyLists(np.array([[[[4], [0]]]]), query_block=2))
