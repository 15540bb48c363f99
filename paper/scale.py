"""How large the experiments are: the paper's own size, or a quick look."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

Options: TypeAlias = tuple[tuple[str, Any], ...]
_NOT_SEARCHED = ("exact GP", "Nyström")
"""An option of the optimizer would turn Nyström into Nyström*."""


@dataclass(frozen=True)
class Scale:
    """What all experiments share.

    Parameters
    ----------
    name : str
        What the page calls it.
    n_runs : int
        Runs on each synthetic data set.
    large : tuple of str
        The problems of Figure 4.
    sizes : tuple of int
        The numbers of basis functions in Figure 4.
    max_iter : int
        At most so many iterations in each stage of Figure 4.
    searched : tuple of (str, value)
        Settings of every fit that searches for its start.
    rvm : tuple of (str, value)
        Settings of the RVM.
    rvm_large : tuple of (str, value)
        Settings of the RVM in Figure 4.
    """

    name: str
    n_runs: int
    large: tuple[str, ...]
    sizes: tuple[int, ...]
    max_iter: int
    searched: Options = ()
    rvm: Options = ()
    rvm_large: Options = ()

    def options(self, method: str) -> Options:
        """Return the settings of a method that finds its own start."""
        if method == "RVM":
            return self.rvm
        return () if method in _NOT_SEARCHED else self.searched


FULL = Scale(
    name="full",
    n_runs=10,
    large=("california", "protein", "pole"),
    sizes=(25, 50, 100, 200, 400),
    max_iter=100,
    rvm_large=(("max_iter", 400), ("tol", 1e-7)),
)

QUICK = Scale(
    name="quick",
    n_runs=2,
    large=("friedman1", "friedman2", "friedman3"),
    sizes=(10, 20, 40),
    max_iter=50,
    searched=(("n_restarts", 12),),
    rvm=(("n_folds", 3),),
    rvm_large=(("n_folds", 2), ("max_iter", 100), ("tol", 1e-6)),
)
