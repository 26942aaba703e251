"""How the documentation is built: Sphinx, pages in Markdown, notebooks executed as they are built."""

import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from fedtct import __version__

sys.path.append(str(Path(__file__).parent / "_ext"))

project = "fedtct"
version = release = __version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_copybutton", "command_help", "public_names"]
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = "fedtct"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
smartquotes_action = "qe"  # quotes and ellipses; the dashes of options such as --help stay
copybutton_prompt_text = "$ "

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "attrs_inline"]
nb_execution_mode = "force"  # a cache would not see that the package has changed
nb_execution_raise_on_error = True
nb_execution_timeout = 120

# Strict: a reference to one of our own names must lead somewhere. Other projects' pages are not fetched.
nitpicky = True
nitpick_ignore_regex = [("py:.*", r"(?!fedtct\.).*")]
default_role = "code"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 88


def _mark_options(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: Any) -> None:
    """Options in commands have a class of their own: a browser would end a line after their dashes."""
    if "body" in context:
        context["body"] = context["body"].replace('<span class="pre">--', '<span class="pre whole">--')


def setup(app: Sphinx) -> None:
    """Tell Sphinx."""
    app.connect("html-page-context", _mark_options)
