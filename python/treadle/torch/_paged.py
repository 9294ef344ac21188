"""paged_attention: sequences whose keys lie in pages of a pool, for engines that keep their own page tables."""

from __future__ import annotations

from typing import Callable, NamedTuple, Optional, Union

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .._offsets import offsets_of
from .._program import Program, function_for, with_indices
from .._sequences import PagedKeys, check_order
from ._arrays import are_plain, as_array, needs_dispatcher, tensors_of
from ._attend import autocast, recorded, sizes_of_sequences, tell_compilers
from ._attention import AuxRequest
from ._check import check_sequence_heads, check_sinks, check_index, check_tensors, check_types
from ._flat import SCHEMA, flattened, last_captures, unflattened
from ._graph_trace import trace_in_graph, without_symbol
from ._ops import check_devices
from ._run import Call, Extras, aligned, arrays_of_extras, empty_results
from ._tracing import trace
from ._varlen import mask_of, with_aux


class Pages(NamedTuple):
    """Where keys lie."""

    k: Tensor
    v: Tensor
    table: Tensor
    lengths: Tensor
    k_scales: Optional[Tensor]
    v_scales: Optional[Tensor]
    order: str

    def tensors(self) -> list:
        return [t for t in self[:6] if t is not None]

    def arrays(self) -> tuple:
        k, v, table, lengths, *scales = [None if t is None else as_array(t) for t in self[:6]]
        return k, v, table, lengths, self.order == "tokens_first", *scales


def paged_attention(
    query: Tensor,
    cu_seqlens_q: Tensor,
    k_pool: Union[Tensor, PagedKeys],
    v_pool: Optional[Tensor] = None,
    page_table: Optional[Tensor] = None,
    lengths: Optional[Tensor] = None,
    *,
    order: str = "heads_first",
    k_scales: Optional[Tensor] = None,
    v_scales: Optional[Tensor] = None,
    score_mod: Optional[Callable] = None,
    mask_mod: Optional[Callable] = None,
    causal: bool = False,
    window_size: tuple = (-1, -1),
    scale: Optional[float] = None,
    enable_gqa: bool = False,
    return_aux: Optional[AuxRequest] = None,
    sinks: Optional[Tensor] = None,
    q_offset=None,
    kv_offset=None,
) -> Union[Tensor, tuple]:
    """varlen_attention with keys in pages of a pool, read in place, forward only: those of sequence s are in pages
    page_table[s, 0], page_table[s, 1], ..., page after page. Each sequence has the bits that it has with packed keys.

    Pools are [pages, key heads, page size, dim], or [pages, page size, key heads, dim] if `order` is "tokens_first".
    `page_table` is [sequences, pages of the longest] of int32, where entries behind a sequence mean nothing; `lengths`
    [sequences] are the keys of each. Sequences may share pages; where several begin with the same ones, these are read once.

    `k_scales` and `v_scales` are what rows of the pools are multiplied with, such as those of 8 bits: float32, one for each
    token and head ([pages, key heads, page size], or [pages, page size, key heads] if tokens come first) or for each page
    and head ([pages, key heads]). The other arguments are those of varlen_attention.

    A treadle.torch.PagedKeys, such as PagedKV.batch gives, is all of these in one: paged_attention(q, starts, keys).

    >>> import torch
    >>> from treadle.torch import paged_attention, varlen_attention
    >>> pool = torch.randn(10, 2, 16, 64)
    >>> table = torch.tensor([[3, 1, 4], [5, 9, -1]], dtype=torch.int32)
    >>> q, starts = torch.randn(2, 8, 64), torch.tensor([0, 1, 2])
    >>> out = paged_attention(q, starts, pool, pool, table, torch.tensor([41, 20]), causal=True, enable_gqa=True)
    >>> k = pool[[3, 1, 4, 5, 9]].transpose(1, 2).flatten(0, 1)[list(range(41)) + list(range(48, 68))]
    >>> torch.equal(out, varlen_attention(q, k, k, starts, torch.tensor([0, 41, 61]), causal=True, enable_gqa=True))
    True
    """
    if isinstance(k_pool, PagedKeys):
        beside = (v_pool, page_table, lengths, k_scales, v_scales)
        if order != "heads_first" or any([x is not None for x in beside]):
            raise TypeError("paged_attention: PagedKeys have values, table, lengths, order and scales; give none beside them")
        k_pool, v_pool, page_table, lengths, order, k_scales, v_scales = k_pool
    check_tensors(query, k_pool, v_pool)
    check_types(query, k_pool, v_pool)
    check_order("paged_attention", order)
    for name, t in (("cu_seqlens_q", cu_seqlens_q), ("page_table", page_table), ("lengths", lengths)):
        check_index(name, t)
    for name, t in (("k_scales", k_scales), ("v_scales", v_scales)):
        if t is not None:
            check_index(name, t)
    check_sequence_heads(query, k_pool, 1 if order == "heads_first" else 2, enable_gqa)
    if sinks is not None:
        check_sinks(sinks)
    mask, relative = mask_of(mask_mod, causal, window_size), score_mod is None and mask_mod is None
    query, k_pool, v_pool = autocast(query, k_pool, v_pool)
    pages = Pages(k_pool, v_pool, page_table, lengths, k_scales, v_scales, order)
    offsets = offsets_of("q_offset", q_offset), offsets_of("kv_offset", kv_offset)
    extras = Extras(sinks is not None, *offsets, relative=relative)
    in_graph = torch.compiler.is_compiling() or needs_dispatcher(query, cu_seqlens_q, *pages.tensors())
    if in_graph:
        program = trace_in_graph(score_mod, mask)
    else:
        program = trace(score_mod, mask, sizes_of_sequences(query, lengths.numel()))
    captured = tensors_of(program.captures) if sinks is None else [*tensors_of(program.captures), sinks]
    _refuse_gradients((query, k_pool, v_pool, *pages.tensors()[4:], *captured))
    if in_graph or not are_plain(captured):
        scale = without_symbol(scale)
        captured = [*captured, *last_captures(program, scale)]
        results = torch.ops.treadle.paged_attention(
            query, *pages[:2], captured, *flattened(program, scale, extras), cu_seqlens_q, *pages[2:]
        )
        tell_compilers()
        return with_aux(results, return_aux)
    scale = None if scale is None else float(scale)
    want = return_aux or AuxRequest()

    def run(program: Program):
        call = Call(program, scale, None, want.max_scores, torch.get_num_threads(), extras)
        return _run(call, query, cu_seqlens_q, pages, captured, want.lse)

    return with_aux(with_indices(program, recorded("treadle::paged_attention", run), (score_mod, mask)), return_aux)


