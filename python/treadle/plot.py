"""Pictures of masks. With matplotlib for axes and titles; without it, plain PNG."""

from __future__ import annotations

import struct
import zlib

import numpy as np

_COLOURS = np.array([[255, 255, 255], [158, 188, 218], [49, 90, 140]], np.uint8)  # nothing, some pairs, all


def mask_blocks(mask, batch: int = 0, head: int = 0, most: int = 256) -> np.ndarray:
    """What blocks of a mask hold, 0 nothing, 1 some pairs, 2 all, on a grid of at most `most` by `most`.

    `mask` is a treadle.torch.BlockMask, or a bool array [queries, keys].
    """
    if isinstance(mask, np.ndarray):
        queries, keys = mask.shape
        rows, columns = min(queries, most), min(keys, most)
        of_row = np.arange(queries) * rows // queries
        of_column = np.arange(keys) * columns // keys
        seen = np.zeros((rows, columns))
        np.add.at(seen, (of_row[:, None], of_column[None, :]), mask)
        size = np.outer(np.bincount(of_row, minlength=rows), np.bincount(of_column, minlength=columns))
        return np.where(seen == 0, 0, np.where(seen == size, 2, 1)).astype(np.uint8)
    queries, keys = mask.seq_lengths
    return mask.block_kinds(-(-queries // most), -(-keys // most))[batch, head].numpy()


def mask_png(mask, batch: int = 0, head: int = 0, most: int = 256) -> bytes:
    """The same as a PNG file, one pixel or more per block."""
    kinds = mask_blocks(mask, batch, head, most)
    enlarge = max(1, 256 // max(*kinds.shape, 1))
    pixels = _COLOURS[np.kron(kinds, np.ones((enlarge, enlarge), np.uint8))]
    height, width = pixels.shape[:2]
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, width * 3)], axis=1)

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines.tobytes(), 9)) + chunk(b"IEND", b"")
    )


def plot_mask(mask, *, batch: int = 0, head: int = 0, ax=None, most: int = 256):
    """A mask as a picture with axes; returns matplotlib's Axes."""
    try:
        import matplotlib.pyplot as pyplot
        from matplotlib.colors import ListedColormap
    except ImportError as error:
        raise ImportError("plot_mask needs matplotlib: pip install matplotlib") from error
    kinds = mask_blocks(mask, batch, head, most)
    queries, keys = mask.shape[-2:] if isinstance(mask, np.ndarray) else mask.seq_lengths
    if ax is None:
        _, ax = pyplot.subplots()
    ax.imshow(
        kinds, cmap=ListedColormap(_COLOURS / 255.0), vmin=0, vmax=2, interpolation="nearest",
        extent=(0, keys, queries, 0), aspect="auto" if queries != keys else "equal",
    )  # fmt: skip
    ax.set_xlabel("keys")
    ax.set_ylabel("queries")
    return ax
