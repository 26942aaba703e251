"""docs/performance.md from the results: python -m benchmarks.report. It holds no number that a file does not."""

import statistics
from pathlib import Path

from benchmarks.rows import RESULTS, ROOT, Record, Row, memory, percent, quantity, target, times

PAGE = ROOT / "docs" / "performance.md"
FILES = {
    "bench-cpu.json": "On a processor",
    "bench-large.json": "Where memory is short",
    "bench-peers.json": "Side by side with other frameworks",
    "bench-deployment.json": "Across machines, over Flower",
    "bench-h200.json": "On a GPU",
}
SPREAD = "; the standard deviation over its seeds"  # told without a unit in bench-cpu.json, and anew by over_seeds
INTRODUCTION = """# How fast it is

*Plain* is a straightforward way of doing the same, measured in the same run, turn by turn, on a processor each in a
process of its own. Rows with – there have nothing beside them. A plain value with ≈ was not measured whole: a few of
its steps were timed and scaled up, as the note below the table says. *Ratio* is how many times as fast ours is. *Floor*
is what the machine's own measured speed would allow at best for that work, *of floor* the share of that speed that ours
reaches. Memory is the most that our process held, its libraries included; on a GPU the device's. ✓ and ✗ say whether
the target was met.
This page is written by `make performance` from `results/bench-*.json`.
"""


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    for name, title in FILES.items():
        if (RESULTS / name).is_file():
            parts.append(section(title, name, Record.read(RESULTS / name)))
    return "\n".join(parts)


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
    """Rows as a table."""
    lines = [
        "| what | plain | ours | ratio | target | | floor | of floor | memory |",
        "|---|--:|--:|--:|--:|---|--:|--:|--:|",
    ]
    for row in rows:
        mark, about = {True: "✓", False: "✗", None: ""}[row.met], "≈ " if "scaled" in row.plain_is else ""
        cells = [
            row.what,
            about + quantity(row.plain, row.unit),
            quantity(row.ours, row.unit),
            about + times(row.ratio),
            target(row),
            mark,
        ]
        cells += [quantity(row.floor, row.unit), percent(row.share_of_floor), memory(row.peak_bytes)]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


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
