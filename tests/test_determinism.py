"""The same seed gives the same bits, whatever the number of threads; blocks matter to rounding."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from eigengp import (
    LBFGS,
    EigenGPClassifier,
    EigenGPRegressor,
    ExactGPRegressor,
    FITCRegressor,
    NystromRegressor,
    PowerEPRegressor,
    RVMRegressor,
    SquaredExponential,
    SSGPRegressor,
    Stochastic,
    VFERegressor,
)
from eigengp.data import array_source
from eigengp.data.array_source import ArraySource
from eigengp.fitting.checkpoint import Checkpoint
from eigengp.gp.exact import ExactGP
from eigengp.gp.model import EigenGP, Jitter
from eigengp.gp.precision import Arithmetic
from eigengp.gp.sparse_spectrum import SparseSpectrum


def _rows(n: int, noise: float = 0.2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (n, 3))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + noise * rng.normal(size=n)


def _short(max_iter: int = 2, n_restarts: int = 2) -> dict[str, Any]:
    return {"optimizer": LBFGS(max_iter=max_iter, n_restarts=n_restarts), "random_state": 0}


def _eigengp(n_components: Any, **settings: Any) -> Any:
    return EigenGPRegressor(n_components, **{**_short(), **settings})


def _in_float32(precision: str) -> Any:
    """Return a model that float32 is accurate enough for, if the noise is large."""
    return _eigengp(100, residual=None, kernel="matern12", precision=precision)


FITS: dict[str, tuple[Callable[[], Any], int]] = {
    "eigenfunctions": (lambda: _eigengp(250, residual=None), 2600),
    "several chunks": (lambda: _eigengp(12, residual=None), 70_000),
    "joint": (lambda: _eigengp(12, residual=None, optimizer=LBFGS("joint", max_iter=2)), 1500),
    "heteroscedastic": (lambda: _eigengp(30, residual=None, likelihood="heteroscedastic"), 1500),
    "diagonal": (lambda: _eigengp(250, residual="diagonal"), 2600),
    "neighbors": (lambda: _eigengp(20, residual="neighbors", kernel="matern32"), 1100),
    "kernels compared": (lambda: _eigengp("auto", residual="neighbors"), 1100),
    "residual exact": (lambda: _eigengp("auto", residual="exact"), 300),
    "default": (lambda: EigenGPRegressor(random_state=0), 60),
    "mixed": (lambda: _in_float32("mixed"), 2600),
    "single": (lambda: _in_float32("single"), 2600),
    "stochastic": (
        lambda: _eigengp(30, residual=None, optimizer=Stochastic(batch_size=500, n_restarts=2)),
        2600,
    ),
    "FITC": (lambda: FITCRegressor(250, **_short()), 2600),
    "VFE": (lambda: VFERegressor(250, **_short()), 2600),
    "power EP": (lambda: PowerEPRegressor(250, alpha=0.5, **_short()), 2600),
    "SSGP": (lambda: SSGPRegressor(250, **_short()), 2600),
    "exact": (lambda: ExactGPRegressor(**_short()), 600),
    "RVM": (lambda: RVMRegressor(lengthscale=0.6, random_state=0), 1200),
    "Nystrom": (lambda: NystromRegressor(100, **_short()), 1500),
}


_NOISE = {"mixed": 3.0, "single": 3.0}


def _predict(name: str, threads: int) -> tuple[np.ndarray, ...]:
    """Fit and predict with so many threads of BLAS, OpenMP and the pool."""
    make, n = FITS[name]
    new = np.random.default_rng(1).uniform(-2, 2, (2000, 3))
    with threadpool_limits(threads):
        model = make().fit(*_rows(n, _NOISE.get(name, 0.2)))
        draws = model.sample_y(new[:50]), model.predict(new[:200], return_cov=True)[1]
        gradient = model.predict_gradient(new[:300])
        return (*model.predict(new, return_std=True), model.predict(new[:3]), *draws, gradient)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FITS)
def test_threads_do_not_change_a_bit(name: str) -> None:
    one = _predict(name, 1)
    for threads in (2, 4):
        for expected, found in zip(one, _predict(name, threads), strict=True):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("residual", "n_classes"), [("neighbors", 2), (None, 2), (None, 3)])
def test_threads_do_not_change_a_bit_of_probabilities(residual: str | None, n_classes: int) -> None:
    X, y = _rows(700)
    labels = np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes))
    found = []
    for threads in (1, 2, 4):
        with threadpool_limits(threads):
            model = EigenGPClassifier(residual=residual, **_short()).fit(X, labels)
            found.append(model.predict_proba(X[:300]))
    for each in found[1:]:
        np.testing.assert_array_equal(each, found[0])


def test_the_fits_of_lower_precision_do_not_fall_back_to_a_higher_one() -> None:
    rows = _rows(2600, _NOISE["single"])
    models = (_in_float32(each).fit(*rows) for each in ("double", "mixed", "single"))
    assert len({each.log_marginal_likelihood_ for each in models}) == 3


def _fit_until_killed(path: Path, threads: int) -> None:
    """Fit, and kill this process after a few evaluations were stored."""
    add, stored = Checkpoint.add, 0

    def add_and_die(self: Checkpoint, *record: Any) -> None:
        nonlocal stored
        add(self, *record)
        stored += 1
        if stored == 5:
            os.kill(os.getpid(), signal.SIGKILL)

    Checkpoint.add = add_and_die  # type: ignore[method-assign]  # Of the child alone.
    with threadpool_limits(threads):
        _checkpointed(path).fit(*_rows(2600))


def _checkpointed(path: Path | None) -> Any:
    optimizer = LBFGS(max_iter=15, n_restarts=3, checkpoint=path)
    return EigenGPRegressor(100, residual=None, optimizer=optimizer, random_state=0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_killed_fit_that_resumes_with_other_threads_gives_the_same_bits(tmp_path: Path) -> None:
    whole = _checkpointed(None).fit(*_rows(2600))
    path = tmp_path / "fit.checkpoint"
    for threads in (4, 1):
        context = multiprocessing.get_context("fork")
        child = context.Process(target=_fit_until_killed, args=(path, threads))
        child.start()
        child.join()
        assert child.exitcode == -signal.SIGKILL
    with threadpool_limits(2):
        resumed = _checkpointed(path).fit(*_rows(2600))
    X = _rows(40)[0]
    np.testing.assert_array_equal(resumed.predict(X), whole.predict(X))
    assert resumed.log_marginal_likelihood_ == whole.log_marginal_likelihood_


_X, _Y = _rows(3000)
_POINTS = _X[:60]
_KERNEL = SquaredExponential(np.full(3, 0.6), 1.5)
_SPARSE = EigenGP(_KERNEL, _POINTS, 0.1, 60, jitter=Jitter(relative=1e-8))
MODELS = {
    "eigenfunctions": (_SPARSE, 0.0),
    "guarded": (_SPARSE, 0.01),
    "VFE": (_SPARSE, 1.0),
    "FITC": (replace(_SPARSE, residual=True, power=1.0), 0.0),
    "power EP": (replace(_SPARSE, residual=True, power=0.5), 0.0),
    "SSGP": (SparseSpectrum(_KERNEL, np.random.default_rng(2).normal(size=(40, 3)), 0.1), 0.0),
    "exact": (ExactGP(_KERNEL, 0.1), 0.0),
}


def _gradient(model: Any, source: ArraySource, gamma: float) -> tuple[float, np.ndarray]:
    outcome, gradient = model.evaluate(source, gamma)
    parts = [np.ravel(value) for value in vars(gradient).values() if value is not None]
    return outcome.value, np.concatenate(parts)


@pytest.mark.parametrize("name", MODELS)
def test_an_evaluation_agrees_across_block_sizes(name: str) -> None:
    model, gamma = MODELS[name]
    n = 400 if name == "exact" else 3000
    one, *others = (
        _gradient(model, ArraySource(_X[:n], _Y[:n], block_rows=rows), gamma)
        for rows in (97, 512, 4096)
    )
    for value, slope in others:
        assert value == pytest.approx(one[0], rel=1e-10)
        np.testing.assert_allclose(slope, one[1], rtol=0, atol=1e-10 * np.abs(one[1]).max())


@pytest.mark.parametrize("precision", ["mixed", "single"])
def test_lower_precision_agrees_across_block_sizes_to_its_own_rounding(precision: str) -> None:
    model = replace(_SPARSE, arithmetic=Arithmetic(precision))
    one, *others = (
        _gradient(model, ArraySource(_X, _Y, block_rows=rows), 0.0) for rows in (97, 512, 4096)
    )
    for value, _ in others:
        assert value == pytest.approx(one[0], rel=1e-5)


def _fit_in_blocks(make: Callable[[], Any], rows: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(array_source, "choose_block_rows", lambda X, n_columns: rows)
    model = make().fit(*_rows(3000))
    monkeypatch.undo()
    return model


@pytest.mark.parametrize(
    "make", [lambda: _eigengp(40, residual=None, **_short(5, 1)), FITS["VFE"][0]]
)
def test_learning_magnifies_the_rounding_of_blocks_to_less_than_a_thousandth(
    make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    new = np.random.default_rng(1).uniform(-2, 2, (200, 3))
    one, *others = (_fit_in_blocks(make, rows, monkeypatch) for rows in (97, 512, 4096))
    for other in others:
        difference = np.abs(other.predict(new) - one.predict(new)).max() / np.ptp(_rows(3000)[1])
        assert difference < 1e-3
        evidence = other.log_marginal_likelihood_
        assert evidence == pytest.approx(one.log_marginal_likelihood_, rel=1e-3)
