#!/usr/bin/env python3
"""Checks that the pages name only files that exist, and that their lines fit a window.

Looks at README.md, CONTRIBUTING.md, CHANGELOG.md, SECURITY.md and docs/*.md, outside of ``` blocks, for

  - `src/ir/ops.def` or `src/ir` in backticks: the path must exist, seen from the root, the page, src/ or include/
  - `ops.def`, a name with the ending of a source file: some file must be called so
  - `./dev test`: the first word must exist
  - [text](docs/ir.md): the target must exist, seen from the page
  - lines of more than 120 columns, except in tables; where a link leads does not count

Paths below build/ are made by the build and not looked for. Prints page:line: message and exits with 1 if there is one.
"""

import pathlib
import re
import sys
import tempfile

PATH = re.compile(r"(\./)?[\w.-]+(/[\w.-]+)*/?")
ENDINGS = {".h", ".cpp", ".def", ".md", ".py", ".txt", ".cmake", ".json", ".toml", ".sh"}
BACKTICKS = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)")
MOST_COLUMNS = 120


def looks_like_path(word):
    if not PATH.fullmatch(word) or word.startswith("build/"):
        return False
    return "/" in word or pathlib.PurePath(word).suffix in ENDINGS


def exists(word, page, root):
    seen_from = (root, page.parent, root / "src", root / "include")
    if any((folder / word).exists() for folder in seen_from):
        return True
    # A bare name may be anywhere, but not in what is built or fetched.
    return "/" not in word and any(
        not {"build", ".venv", ".git"} & set(found.relative_to(root).parts) for found in root.rglob(word)
    )


def columns(line):
    """How wide a line is; a row of a table cannot be broken, nor can where a link leads."""
    return 0 if line.lstrip().startswith("|") else len(re.sub(r"\]\([^)]*\)|https?://\S+", "]()", line))


def offences(root):
    """Yields "page:line: message"."""
    pages = [root / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")]
    pages += sorted((root / "docs").rglob("*.md"))
    for page in filter(pathlib.Path.exists, pages):
        in_block = False
        for number, line in enumerate(page.read_text().splitlines(), 1):
            if line.lstrip().startswith("```"):
                in_block = not in_block
            elif not in_block:
                named = [text.split()[0] for text in BACKTICKS.findall(line) if text.strip()]
                missing = [word for word in named if looks_like_path(word) and not exists(word, page, root)]
                linked = [target for target in LINK.findall(line) if "://" not in target]
                missing += [target for target in linked if not (page.parent / target).exists()]
                where = f"{page.relative_to(root)}:{number}"
                for word in missing:
                    yield f"{where}: there is no {word}"
                if columns(line) > MOST_COLUMNS:
                    yield f"{where}: {columns(line)} columns; please break the line before column {MOST_COLUMNS + 1}"


def self_test():
    good = ["`src/ir/ops.def`", "`ops.def`", "`ir/ops.def`", "`src/ir/`", "`./dev test`", "`build/release/treadle`",
            "`x / y`", "`q//2`", "`tests/<folder>`", "[ir](../docs/page.md#types)", "[web](https://a.b/c.md)",
            "```\n`src/none.h`\n```", "x" * 120, "| " + "x" * 130, "[web](https://a.b/" + "x" * 130 + ")",
            "```\n" + "x" * 130 + "\n```"]
    bad = ["x" * 121, "[web](https://a.b/c) " + "x" * 130, "`src/none.h`", "`none.cpp`", "`emit/llvm`", "`./none test`", "[ir](none.md)"]
    for text in good + bad:
        with tempfile.TemporaryDirectory() as scratch:
            root = pathlib.Path(scratch)
            for file in ("src/ir/ops.def", "dev", "docs/page.md"):
                (root / file).parent.mkdir(parents=True, exist_ok=True)
                (root / file).write_text("")
            (root / "docs/page.md").write_text(text + "\n")
            said = list(offences(root))
        if bool(said) != (text in bad):
            sys.exit(f"self-test: {text}: said {said}")
    print(f"self-test: {len(good)} good pages pass, {len(bad)} bad ones are found")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    said = list(offences(pathlib.Path(__file__).resolve().parent.parent))
    print(*said, sep="\n", end="\n" if said else "")
    sys.exit(1 if said else 0)


main()
