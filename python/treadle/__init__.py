"""Treadle: a compiler for attention. Two small functions say what to do with a score and which pairs are visible.

    import treadle
    out = treadle.attention(q, k, v, mask_mod=lambda b, h, q, kv: q >= kv)

This is the package for NumPy and anything that supports DLPack; `treadle.torch` has FlexAttention's names, with gradients.
"""

import atexit as _atexit
import os as _os

from . import _core
from ._core import Error, ModError
from ._dropout import dropout_mask
from ._errors import TraceError
from ._functions import functions as _by_name
from ._key_lists import KeyLists
from ._numpy import capture
from ._operations import operations as _table
from ._paged_kv import PagedKV
from ._sequences import PackedKeys, PagedKeys
from .api import Attention, attention, explain, merge_states
from .plot import plot_mask

__version__ = _core.__version__

__all__ = [
    "Attention", "Error", "KeyLists", "ModError", "PackedKeys", "PagedKV", "PagedKeys", "TraceError", "attention", "capture",
    "dropout_mask", "explain", "merge_states", "plot_mask", "release_memory",
]

# Functions for mods: treadle.where, treadle.exp, and every other operation; minimum and maximum by NumPy's names, too,
# and relu.
for _name in (*_table, "minimum", "maximum", "relu"):
    globals()[_name] = _by_name[_name]

# A forked child has none of the parent's threads.
_os.register_at_fork(after_in_child=_core.begin_forked)

# Calls of daemon threads end before the interpreter does.
_atexit.register(_core.end_calls)


def release_memory() -> int:
    """Frees working memory that calls keep for the next ones and that none is using; how many bytes that were."""
    return _core.release_memory()
