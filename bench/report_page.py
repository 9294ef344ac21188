"""Results of the report as a page and plots. In: what bench/results holds. Out: docs/benchmarks.md, docs/plots/*.svg."""

from __future__ import annotations

import math
import pathlib
import textwrap

MARK = "(busy)"


def slope(rows: list[dict]) -> float:
    """By how much log time grows with log length, over the longer half: 2 is quadratic, 1 linear."""
    points = sorted((math.log(row["length"]), math.log(row["ms"])) for row in rows)
    points = points[len(points) // 2 - (len(points) == 2):] if len(points) > 1 else points
    if len(points) < 2:
        return math.nan
    x, y = ([p[i] for p in points] for i in (0, 1))
    mx, my = sum(x) / len(x), sum(y) / len(y)
    return sum((a - mx) * (b - my) for a, b in zip(x, y)) / sum((a - mx) ** 2 for a in x)


def groups(rows: list[dict], *keys) -> dict:
    found: dict = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in keys), []).append(row)
    return found


def number(value, digits=3) -> str:
    """Three digits: 0.0123, 1.23, 123."""
    if value is None or value != value:
        return ""
    if value == 0:
        return "0"
    return f"{value:.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"


def cell(row: dict, key: str, scale=1.0, unit="") -> str:
    if row.get(key) is None:
        return ""
    return number(row[key] * scale) + unit + (f" {MARK}" if row.get("busy") else "")


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


# --- plots ---------------------------------------------------------------------------------------------------------


class Plots:
    """Pictures in a folder beside the page. Marked figures are drawn hollow."""

    def __init__(self, folder: pathlib.Path):
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as pyplot

        # The same numbers make the same file.
        matplotlib.rcParams["svg.hashsalt"] = "treadle"
        self.pyplot, self.folder = pyplot, folder
        folder.mkdir(parents=True, exist_ok=True)

    def draw(self, name: str, x_label: str, y_label: str, curves: dict, logs="xy", ideal=None, bottom=None) -> str:
        """curves: {label: [(x, y, busy)]}; ideal: (label, [(x, y)]). -> a line of the page."""
        figure, axes = self.pyplot.subplots(figsize=(7, 4))
        for label, points in curves.items():
            points = sorted(points)
            line = axes.plot([p[0] for p in points], [p[1] for p in points], marker="o", markersize=4, label=label)[0]
            hollow = [p for p in points if p[2]]
            axes.plot([p[0] for p in hollow], [p[1] for p in hollow], "o", markersize=4, markerfacecolor="white",
                      markeredgecolor=line.get_color())  # fmt: skip
        if ideal:
            axes.plot(*zip(*ideal[1]), color="grey", linestyle="--", label=ideal[0])
        if "x" in logs:
            axes.set_xscale("log", base=2)
        if "y" in logs:
            axes.set_yscale("log")
        if bottom is not None:
            axes.set_ylim(bottom=bottom)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
        figure.tight_layout()
        figure.savefig(self.folder / f"{name}.svg", metadata={"Date": None})
        self.pyplot.close(figure)
        return f"![{y_label} by {x_label}]({self.folder.name}/{name}.svg)\n"


# --- sections ------------------------------------------------------------------------------------------------------


def throughput(rows, plots):
    curves = {dtype: [(r["dim"], r["gflops"], r["busy"]) for r in of] for (dtype,), of in groups(rows, "dtype").items()}
    dims = sorted({row["dim"] for row in rows})
    by = {(row["dtype"], row["dim"]): row for row in rows}
    lines = [[str(dim), *(cell(by.get((dtype, dim), {}), "gflops") for dtype in curves),
              *(cell(by.get((dtype, dim), {}), "share", 100, " %") for dtype in curves)] for dim in dims]  # fmt: skip
    head = ["dim", *(f"{d}, GFLOP/s" for d in curves), *(f"{d}, share" for d in curves)]
    return ("Full attention, forward, 8 heads, 2048 positions. The share is of the loop of multiply-adds (of f32, for 16 bits too).\n",
            plots.draw("throughput", "head dim", "GFLOP/s", curves, "x", bottom=0), table(head, lines))  # fmt: skip


def lengths(rows, plots):
    out, lines = [], []
    for direction, of in groups(rows, "direction").items():
        curves = {}
        for (mask,), some in groups(of, "mask").items():
            grows = slope(some)
            curves[mask if grows != grows else f"{mask}: length^{grows:.2f}"] = [(r["length"], r["ms"], r["busy"]) for r in some]
            longest = max(some, key=lambda r: r["length"])
            lines.append([mask, direction[0], str(longest["length"]), cell(longest, "ms"), "" if grows != grows else f"{grows:.2f}"])
        out.append(plots.draw("lengths-" + direction[0].replace(" ", "-"), "length", "milliseconds", curves))
    head = ["mask", "direction", "length", "ms", "slope"]
    return ("4 heads, dim 64, f32. The slope is of the longer half: 2 is quadratic in the length, 1 is linear.\n",
            *out, table(head, lines))  # fmt: skip


def sparse(rows, plots):
    curves = {mask: [(r["density"], r["speedup"], r["busy"]) for r in of] for (mask,), of in groups(rows, "mask").items()}
    densities = sorted({row["density"] for row in rows})
    ideal = ("ideal: 1 / density", [(d, 1 / d) for d in densities])
    lines = [[r["mask"], f"{100 * r['density']:.2f} %", cell(r, "ms"), number(r["speedup"]), f"{100 * r['speedup'] * r['density']:.0f} %"]
             for r in sorted(rows, key=lambda r: (r["mask"], -r["density"]))]  # fmt: skip
    return ("4 heads, 8192 positions, dim 64, f32, forward: times as fast as without a mask, by the share of visible pairs.\n",
            plots.draw("sparse", "share of visible pairs", "speed-up", curves, ideal=ideal),
            table(["mask", "visible", "ms", "speed-up", "of ideal"], lines))  # fmt: skip


