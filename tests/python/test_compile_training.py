"""A compiled model trains on masks, lengths and numbers that are new in every step, and is compiled once."""

import pytest
import torch
import torch._dynamo.testing
import torch.nn.attention.flex_attention as torch_flex
from torch.utils.checkpoint import checkpoint
from treadle.torch import BlockMask, create_block_mask, create_key_mask, flex_attention


pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def causal(b, h, q, kv):
    return q >= kv


def same_document(length, step):
    ids, window = torch.arange(length) // (step + 2), 20 + step
    return lambda b, h, q, kv: (ids[q] == ids[kv]) & (q >= kv) & (q - kv < window)


def a_block_mask(length, step):
    return create_block_mask(same_document(length, step), None, None, length, length)


def of_torch(length, step):
    return torch_flex.create_block_mask(same_document(length, step), None, None, length, length, "cpu", BLOCK_SIZE=16)


def of_lists(length, step):
    lists = of_torch(length, step).as_tuple()[2:6]
    return BlockMask.from_kv_blocks(*lists, 16, same_document(length, step), (length, length))


def of_keys(length, step):
    chosen = torch.rand(1, 1, length, length).topk(5).indices
    return create_key_mask(chosen, lengths=(length, length), mask_mod=same_document(length, step))


def of_an_array(length, step):
    visible = (torch.rand(length, length) < 0.5) | torch.eye(length, dtype=torch.bool)
    return create_block_mask(visible, None, None, length, length)


class Layer(torch.nn.Module):
    def __init__(self, checkpoints: bool):
        super().__init__()
        self.project = torch.nn.Linear(16, 48)
        self.slopes = torch.nn.Parameter(torch.tensor([0.5, 0.25]))
        self.checkpoints = checkpoints

    def forward(self, x, mask):
        q, k, v = self.project(x).view(x.shape[0], x.shape[1], 3, 2, 8).permute(2, 0, 3, 1, 4)

        def attend(q, k, v):
            return flex_attention(q, k, v, lambda s, b, h, q, kv: s + self.slopes[h] * (kv - q), mask)

        return checkpoint(attend, q, k, v, use_reentrant=False) if self.checkpoints else attend(q, k, v)


def train(make, backend, dynamic, checkpoints, lengths):
    """How many graphs ten steps make; torch gives up after eight."""
    torch.manual_seed(0)
    counter = torch._dynamo.testing.CompileCounterWithBackend(backend)
    layer = Layer(checkpoints)
    compiled = torch.compile(layer, fullgraph=True, dynamic=dynamic, backend=counter)
    for step in range(10):
        length = lengths[step % len(lengths)]
        x, mask = torch.randn(1, length, 16), make(length, step)
        got, wanted = [torch.autograd.grad(f(x, mask).square().sum(), layer.parameters()) for f in (compiled, layer)]
        for a, b in zip(got, wanted):
            torch.testing.assert_close(a, b, atol=1e-3, rtol=1e-3)
    return counter.frame_count


without_recompiling = torch._dynamo.config.patch(error_on_recompile=True)
kinds = pytest.mark.parametrize(
    "make", [same_document, a_block_mask, of_torch, of_lists, of_keys, of_an_array], ids=lambda f: f.__name__
)


@kinds
def test_new_masks_and_lengths_in_every_step(make):
    with without_recompiling:
        assert train(make, "aot_eager", True, True, (48, 64, 80, 112)) == 1


@kinds
def test_the_second_graph_serves_what_changes(make):
    """Where torch is not told that lengths change."""
    assert train(make, "aot_eager", None, False, (48, 64, 80, 112)) == 2


@pytest.mark.parametrize("make, checkpoints", [(a_block_mask, False), (of_lists, True)], ids=["function", "lists"])
def test_with_inductor(make, checkpoints):
    with without_recompiling:
        assert train(make, "inductor", True, checkpoints, (48, 64, 80)) == 1


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_new_documents_of_one_length_are_one_graph(backend):
    def make(length, step):
        ids = torch.arange(length) // (step + 2)
        return create_block_mask(lambda b, h, q, kv: ids[q] == ids[kv], None, None, length, length)

    with without_recompiling:
        assert train(make, backend, None, False, (64,)) == 1
