"""Parts of the keys, merged, are all of them."""

import numpy as np
import pytest
import torch

import treadle
import treadle.torch


def arrays(dtype=np.float32):
    random = np.random.default_rng(3)
    return [random.standard_normal((2, 4, n, 8)).astype(dtype) for n in (20, 50, 50)]


def parts_of(keys):
    return [slice(0, keys // 3), slice(keys // 3, keys - 5), slice(keys - 5, keys)]


def test_numpy():
    q, k, v = arrays(np.float64)
    attention = treadle.Attention()
    parts = [attention.forward(q, k[:, :, part], v[:, :, part]) for part in parts_of(50)]
    merged = treadle.merge_states([(part.out, part.lse) for part in parts])
    whole = attention.forward(q, k, v)
    np.testing.assert_allclose(merged.out, whole.out, atol=1e-13)
    np.testing.assert_allclose(merged.lse, whole.lse, atol=1e-13)


def test_torch_with_gradients():
    q, k, v = (torch.from_numpy(x).double().requires_grad_() for x in arrays())
    request = treadle.torch.AuxRequest(lse=True)

    def attend(part, shift):
        mask = treadle.torch.create_block_mask(lambda b, h, q, kv: kv + shift <= q + 10, 2, 4, 20, part.stop - part.start)
        out, aux = treadle.torch.flex_attention(q, k[:, :, part], v[:, :, part], block_mask=mask, return_aux=request)
        return out, aux.lse

    merged, aux = treadle.torch.merge_states([attend(part, part.start) for part in parts_of(50)])
    whole, whole_lse = attend(slice(0, 50), 0)
    torch.testing.assert_close(merged, whole)
    torch.testing.assert_close(aux.lse, whole_lse)
    weights = torch.randn_like(whole)
    got = torch.autograd.grad((merged * weights).sum() + aux.lse.sin().sum(), (q, k, v))
    want = torch.autograd.grad((whole * weights).sum() + whole_lse.sin().sum(), (q, k, v))
    for a, b in zip(got, want):
        torch.testing.assert_close(a, b)


def test_a_row_that_sees_nothing():
    out, lse = torch.full((1, 1, 1, 2), torch.nan), torch.full((1, 1, 1), -torch.inf)
    merged, aux = treadle.torch.merge_states([(out, lse), (out, lse)])
    assert merged.abs().sum() == 0 and aux.lse.item() == -torch.inf
    result = treadle.merge_states([(out.numpy(), lse.numpy())])
    assert abs(result.out).sum() == 0 and result.lse.item() == -np.inf


def test_gradients_of_rows_that_see_little_or_nothing():
    """Three rows: seen by both parts, by the second alone, by none; what a part holds that saw nothing is NaN."""
    outs = [torch.tensor([[[[1.0], [torch.nan], [torch.nan]]]]), torch.tensor([[[[2.0], [3.0], [torch.nan]]]])]
    lses = [torch.tensor([[[0.5, -torch.inf, -torch.inf]]]), torch.tensor([[[0.25, 1.0, -torch.inf]]])]
    tensors = [t.double().requires_grad_() for t in (*outs, *lses)]
    merged, aux = treadle.torch.merge_states(list(zip(tensors[:2], tensors[2:])))
    first = torch.sigmoid(torch.tensor(0.25, dtype=torch.float64))  # the first part's share of the first row
    torch.testing.assert_close(merged.flatten(), torch.stack([first + 2 * (1 - first), first.new_tensor(3), first * 0]))
    seen = aux.lse[0, 0, :2]
    got = torch.autograd.grad((merged * torch.tensor([2.0, 5.0, 7.0]).view(1, 1, 3, 1)).sum() + seen.sum(), tensors)
    slope = first * (1 - first)
    want = [
        torch.stack([2 * first, first * 0, first * 0]), torch.stack([2 * (1 - first), first * 0 + 5, first * 0]),
        torch.stack([first - 2 * slope, first * 0, first * 0]),
        torch.stack([1 - first + 2 * slope, first * 0 + 1, first * 0]),
    ]  # fmt: skip
    for a, b in zip(got, want):
        torch.testing.assert_close(a.flatten(), b)


def test_errors():
    q, k, v = arrays()
    result = treadle.Attention().forward(q, k, v)
    with pytest.raises(ValueError, match="there are no parts"):
        treadle.merge_states([])
    with pytest.raises(ValueError, match=r"out has shape \[2, 4, 10, 8\]; it must be \[2, 4, 20, 8\]"):
        treadle.merge_states([(result.out, result.lse), (result.out[:, :, :10], result.lse[:, :, :10])])
    with pytest.raises(ValueError, match="all must be"):
        treadle.torch.merge_states([(torch.zeros(1, 1, 2, 3), torch.zeros(1, 1, 5))])
