#!/usr/bin/env python3
"""Looks at a static site in a real browser, headless Chromium, at the width of a desktop and of a phone.

  check_browser.py build/site --out build/screenshots

Every page below the site's root, but those that Doxygen made, must fit a phone (390 pixels): what is wider scrolls inside
the page. Search must find something in pages that are opened from the disk. Pictures of all pages at both widths go to
--out, for people to look at. Exits with 1 if something is wrong, and says so if there is no Chromium.
"""

import argparse
import concurrent.futures
import html
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

WIDTHS = {"desktop": (1280, 1000), "phone": (390, 844)}

# A page that looks into frames of a phone's width: {page: its width}.
MEASURE = """<!doctype html><meta charset=utf-8><body><script>
const pages = PAGES, found = {};
(async () => {
  for (const [page, address] of Object.entries(pages)) {
    const frame = document.createElement("iframe");
    frame.style = "width:390px;height:844px;border:0";
    frame.src = address;
    await new Promise((loaded) => { frame.onload = loaded; document.body.appendChild(frame); });
    found[page] = frame.contentDocument.documentElement.scrollWidth;
    frame.remove();
  }
  const said = document.createElement("pre");
  said.id = "found";
  said.textContent = JSON.stringify(found);
  document.body.appendChild(said);
})();
</script>"""


def chromium(binary, *arguments):
    # Its sandbox needs rights that containers do not give; the pages are our own.
    ran = subprocess.run([binary, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", *arguments],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
    if ran.returncode:
        sys.exit(f"check_browser: chromium ended with {ran.returncode}\n{ran.stderr}")
    return ran.stdout


def widths(binary, root, pages):
    """{page: width} in a frame of 390 pixels."""
    measure = MEASURE.replace("PAGES", json.dumps({page: f"file://{root}/{page}" for page in pages}))
    with tempfile.TemporaryDirectory() as scratch:
        file = pathlib.Path(scratch) / "measure.html"
        file.write_text(measure)
        dom = chromium(binary, "--allow-file-access-from-files", "--virtual-time-budget=60000", "--dump-dom", f"file://{file}")
    found = re.search(r'<pre id="found">(.*?)</pre>', dom, re.S)
    if not found:
        sys.exit("check_browser: the browser measured nothing")
    return json.loads(html.unescape(found[1]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    binary = shutil.which("chromium")
    if not binary:
        print("There is no chromium.")
        return
    root, out = args.site.resolve(), args.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    pages = [str(p.relative_to(root)) for p in sorted(root.rglob("*.html")) if p.relative_to(root).parts[0] != "cpp"]
    said = []

    for page, width in widths(binary, root, pages).items():
        if width > 390:
            said.append(f"{page}: is {width} pixels wide on a phone of 390")

    found = chromium(binary, "--virtual-time-budget=8000", "--dump-dom", f"file://{root}/index.html?q=dilated")
    if "md-search-result__item" not in found:
        said.append("index.html: search finds nothing in pages that are opened from the disk")

    def picture_of(job):
        page, name = job
        picture = out / f"{page.removesuffix('.html').replace('/', '-')}-{name}.png"
        chromium(binary, f"--screenshot={picture}", "--window-size={},{}".format(*WIDTHS[name]), "--virtual-time-budget=2000",
                 f"file://{root}/{page}")  # fmt: skip
        return picture

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for picture in pool.map(picture_of, [(page, name) for page in pages for name in WIDTHS]):
            if not picture.exists() or picture.stat().st_size < 5000:
                said.append(f"{picture}: the picture is empty")

    print(*said, sep="\n", end="\n" if said else "")
    print(f"{len(pages)} pages at {len(WIDTHS)} widths: {out}")
    sys.exit(1 if said else 0)


main()
