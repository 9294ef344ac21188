"""Pictures of masks. With matplotlib for axes and titles; without it, plain PNG."""

from __future__ import annotations

import struct
import zlib
from typing import Optional

import numpy as np

from . import _core
from ._arrays import as_array, as_numpy
from ._mods import as_mask_mod
from ._numpy import NumpyTrace, capture
from ._program import trace

_COLOURS = np.array([[255, 255, 255], [158, 188, 218], [49, 90, 140]], np.uint8)  # nothing, some pairs, all


def _lengths_of(mask, lengths: Optional[tuple]) -> tuple:
    """Queries and keys of a mask, whatever it is."""
    if hasattr(mask, "seq_lengths"):
        return mask.seq_lengths
    if lengths is None and not callable(mask) and len(getattr(mask, "shape", ())) >= 2:
        return tuple(mask.shape[-2:])
    if lengths is None:
        raise TypeError(f"a picture of {type(mask).__name__} needs lengths=(queries, keys)")
    return lengths


def _kinds_of_function(mask, lengths: tuple, batch: int, head: int, q_block: int, kv_block: int) -> np.ndarray:
    queries, keys = lengths
    program = trace(NumpyTrace((batch + 1, head + 1, queries, keys)), None, as_mask_mod(mask, capture)).counting_from_end()
    kinds = np.empty((batch + 1, head + 1, -(-queries // q_block), -(-keys // kv_block)), np.uint8)
    arrays = [*[as_array(c.object) for c in program.captures], *program.scalars]
    _core.block_kinds(program.mask, program.declared(), arrays, queries, keys, q_block, kv_block, as_array(kinds), 0)
    return kinds[batch, head]


def mask_blocks(mask, batch: int = 0, head: int = 0, most: int = 256, lengths: Optional[tuple] = None) -> np.ndarray:
    """What blocks of a mask hold, 0 nothing, 1 some pairs, 2 all, on a grid of at most `most` by `most`.

    `mask` is a treadle.torch.BlockMask, a bool array or tensor [queries, keys], or, with `lengths`, a function of b, h, q
    and kv that calls NumPy's functions, or a text.
    """
    queries, keys = _lengths_of(mask, lengths)
    if not hasattr(mask, "seq_lengths") and (callable(mask) or isinstance(mask, str)):
        return _kinds_of_function(mask, (queries, keys), batch, head, max(1, -(-queries // most)), max(1, -(-keys // most)))
    if not hasattr(mask, "seq_lengths"):
        mask = as_numpy(mask)
        if mask.ndim != 2 or mask.dtype != bool:
            raise TypeError(f"a picture is of a bool array [queries, keys], got one of {mask.dtype}, shape {mask.shape}")
        rows, columns = min(queries, most), min(keys, most)
        of_row = np.arange(queries) * rows // queries
        of_column = np.arange(keys) * columns // keys
        seen = np.zeros((rows, columns))
        np.add.at(seen, (of_row[:, None], of_column[None, :]), mask)
        size = np.outer(np.bincount(of_row, minlength=rows), np.bincount(of_column, minlength=columns))
        return np.where(seen == 0, 0, np.where(seen == size, 2, 1)).astype(np.uint8)
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


def plot_mask(mask, *, batch: int = 0, head: int = 0, ax=None, most: int = 256, lengths: Optional[tuple] = None):
    """A mask as a picture with axes; returns matplotlib's Axes. Of a function or a text with lengths=(queries, keys)."""
    try:
        import matplotlib.pyplot as pyplot
        from matplotlib.colors import ListedColormap
    except ImportError as error:
        raise ImportError("plot_mask needs matplotlib: pip install matplotlib") from error
    kinds = mask_blocks(mask, batch, head, most, lengths)
    queries, keys = _lengths_of(mask, lengths)
    if ax is None:
        _, ax = pyplot.subplots()
    ax.imshow(
        kinds, cmap=ListedColormap(_COLOURS / 255.0), vmin=0, vmax=2, interpolation="nearest",
        extent=(0, keys, queries, 0), aspect="auto" if queries != keys else "equal",
    )  # fmt: skip
    ax.set_xlabel("keys")
    ax.set_ylabel("queries")
    return ax
