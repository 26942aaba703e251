"""Signatures that can be read, with types that lead to where they are documented.

A type is known by the module it lives in, fedtct.history.Journal, and documented as fedtct.Journal.
"""

from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment


def resolve(app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.Element) -> nodes.Element | None:
    """The link to a name of ours that a signature knows by the module it lives in."""
    name = node.get("reftarget", "").rpartition(".")[2]
    if node.get("refdomain") != "py":
        return None
    domain = env.domains["py"]
    known = [found for found, *_ in domain.get_objects() if found.startswith("fedtct.") and found.endswith(f".{name}")]
    if len(known) != 1:
        return None
    return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", known[0], node, content)


def without_factories(app: Sphinx, *about: Any) -> tuple[str, str] | None:
    """Sphinx takes a signature apart only if it is Python, which a dataclass's <factory> is not."""
    signature, returns = about[-2:]
    return signature and (signature.replace("<factory>", "..."), returns)


def setup(app: Sphinx) -> dict[str, bool]:
    """Tell Sphinx."""
    app.connect("missing-reference", resolve)
    app.connect("autodoc-process-signature", without_factories)
    return {"parallel_read_safe": True}
