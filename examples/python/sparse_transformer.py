"""A Sparse Transformer that learns to write, byte by byte, from the text it is given.

    python examples/python/sparse_transformer.py --text book.txt --pattern strided --steps 500
    python examples/python/sparse_transformer.py --compare --steps 20

The decoder is the paper's (arXiv 1904.10509): residual blocks whose attention sees a few keys only, and which keep little
for the backward pass. `strided` alternates layers that see the latest keys with layers that see every stride-th one,
`merged` sees both in every layer, `fixed` sees its own window and the last columns of earlier ones. `--compare` trains the
same model with dense attention, too: Treadle's and torch's.
"""

import argparse
import math
import pathlib
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from treadle.sparse_transformer import SparseAttention
from treadle.torch import create_block_mask, create_mask, flex_attention, or_masks

# --- attention: functions of q, k, v [batch, time, width] -------------------------------------------------------------


class Merged:
    """What any of these sees, in one layer."""

    def __init__(self, *parts: SparseAttention):
        self.heads, self.mask_mod = parts[0].heads, or_masks(*[p.mask_mod for p in parts])
        self.masks: dict = {}  # by length, with their layouts

    def __call__(self, q, k, v):
        length = q.shape[1]
        if length not in self.masks:
            self.masks[length] = create_block_mask(self.mask_mod, None, None, length, length)
        return by_head(lambda *x: flex_attention(*x, block_mask=self.masks[length]), self.heads, q, k, v)


class Sdpa:
    """torch's own, dense and causal."""

    def __init__(self, heads: int):
        self.heads = heads

    def __call__(self, q, k, v):
        return by_head(lambda *x: F.scaled_dot_product_attention(*x, is_causal=True), self.heads, q, k, v)


def by_head(attend, heads: int, *tensors):
    """attend's result for [batch, heads, time, dim], as [batch, time, width] again."""
    return attend(*[x.unflatten(2, (heads, -1)).transpose(1, 2) for x in tensors]).transpose(1, 2).flatten(2)


