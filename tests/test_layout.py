"""The layout shows the architecture: a module imports only what stands above it in docs/design.md."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "fedtct"
LISTING = re.search(r"src/fedtct/\n(.*?)\n\n", (ROOT / "docs" / "design.md").read_text(encoding="utf-8"), re.DOTALL)
assert LISTING is not None
ORDER = [re.split(r"/|\.py", line.strip())[0] for line in LISTING[1].splitlines()]  # one a line


def top_level(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """The parts of the package that a module imports, at any depth of its code."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("fedtct."):
            names.add(node.module.split(".")[1])
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("fedtct.")}
    return names


def test_the_listing_names_every_part_of_the_package():
    parts = {top_level(p) for p in PACKAGE.rglob("*.py")} - {"__init__", "__main__"}
    assert parts == set(ORDER)


def test_imports_point_upwards():
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in PACKAGE.rglob("*.py")
        if (own := top_level(path)) in ORDER
        for name in imported(path)
        if ORDER.index(name) > ORDER.index(own)
    ]
    assert wrong == []


def test_no_two_test_files_share_a_name():
    """Pytest takes them for the same module, and collects neither."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))
