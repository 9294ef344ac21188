"""A training step whose sequence is split over 4 processes: its losses and gradients have the bits of one process's.

    python examples/python/07_several_processes.py
    torchrun --nproc-per-node 4 examples/python/07_several_processes.py

Attention needs nothing for that but its mask. What surrounds it here takes care of bits, too: products of 64 rows each,
whose sums over rows are added in the order of the sequence.
"""

import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import treadle.torch.distributed as td
from treadle.torch import create_block_mask, flex_attention

LENGTH, BLOCK, WIDTH, HEADS, WORDS, STEPS = 2048, 64, 64, 4, 100, 4


def causal(b, h, q, kv):
    return q >= kv


def window(b, h, q, kv):
    return (q >= kv) & (q - kv < 256)


class ForEachBlock(torch.autograd.Function):
    """A parameter for each block of rows. Its gradient is the sum over the blocks of all ranks."""

    @staticmethod
    def forward(ctx, parameter, blocks, all_blocks):
        ctx.all_blocks = all_blocks
        return parameter.expand(blocks, *parameter.shape)

    @staticmethod
    def backward(ctx, gradient):
        every = gradient if ctx.all_blocks is None else ctx.all_blocks.unshard(gradient, dim=0)
        total = torch.zeros_like(every[0])
        for block in every:
            total += block
        return total, None, None


class Model(torch.nn.Module):
    def __init__(self, masks, all_blocks=None):
        super().__init__()
        self.masks, self.all_blocks = masks, all_blocks
        self.words = torch.nn.Parameter(torch.randn(WORDS, WIDTH) / 8)
        self.qkv = torch.nn.ParameterList([torch.randn(WIDTH, 3 * WIDTH) / 8 for _ in masks])
        self.out = torch.nn.ParameterList([torch.randn(WIDTH, WIDTH) / 8 for _ in masks])

    def times(self, x, parameter):
        blocks = len(x) // BLOCK
        each = ForEachBlock.apply(parameter, blocks, self.all_blocks)
        return (x.view(blocks, BLOCK, -1) @ each).flatten(0, 1)

    def forward(self, tokens, labels, positions):
        """A loss for each token."""
        x = self.times(torch.nn.functional.one_hot(tokens, WORDS).float(), self.words)
        x = x + torch.sin(positions[:, None] * torch.exp(-torch.arange(WIDTH) / 8))
        for qkv, out, mask in zip(self.qkv, self.out, self.masks):
            q, k, v = self.times(x, qkv).view(1, -1, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
            x = x + self.times(flex_attention(q, k, v, block_mask=mask)[0].transpose(0, 1).flatten(1), out)
        return torch.nn.functional.cross_entropy(self.times(x, self.words.t()), labels, reduction="none")


def train(data, masks, cp=None, all_blocks=None):
    """Losses, and the last step's gradients."""
    torch.manual_seed(1)
    model, losses = Model(masks, all_blocks), []
    optimizer = torch.optim.SGD(model.parameters(), lr=2)
    for _ in range(STEPS):
        each = model(*data)
        loss = (each if cp is None else cp.unshard(each, dim=0)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.grad for p in model.parameters() if p.grad is not None]


def run_rank(rank, ranks, port):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR=os.environ.get("MASTER_ADDR", "127.0.0.1"), MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    torch.manual_seed(0)
    tokens = torch.randint(WORDS, (LENGTH,))
    data = tokens, tokens.roll(-1), torch.arange(LENGTH)

    with td.context_parallel(length=LENGTH) as cp:
        masks = [td.create_block_mask(mask, None, None, LENGTH, LENGTH) for mask in (causal, window)]
        all_blocks = td.context_parallel(length=LENGTH // BLOCK)
        losses, gradients = train(cp.shard(*data, dim=0), masks, cp, all_blocks)

    if rank == 0:
        for mask, name in zip(masks, ("causal", "window")):
            print(f"{name}: {mask.plan}")
        masks = [create_block_mask(mask, None, None, LENGTH, LENGTH) for mask in (causal, window)]
        alone, gradients_alone = train(data, masks)
        print(f"{ranks} processes:", *losses)
        print("one process:", *alone)
        assert losses == alone
        assert all(torch.equal(a, b) for a, b in zip(gradients, gradients_alone))
        print("the same bits, and the gradients, too")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # torchrun's
        run_rank(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), os.environ["MASTER_PORT"])
    else:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        mp.start_processes(run_rank, (4, port), 4, start_method="fork")  # nothing of torch has run yet
