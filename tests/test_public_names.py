"""The public names are there, and only they; a help screen does not wait for torch."""

import ast
from pathlib import Path

import pytest

import fedtct


def test_every_public_name_is_there_and_has_a_docstring():
    assert set(fedtct._HOME_OF) == set(fedtct.__all__)
    for name in fedtct.__all__:
        assert getattr(fedtct, name).__doc__, name
        assert name in dir(fedtct)


def test_checkers_of_types_see_the_same_names():
    """A name that they do not see imported has any type for them, and they do not say so."""
    tree = ast.parse(Path(fedtct.__file__).read_text(encoding="utf-8"))
    (unseen_by_python,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.name: node.module for node in unseen_by_python.body for alias in node.names}
    assert seen == {name: f"fedtct.{home}" for name, home in fedtct._HOME_OF.items()}


def test_other_names_are_not():
    with pytest.raises(AttributeError, match="no attribute 'FedMagic'"):
        fedtct.FedMagic  # noqa: B018