def decode(rows, plots):
    curves = {f"{dtype}, {heads} heads": [(r["keys"], r["gigabytes"], r["busy"]) for r in of]
              for (dtype, heads), of in groups(rows, "dtype", "heads").items()}  # fmt: skip
    lines = [[r["dtype"], r["heads"], str(r["keys"]), cell(r, "ms"), cell(r, "gigabytes")] for r in rows]
    return ("One query, dim 128: bytes of keys and values over the time of a call, from Python. Small caches fit the processor's own.\n",
            plots.draw("decode", "keys", "GB/s", curves, "x", bottom=0),
            table(["type", "heads / key heads", "keys", "ms", "GB/s"], lines))  # fmt: skip


def masks(rows, plots):
    by: dict = {}
    for row in rows:
        name, _, _ = row["case"].removeprefix("layout-").rpartition("-")
        by.setdefault(name, []).append(row)
    curves = {name: [(r["Skv"], r["ms"], r["busy"]) for r in of] for name, of in by.items()}
    lines = [[name, str(r["Skv"]), cell(r, "ms")] for name, of in by.items() for r in sorted(of, key=lambda r: r["Skv"])]
    return ("From the function to the layout: which keys each tile of queries looks at. Nothing tries pairs.\n",
            plots.draw("masks", "length", "milliseconds", curves), table(["mask", "length", "ms"], lines))  # fmt: skip


def compile_time(rows, plots):
    lines = [[r["case"].removeprefix("compile-"), cell(r, "ms")] for r in rows]
    return ("`cold` compiles kernels with LLVM, `disk` reads them from the cache, `warm-call` is what a call costs beside its\n"
            "kernels.\n", table(["case", "ms"], lines))  # fmt: skip


def cookbook(rows, plots):
    lines = [[r["variant"], cell(r, "ms"), cell(r, "training_ms")] for r in rows]
    return ("The variants of the [cookbook](cookbook.md) with `N, H, W = 4096, 8, 64`, dim 64, f32.\n",
            table(["variant", "forward, ms", "forward and backward, ms"], lines))  # fmt: skip


def kernels(rows, plots):
    lines = [[r["case"], cell(r, "ms"), cell(r, "gflops"), cell(r, "share", 100, " %")] for r in rows]
    return ("`treadle bench`. The share is of the loop of multiply-adds right before and after, counting visible pairs alone; of decoding\n"
            "cases, of reading the keys once.\n", table(["case", "ms", "GFLOP/s", "share"], lines))  # fmt: skip


def others(rows, plots):
    names = list(dict.fromkeys(name for row in rows for name in row["ms"]))
    lines = []
    for row in rows:
        mark = f" {MARK}" if row.get("busy") else ""
        lines.append([row["case"] + mark, *(number(row["ms"].get(n)) for n in names),
                      *(number(row["ratio"].get(n)) for n in names[1:])])  # fmt: skip
    return ("Engines take turns, each in a process of its own; the ratio is the median over turns. `./dev bench --compare` does this alone.\n",
            table(["case", *(f"{n}, ms" for n in names), *(f"{n} / {names[0]}" for n in names[1:])], lines))  # fmt: skip


SECTIONS = {
    "others": ("Beside other engines", others),
    "throughput": ("Throughput", throughput),
    "lengths": ("Time by length", lengths),
    "sparse": ("Sparse masks", sparse),
    "decode": ("Decoding", decode),
    "masks": ("Building masks", masks),
    "compile": ("Compiling", compile_time),
    "cookbook": ("Variants of the cookbook", cookbook),
    "kernels": ("Kernels", kernels),
}


def heading(found: dict) -> str:
    about = found["about"]
    versions = ", ".join(f"{name} {value}" for name, value in about["versions"].items() if value)
    lines = [["processor", about["cpu"]], ["kernels", about["kernels"]], ["threads", str(about["threads"])], ["system", about["system"]],
             ["versions", versions], ["commit", about["commit"]], ["date", about["date"]]]  # fmt: skip
    return table(["", ""], lines)


def wrapped(part: str) -> str:
    """A paragraph in lines as pages have them; tables, headings and pictures as they are."""
    if part.startswith(("|", "#", "!")):
        return part
    return textwrap.fill(" ".join(part.split()), 119, break_long_words=False, break_on_hyphens=False) + "\n"


def write(found: dict, page: pathlib.Path):
    plots = Plots(page.parent / "plots")
    text = ["# Benchmarks\n",
            "Measured and written by `./dev bench --report`, which does the same on your machine; `bench/results` has the numbers.\n",
            heading(found)]  # fmt: skip
    rows = [row for part in found["parts"].values() for row in part["rows"]]
    busy = sum(bool(row.get("busy")) for row in rows)
    if busy:
        text.append(f"{busy} of {len(rows)} figures were taken while the machine did other work, also when they were taken again. They are\n"
                    f"marked {MARK}, hollow in plots, and too slow by an unknown amount.\n")  # fmt: skip
    if any(part["small"] for part in found["parts"].values()):
        text.append("**Small sizes, to see that the report works: these numbers mean nothing.**\n")
    for name, (title, section) in SECTIONS.items():
        part = found["parts"].get(name)
        if not part or not part["rows"]:
            continue
        text.append(f"## {title}\n")
        if part["about"]["commit"] != found["about"]["commit"]:
            text.append(f"Of commit {part['about']['commit']}, {part['about']['date']}.\n")
        text += section(part["rows"], plots)
    page.write_text("\n".join(wrapped(part) for part in text))
