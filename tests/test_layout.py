"""The layout shows the architecture: modules import only what is listed above them, by docs/design.md or a package."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "fedtct"
LISTING = re.search(r"src/fedtct/\n(.*?)\n\n", (ROOT / "docs" / "design.md").read_text(encoding="utf-8"), re.DOTALL)
assert LISTING is not None
ORDER = [re.split(r"/|\.py", line.strip())[0] for line in LISTING[1].splitlines()]  # one a line
MANY = 10  # modules: a package with as many lists them in its docstring
LARGE = [path.parent for path in PACKAGE.rglob("*/__init__.py") if len(list(path.parent.glob("*.py"))) > MANY]


def part_of(path: Path, folder: Path) -> str:
    """The module or package right below a folder that a file belongs to."""
    return path.relative_to(folder).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """The dotted names that a module imports, at any depth of its code."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


def downward(folder: Path, order: list[str]) -> list[str]:
    """Imports from below in a folder whose parts have this order."""
    prefix = ".".join(folder.relative_to(PACKAGE.parent).parts)
    return [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in folder.rglob("*.py")
        if (own := part_of(path, folder)) in order
        for name in imported(path)
        if name.startswith(f"{prefix}.") and (other := name.removeprefix(f"{prefix}.").split(".")[0]) in order
        if order.index(other) > order.index(own)
    ]


def listed(package: Path) -> list[str]:
    """The modules in a package's docstring: a list of groups, each with a name and a colon before its modules."""
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""
    groups = re.split(r"^- ", docstring, flags=re.MULTILINE)[1:]
    return [module for group in groups for module in re.split(r",\s+", group.partition(":")[2].strip())]


def test_the_listing_names_every_part_of_the_package():
    parts = {part_of(path, PACKAGE) for path in PACKAGE.rglob("*.py")} - {"__init__", "__main__"}
    assert parts == set(ORDER)


def test_imports_point_upwards():
    assert downward(PACKAGE, ORDER) == []


@pytest.mark.parametrize("package", LARGE, ids=lambda path: path.name)
def test_large_packages_list_their_modules_in_order(package):
    modules = listed(package)
    assert sorted(modules) == sorted(path.stem for path in package.glob("*.py") if path.stem != "__init__")
    assert downward(package, modules) == []


def test_no_two_test_files_share_a_name():
    """Pytest takes them for the same module, and collects neither."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))


def test_design_names_modules_that_are_there():
    told = re.findall(r"`([\w/]+\.(?:py|c))`", (ROOT / "docs" / "design.md").read_text(encoding="utf-8"))
    assert len(told) > 20
    assert [name for name in told if not (PACKAGE / name).is_file()] == []
