"""Gaussian-process regression, exact for few rows and with learned eigenfunctions for many.

What `__init__.pyi` names is imported when it is first used, so that `import eigengp` and the
command line begin at once.
"""

import ast
from importlib import import_module
from importlib.util import find_spec
from pkgutil import get_data
from typing import Any

__version__ = "0.1.0"

# The module that each name comes from; modules of the package come from the package itself.
_HOMES = {
    each.name: node.module
    for node in ast.parse(get_data(__name__, "__init__.pyi") or b"").body
    if isinstance(node, ast.ImportFrom) and node.module
    for each in node.names
}

__all__ = sorted(_HOMES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    """Import what is asked for: a name from its home, or a module of the package."""
    home = _HOMES.get(name, __name__)
    if home != __name__:
        globals()[name] = value = getattr(import_module(home), name)
        return value
    if name.startswith("_") or find_spec(f"{__name__}.{name}") is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    """Return all names, imported or not."""
    return sorted({*globals(), *__all__})