def attention_of_layers(pattern: str, heads: int, stride: int, recompute: bool) -> list:
    """The attention of one layer after the other; they are repeated."""
    if pattern == "sdpa":
        return [Sdpa(heads)]
    if pattern == "all":
        return [SparseAttention(heads=heads, blocksize=1, recompute=recompute)]
    if pattern == "fixed":  # four groups of columns per window, one for each of four heads
        verts = math.gcd(heads, 4)
        how = dict(blocksize=stride // 4, num_verts=verts, vertsize=1)
        return [SparseAttention(heads=heads, attn_mode="fixed", local_attn_ctx=stride, recompute=recompute, **how)]
    local, strided = [
        SparseAttention(heads=heads, attn_mode=mode, local_attn_ctx=stride, blocksize=1, recompute=recompute)
        for mode in ("local", "strided")
    ]
    return [Merged(local, strided)] if pattern == "merged" else [local, strided]


def picture(pattern: str, heads: int) -> str:
    """What queries see, drawn with a stride of 8: in each layer, and where heads differ in two of them."""
    layers = attention_of_layers(pattern, heads, 8, False)
    drawn = range(min(heads, 2)) if pattern == "fixed" else range(1)
    masks = [create_mask(layer.mask_mod, 1, heads, 32, 32)[0, h] for layer in layers for h in drawn]
    return "\n".join("   ".join("".join(".#"[int(x)] for x in mask[q]) for mask in masks) for q in range(32))


# --- the model --------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    """x + attention, then x + feed-forward; both are run again in backward if `recompute` says so."""

    def __init__(self, width: int, layers: int, attend, recompute: bool):
        super().__init__()
        self.attend, self.recompute = attend, recompute
        self.norm_a, self.norm_m = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.expand, self.contract = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        for last in (self.project, self.contract):  # so that the sum of all blocks begins small
            nn.init.normal_(last.weight, std=0.125 / math.sqrt(last.in_features * 2 * layers))

    def feed_forward(self, x):
        x = self.expand(self.norm_m(x))
        return self.contract(x * torch.sigmoid(1.702 * x))

    def forward(self, x):
        x = x + self.project(self.attend(*self.qkv(self.norm_a(x)).chunk(3, dim=2)))
        if self.recompute and torch.is_grad_enabled():
            return x + checkpoint(self.feed_forward, x, use_reentrant=False, preserve_rng_state=False)
        return x + self.feed_forward(x)


class SparseTransformer(nn.Module):
    """Bytes [batch, time] to scores of the next byte [batch, time, 256]."""

    def __init__(self, options, pattern: str):
        super().__init__()
        self.stride = options.stride
        attention = attention_of_layers(pattern, options.heads, options.stride, options.recompute)
        self.byte = nn.Embedding(256, options.width)
        # Where a byte stands: in which window, and where in it.
        self.row = nn.Embedding(-(-options.context // options.stride), options.width)
        self.column = nn.Embedding(options.stride, options.width)
        for table in (self.byte, self.row, self.column):
            nn.init.normal_(table.weight, std=0.125 / math.sqrt(options.width))
        self.blocks = nn.ModuleList(
            Block(options.width, options.layers, attention[i % len(attention)], options.recompute)
            for i in range(options.layers)
        )
        self.norm, self.scores = nn.LayerNorm(options.width), nn.Linear(options.width, 256)
        nn.init.zeros_(self.scores.weight)  # all bytes are equally likely at first: 8 bits
        nn.init.zeros_(self.scores.bias)

    def forward(self, x):
        place = torch.arange(x.shape[1])
        x = self.byte(x) + self.row(place // self.stride) + self.column(place % self.stride)
        for block in self.blocks:
            x = block(x)
        return self.scores(self.norm(x))

    @torch.no_grad()
    def write(self, start: torch.Tensor, count: int) -> bytes:
        """`count` bytes that go on from `start`. What stands behind the last one is not seen, so windows may be whole."""
        text = start
        for _ in range(count):
            padded = F.pad(text, (0, -len(text) % self.stride))
            scores = self(padded[None])[0, len(text) - 1]
            text = torch.cat((text, torch.multinomial(torch.softmax(scores / 0.8, 0), 1)))
        return bytes(text[len(start) :].tolist())


# --- training ---------------------------------------------------------------------------------------------------------


def text_of(path) -> torch.Tensor:
    """A file's bytes; without one those of the Markdown and Python files nearby, or sentences made up."""
    if path is not None:
        found = pathlib.Path(path).read_bytes()
    else:
        root = pathlib.Path(__file__).resolve().parents[2]
        files = [p for folder in ("docs", "python/treadle", "examples") for p in sorted((root / folder).rglob("*"))]
        found = b"\n".join(p.read_bytes() for p in files if p.suffix in (".md", ".py"))
        if len(found) < 100_000:
            words = ["the loom", "a shuttle", "one thread", "every weft", "holds", "crosses", "follows", "leaves"]
            picks = torch.randint(4, (20_000, 3), generator=torch.Generator().manual_seed(0)).tolist()
            found = "".join(f"{words[a]} {words[4 + b]} {words[c]}. " for a, b, c in picks).encode()
    return torch.frombuffer(bytearray(found), dtype=torch.uint8).long()


def show_progress(step: int, steps: int, bits: float, speed: float) -> None:
    done = 24 * step // steps
    line = f"[{'#' * done}{'.' * (24 - done)}] {step}/{steps}  {bits:.3f} bits per byte  {speed:,.0f} tokens/s"
    if sys.stdout.isatty():
        print("\r" + line, end="\n" if step == steps else "", flush=True)
    elif step == steps or step % max(1, steps // 10) == 0:
        print(line, flush=True)


def train(options, pattern: str, text: torch.Tensor) -> tuple:
    """The model, bits per byte of every step, and seconds of a step."""
    torch.manual_seed(options.seed)
    model = SparseTransformer(options, pattern)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, betas=(0.9, 0.95), weight_decay=0.01)
    batches = torch.Generator().manual_seed(options.seed)
    curve, seconds = [], []
    print(f"\n{pattern}: {sum(p.numel() for p in model.parameters()):,} parameters, context {options.context}")
    for step in range(options.steps):
        start = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = options.lr * min(1, (step + 1) / 20)
        begins = torch.randint(len(text) - options.context, (options.batch,), generator=batches).tolist()
        batch = torch.stack([text[i : i + options.context + 1] for i in begins])
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        curve.append(loss.item() / math.log(2))
        seconds.append(time.perf_counter() - start)
        show_progress(step + 1, options.steps, curve[-1], options.batch * options.context / seconds[-1])
    return model, curve, sorted(seconds)[len(seconds) // 2]


# Bits per byte. Early losses depend little on attention: another mask changes them by some 1e-4, rounding by 1e-6.
AGREE = 2e-5


def difference(curve: list, other: list) -> float:
    """Of the first steps; later rounding errors have grown."""
    return max(abs(a - b) for a, b in zip(curve[:20], other[:20]))


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--text", help="a file to learn from")
    parser.add_argument("--pattern", choices=("strided", "fixed", "merged", "all"), default="strided")
    for name, default in dict(
        context=4096, stride=128, steps=200, batch=1, layers=4, width=256, heads=4, sample=200, seed=0
    ).items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--recompute", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--compare", action="store_true", help="train with dense attention, too")
    options = parser.parse_args(arguments)
    if options.context % options.stride or options.stride % 4:
        parser.error(f"--context {options.context} must be a multiple of --stride {options.stride}, and that one of 4")
    return options


def main(arguments=None) -> None:
    options = parse(arguments)
    text = text_of(options.text)
    if len(text) <= options.context:
        sys.exit(f"the text has {len(text)} bytes; a context of {options.context} needs more")
    print(f"{len(text):,} bytes of text. What a query sees, with a stride of 8:\n{picture(options.pattern, options.heads)}")
    model, curve, seconds = train(options, options.pattern, text)
    if options.compare:
        _, ours, dense_seconds = train(options, "all", text)
        _, theirs, sdpa_seconds = train(options, "sdpa", text)
        print("\nseconds per step, last bits per byte:")
        rows = ((options.pattern, seconds, curve), ("all", dense_seconds, ours), ("sdpa", sdpa_seconds, theirs))
        for name, taken, bits in rows:
            print(f"  {name:8} {taken:8.3f} {bits[-1]:8.3f}")
        apart = difference(ours, theirs)
        print(f"dense losses of Treadle and torch in the first steps differ by at most {apart:.1e} bits")
        assert apart < AGREE
    if options.sample:
        prompt = text[: min(options.context // 2, 256)]
        count = min(options.sample, options.context - len(prompt))
        print("\nIt writes:\n" + model.write(prompt, count).decode("utf-8", "replace"))


if __name__ == "__main__":
    main()
