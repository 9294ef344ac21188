"""Generates with a small model of Hugging Face transformers, and compares tokens per second with sdpa.

    python examples/python/generate.py [--prompt 4096] [--tokens 64] [--dtype bfloat16]

The model has random weights: what it says means nothing, how long it takes does. Every step's logits are compared.
"""

import argparse
import time

import torch
import transformers

from treadle.integrations import transformers as treadle_transformers

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--prompt", type=int, default=4096, help="tokens that are there")
parser.add_argument("--tokens", type=int, default=64, help="tokens to generate")
parser.add_argument("--layers", type=int, default=4)
parser.add_argument("--hidden", type=int, default=512)
parser.add_argument("--heads", type=int, default=16, help="of queries; keys have a quarter")
parser.add_argument("--dtype", default="bfloat16", choices=["float32", "bfloat16", "float16"])
options = parser.parse_args()

treadle_transformers.register()
torch.manual_seed(0)
config = transformers.LlamaConfig(
    vocab_size=1000, hidden_size=options.hidden, intermediate_size=2 * options.hidden,
    num_hidden_layers=options.layers, num_attention_heads=options.heads, num_key_value_heads=options.heads // 4,
    max_position_embeddings=options.prompt + options.tokens, attention_dropout=0.0,
)  # fmt: skip
model = transformers.LlamaForCausalLM(config).to(getattr(torch, options.dtype)).eval()
prompt = torch.randint(0, 1000, (1, options.prompt))


class Generation:
    """Greedy, a step at a time, so that two of them can take turns: the machine's speed changes."""

    def __init__(self, implementation: str):
        self.name = implementation
        self.cache = transformers.DynamicCache()
        self.seconds = 0.0
        self.best = float("inf")
        model.set_attn_implementation(implementation)
        start = time.perf_counter()
        self.logits = model(prompt, past_key_values=self.cache).logits[:, -1]
        self.prefill = time.perf_counter() - start

    def step(self, token: torch.Tensor):
        model.set_attn_implementation(self.name)
        start = time.perf_counter()
        self.logits = model(token, past_key_values=self.cache).logits[:, -1]
        took = time.perf_counter() - start
        self.seconds += took
        self.best = min(self.best, took)


with torch.no_grad():
    both = [Generation("sdpa"), Generation("treadle")]
    furthest, same = 0.0, 0
    for _ in range(options.tokens):
        token = both[0].logits.argmax(-1, keepdim=True)
        same += int(token == both[1].logits.argmax(-1, keepdim=True))
        for generation in both:
            generation.step(token)
        furthest = max(furthest, float((both[0].logits - both[1].logits).abs().max()))

print(f"{'':10}{'prefill s':>12}{'tokens/s':>12}{'best step ms':>14}")
for generation in both:
    rate = options.tokens / generation.seconds
    print(f"{generation.name:10}{generation.prefill:12.2f}{rate:12.1f}{1000 * generation.best:14.2f}")
print(f"{same} of {options.tokens} tokens are the same; logits differ by at most {furthest:.2g}")
# Rounding in 16 bits moves logits by a few hundredths; a wrong mask would move them by much more.
if furthest > 0.25:
    raise SystemExit("the two disagree")
