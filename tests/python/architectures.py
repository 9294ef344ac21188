"""Models of transformers with tiny random weights, on which test_architectures.py compares attention with theirs."""

from __future__ import annotations

from typing import NamedTuple

import torch

_sizes = dict(
    vocab_size=99, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=128, pad_token_id=0, bos_token_id=1, eos_token_id=2,
)  # fmt: skip
_no_dropout = dict(
    attention_dropout=0.0, hidden_dropout=0.0, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, dropout=0.0,
    attention_probs_dropout_prob=0.0, hidden_dropout_prob=0.0, activation_dropout=0.0, dropout_rate=0.0,
    classifier_dropout=0.0, layerdrop=0.0, encoder_layerdrop=0.0, decoder_layerdrop=0.0, attn_dropout_prob=0.0,
    embedding_dropout=0.0, mlp_dropout=0.0,
)  # fmt: skip
_experts = dict(num_local_experts=4, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24, n_routed_experts=4)
_latent = dict(
    **_experts, num_key_value_heads=4, q_lora_rank=16, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=8,
    n_group=1, topk_group=1, first_k_dense_replace=1, n_shared_experts=1,
)  # fmt: skip
_two = dict(
    vocab_size=99, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4,
    encoder_ffn_dim=48, decoder_ffn_dim=48, max_position_embeddings=128, decoder_start_token_id=2, forced_eos_token_id=None,
)  # fmt: skip
_t5 = dict(
    vocab_size=99, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_decoder_layers=2, num_heads=4, decoder_start_token_id=0,
)  # fmt: skip


class Architecture(NamedTuple):
    config: str  # without "Config"
    model: str
    numbers: dict
    kind: str = "decoder"  # or encoder, both, image
    static_cache: bool = True
    graphs: bool = True  # compiles in one graph with its own attention, too


def _decoder(name: str, model: str = "", graphs: bool = True, static_cache: bool = True, **numbers) -> Architecture:
    return Architecture(name, model or name + "ForCausalLM", {**_sizes, **numbers}, "decoder", static_cache, graphs)


def _encoder(name: str, model: str, **numbers) -> Architecture:
    return Architecture(name, model, {**_sizes, **numbers}, "encoder")


def _image(name: str, **numbers) -> Architecture:
    return Architecture(name, name + "Model", {**_sizes, "image_size": 32, "patch_size": 8, **numbers}, "image")


