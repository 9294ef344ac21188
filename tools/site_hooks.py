"""What MkDocs is told about links, so that pages read alike on the site and in the source tree.

A link of a page leads to a file of the tree. On the site a page of docs/ is where it was; CONTRIBUTING.md and its kin are
pages below project/; a public header is a page of the C++ reference, which Doxygen makes beside; and of a link to any other
file the text is left.
"""

import pathlib
import posixpath
import re

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROJECT = {"CONTRIBUTING.md": "project/contributing.md", "CHANGELOG.md": "project/changelog.md",
           "SECURITY.md": "project/security.md"}  # fmt: skip
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s#]*)(#[^)\s]*)?\)")


def doxygen_page(header):
    """treadle/key_lists.h -> cpp/key__lists_8h.html, as Doxygen calls it."""
    return "cpp/" + posixpath.basename(header).replace("_", "__").replace(".", "_8") + ".html"


def site_path(target):
    """Where a file of the tree is on the site; None if it is not there."""
    if target in PROJECT:
        return PROJECT[target]
    if target == "README.md":
        return "index.md"
    if target.startswith("docs/"):
        return target[len("docs/"):]
    if target.startswith("include/treadle/") and target.endswith(".h"):
        return doxygen_page(target)
    return None


def linked(markdown, source, page):
    """`markdown` of the file `source` of the tree, as the page `page` of the site."""

    def replace(match):
        text, target, anchor = match[1], match[2], match[3] or ""
        if not target or "://" in target or target.startswith("mailto:"):
            return match[0]
        path = site_path(posixpath.normpath(posixpath.join(posixpath.dirname(source), target)))
        if path is None:
            return text
        return f"[{text}]({posixpath.relpath(path, posixpath.dirname(page) or '.')}{anchor})"

    lines, in_block = markdown.split("\n"), False
    for i, line in enumerate(lines):
        if line.lstrip().startswith("```"):
            in_block = not in_block
        elif not in_block:
            lines[i] = LINK.sub(replace, line)
    return "\n".join(lines)


def on_files(files, config):
    # What Doxygen made, beside; ./dev docs runs it first.
    for made in sorted((ROOT / "build/doxygen/html").rglob("*")):
        if made.is_file():
            page = "cpp/" + made.relative_to(ROOT / "build/doxygen/html").as_posix()
            files.append(File.generated(config, page, abs_src_path=str(made)))
    for source, page in PROJECT.items():
        if (ROOT / source).exists():
            files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown, page, config, files):
    pages = {page: source for source, page in PROJECT.items()}
    path = page.file.src_uri
    return linked(markdown, pages.get(path, "docs/" + path), path)
