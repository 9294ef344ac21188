"""q_offset and kv_offset, in NumPy and torch, plain and compiled: rows keep the bits of the whole sequence."""

import numpy as np
import pytest
import torch
import torch._dynamo.testing

import treadle
from treadle.torch import AuxRequest, BlockMask, create_block_mask, flex_attention


def window(b, h, q, kv):
    return (q >= kv) & (q - kv < 300)


def biased(score, b, h, q, kv):
    return score + (kv - q) * 0.01 + h * 0.1


def tensors(*shapes, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("past, count", [(0, 1), (1023, 1), (1199, 1), (1000, 7), (900, 200)])
def test_steps_have_the_bits_of_the_whole(dtype, past, count):
    q, k, v = tensors((1, 4, 1200, 16), (1, 2, 1200, 16), (1, 2, 1200, 16), dtype=dtype)
    whole = flex_attention(q, k, v, biased, window, enable_gqa=True)
    end = past + count
    part = flex_attention(
        q[:, :, past:end], k[:, :, :end], v[:, :, :end], biased, window, enable_gqa=True, q_offset=past
    )
    assert torch.equal(part, whole[:, :, past:end])
    mask = create_block_mask(window, None, None, count, end)
    again = flex_attention(q[:, :, past:end], k[:, :, :end], v[:, :, :end], biased, mask, enable_gqa=True, q_offset=past)
    assert torch.equal(part, again)


def test_numpy_rolled_cache():
    q, k, v = (x.numpy() for x in tensors((1, 2, 800, 16), (1, 2, 800, 16), (1, 2, 800, 16)))
    attention = treadle.Attention(biased, window)
    whole = attention.forward(q, k, v)
    part = attention.forward(q[:, :, 790:], k[:, :, 300:], v[:, :, 300:], q_offset=790, kv_offset=np.int64(300))
    for a, b in zip(part, whole):
        assert np.array_equal(a, b[:, :, 790:])


def left_padded(lengths, longest=96):
    q, k, v, dout = tensors(*[(len(lengths), 2, longest, 8)] * 4, dtype=torch.float64)
    return q, k, v, dout, torch.tensor(lengths) - longest


def test_left_padded_batches_have_the_gradients_of_their_sequences():
    lengths = [96, 40, 71]
    q, k, v, dout, offsets = left_padded(lengths)
    slopes = torch.tensor([0.5, 0.25], dtype=torch.float64, requires_grad=True)
    sinks = torch.tensor([0.1, -0.3], dtype=torch.float64, requires_grad=True)

    def score_mod(score, b, h, q, kv):
        return score + slopes[h] * (kv - q)

    leaves = [x.requires_grad_() for x in (q, k, v)]
    out = flex_attention(q, k, v, score_mod, window, sinks=sinks, q_offset=offsets, kv_offset=offsets)
    seen = torch.autograd.grad((out * dout).sum(), [*leaves, slopes, sinks])
    total = [torch.zeros_like(x) for x in seen]
    for b, length in enumerate(lengths):
        pad = 96 - length
        assert not out[b, :, :pad].any()
        own = flex_attention(*(x[b : b + 1, :, pad:] for x in leaves), score_mod, window, sinks=sinks)
        assert torch.equal(out[b : b + 1, :, pad:], own)
        gradients = torch.autograd.grad((own * dout[b : b + 1, :, pad:]).sum(), [*leaves, slopes, sinks])
        total = [a + g for a, g in zip(total, gradients)]
    for a, g in zip(seen, total):
        torch.testing.assert_close(a, g)


@pytest.mark.parametrize("backend", ["aot_eager", "eager"])
def test_compiled(backend):
    q, k, v = tensors((2, 2, 300, 16), (2, 2, 300, 16), (2, 2, 300, 16))
    sinks = torch.tensor([0.5, -0.5], requires_grad=True)

    def step(q, k, v, sinks, past: int):
        return flex_attention(q, k, v, biased, window, sinks=sinks, q_offset=past).sum() + 0

    graphs = torch._dynamo.testing.CompileCounterWithBackend(backend)
    compiled = torch.compile(step, backend=graphs, fullgraph=True, dynamic=True)
    for past in (100, 101, 250):
        seen = compiled(q[:, :, past : past + 1], k, v, sinks, past)
        expected = step(q[:, :, past : past + 1], k, v, sinks, past)
        assert torch.equal(seen, expected)
        a, b = (torch.autograd.grad(x, sinks)[0] for x in (seen, expected))
        assert torch.equal(a, b)
    assert graphs.frame_count == 1


def test_sinks_have_the_gradients_of_a_key_without_value():
    q, k, v, dout = tensors(*[(2, 2, 40, 8)] * 4, dtype=torch.float64)
    sinks = torch.tensor([0.7, -0.2], dtype=torch.float64)
    leaves = [x.clone().requires_grad_() for x in (q, k, v, sinks)]
    out, aux = flex_attention(*leaves[:3], block_mask=window, sinks=leaves[3], return_aux=AuxRequest(lse=True))
    dense = [x.clone().requires_grad_() for x in (q, k, v, sinks)]
    scores = dense[0] @ dense[1].transpose(-1, -2) / 8**0.5
    scores = scores.masked_fill(torch.ones(40, 40).triu(1).bool(), -torch.inf)
    scores = torch.cat([scores, dense[3].view(1, 2, 1, 1).expand(2, 2, 40, 1)], -1)
    expected = scores.softmax(-1)[..., :-1] @ dense[2]
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(aux.lse, scores.logsumexp(-1))
    seen = torch.autograd.grad((out * dout).sum() + aux.lse.sum(), leaves)
    wanted = torch.autograd.grad((expected * dout).sum() + scores.logsumexp(-1).sum(), dense)
    for a, b in zip(seen, wanted):
        torch.testing.assert_close(a, b)


def test_sinks_without_their_gradient():
    q, k, v = tensors(*[(1, 2, 20, 8)] * 3)
    bias = torch.zeros(20, requires_grad=True)
    out = flex_attention(q, k, v, lambda s, b, h, q, kv: s + bias[kv], sinks=torch.zeros(2))
    (gradient,) = torch.autograd.grad(out.square().sum(), bias)
    assert gradient.abs().sum() > 0


def test_what_is_refused():
    q, k, v = tensors(*[(2, 2, 20, 8)] * 3)
    with pytest.raises(ValueError, match="3 q_offsets, the batch is 2"):
        flex_attention(q, k, v, q_offset=[1, 2, 3])
    with pytest.raises(TypeError, match="q_offset must be an integer, or one for each batch entry, got 1.5"):
        flex_attention(q, k, v, q_offset=1.5)
    with pytest.raises(TypeError, match="kv_offset must be an integer"):
        treadle.attention(q, k, v, kv_offset=np.zeros((2, 1)))
    with pytest.raises(TypeError, match="sinks must be a tensor, got list"):
        flex_attention(q, k, v, sinks=[0.0, 0.0])
    with pytest.raises(ValueError, match=r"sinks"):
        flex_attention(q, k, v, sinks=torch.zeros(3))
    listed = BlockMask.from_kv_blocks(
        torch.ones(1, 1, 1, dtype=torch.int32), torch.zeros(1, 1, 1, 1, dtype=torch.int32), seq_lengths=(20, 20)
    )
    with pytest.raises(ValueError, match="block_mask lists blocks of rows, which have no positions"):
        flex_attention(q, k, v, block_mask=listed, q_offset=3)
    flex_attention(q, k, v, block_mask=listed)
    with pytest.raises(TypeError, match="block_mask must be a BlockMask or a mask_mod, got int"):
        flex_attention(q, k, v, block_mask=3)


def test_layouts_of_functions_follow_what_they_read():
    q, k, v = tensors(*[(1, 1, 64, 8)] * 3)
    ids = torch.zeros(64, dtype=torch.int32)

    def same(b, h, q, kv):
        return ids[q] == ids[kv]

    all_seen = flex_attention(q, k, v, block_mask=same)
    torch.testing.assert_close(all_seen, flex_attention(q, k, v))
    ids[32:] = 1
    torch.testing.assert_close(flex_attention(q, k, v, block_mask=same)[:, :, :32], flex_attention(*(x[:, :, :32] for x in (q, k, v))))
