"""How the site is built: `sphinx-build -W --keep-going docs build/docs`.

Nothing that a reader's browser loads comes from elsewhere: the theme has no fonts of its own, and
MathJax is one file, copied out of a Python package.
"""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.domains.python import PyObject
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

import eigengp

# Examples and figures are tiny: more threads would only get in each other's way.
for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(threads, "1")
os.environ.setdefault("DASK_LOGGING__DISTRIBUTED", "error")

project = "EigenGP"
author = "The EigenGP developers"
copyright = author
version = release = eigengp.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "matplotlib.sphinxext.plot_directive",
]
exclude_patterns = ["_build", "**/README.md", "figures", "measured"]
nitpicky = False

# Pages
myst_enable_extensions = ["amsmath", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
myst_links_external_new_tab = False
copybutton_exclude = ".linenos, .gp, .go"

# Mathematics: one file, which draws in the colour of the text
_package = find_spec("sphinx-mathjax-offline")
if _package is None or _package.origin is None:
    raise ImportError('The site needs more: pip install "eigengp[docs]".')
_mathjax = Path(_package.origin).parent / "static" / "mathjax" / "tex-svg.js"
mathjax_path = _mathjax.name
mathjax3_config = {"options": {"enableMenu": False}}

# Reference: what docstrings put in backticks is code, and a link where it has a page
default_role = "py:obj"
autosummary_generate = True
autosummary_ignore_module_all = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"
# The site is built without PyTorch, which is large
autodoc_mock_imports = ["botorch", "gpytorch", "linear_operator", "torch"]
strip_signature_backslash = True  # else names lose the underscore at their end
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
templates_path = ["_templates"]

# Figures of the pages are drawn by the scripts in figures/
plot_basedir = "figures"
plot_include_source = False
plot_html_show_source_link = False
plot_html_show_formats = False
plot_formats = [("png", 160)]
plot_rcparams = {
    "figure.constrained_layout.use": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.size": 9.0,
}
plot_apply_rcparams = True

# Examples are run here, but for those that need PyTorch, which tests/test_docs.py runs
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"[/\\](?!botorch_)\w+\.py$",
    "ignore_pattern": r"__init__\.py",
    "abort_on_example_error": True,
    "capture_repr": (),
    "download_all_examples": False,
    "min_reported_time": 1e9,
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,
    "within_subsection_order": "FileNameSortKey",
    "image_scrapers": ("matplotlib",),
    "reset_modules": ("matplotlib",),
}

# Look
html_theme = "furo"
html_title = "EigenGP"
html_static_path = ["_static", str(_mathjax)]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#0b5fa5",
        "color-brand-content": "#0b5fa5",
        "color-brand-visited": "#5b3e96",
    },
    "dark_css_variables": {
        "color-brand-primary": "#7cc0ff",
        "color-brand-content": "#7cc0ff",
        "color-brand-visited": "#b9a3f0",
    },
}

_FAR = re.compile(
    r"""<(?:script|img|iframe)\b[^>]*\bsrc=["'](?:https?:)?//"""
    r"""|<link\b(?=[^>]*\bstylesheet)[^>]*\bhref=["'](?:https?:)?//"""
)


def _warn_of_far_files(app: Sphinx, error: Exception | None) -> None:
    """Warn of pages that would load something from the network when they are read."""
    if error is None and app.builder.format == "html":
        for page in sorted(Path(app.outdir).rglob("*.html")):
            if _FAR.search(page.read_text(encoding="utf-8")):
                logging.getLogger(__name__).warning("%s loads a file from elsewhere", page)


def _find_indexed_pages(
    app: Sphinx, env: BuildEnvironment, added: set[str], changed: set[str], removed: set[str]
) -> list[str]:
    """Return the pages with index entries, to read them in every build.

    Sphinx drops the index entries of pages that it does not read again from its search.
    """
    return [
        name
        for name in sorted(env.found_docs)
        if "```{index}" in Path(env.doc2path(name)).read_text(encoding="utf-8")
    ]


def setup(app: Sphinx) -> None:
    """Read pages with index entries in every build, and check the pages that are written."""
    for field in PyObject.doc_field_types:
        if field.name == "variable":
            field.label = "Attributes"  # as in docstrings
    app.connect("env-get-outdated", _find_indexed_pages)
    app.connect("build-finished", _warn_of_far_files)
