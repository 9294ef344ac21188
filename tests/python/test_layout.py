"""Inputs of any strides; results whose strides follow those of the inputs."""

import itertools

import mods
import pytest
import torch
import torch.nn.attention.flex_attention as torch_flex
from policy import check, close, inputs, of_torch
from treadle.torch import AuxRequest, create_block_mask, create_mask, flex_attention


def stored(x, order, pad=0):
    """The same tensor with its dimensions in this order in memory, outermost first."""
    sizes = [x.size(d) for d in order]
    sizes[-1] += pad
    memory = torch.zeros(sizes, dtype=x.dtype)
    view = memory[..., : x.size(order[-1])].permute([order.index(d) for d in range(4)])
    return view.copy_(x.detach())


orders = [(*p, 3) for p in itertools.permutations(range(3))]


@pytest.mark.parametrize("order", orders, ids=str)
def test_stride_order_of_the_result(order):
    q, k, v = inputs(B=2, H=3, Q=20)
    plain = flex_attention(q, k, v, mods.alibi)
    q = stored(q, order)
    out = flex_attention(q, k, v, mods.alibi)
    assert torch.equal(out, plain)
    assert out.stride() == of_torch(q, k, v, mods.alibi).stride()


@pytest.mark.parametrize("order", orders, ids=str)
def test_stride_order_of_gradients(order):
    q, k, v = inputs(B=2, H=3, Q=20)
    dout = torch.randn_like(q)
    leaves = [t.clone().requires_grad_() for t in (q, k, v)]
    plain = torch.autograd.grad(flex_attention(*leaves, mods.alibi), leaves, dout)
    leaves = [stored(t, order).requires_grad_() for t in (q, k, v)]
    got = torch.autograd.grad(flex_attention(*leaves, mods.alibi), leaves, dout)
    for g, p, t in zip(got, plain, leaves):
        assert torch.equal(g, p)
        assert g.stride() == t.stride()


def test_stride_order_of_torch_gradients():
    order = (2, 0, 1, 3)
    leaves = [stored(t, order).requires_grad_() for t in inputs(B=2, H=3, Q=20)]
    ours = torch.autograd.grad(flex_attention(*leaves).sum(), leaves)
    theirs = torch.autograd.grad(of_torch(*leaves).sum(), leaves)
    for a, b in zip(ours, theirs):
        assert a.stride() == b.stride()
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("dtype", mods.dtypes, ids=mods.name)
def test_strided_inputs(dtype):
    """Rows further apart than they are long, an offset, another order each."""
    q, k, v = inputs(Q=50, dtype=dtype)
    check(stored(q, (0, 2, 1, 3), 5), stored(k, (2, 1, 0, 3), 3), stored(v, (1, 0, 2, 3), 1), mods.alibi, mods.causal_mask)


def test_packed_projection():
    """q, k and v as parts of one tensor [B, S, 3, H, D]."""
    packed = torch.randn(2, 70, 3, 4, 16, requires_grad=True)
    q, k, v = (packed[:, :, i].transpose(1, 2) for i in range(3))
    out = flex_attention(q, k, v, mods.alibi)
    (got,) = torch.autograd.grad(out.sum(), packed)
    plain = [t.detach().contiguous().requires_grad_() for t in (q, k, v)]
    same = flex_attention(*plain, mods.alibi)
    assert torch.equal(out, same)
    separate = torch.autograd.grad(same.sum(), plain)
    for i in range(3):
        assert torch.equal(got[:, :, i].transpose(1, 2), separate[i])


def test_last_dim_not_contiguous():
    q, k, v = inputs(Q=40, requires_grad=False)
    turned = [stored(t, (0, 1, 3, 2)) for t in (q, k, v)]
    assert turned[0].stride(-1) != 1
    out = flex_attention(*turned, mods.alibi)
    assert out.stride(-1) == 1
    assert torch.equal(out, flex_attention(q, k, v, mods.alibi))
    assert out.stride() == of_torch(*turned, mods.alibi).stride()