# Those of every run; together they reach every branch of the integration that a model can.
few = (
    _decoder("Llama"),
    _decoder("Gemma2", head_dim=8, sliding_window=8, attn_logit_softcapping=20.0),
    _decoder("GptOss", head_dim=8, sliding_window=8, **_experts, graphs=False),
    _decoder("DeepseekV32", **_latent, index_topk=6, index_head_dim=16, index_n_heads=2, graphs=False, static_cache=False),
    _decoder("Bloom", n_layer=2, n_head=4, graphs=False),
    Architecture("SwitchTransformers", "SwitchTransformersForConditionalGeneration", {**_t5, "num_experts": 2}, "both"),
    _encoder("LayoutLM", "LayoutLMModel"),
    _image("Beit", use_relative_position_bias=True),
)
others = (
    _decoder("Mistral", sliding_window=8),
    _decoder("Mixtral", **_experts, graphs=False),
    _decoder("Qwen2"),
    _decoder("Qwen3", head_dim=8),
    _decoder("Qwen3Moe", head_dim=8, **_experts, graphs=False),
    _decoder("Gemma", head_dim=8),
    _decoder("Gemma3Text", "Gemma3ForCausalLM", head_dim=8, sliding_window=8),
    _decoder("Llama4Text", "Llama4ForCausalLM", head_dim=8, attention_chunk_size=8, intermediate_size_mlp=48, **_experts,
             graphs=False),
    _decoder("Phi"),
    _decoder("Phi3", sliding_window=8),
    _decoder("Cohere"),
    _decoder("Cohere2", sliding_window=8),
    _decoder("Olmo2"),
    _decoder("Olmo3", sliding_window=8),
    _decoder("Starcoder2", sliding_window=8),
    _decoder("StableLm"),
    _decoder("Granite"),
    _decoder("Glm4", head_dim=8),
    _decoder("Nemotron"),
    _decoder("SmolLM3"),
    _decoder("DeepseekV3", **_latent, graphs=False),
    _decoder("GlmMoeDsa", **_latent, index_topk=6, index_head_dim=16, index_n_heads=2, graphs=False, static_cache=False),
    _decoder("GPT2", "GPT2LMHeadModel", n_embd=32, n_layer=2, n_head=4, n_positions=128),
    _decoder("GPTNeoX"),
    _decoder("GPTBigCode", n_embd=32, n_layer=2, n_head=4, n_positions=128),
    _decoder("OPT", ffn_dim=48, word_embed_proj_dim=32, graphs=False),
    _decoder("Mpt", d_model=32, n_layers=2, n_heads=4, max_seq_len=128, expansion_ratio=2, graphs=False),
    _decoder("Falcon", alibi=True, new_decoder_architecture=False, multi_query=True, graphs=False, static_cache=False),
    _decoder("Falcon", alibi=False, new_decoder_architecture=True, num_kv_heads=2, graphs=False),
    Architecture("T5", "T5ForConditionalGeneration", _t5, "both"),
    Architecture("Bart", "BartForConditionalGeneration", _two, "both"),
    Architecture("Pegasus", "PegasusForConditionalGeneration", _two, "both"),
    _encoder("Bert", "BertModel"),
    _encoder("Roberta", "RobertaModel", max_position_embeddings=130),
    _encoder("Electra", "ElectraModel", embedding_size=32),
    _encoder("ModernBert", "ModernBertModel", local_attention=8, global_attn_every_n_layers=2),
    _encoder("DistilBert", "DistilBertModel", dim=32, hidden_dim=48, n_layers=2, n_heads=4),
    _image("ViT"),
    _image("SiglipVision"),
    _image("CLIPVision"),
)


def name_of(a: Architecture) -> str:
    return a.model.removesuffix("ForCausalLM") + ("-alibi" if a.numbers.get("alibi") else "")


def made(a: Architecture, implementation: str, state=None):
    import transformers

    cls = getattr(transformers, a.config + "Config")
    known = cls().__dict__
    config = cls(**{**{k: v for k, v in _no_dropout.items() if k in known}, **a.numbers})
    if a.config == "Mpt":
        config.attn_config.attn_pdrop = 0
    config._attn_implementation = implementation
    torch.manual_seed(0)
    model = getattr(transformers, a.model)(config)
    if state is None:  # small weights make attention a mean
        with torch.no_grad():
            for x in model.parameters():
                if x.dim() > 1:
                    x.copy_(torch.randn(x.shape) * 1.5 / x.shape[-1] ** 0.5)
    else:
        model.load_state_dict(state)
    return model.eval()


def pair_of(a: Architecture) -> tuple:
    """The model with its own attention, and with treadle's. (Falcon's eager attention adds ALiBi twice.)"""
    theirs = made(a, "sdpa" if a.numbers.get("alibi") else "eager")
    return theirs, made(a, "treadle", theirs.state_dict())


def inputs_of(a: Architecture, padded: bool = True, batch: int = 2, length: int = 20) -> dict:
    g = torch.Generator().manual_seed(1)
    if a.kind == "image":
        return {"pixel_values": torch.randn(batch, 3, 32, 32, generator=g)}
    ids = torch.randint(3, 99, (batch, length), generator=g)
    seen = torch.ones_like(ids)
    if padded:
        if a.kind == "decoder":
            seen[0, :3] = 0  # on the left
        else:
            seen[0, -3:] = 0
    inputs = {"input_ids": ids, "attention_mask": seen}
    if a.kind == "both":
        inputs["decoder_input_ids"] = torch.randint(3, 99, (batch, 7), generator=g)
    return inputs
