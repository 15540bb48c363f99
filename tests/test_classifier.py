"""EigenGPClassifier: scikit-learn's checks, probabilities, weights, labels, saving and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris, make_moons
from sklearn.metrics import log_loss
from sklearn.utils.estimator_checks import parametrize_with_checks

import eigengp
from eigengp import LBFGS, EigenGPClassifier, SquaredExponential
from eigengp._typing import Array


def quick(n_components: Any = 15, **settings: Any) -> EigenGPClassifier:
    """Return a classifier that is fitted in a moment."""
    own = {"kernel": "squared_exponential", "optimizer": LBFGS(max_iter=5), "random_state": 0}
    return EigenGPClassifier(n_components, **{**own, **settings})


def moons(n: int = 150, seed: int = 0) -> tuple[Array, Array]:
    X, y = make_moons(n, noise=0.25, random_state=seed)
    return X, y


@parametrize_with_checks([quick(8)])
def test_scikit_learn_estimator_checks(estimator: EigenGPClassifier, check: Any) -> None:
    check(estimator)


def test_the_default_beats_a_constant_by_far_and_is_calibrated() -> None:
    X, y = moons(300)
    X_test, y_test = moons(2_000, 1)
    model = EigenGPClassifier(random_state=0).fit(X, y)
    p = model.predict_proba(X_test)
    assert log_loss(y_test, p) < 0.2
    assert model.score(X_test, y_test) > 0.92
    assert model.selection_["kernel"].scores
    sure = p.max(axis=1)
    right = model.predict(X_test) == y_test
    assert np.mean(right) == pytest.approx(np.mean(sure), abs=0.03)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)


def test_many_classes_with_text_labels() -> None:
    X, number = load_iris(return_X_y=True)
    y = np.array(["setosa", "versicolor", "virginica"])[number]
    model = quick(30, optimizer=LBFGS(max_iter=20)).fit(X[::2], y[::2])
    assert model.classes_.tolist() == ["setosa", "versicolor", "virginica"]
    p = model.predict_proba(X[1::2])
    assert p.shape == (75, 3)
    assert model.score(X[1::2], y[1::2]) > 0.93
    assert log_loss(y[1::2], p) < 0.25
    assert model.decision_function(X[:4]).shape == (4, 3)
    assert np.isfinite(model.log_marginal_likelihood_)
    assert model.log_marginal_likelihood_ < 0.0


def test_a_weight_of_two_is_a_row_twice() -> None:
    X, y = moons(60)
    weight = np.where(np.arange(60) < 20, 2.0, 1.0)
    points = X[:10]
    one = quick(inducing_points=points, n_components="auto").fit(X, y, weight)
    two = clone(one).fit(np.vstack([X, X[:20]]), np.append(y, y[:20]))
    np.testing.assert_allclose(one.predict_proba(X), two.predict_proba(X), atol=1e-8)


def test_class_weights_shift_probabilities() -> None:
    X, y = moons(200)
    rare = np.flatnonzero((y == 0) | (np.arange(200) % 8 == 0))
    X, y = X[rare], y[rare]
    plain, balanced = quick().fit(X, y), quick(class_weight="balanced").fit(X, y)
    assert balanced.predict_proba(X)[:, 1].mean() > plain.predict_proba(X)[:, 1].mean() + 0.02
    own = quick(class_weight={0: 1.0, 1: 5.0}).fit(X, y)
    assert own.predict_proba(X)[:, 1].mean() > plain.predict_proba(X)[:, 1].mean() + 0.02


def test_far_from_the_data_classes_are_uncertain() -> None:
    X, y = moons(100)
    model = quick(kernel=SquaredExponential(0.5, 4.0), optimizer=LBFGS(max_iter=0)).fit(X, y)
    share = model.predict_proba([[100.0, 100.0]])[0, 1]
    assert share == pytest.approx(y.mean(), abs=0.15)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_saved_classifier_predicts_the_same(tmp_path: Path, n_classes: int) -> None:
    X, y = load_iris(return_X_y=True)
    X, y = X[y < n_classes], np.array(list("abc"))[y[y < n_classes]]
    model = quick().fit(X, y)
    model.save(tmp_path / "model.eigengp")
    again = eigengp.load(tmp_path / "model.eigengp")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_frames_keep_their_names() -> None:
    X, y = moons(60)
    frame = pd.DataFrame(X, columns=["left", "right"])
    model = quick().fit(frame, pd.Series(y).map({0: "no", 1: "yes"}))
    assert model.feature_names_in_.tolist() == ["left", "right"]
    assert set(model.predict(frame)) == {"no", "yes"}
    assert model.input_relevance().shape == (2,)


def test_what_cannot_be_had_is_refused(tmp_path: Path) -> None:
    X, y = moons(40)
    with pytest.raises(ValueError, match="at least two classes"):
        quick().fit(X, np.zeros(40))
    with pytest.raises(ValueError, match="one class"):
        quick().fit(X, y, (y == 1).astype(float))
    with pytest.raises(ValueError, match="Unknown label type"):
        quick().fit(X, X[:, 0])
    with pytest.raises(TypeError, match="name of one of their columns"):
        quick().fit(str(tmp_path / "rows.parquet"), y)
    with pytest.raises(TypeError, match="partial_fit takes arrays"):
        quick().partial_fit(str(tmp_path / "rows.parquet"), "label")
    with pytest.raises(ValueError, match="All labels in y are missing"):
        quick().fit(X, np.full(40, np.nan))
    with pytest.raises(ValueError, match="as many components"):
        EigenGPClassifier(5, inducing_points=X[:7]).fit(X, y)


def test_a_time_limit_ends_the_fit() -> None:
    X, y = moons(400)
    model = EigenGPClassifier(max_time=1.0, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.85


def test_progress_is_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    X, y = moons(60)
    model = quick(verbose=True).fit(X, y)
    assert "learning" in capsys.readouterr().err
    assert model.history_[-1]["log_marginal_likelihood"] == pytest.approx(
        model.log_marginal_likelihood_, abs=2.0
    )
