"""FlexAttention for the CPU, with gradients: the names and arguments of torch.nn.attention.flex_attention.

    from treadle.torch import flex_attention, create_block_mask
"""

from typing import Any, TypedDict

from .._sequences import PagedKeys
from . import _flops  # noqa: F401  what FlopCounterMode counts
from ._attention import AuxOutput, AuxRequest, flex_attention
from ._block_mask import BlockMask
from ._create import create_block_mask, create_mask
from ._explain import explain
from ._key_lists import create_key_mask
from ._masks import and_masks, noop_mask, or_masks
from ._merge import merge_states
from ._page_table import PagedAttention
from ._paged import paged_attention
from ._paged_kv import PagedKV
from ._routed_sdpa import routed_sdpa
from ._sdpa import scaled_dot_product_attention
from ._varlen import varlen_attention


class FlexKernelOptions(TypedDict, total=False):
    """torch's options for its GPU kernels; taken and checked, and of no effect here."""

    num_warps: int
    num_stages: int
    BLOCK_M: int
    BLOCK_N: int
    BLOCK_M1: int
    BLOCK_N1: int
    BLOCK_M2: int
    BLOCK_N2: int
    PRESCALE_QK: bool
    ROWS_GUARANTEED_SAFE: bool
    BLOCKS_ARE_CONTIGUOUS: bool
    WRITE_DQ: bool
    FORCE_USE_FLEX_ATTENTION: bool
    USE_TMA: bool
    kpack: int
    matrix_instr_nonkdim: int
    waves_per_eu: int
    BACKEND: Any


__all__ = [
    "AuxOutput", "AuxRequest", "BlockMask", "FlexKernelOptions", "PagedAttention", "PagedKV", "PagedKeys", "and_masks",
    "create_block_mask", "create_key_mask", "create_mask", "explain", "flex_attention", "merge_states", "noop_mask",
    "or_masks", "paged_attention", "routed_sdpa", "scaled_dot_product_attention", "varlen_attention",
]  # fmt: skip