def test_gradients_of_last_dim_not_contiguous():
    tensors = inputs(Q=40)
    dout = torch.randn_like(tensors[0])
    plain = [t.clone().requires_grad_() for t in tensors]
    turned = [stored(t, (0, 1, 3, 2)).requires_grad_() for t in tensors]
    for a, b in zip(
        torch.autograd.grad(flex_attention(*turned), turned, dout),
        torch.autograd.grad(flex_attention(*plain), plain, dout),
    ):
        assert torch.equal(a, b)


def test_expanded_inputs():
    """A stride of 0: one head of keys seen as four."""
    q, k, v = inputs(Hkv=1)
    wide_k, wide_v = k.expand(-1, 4, -1, -1), v.expand(-1, 4, -1, -1)
    out = flex_attention(q, wide_k, wide_v)
    assert torch.equal(out, flex_attention(q, wide_k.contiguous(), wide_v.contiguous()))
    k.requires_grad_()
    (got,) = torch.autograd.grad(flex_attention(q, k.expand(-1, 4, -1, -1), wide_v).sum(), k)
    (grouped,) = torch.autograd.grad(flex_attention(q, k, v, enable_gqa=True).sum(), k)
    torch.testing.assert_close(got, grouped)


def test_expanded_gradient():
    """out.sum() hands in a gradient whose strides are all 0."""
    q, k, v = inputs(requires_grad=True)
    a = torch.autograd.grad(flex_attention(q, k, v).sum(), (q, k, v))
    b = torch.autograd.grad(flex_attention(q, k, v), (q, k, v), torch.ones(2, 4, 70, 16))
    assert all(torch.equal(x, y) for x, y in zip(a, b))


def test_expanded_query():
    q, k, v = inputs(B=1)
    q = q.expand(3, -1, -1, -1)
    k, v = (t.repeat(3, 1, 1, 1) for t in (k, v))
    out = flex_attention(q, k, v)
    assert torch.equal(out, flex_attention(q.contiguous(), k, v))
    out.zero_()  # memory of its own for every batch


def test_same_tensor_three_times():
    x = torch.randn(2, 4, 50, 16, requires_grad=True)
    mask = create_block_mask(mods.causal_mask, None, None, 50, 50)
    (got,) = torch.autograd.grad(flex_attention(x, x, x, None, mask).square().sum(), x)
    apart = [x.detach().clone().requires_grad_() for _ in range(3)]
    parts = torch.autograd.grad(flex_attention(*apart, None, mask).square().sum(), apart)
    torch.testing.assert_close(got, sum(parts))


def test_default_device_is_not_asked():
    """Results are on the CPU whatever torch's default device is."""
    q, k, v = inputs(requires_grad=True)
    bias = torch.randn(70, requires_grad=True)
    blocks = torch_flex.create_block_mask(mods.causal_mask, None, None, 70, 70, "cpu")
    expected = flex_attention(q, k, v, lambda s, b, h, q, kv: s + bias[kv], blocks)
    torch.set_default_device("meta")
    try:
        mask = create_block_mask(mods.causal_mask, None, None, 70, 70, "cpu")
        for m in (mask, blocks):
            out, aux = flex_attention(
                q, k, v, lambda s, b, h, q, kv: s + bias[kv], m, return_aux=AuxRequest(lse=True, max_scores=True)
            )
            out.sum().backward()
        assert mask.kv_indices.is_cpu and mask.to_dense().is_cpu
        assert create_mask(mods.causal_mask, 1, 1, 4, 4, "cpu").is_cpu
    finally:
        torch.set_default_device(None)
    assert out.is_cpu and aux.lse.is_cpu and aux.max_scores.is_cpu and q.grad.is_cpu and bias.grad.is_cpu
    torch.testing.assert_close(out, expected)


def test_transposed_out_is_a_view_away():
    """[B, S, H, D] in memory stays so: reshaping the result copies nothing."""
    q, k, v = (torch.randn(2, 70, 4, 16).transpose(1, 2) for _ in range(3))
    out = flex_attention(q, k, v)
    flat = out.transpose(1, 2).reshape(2, 70, 64)
    assert flat.data_ptr() == out.data_ptr()
    close(out, of_torch(q.double(), k.double(), v.double()), of_torch(q, k, v))
