#!/usr/bin/env python3
"""Checks a static site: every link leads somewhere, and no page needs the network.

  check_site.py build/site

Looks at all .html files for href and src. What leads into the site must exist, anchors too. Scripts, styles, pictures,
fonts and frames, in pages and in style sheets, must be of the site itself; links to other sites are only counted. Prints
page: message and exits with 1 if there is one.
"""

import html.parser
import pathlib
import re
import sys
import tempfile
import urllib.parse

LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "embed": "src", "object": "data"}
LOADED_LINKS = {"stylesheet", "icon", "preload", "preconnect", "modulepreload", "prefetch", "shortcut"}
STYLE_URL = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")


class Page(html.parser.HTMLParser):
    """What a page leads to, what it loads, and the names in it that links may lead to."""

    def __init__(self, text):
        super().__init__()
        self.links, self.loads, self.names = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        of = {name: value or "" for name, value in attrs}
        self.names |= {of[name] for name in ("id", "name") if name in of}
        if tag == "link" and set(of.get("rel", "").split()) & LOADED_LINKS:
            self.loads.append(of.get("href", ""))
        elif tag in LOADED and LOADED[tag] in of:
            self.loads.append(of[LOADED[tag]])
        elif tag in ("a", "area") and "href" in of:
            self.links.append(of["href"])
        self.loads += [a or b for a, b in STYLE_URL.findall(of.get("style", ""))]

    handle_startendtag = handle_starttag


def elsewhere(address):
    return address.startswith("//") or bool(urllib.parse.urlsplit(address).scheme)


def offences(root):
    """Yields "page: message"."""
    root = root.resolve()
    pages = {path: Page(path.read_text(errors="replace")) for path in sorted(root.rglob("*.html"))}
    if not pages:
        yield f"{root}: there are no pages"
    for path, page in pages.items():
        where = path.relative_to(root)
        for address in page.links + page.loads:
            if elsewhere(address):
                if address in page.loads and not address.startswith(("data:", "javascript:")):
                    yield f"{where}: loads {address} from the network"
                continue
            parts = urllib.parse.urlsplit(address)
            target = path if not parts.path else (path.parent / urllib.parse.unquote(parts.path)).resolve()
            if parts.path.startswith("/"):
                # The page for what is not found has to say where the site is.
                target = (root / parts.path.lstrip("/")).resolve()
            if target.is_dir():
                target /= "index.html"
            if not target.exists():
                yield f"{where}: there is no {address}"
            elif parts.fragment and target in pages:
                name = urllib.parse.unquote(parts.fragment)
                if name not in pages[target].names and not name.startswith("__"):
                    yield f"{where}: {address}: there is no such place in {target.relative_to(root)}"
    for path in sorted(root.rglob("*.css")):
        for match in STYLE_URL.finditer(path.read_text(errors="replace")):
            address = match[1] or match[2]
            if elsewhere(address) and not address.startswith("data:"):
                yield f"{path.relative_to(root)}: loads {address} from the network"


def self_test():
    good = ["<a href=b.html>x</a>", "<a href='b.html#there'>x</a>", "<a href='#here' id=here>x</a>",
            "<a href='https://a.b/c'>x</a>", "<script src=s.js></script>", "<img src='data:image/png;base64,xx'>"]  # fmt: skip
    bad = ["<a href=c.html>x</a>", "<a href='b.html#nowhere'>x</a>", "<a href='#nowhere'>x</a>",
           "<script src=https://cdn.a/s.js></script>", "<link rel=stylesheet href=//fonts.a/f.css>", "<img src=none.png>",
           "<p style='background: url(https://a.b/c.png)'>"]  # fmt: skip
    for text in good + bad:
        with tempfile.TemporaryDirectory() as scratch:
            root = pathlib.Path(scratch)
            (root / "a.html").write_text(text)
            (root / "b.html").write_text("<h1 id=there>b</h1>")
            (root / "s.js").write_text("")
            said = list(offences(root))
        if bool(said) != (text in bad):
            sys.exit(f"self-test: {text}: said {said}")
    print(f"self-test: {len(good)} good sites pass, {len(bad)} bad ones are found")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    said = list(offences(pathlib.Path(sys.argv[1])))
    print(*said, sep="\n", end="\n" if said else "")
    sys.exit(1 if said else 0)


main()
