"""Masks and attentions can be copied and pickled at any time, also after they were used."""

import copy
import multiprocessing
import pickle

import mods
import numpy as np
import pytest
import torch
import treadle
from policy import inputs
from treadle.torch import BlockMask, create_block_mask, create_key_mask, flex_attention


def of_a_function():
    return create_block_mask(mods.causal_mask, None, None, 70, 70)


def of_lists():
    num = torch.tensor([[[1, 2]]], dtype=torch.int32)
    indices = torch.tensor([[[[0, 1], [0, 1]]]], dtype=torch.int32)
    return BlockMask.from_kv_blocks(num, indices, BLOCK_SIZE=35, mask_mod=mods.window_mask)


def of_keys():
    return create_key_mask(torch.arange(70).view(1, 1, 70, 1), lengths=(70, 70))


def pickled(x):
    return pickle.loads(pickle.dumps(x))


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickled], ids=["copy", "deepcopy", "pickle"])
@pytest.mark.parametrize("make", [of_a_function, of_lists, of_keys], ids=mods.name)
def test_masks(make, duplicate, used):
    q, k, v = inputs()
    mask = make()
    if used:
        flex_attention(q, k, v, None, mask)
        mask.kv_num_blocks
    other = duplicate(mask)
    expected = flex_attention(q, k, v, None, mask)
    assert torch.equal(flex_attention(q, k, v, None, other), expected)
    assert other.shape == mask.shape and torch.equal(other.kv_indices, mask.kv_indices)
    other.mask_mod = mods.inverse_causal_mask
    other.kv_num_blocks = torch.zeros_like(other.kv_num_blocks)
    assert torch.equal(flex_attention(q, k, v, None, mask), expected)
    assert bool(mask.kv_num_blocks.any())


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mask = of_a_function()
        self.slopes = torch.nn.Parameter(torch.rand(4))

    def forward(self, x):
        return flex_attention(x, x, x, lambda s, b, h, q, kv: s * self.slopes[h], self.mask)


def test_a_model_that_keeps_a_mask(tmp_path):
    x = torch.randn(2, 4, 70, 16)
    layer = Layer()
    expected = layer(x)
    assert torch.equal(copy.deepcopy(layer)(x), expected)
    averaged = torch.optim.swa_utils.AveragedModel(layer)
    averaged.update_parameters(layer)
    assert torch.equal(averaged(x), expected)
    torch.save(layer, tmp_path / "layer.pt")
    assert torch.equal(torch.load(tmp_path / "layer.pt", weights_only=False)(x), expected)


class Biased:
    """A score mod that can be pickled, with an array that it reads."""

    def __init__(self, slopes):
        self.slopes = treadle.capture(slopes)

    def __call__(self, score, b, h, q, kv):
        return score + self.slopes[h] * (kv - q)


def near(b, h, q, kv):
    return (q >= kv) & (q - kv < 9)


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickled], ids=["copy", "deepcopy", "pickle"])
def test_attentions(duplicate, used):
    x = np.random.default_rng(0).standard_normal((1, 2, 40, 8)).astype(np.float32)
    attention = treadle.Attention(Biased(np.array([0.5, 0.25], np.float32)), near)
    if used:
        attention.forward(x, x, x)
    other = duplicate(attention)
    a, b = attention.forward(x, x, x), other.forward(x, x, x)
    np.testing.assert_array_equal(a.out, b.out)
    learned = [f.backward(x, x, x, a, x, captures=(f.score_mod.slopes,)).captures[0] for f in (attention, other)]
    np.testing.assert_array_equal(*learned)


def _forward(attention, x):
    return attention.forward(x, x, x).out


def test_an_attention_goes_to_another_process():
    x = np.random.default_rng(0).standard_normal((1, 2, 40, 8)).astype(np.float32)
    attention = treadle.Attention(mask_mod=near, threads=1)
    expected = attention.forward(x, x, x).out
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        np.testing.assert_array_equal(pool.apply(_forward, (attention, x)), expected)
