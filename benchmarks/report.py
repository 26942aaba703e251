"""docs/performance.md from the results: python -m benchmarks.report. It holds no number that a file does not."""

import statistics
from pathlib import Path

from benchmarks.rows import RESULTS, ROOT, Record, Row, memory, percent, quantity, target, times

PAGE = ROOT / "docs" / "performance.md"
FILES = {
    "bench-cpu.json": "On a processor",
    "bench-cpu-no-bf16.json": "On a processor without bf16 units",
    "bench-large.json": "Where memory is short",
    "bench-peers.json": "Side by side with other frameworks",
    "bench-deployment.json": "Across machines, over Flower",
    "bench-h200.json": "On a GPU",
}
SPREAD = "; the standard deviation over its seeds"  # told without a unit in bench-cpu.json, and anew by over_seeds
INTRODUCTION = """# How fast it is

The speed of fedtct, as a multiple of that of a straightforward way of doing the same:
"""
READING = """## How to read the tables

- **Plain** is that straightforward way, measured in the same run, in turn with ours; on a processor, each in a process
  of its own. – means that nothing was measured beside ours. ≈ means that a few steps were timed and scaled up, as the
  note below the table says.
- **Ratio** is how many times as fast ours is. ✓ and ✗ say whether the target was met.
- **Floor** is the best that the machine's own measured speed would allow for that work, **of floor** the share of that
  speed that ours reaches.
- **Memory** is the most that our process held, including its libraries; on a GPU, the most device memory.

`make performance` writes this page from `results/bench-*.json`.
"""
NOTHING = "–"  # what rows have where nothing was measured or wanted
SHORT = {  # by part: what is done, beside what, and what the plain way of such rows is called in the records
    "stage 1": ("training", "a plain PyTorch loop", ("bare PyTorch loop", "one step after another")),
    "tangent features": ("tangent features", "a backward pass for each sample", ("sample",)),
    "stage 2": ("stage 2, 500 local steps a round", "every step by itself", ("scaled",)),
}


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION, *in_short(), READING]
    for name, title in FILES.items():
        if (RESULTS / name).is_file():
            parts.append(section(title, name, Record.read(RESULTS / name)))
    return "\n".join(parts)


def in_short() -> list[str]:
    """The ratios that matter most, on a processor and on a GPU, and beside other frameworks."""
    names = ("bench-cpu.json", "bench-h200.json", "bench-peers.json")
    cpu, gpu, peers = (Record.read(RESULTS / name).rows for name in names)
    lines = ["| | compared with | on two processor cores | on an H200 |", "|---|---|--:|--:|"]
    for part, (what, beside, plain) in SHORT.items():
        lines.append(f"| {what} | {beside} | {ratios(cpu, part, plain)} | {ratios(gpu, part, plain)} |")
    wall = [row for row in peers if row.what.startswith("wall time against ")]
    lines += [f"| a small FedAvg | {row.plain_is} | {times(row.ratio)} | – |" for row in wall]
    precision = (
        "The plain loop always trains in float32 (on the H200 with TF32), ours in bf16 where the tables below say so. "
        "On the H200, ours also trains ten silos side by side, the plain loop one after another.\n"
    )
    return ["\n".join([*lines, ""]), precision]


def ratios(rows: list[Row], part: str, plain: tuple[str, ...]) -> str:
    """From the least to the largest ratio of a part, beside that plain way."""
    found = [row for row in rows if row.part == part and any(text in row.plain_is for text in plain)]
    found.sort(key=lambda row: row.ratio or 0)
    about = "≈ " if any("scaled" in row.plain_is for row in found) else ""
    return about + " to ".join(dict.fromkeys(times(row.ratio) for row in (found[0], found[-1])))


def section(title: str, file: str, record: Record) -> str:
    """A file's tables."""
    lines = [f"## {title}", "", f"`{record.command}` wrote [{file}](../results/{file}): {origin(record)}", ""]
    for part in dict.fromkeys(row.part for row in record.rows):
        rows = [row for row in record.rows if row.part == part]
        lines += [f"### {part[0].upper()}{part[1:]}", "", *table(rows), *remarks(rows), ""]
    return "\n".join(lines)


def origin(record: Record) -> str:
    """Where and from what a record was taken."""
    found = [record.hardware, f"torch {record.torch}", f"seed {record.seed}", f"commit {record.commit[:12]}"]
    if record.commit.endswith("edits"):
        found[-1] += " with edits"
    units = {"fp32": (1e9, "GFLOP/s in fp32"), "bf16": (1e9, "GFLOP/s in bf16"), "bandwidth": (1e9, "GB/s of memory")}
    speeds = [
        f"{record.machine[key] / size:,.0f} {unit}" for key, (size, unit) in units.items() if key in record.machine
    ]
    return "; ".join(found) + "." + (f" The machine itself: {', '.join(speeds)}." if speeds else "")


def table(rows: list[Row]) -> list[str]:
    """Rows as a table, without the columns that have nothing in them."""
    heads = ("what", "plain", "ours", "ratio", "target", "floor", "of floor", "memory")
    cells = [line(row) for row in rows]
    kept = [k for k in range(len(heads)) if any(row[k] != NOTHING for row in cells)]
    lines = [
        [heads[k] for k in kept],
        ["--:" if k else "---" for k in kept],
        *([row[k] for k in kept] for row in cells),
    ]
    return [f"| {' | '.join(words)} |" for words in lines]


def line(row: Row) -> list[str]:
    """What the table has of a row."""
    mark, about = {True: " ✓", False: " ✗", None: ""}[row.met], "≈ " if "scaled" in row.plain_is else ""
    plain, ratio = about + quantity(row.plain, row.unit), about + times(row.ratio)
    measured = [row.what, plain, quantity(row.ours, row.unit), ratio, target(row) + mark]
    return [*measured, quantity(row.floor, row.unit), percent(row.share_of_floor), memory(row.peak_bytes)]


def remarks(rows: list[Row]) -> list[str]:
    """What the plain way is, what bounds each row, and notes; each said once."""
    said: dict[str, list[str]] = {}
    for row in rows:
        for text in (
            f"Plain: {row.plain_is.split(SPREAD)[0]}." if row.plain_is else "",
            over_seeds(row),
            f"Bound by {row.bound}." if row.bound else "",
            f"{row.note[0].upper()}{row.note[1:]}." if row.note else "",
            details(row),
        ):
            if text:
                said.setdefault(text, []).append(row.what)
    everything = len({row.what for row in rows})
    return ["", *(f"- {text}" + ("" if len(w) == everything else f" ({'; '.join(w)})") for text, w in said.items())]


def over_seeds(row: Row) -> str:
    """How far seeds are apart, where each was measured."""
    plain, ours = (row.detail.get(way) for way in ("plain", "ours"))
    if not isinstance(plain, list) or not isinstance(ours, list):
        return ""
    worst = plain.index(min(plain))
    others = min(value for way in (plain, ours) for seed, value in enumerate(way) if seed != worst)
    return (
        f"One of {len(plain)} seeds has {plain[worst]:.2f} % plain and {ours[worst]:.2f} % ours, the others have "
        f"{others:.2f} % or more; the standard deviation over plain's seeds is {statistics.stdev(plain):.2f} points."
    )


def details(row: Row) -> str:
    """Further figures that have a name in words; others are for whoever reads the file."""
    named = {name: value for name, value in row.detail.items() if " " in name and isinstance(value, int | float)}
    return "; ".join(
        f"{name}: {value:,.0f}" if value >= 100 else f"{name}: {value:.3g}" for name, value in named.items()
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{PAGE.relative_to(Path.cwd())} written")
