"""The variants of docs/cookbook.md, read from the page: what tests run and the report times is what readers see.

    python bench/cookbook.py --draw      writes the pictures anew, as the Python examples draw them
"""

from __future__ import annotations

import argparse
import pathlib
import re
from dataclasses import dataclass

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs/cookbook.md"
VARIANT = re.compile(
    r"^## \d+\. (?P<name>.+)\n\n(?P<words>(?:.+\n)+)\n`(?P<formula>.+)`\n\n```text\n(?P<picture>(?:.+\n)+)```\n\n"
    r"```cpp\n(?P<cpp>(?:.*\n)+?)```\n\n```python\n(?P<python>(?:.*\n)+?)```$",
    re.M,
)


@dataclass
class Variant:
    name: str
    words: str
    formula: str
    picture: str
    cpp: str
    python: str

    @property
    def sloped(self) -> bool:
        """Whether the picture is of dot products that differ, kv - q."""
        return "dot products are kv - q" in self.words

    def mods(self, n: int, heads: int, width: int) -> tuple:
        """(score_mod, mask_mod) that the Python example makes; None for what it does not define."""
        import torch

        names = {"torch": torch, "N": n, "H": heads, "W": width}
        exec(compile(self.python, f"cookbook: {self.name}", "exec"), names)
        return names.get("score_mod"), names.get("mask_mod")


def variants(text: str | None = None) -> list[Variant]:
    text = PAGE.read_text() if text is None else text
    found = [Variant(**match.groupdict()) for match in VARIANT.finditer(text)]
    headings = re.findall(r"^## \d+\. (.+)$", text, re.M)
    if [v.name for v in found] != headings:
        missing = [name for name in headings if name not in {v.name for v in found}]
        raise SystemExit(f"cookbook: {missing}: want words, `formula`, ```text, ```cpp and ```python, in this order")
    return found


def drawn(weights) -> str:
    """Weights [queries, keys] as a picture: # where all that is visible weighs the same, else digits."""
    lines = []
    even = all(abs(w / max(row) - 1) < 1e-4 for row in weights if max(row) > 0 for w in row if w > 0)
    for row in weights:
        largest = max(row)
        lines.append("".join("." if w == 0 else "#" if even else str(int(9 * w / largest + 0.5)) for w in row))
    return "\n".join(lines) + "\n"


def weights_of(variant: Variant, n: int = 12, heads: int = 2, width: int = 4):
    """What head 0 of a variant weighs [queries, keys], by attention with values that tell keys apart."""
    import torch
    from treadle.torch import create_block_mask, flex_attention

    score_mod, mask_mod = variant.mods(n, heads, width)
    mask = create_block_mask(mask_mod, None, None, n, n) if mask_mod else None
    places, ones = torch.arange(n).float(), torch.ones(n)
    slope = 1.0 if variant.sloped else 0.0
    q, k = torch.stack([ones, -places], -1), slope * torch.stack([places, ones], -1)
    q, k, v = (x.expand(1, heads, n, x.shape[-1]) for x in (q, k, torch.eye(n)))
    return flex_attention(q, k, v, score_mod, mask, scale=1.0)[0, 0].tolist()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw", action="store_true", required=True)
    parser.parse_args()
    text = PAGE.read_text()
    for variant in variants(text):
        old = f"`{variant.formula}`\n\n```text\n{variant.picture}```"
        text = text.replace(old, f"`{variant.formula}`\n\n```text\n{drawn(weights_of(variant))}```")
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