def _refuse_gradients(tensors):
    """Of something that requires grad, the result would not: nobody should train what does not learn."""
    if torch.is_grad_enabled() and any([t.requires_grad for t in tensors]):
        raise RuntimeError(
            "paged_attention has no gradient, and a tensor of the call requires grad; call it in torch.no_grad(), or train "
            "with varlen_attention"
        )
    if forward_ad._current_level >= 0 and any([forward_ad.unpack_dual(t).tangent is not None for t in tensors]):
        raise RuntimeError("paged_attention has no derivative in forward mode")


def _run(call: Call, q: Tensor, q_starts: Tensor, pages: Pages, captured, lse: bool) -> tuple:
    extras = call.extras
    mods_read, sinks, _ = extras.split(captured)
    function = function_for(call.program, (), call.scale)
    offsets = aligned(extras, q_starts, lambda: pages.lengths.flatten().tolist())
    last = arrays_of_extras(sinks, *offsets, extras.dropout(captured))
    results = empty_results(q, pages.k, pages.v, lse, call.max)
    function.forward_sequences(
        (as_array(q), as_array(q_starts), *pages.arrays()), [*map(as_array, mods_read), *call.program.scalars],
        *[None if t is None else as_array(t) for t in results], call.threads, last,
    )  # fmt: skip
    return results


torch.library.define(
    "treadle::paged_attention",
    f"(Tensor q, Tensor k, Tensor v, {SCHEMA}, Tensor q_starts, Tensor table, Tensor lengths, Tensor? k_scales, "
    "Tensor? v_scales, str order) -> (Tensor, Tensor, Tensor)",
)


@torch.library.impl("treadle::paged_attention", "cpu")
def _forward(q, k, v, captures, *rest):
    *arguments, q_starts, table, lengths, k_scales, v_scales, order = rest
    program, scale, extras, captures = unflattened(captures, arguments)
    pages = Pages(k, v, table, lengths, k_scales, v_scales, order)

    def run(program: Program):
        call = Call(program, scale, None, True, torch.get_num_threads(), extras)
        return _run(call, q, q_starts, pages, captures, True)

    return with_indices(program, run)


@torch.library.register_fake("treadle::paged_attention")
def _shapes(q, k, v, captures, *rest):
    check_devices(q, k, v, *captures, *rest[-6:-1])
    return empty_results(q, k, v, True, True)
