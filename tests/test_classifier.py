"""EigenGPClassifier: scikit-learn's checks, probabilities, weights, labels, saving and refusals."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibrationDisplay
from sklearn.datasets import load_iris, make_moons
from sklearn.inspection import DecisionBoundaryDisplay
from sklearn.metrics import ConfusionMatrixDisplay, confusion_matrix, log_loss
from sklearn.utils.estimator_checks import parametrize_with_checks

import eigengp
from eigengp import LBFGS, EigenGPClassifier, EigenGPRegressor, SquaredExponential, Warped
from eigengp._typing import Array
from eigengp.export import to_onnx
from eigengp.fitting.bound import Rows, fit_calibration
from eigengp.fitting.run import FitWarning
from eigengp.fitting.variational import _count_once
from eigengp.gp.blocks import RowBlock, group_rows
from eigengp.gp.likelihoods import Bernoulli
from eigengp.gp.model import EigenGP
from eigengp.gp.variational import LatentModel, LatentPosterior, recover_evidence


def quick(n_components: Any = 15, **settings: Any) -> EigenGPClassifier:
    """Return a classifier that is fitted in a moment."""
    own = {"kernel": "squared_exponential", "optimizer": LBFGS(max_iter=5), "random_state": 0}
    return EigenGPClassifier(n_components, **{**own, **settings})


def moons(n: int = 150, seed: int = 0) -> tuple[Array, Array]:
    X, y = make_moons(n, noise=0.25, random_state=seed)
    return X, y


@parametrize_with_checks([quick(8), quick(8, residual="neighbors")])
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
    for labels in (y, y.astype(object), np.unique(y, return_inverse=True)[1], y == "a"):
        model = quick(optimizer=LBFGS(max_iter=1)).fit(X, labels)
        model.save(tmp_path / "model.eigengp")
        again = eigengp.load(tmp_path / "model.eigengp")
        np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
        assert again.classes_.dtype == model.classes_.dtype


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


def _stripes(n: int, seed: int) -> tuple[Array, Array]:
    """Return inputs, and classes with more structure than a few inducing points can follow."""
    X = np.random.default_rng(seed).uniform(size=(n, 2))
    return X, (np.sin(20.0 * X[:, 0]) + np.cos(16.0 * X[:, 1]) > 0.0).astype(int)


def test_neighbours_follow_what_inducing_points_leave_out(tmp_path: Path) -> None:
    (X, y), (X_test, y_test) = _stripes(1_000, 0), _stripes(500, 1)
    model = quick().fit(X, y)
    assert "residual: neighbors" in str(model.selection_)
    plain = quick(residual=None).fit(X, y)
    near, far = (log_loss(y_test, each.predict_proba(X_test)) for each in (model, plain))
    assert near < 0.7 * far
    model.save(tmp_path / "model.eigengp")
    again = eigengp.load(tmp_path / "model.eigengp")
    np.testing.assert_array_equal(again.predict_proba(X_test), model.predict_proba(X_test))
    with pytest.raises(ValueError, match="ONNX cannot express"):
        to_onnx(model)
    with pytest.raises(AttributeError, match="has no attribute"):
        model.partial_fit(X, y)
    assert isinstance(quick().partial_fit(X, y)._posterior, LatentPosterior)
    warped = Warped(SquaredExponential(), [0, 0], [1, 1])
    with pytest.raises(ValueError, match="warped kernel has no neighbours"):
        quick(kernel=warped, residual="neighbors").fit(X[:50], y[:50])


def test_the_default_has_neighbours_where_they_help() -> None:
    X, y = _stripes(1_100, 0)
    own = {"optimizer": LBFGS(max_iter=1), "kernel": SquaredExponential(0.1)}
    chosen = {
        "None (fewer than": quick(**own).fit(X[:500], y[:500]),
        "None (more than two": quick(**own).fit(X, y + (X[:, 0] > 0.5)),
        "None (max_iter=0": quick(kernel=own["kernel"], optimizer=LBFGS(max_iter=0)).fit(X, y),
        "None (given": quick(**own, residual=None).fit(X, y),
        "neighbors (two": quick(**own).fit(X, y),
        "neighbors (given": quick(**own, residual="neighbors").fit(X[:99], y[:99]),
    }
    for text, model in chosen.items():
        assert f"residual: {text}" in str(model.selection_)


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


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_files_with_text_labels_give_the_fit_of_their_arrays(tmp_path: Path, ending: str) -> None:
    X, y = moons(80)
    frame = pd.DataFrame(X, columns=["left", "right"])
    labels = np.array(["no", "yes"])[y]
    whole = frame.assign(label=labels)
    rows, inputs = str(tmp_path / f"rows.{ending}"), str(tmp_path / f"inputs.{ending}")
    for table, path in ((whole, rows), (frame, inputs)):
        table.to_parquet(path) if ending == "parquet" else table.to_csv(path, index=False)
    model, own = quick().fit(rows, "label"), quick().fit(frame, labels)
    assert model.feature_names_in_.tolist() == ["left", "right"]
    np.testing.assert_allclose(model.predict_proba(inputs), own.predict_proba(frame), atol=1e-9)
    assert model.predict(inputs).tolist() == own.predict(frame).tolist()
    assert model.predict_to_file(inputs, tmp_path / "out.csv") == 80
    written = pd.read_csv(tmp_path / "out.csv")
    assert written.columns.tolist() == ["class", "probability_no", "probability_yes"]
    assert written["class"].tolist() == own.predict(frame).tolist()
    with pytest.raises(ValueError, match="no column 'absent'"):
        quick().fit(rows, "absent")


def test_dask_frames_are_read_and_predicted_lazily() -> None:
    dataframe = pytest.importorskip("dask.dataframe")
    X, y = moons(60)
    frame = pd.DataFrame(X, columns=["left", "right"]).assign(label=np.array(["no", "yes"])[y])
    model = quick().fit(dataframe.from_pandas(frame, npartitions=3), "label")
    inputs = frame[["left", "right"]]
    found = model.predict(dataframe.from_pandas(inputs, npartitions=2))
    assert found.compute().tolist() == model.predict(inputs).tolist()
    assert model.classes_.tolist() == ["no", "yes"]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_batches_add_up_to_nearly_the_fit_of_all_rows(n_classes: int) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (240, 2))
    y = np.digitize(X[:, 0] + 0.3 * rng.normal(size=240), [-0.5, 0.7][: n_classes - 1])
    settings = {"inducing_points": X[:15], "n_components": "auto", "optimizer": LBFGS(max_iter=0)}
    model = quick(**settings).partial_fit(X[:80], y[:80], classes=np.arange(n_classes))
    first = log_loss(y, model.predict_proba(X))
    model.partial_fit(X[80:160], y[80:160]).partial_fit(X[160:], y[160:])
    whole = quick(**settings).fit(X, y)
    assert log_loss(y, model.predict_proba(X)) < first
    assert model.score(X, y) > whole.score(X, y) - 0.03
    ours, theirs = (each._posterior.latent(each._scaling.transform_inputs(X))[0].ravel()
                    for each in (model, whole))  # fmt: skip
    assert np.corrcoef(ours, theirs)[0, 1] > 0.98
    assert model.log_marginal_likelihood_ == pytest.approx(whole.log_marginal_likelihood_, rel=0.1)
    with pytest.raises(ValueError, match="not among the classes"):
        model.partial_fit(X[:2], [0, 7])
    with pytest.raises(ValueError, match="needs a label in each row"):
        model.partial_fit(X[:2], [0.0, np.nan])


def test_a_batch_of_a_gaussian_prior_is_the_same_posterior_in_two_parts() -> None:
    X, y = moons(60)
    settings = {"inducing_points": X[:10], "n_components": "auto", "optimizer": LBFGS(max_iter=0)}
    model = quick(**settings).fit(X, y)
    before = model._posterior
    evidence = recover_evidence(before)
    np.testing.assert_allclose(evidence[0].h, before.means[:, 0], rtol=1e-8)
    np.testing.assert_allclose(np.abs(evidence[0].V), np.abs(before.roots[0]), rtol=1e-6, atol=1e-9)
    same: Any = SimpleNamespace(earlier=evidence)
    assert LatentModel.get_divergence(same, evidence) == pytest.approx(0.0, abs=1e-8)


def test_a_fit_that_was_stopped_resumes_from_its_checkpoint(tmp_path: Path) -> None:
    X, y = moons(80)
    path = tmp_path / "fit"
    optimizer = LBFGS(max_iter=8, checkpoint=path)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("eigengp.fitting.variational._make_posterior", _stop)
        with pytest.raises(RuntimeError, match="stopped"):
            quick(optimizer=optimizer).fit(X, y)
    assert path.exists()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("eigengp.fitting.bound.BoundObjective.__call__", _stop)
        resumed = quick(optimizer=optimizer).fit(X, y)
    assert not path.exists()
    whole = quick(optimizer=LBFGS(max_iter=8, checkpoint=tmp_path / "other")).fit(X, y)
    np.testing.assert_array_equal(resumed.inducing_points_, whole.inducing_points_)
    assert resumed.log_marginal_likelihood_ == pytest.approx(
        whole.log_marginal_likelihood_, abs=0.05
    )
    np.testing.assert_allclose(resumed.predict_proba(X), whole.predict_proba(X), atol=0.02)


def _stop(*_: Any) -> Any:
    raise RuntimeError("stopped")


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_unlabelled_rows_place_inducing_points(missing: Any) -> None:
    X, y = moons(120)
    labels = np.array(["no", "yes"])[y].astype(object)
    labels[X[:, 0] > 1.0] = missing
    assert {"no", "yes"} <= set(labels[:50])
    model = quick(10, optimizer=LBFGS(max_iter=0)).fit(X, labels)
    known = X[:, 0] <= 1.0
    alone = quick(10, optimizer=LBFGS(max_iter=0)).fit(X[known], labels[known])
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.inducing_points_[:, 0].max() > 1.2 > alone.inducing_points_[:, 0].max()
    np.testing.assert_allclose(model._scaling.input_centre, X.mean(axis=0))


def test_displays_of_scikit_learn_draw_classifiers() -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    X, number = load_iris(return_X_y=True)
    y = np.array(["setosa", "versicolor", "virginica"])[number]
    three = quick().fit(X[:, 2:], y)
    counts = ConfusionMatrixDisplay.from_estimator(three, X[:, 2:], y).confusion_matrix
    np.testing.assert_array_equal(counts, confusion_matrix(y, three.predict(X[:, 2:])))
    regions = DecisionBoundaryDisplay.from_estimator(three, X[:, 2:], response_method="predict")
    assert set(np.unique(regions.response)) == {0, 1, 2}
    two = quick().fit(X[:, 2:], y == "setosa")
    curve = CalibrationDisplay.from_estimator(two, X[:, 2:], y == "setosa")
    np.testing.assert_array_equal(curve.y_prob, two.predict_proba(X[:, 2:])[:, 1])
    pyplot.close("all")


def test_an_input_may_begin_to_vary_after_the_first_partial_fit() -> None:
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=80), np.zeros(80)])
    own = {"kernel": "squared_exponential", "optimizer": LBFGS(max_iter=2, n_restarts=1)}
    model = EigenGPClassifier(10, random_state=0, **own)
    model.partial_fit(X, X[:, 0] > 0.0, classes=[False, True])
    more = rng.normal(size=(200, 2))
    model.partial_fit(more, np.abs(more[:, 1]) > 0.7)
    proba = model.predict_proba([[0.0, 0.0], [0.0, 1.0]])[:, 1]
    assert abs(proba[1] - proba[0]) > 0.01


def test_many_inputs_of_few_rows_share_a_lengthscale_and_those_of_many_rows_do_not() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 12))
    y = X.sum(axis=1) + rng.normal(size=60) > 0.0
    few = EigenGPClassifier(optimizer=LBFGS(max_iter=5), random_state=0).fit(X, y)
    assert "with one lengthscale (" in str(few.selection_)
    X = rng.normal(size=(400, 3))
    many = EigenGPClassifier(optimizer=LBFGS(max_iter=5), random_state=0)
    many.fit(X, np.sin(4.0 * X[:, 0]) + 0.1 * rng.normal(size=400) > 0.0)
    assert "with one lengthscale (" not in str(many.selection_)
    assert np.ptp(many.kernel_.lengthscale) > 1.0


def test_one_lengthscale_for_ranges_suits_rare_values_and_does_not_depend_on_units() -> None:
    rng = np.random.default_rng(0)
    rare = np.where(rng.uniform(size=(100, 20)) < 0.02, 1.0, 0.0)
    X = np.column_stack([rng.uniform(size=(100, 6)), rare, np.full(100, 0.3)])
    y = X[:, :6].sum(axis=1) > 3.0
    own = EigenGPClassifier(optimizer=LBFGS(max_iter=3), random_state=0).fit(X, y)
    assert "one lengthscale for ranges (" in str(own.selection_)
    varying = np.ptp(X, axis=0) > 0.0
    lengthscale = own.kernel_.lengthscale[varying] / np.ptp(X, axis=0)[varying]
    np.testing.assert_allclose(lengthscale, lengthscale[0])
    unit = rng.uniform(0.1, 10.0, X.shape[1])
    other = clone(own).fit(3.0 + unit * X, y)
    found = other.predict_proba(3.0 + unit * X)
    np.testing.assert_allclose(found, own.predict_proba(X), atol=1e-4)


@pytest.mark.parametrize("kind", ["two", "five", "poisson", "student_t"])
def test_a_short_time_limit_is_kept_with_many_rows(kind: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40_000, 6))
    y = (X[:, 0] + rng.logistic(size=X.shape[0]) > 0.0).astype(int)
    own: dict[str, Any] = {"max_time": 0.5, "random_state": 0}
    model: Any = EigenGPClassifier(**own)
    if kind == "five":
        y += np.arange(y.size) % 4
    elif kind != "two":
        model = EigenGPRegressor(likelihood=kind, **own)
    started = time.process_time()
    with pytest.warns(FitWarning, match="max_time"):
        model.fit(X, y)
    assert time.process_time() - started < 8.0


def _draw_labels(n_classes: int, copies: int) -> tuple[Array, Array, Array]:
    """Return inputs, the classes they should have, and labels of which a quarter are random."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(190, 2))
    right = np.digitize(np.hypot(*X.T) + 0.3 * X[:, 0], [0.9, 1.6][: n_classes - 1])
    wrong = rng.random((copies, right.size)) < 0.25
    return X, right, np.where(wrong, rng.integers(0, n_classes, wrong.shape), right)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_copies_of_rows_with_noisy_labels_do_not_make_probabilities_too_sure(
    n_classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, right, (y,) = _draw_labels(n_classes, 1)
    model = EigenGPClassifier(kernel="matern32", optimizer=LBFGS(max_iter=10), random_state=0)
    once = model.fit(X, y).predict_proba(X)
    assert "weights" not in model.selection_
    three = np.repeat(np.arange(y.size), 3)
    found = model.fit(X[three], y[three]).predict_proba(X)
    np.testing.assert_allclose(found, once, atol=1e-3)
    weighted = model.fit(X, y, np.full(y.size, 3.0)).predict_proba(X)
    np.testing.assert_array_equal(weighted, found)
    some = np.concatenate([np.arange(y.size), *[np.arange(0, y.size, 2)] * 2])
    found = model.fit(X[some], y[some]).predict_proba(X)
    assert model.selection_["weights"].chosen == "inputs once"
    monkeypatch.setattr("eigengp.fitting.variational._HARDLY", 0.0)
    counted = model.fit(X[some], y[some]).predict_proba(X)
    assert log_loss(right, found) < log_loss(right, counted) - 0.005


def test_labels_that_differ_at_equal_inputs_count_each() -> None:
    X, right, labels = _draw_labels(2, 4)
    model = EigenGPClassifier(kernel="matern32", optimizer=LBFGS(max_iter=10), random_state=0)
    losses = [
        log_loss(right, model.fit(np.tile(X, (k, 1)), labels[:k].ravel()).predict_proba(X))
        for k in (1, 4)
    ]
    assert model.selection_["weights"].chosen == "as given"
    assert losses[1] < losses[0] - 0.02


def test_weights_that_count_each_input_once_keep_the_shares_of_the_classes() -> None:
    X, y = moons(60)
    index = np.concatenate([np.arange(60), np.flatnonzero(y == 1), np.flatnonzero(y == 1)])
    block = RowBlock(X[index], y[index].astype(float))
    once = _count_once(Rows(block, number=group_rows(block).number))
    assert once is not None
    np.testing.assert_allclose(once[block.y == 1].sum() / once.sum(), 0.75)
    np.testing.assert_allclose(once.sum(), 60.0)
    single = RowBlock(X, y.astype(float))
    assert _count_once(Rows(single)) is None


def test_the_calibration_leaves_out_all_rows_of_an_input() -> None:
    X, y = moons(40)
    y, found = y.astype(float), []
    model = EigenGP(SquaredExponential([1.0, 1.0], 4.0), X[:9], 1.0, 9)
    twice = np.repeat(np.arange(40), 2)
    copies = RowBlock(X[twice], y[twice])
    number = group_rows(copies).number
    for block, own in ((RowBlock(X, y, np.full(40, 2.0)), None), (copies, number), (copies, None)):
        rows = Rows(block, n_threads=1, number=own)
        best = rows.improve(rows.make_latent(model), rows.begin(Bernoulli()), 50, 1e-12)
        found.append(rows.calibrate(best, model))
    assert found[0].factors == pytest.approx(found[1].factors, rel=1e-3)
    assert found[0].loss > found[2].loss + 0.02


def test_few_rows_are_calibrated_in_a_short_time(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []

    def calibrate(likelihood: Any, rows: RowBlock, *more: Any) -> Any:
        counts.append(rows.n_rows)
        return fit_calibration(likelihood, rows, *more)

    monkeypatch.setattr("eigengp.fitting.bound.fit_calibration", calibrate)
    X = np.random.default_rng(0).normal(size=(2_400, 2))
    y = np.digitize(X[:, 0], [-0.7, 0.0, 0.7])
    quick(max_time=2.0).fit(X, y)
    quick(optimizer=LBFGS(max_iter=1)).fit(X, y)
    assert counts == [600, 2_400]  # Each of four latent functions takes time.
