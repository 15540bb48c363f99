"""Pictures show the numbers that they claim to show: read back from the axes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from eigengp import (
    LBFGS,
    EigenGPRegressor,
    ExactGPRegressor,
    RVMRegressor,
    inspection,
    metrics,
    plot,
)
from eigengp._typing import Array
from eigengp.plot import palette

matplotlib.use("agg")
from matplotlib import pyplot

QUICK: dict[str, Any] = {"optimizer": LBFGS(n_restarts=1, max_iter=20), "random_state": 0}
rng = np.random.default_rng(0)
X1 = pd.DataFrame({"time $t_0$": np.sort(rng.uniform(0, 6, size=60))})
y1 = np.sin(X1.iloc[:, 0].to_numpy()) + 0.1 * rng.normal(size=60)
X3 = pd.DataFrame(
    {
        "length": rng.uniform(-3, 3, size=80),
        "kind": rng.integers(0, 3, size=80).astype(float),
        "mass": rng.uniform(0, 100, size=80),
    }
)
y3 = (np.sin(X3["length"]) + 0.3 * X3["kind"] + 0.1 * rng.normal(size=80)).to_numpy()


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def one() -> EigenGPRegressor:
    return EigenGPRegressor(7, **QUICK).fit(X1, y1)


@pytest.fixture(scope="module")
def two() -> EigenGPRegressor:
    return EigenGPRegressor(8, **QUICK).fit(X3[["length", "mass"]].to_numpy(), y3)


@pytest.fixture(scope="module")
def three() -> EigenGPRegressor:
    return EigenGPRegressor(8, **QUICK).fit(X3, y3)


def line(axes: Any, label: str) -> Array:
    """Return the points of the line with this label, shape (2, n)."""
    (found,) = [each for each in axes.lines if each.get_label() == label]
    return np.array(found.get_data())


def band(axes: Any, label: str) -> tuple[Array, Array, Array]:
    """Return x, low and high of the band with this label."""
    (found,) = [each for each in axes.collections if each.get_label() == label]
    corners = np.unique(found.get_paths()[0].vertices, axis=0)
    x = np.unique(corners[:, 0])
    ends = np.array([corners[corners[:, 0] == each, 1][[0, -1]] for each in x])
    return x, ends[:, 0], ends[:, 1]


def labels(axes: Any) -> list[str]:
    figure = axes.figure
    return [text.get_text() for text in figure.legends[0].get_texts()]


def named(x: Array) -> pd.DataFrame:
    return pd.DataFrame({X1.columns[0]: x})


def test_a_prediction_of_one_input_shows_mean_bands_data_and_inducing_points(
    one: EigenGPRegressor,
) -> None:
    axes = plot.prediction(one, X1, y1, coverage=(0.5, 0.9))
    x, mean = line(axes, "mean")
    np.testing.assert_allclose(mean, one.predict(named(x)))
    assert x[0] < X1.to_numpy().min() < X1.to_numpy().max() < x[-1]
    for share in (0.5, 0.9):
        lower, upper = one.predict_interval(named(x), share)
        _, low, high = band(axes, f"{100 * share:g} % interval")
        np.testing.assert_allclose([low, high], [lower, upper])
    data = axes.collections[0].get_offsets()
    np.testing.assert_array_equal(data, np.column_stack([X1.to_numpy(), y1]))
    shown = np.sort(line(axes, "inducing points")[0])
    points = np.sort(one.inducing_points_[:, 0])
    np.testing.assert_array_equal(shown, points[(points >= x[0]) & (points <= x[-1])])
    assert axes.get_xlabel() == X1.columns[0]


def test_a_prediction_without_data_is_two_spreads_wide(one: EigenGPRegressor) -> None:
    x, _ = line(plot.prediction(one), "mean")
    middle, spread = X1.to_numpy().mean(), X1.to_numpy().std()
    np.testing.assert_allclose(x[[0, -1]], middle + 2.12 * spread * np.array([-1, 1]), rtol=1e-6)


def test_maps_show_mean_and_standard_deviation(two: EigenGPRegressor) -> None:
    rows = X3[["length", "mass"]].to_numpy()
    left, right = plot.prediction(two, rows, y3)
    for axes, title in ((left, "mean"), (right, "standard deviation")):
        image = axes.collections[0].get_array()
        assert axes.get_title("left") == title
        assert image.shape == (80, 80)
    margin = 0.03 * np.ptp(rows, axis=0)
    x, y = np.linspace(rows.min(axis=0) - margin, rows.max(axis=0) + margin, 80).T
    mean, std = two.predict([[x[10], y[70]]], return_std=True)
    assert left.collections[0].get_array()[70, 10] == pytest.approx(mean[0])
    assert right.collections[0].get_array()[70, 10] == pytest.approx(std[0])
    np.testing.assert_array_equal(line(left, "inducing points"), two.inducing_points_.T)
    assert labels(left) == ["data", "inducing points"]


def test_eigenfunctions_peak_at_one(one: EigenGPRegressor, two: EigenGPRegressor) -> None:
    axes = plot.eigenfunctions(one, X1, count=3)
    curves = [each for each in axes.lines if each.get_label().startswith("$")]
    x = np.array(curves[0].get_xdata())
    phi = one.eigenfunctions(named(x))
    assert len(curves) == 3
    assert len({(each.get_color(), str(each.get_linestyle())) for each in curves}) == 3
    for j, curve in enumerate(curves):
        drawn = np.array(curve.get_ydata())
        assert np.max(drawn) == pytest.approx(1.0)
        assert abs(np.corrcoef(drawn, phi[:, j])[0, 1]) == pytest.approx(1.0)
    several = plot.eigenfunctions(two, count=4)
    assert several.shape == (4,)
    for each in several:
        assert np.max(each.collections[0].get_array()) == pytest.approx(1.0)


def test_relevance_is_sorted_by_effect_and_named(three: EigenGPRegressor) -> None:
    axes = plot.relevance(three)
    effects, order = three.input_effects(), inspection.leading_inputs(three, 3)
    drawn = [[bar.get_width() for bar in bars] for bars in axes.containers]
    np.testing.assert_array_equal(drawn, [effects[order], three.input_relevance()[order]])
    assert list(effects[order]) == sorted(effects, reverse=True)
    names = [text.get_text() for text in axes.get_yticklabels()]
    assert names == [X3.columns[d] for d in order]
    assert len(plot.relevance(three, count=2).containers[0]) == 2


def test_slices_show_what_inspection_computes(three: EigenGPRegressor) -> None:
    display = plot.EffectDisplay.from_estimator(
        three, X3, ["length", "kind"], kind="slice", reference=X3.iloc[4]
    )
    several = display.ax_
    first, second = (
        inspection.slice_at(three, X3, name, reference=X3.iloc[4]) for name in ("length", "kind")
    )
    np.testing.assert_array_equal(line(several[0], "prediction"), [first.grid, first.mean])
    _, low, high = band(several[0], "90 % of observations")
    np.testing.assert_allclose([low, high], [first.lower, first.upper])
    (bars,) = several[1].containers
    np.testing.assert_array_equal(bars[0].get_xdata(), [0.0, 1.0, 2.0])
    np.testing.assert_array_equal(bars[0].get_ydata(), second.mean)
    ends = np.array([segment[:, 1] for segment in bars[2][0].get_segments()])
    np.testing.assert_allclose(ends, np.column_stack([second.lower, second.upper]))
    assert [axes.get_xlabel() for axes in several] == ["length", "kind"]
    assert line(several[0], "reference")[0, 0] == X3["length"].iloc[4]
    assert "reference" in labels(several[0])


@pytest.mark.parametrize(
    ("kind", "compute", "label"),
    [
        ("partial_dependence", inspection.partial_dependence, "average prediction"),
        ("accumulated", inspection.accumulated_effects, "accumulated effect"),
    ],
)
def test_effects_show_what_inspection_computes(
    three: EigenGPRegressor, kind: Any, compute: Any, label: str
) -> None:
    several = plot.EffectDisplay.from_estimator(three, X3, kind=kind, coverage=0.8).ax_
    order = inspection.leading_inputs(three, 3)
    assert [axes.get_xlabel() for axes in several] == [X3.columns[d] for d in order]
    axes = several[order.index(0)]
    effect = compute(three, X3, "length", coverage=0.8)
    np.testing.assert_array_equal(line(axes, label), [effect.grid, effect.mean])
    _, low, high = band(axes, "80 % for the average")
    np.testing.assert_allclose([low, high], [effect.lower, effect.upper])
    assert label in labels(axes)


def test_predictions_are_drawn_against_targets_with_intervals(three: EigenGPRegressor) -> None:
    display = plot.PredictionDisplay.from_estimator(three, X3, y3, coverage=0.5)
    mean = three.predict(X3)
    lower, upper = three.predict_interval(X3, 0.5)
    inside = (lower <= y3) & (y3 <= upper)
    bars, *points = display.ax_.collections
    ends = np.array([segment[:, 1] for segment in bars.get_segments()])
    np.testing.assert_allclose(ends, np.column_stack([lower, upper]))
    for drawn, rows in zip(points, (inside, ~inside), strict=True):
        np.testing.assert_allclose(drawn.get_offsets(), np.column_stack([mean, y3])[rows])
    assert f"outside ({np.mean(~inside):.0%})" in labels(display.ax_)
    axes = display.plot(kind="residual_vs_predicted").ax_
    offsets = np.array(axes.collections[1].get_offsets())
    np.testing.assert_allclose(offsets, np.column_stack([mean, y3 - mean])[inside])


def test_calibration_shows_curve_and_histogram(three: EigenGPRegressor) -> None:
    mean, std = three.predict(X3, return_std=True)
    left, right = plot.PredictionDisplay.from_predictions(y3, mean, std, kind="calibration").ax_
    np.testing.assert_array_equal(line(left, "model"), metrics.coverage_curve(y3, mean, std))
    density, _ = metrics.pit_histogram(y3, mean, std, 10)
    heights = [bar.get_height() for bar in right.patches if bar.get_width() == pytest.approx(0.1)]
    np.testing.assert_allclose(heights, density)


def test_calibration_is_that_of_the_intervals_a_model_predicts() -> None:
    model = EigenGPRegressor(5, **QUICK).fit(X3, y3).calibrate(X3[:9], y3[:9])
    left, _ = plot.PredictionDisplay.from_estimator(model, X3, y3, kind="calibration").ax_
    levels, held = line(left, "model")
    assert levels[-1] == pytest.approx(0.9)  # Nine rows guarantee no more.
    lower, upper = model.predict_interval(X3, 0.5)
    at_half = held[np.argmin(np.abs(levels - 0.5))]
    assert at_half == np.mean((lower <= y3) & (y3 <= upper))


def test_displays_take_regressors_of_other_libraries() -> None:
    model = make_pipeline(StandardScaler(), GaussianProcessRegressor(alpha=0.01)).fit(X3, y3)
    display = plot.PredictionDisplay.from_estimator(model, X3, y3)
    mean, std = model.predict(X3, return_std=True)
    np.testing.assert_allclose(display.predictions.upper, mean + 1.6448536 * std, rtol=1e-6)


def test_convergence_shows_every_step_of_every_stage(one: EigenGPRegressor) -> None:
    axes = plot.convergence(one)
    steps = np.concatenate([each.get_ydata() for each in axes.lines])
    history = [step["log_marginal_likelihood"] for step in one.history_]
    np.testing.assert_array_equal(steps, history)
    np.testing.assert_array_equal(
        np.concatenate([each.get_xdata() for each in axes.lines]), 1 + np.arange(len(history))
    )
    stages = dict.fromkeys(step["stage"] for step in one.history_)
    assert [each.get_label() for each in axes.lines] == list(stages)


def test_a_start_far_below_is_told_and_not_drawn() -> None:
    model = RVMRegressor(lengthscale=0.5).fit(X1, y1)
    model.history_ = [
        {"stage": "RVM", "iteration": i, "log_marginal_likelihood": value, "seconds": 0.0}
        for i, value in enumerate([-1e6, *np.linspace(-50, 10, 20)], start=1)
    ]
    axes = plot.convergence(model)
    assert -60 < axes.get_ylim()[0] < -50
    assert axes.texts[0].get_text() == "begins at -1e+06 ▾"


def test_inducing_points_over_the_data_for_pairs_of_inputs(three: EigenGPRegressor) -> None:
    several = plot.inducing_points(three, X3, count=3)
    order = inspection.leading_inputs(three, 3)
    assert several.shape == (3,)
    across, up = order[0], order[1]
    np.testing.assert_array_equal(
        line(several[0], "inducing points"), three.inducing_points_[:, [across, up]].T
    )
    data = several[0].collections[0].get_offsets()
    np.testing.assert_array_equal(data, X3.iloc[:, [across, up]])
    assert (several[0].get_xlabel(), several[0].get_ylabel()) == (
        X3.columns[across],
        X3.columns[up],
    )


def test_pictures_go_where_they_are_asked_to(one: EigenGPRegressor, two: EigenGPRegressor) -> None:
    figure, given = pyplot.subplots(1, 2)
    assert plot.prediction(one, ax=given[0]) is given[0]
    assert list(plot.prediction(two, ax=given)) == list(given)
    assert plot.convergence(one, ax=given[1]) is given[1]
    assert not figure.legends
    assert pyplot.get_fignums() == [figure.number]
    with pytest.raises(ValueError, match="2 panels, but ax holds 1"):
        plot.prediction(two, ax=given[0])


def test_errors_say_what_to_do(one: EigenGPRegressor, three: EigenGPRegressor) -> None:
    exact = ExactGPRegressor(optimizer=LBFGS(max_iter=0)).fit(X1, y1)
    for picture in (plot.prediction, plot.eigenfunctions):
        with pytest.raises(ValueError, match="one or two inputs, but the model has 3"):
            picture(three)
    with pytest.raises(TypeError, match="ExactGPRegressor has no eigenfunctions"):
        plot.eigenfunctions(exact)
    with pytest.raises(TypeError, match="has no inducing points"):
        plot.inducing_points(exact)
    whole = EigenGPRegressor(residual="exact", optimizer=LBFGS(max_iter=0)).fit(X1, y1)
    with pytest.raises(AttributeError, match="which has no eigenfunctions"):
        plot.eigenfunctions(whole)
    with pytest.raises(ValueError, match="Pairs need two inputs"):
        plot.inducing_points(one)
    with pytest.raises(ValueError, match="kind must be one of"):
        plot.PredictionDisplay.from_estimator(one, X1, y1, kind="actual")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="took no iterations"):
        plot.convergence(exact)


def test_the_style_of_the_user_stays(one: EigenGPRegressor) -> None:
    before = dict(matplotlib.rcParams)
    plot.prediction(one)
    assert dict(matplotlib.rcParams) == before


def test_lines_differ_in_dashes_and_lightness() -> None:
    assert len({str(dashes) for _, dashes in palette.LINES}) == len(palette.LINES)
    image = matplotlib.colormaps[palette.MAP](np.linspace(0, 1, 50))[:, :3]
    assert np.all(np.diff(image @ [0.299, 0.587, 0.114]) > 0)


def test_matplotlib_is_imported_when_something_is_drawn() -> None:
    code = "import sys, eigengp; eigengp.plot.prediction; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_matplotlib_the_error_names_the_extra(
    one: EigenGPRegressor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r'pip install "eigengp\[plot\]"'):
        plot.prediction(one)
