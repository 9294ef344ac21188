"""Pictures of masks."""

import struct
import zlib

import numpy as np
import pytest
import treadle
from treadle.plot import mask_blocks, mask_png
from treadle.torch import BlockMask, create_block_mask


def causal(b, h, q, kv):
    return q >= kv


def pixels(png: bytes) -> np.ndarray:
    """Of a PNG as mask_png writes it: 8 bit RGB, no filter."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", png[16:24])
    data = b""
    at = 8
    while at < len(png):
        size, name = struct.unpack(">I4s", png[at : at + 8])
        body = png[at + 8 : at + 8 + size]
        assert struct.unpack(">I", png[at + 8 + size : at + 12 + size])[0] == zlib.crc32(name + body)
        if name == b"IDAT":
            data += body
        at += 12 + size
    rows = np.frombuffer(zlib.decompress(data), np.uint8).reshape(height, 1 + 3 * width)
    return rows[:, 1:].reshape(height, width, 3)


def test_blocks_of_a_mask():
    kinds = mask_blocks(create_block_mask(causal, None, None, 512, 512), most=4)
    assert kinds.tolist() == [[1, 0, 0, 0], [2, 1, 0, 0], [2, 2, 1, 0], [2, 2, 2, 1]]


def test_blocks_of_an_array():
    dense = np.tril(np.ones((512, 512), bool))
    assert mask_blocks(dense, most=4).tolist() == [[1, 0, 0, 0], [2, 1, 0, 0], [2, 2, 1, 0], [2, 2, 2, 1]]


def test_a_mask_from_lists():
    whole = create_block_mask(causal, None, None, 256, 256, BLOCK_SIZE=64)
    lists = BlockMask.from_kv_blocks(whole.kv_num_blocks, whole.kv_indices, BLOCK_SIZE=64, mask_mod=causal)
    assert mask_blocks(lists, most=4).tolist() == np.eye(4, dtype=int).tolist()


def test_png():
    mask = create_block_mask(causal, 2, 3, 300, 300)
    picture = pixels(mask_png(mask, most=100))
    assert picture.shape == (200, 200, 3)
    assert picture[0, -1].tolist() == [255, 255, 255]
    assert picture[-1, 0].tolist() == [49, 90, 140]
    assert mask._repr_png_() == mask_png(mask)


def test_plot():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    mask = create_block_mask(causal, None, None, 128, 256)
    axes = mask.plot()
    assert axes.get_xlabel() == "keys" and axes.get_xlim() == (0, 256)
    assert treadle.plot_mask(np.ones((4, 4), bool)).get_ylim() == (4, 0)


def test_without_matplotlib_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        create_block_mask(causal, None, None, 8, 8).plot()
