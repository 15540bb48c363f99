"""All experiments of the paper at a size that takes seconds, for the tests of the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from paper.command import reproduce
from paper.experiments import EXPERIMENTS
from paper.page import PAGE
from paper.scale import Scale

TINY = Scale(
    name="tiny",
    n_runs=2,
    large=("friedman1", "friedman2"),
    sizes=(5, 8),
    max_iter=3,
    searched=(("n_restarts", 1), ("max_iter", 5)),
    rvm=(("lengthscale", 1.0), ("max_iter", 20)),
    rvm_large=(("lengthscale", 1.0), ("max_iter", 20), ("tol", 1e-3)),
)


def reproduced(base: Path) -> Path:
    """Return the folder of the tiny reproduction in `base`, made by the first process to ask."""
    out = base / "tiny-reproduction"
    with _alone(base / "tiny-reproduction.lock"):
        if not (out / PAGE).exists():
            with (base / "tiny-reproduction.txt").open("w") as told, _quickly():
                assert reproduce(list(EXPERIMENTS), TINY, out, jobs=2, console=Console(file=told))
    return out


class Here:
    """A pool that carries runs out at once, in this process."""

    _processes = None

    def submit(self, measure: Callable[..., Any], *given: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(measure(*given))
        return future

    def shutdown(self, **how: Any) -> None:
        pass


@contextmanager
def _quickly() -> Iterator[None]:
    """Start no processes, and search hardly at all; test_paper_workers.py has processes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("paper.workers._pool", lambda jobs: Here())
        patch.setattr("eigengp.fitting.restarts.ROUNDS", ((1.0, 4),))
        patch.setattr("eigengp.fitting.restarts.RELOCATIONS", 2)
        yield


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Let one process after the other in."""
    fcntl = pytest.importorskip("fcntl", reason="test processes share a run behind a file lock")
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
