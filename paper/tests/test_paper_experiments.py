"""Every experiment asks for runs that can be carried out, told apart, and shared."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from matplotlib.colors import to_hex

import eigengp
from fake_runs import fake_record
from paper import drawing, published
from paper.experiments import EXPERIMENTS
from paper.experiments.experiment import repeated, searched
from paper.experiments.explanations import FIXED_DRAWS
from paper.methods import METHODS, build
from paper.problems import MORE_ROWS, SECOND, SOURCES, fixed_draw
from paper.runs import Run, with_starts
from paper.scale import FULL, QUICK, Scale

OPTIMIZER = set(eigengp.LBFGS().get_params())
SCALES = {scale.name: scale for scale in (FULL, QUICK)}
EVERY = pytest.mark.parametrize("scale", SCALES.values(), ids=list(SCALES))


def everything(scale: Scale) -> list[Run]:
    return with_starts(run for each in EXPERIMENTS.values() for run in each.runs(scale))


@EVERY
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_runs_of_an_experiment_are_told_apart_by_their_keys(name: str, scale: Scale) -> None:
    runs = EXPERIMENTS[name].runs(scale)
    assert runs
    assert max(Counter(run.key for run in runs).values()) == 1


@EVERY
def test_different_runs_have_different_keys_in_all_experiments_together(scale: Scale) -> None:
    runs = everything(scale)
    assert len({run.key for run in runs}) == len(set(runs)) == len(runs)


def test_full_and_quick_runs_do_not_take_each_others_results() -> None:
    quick_data = replace(FULL, large=QUICK.large)
    kept = {run.key: run for run in everything(QUICK)}
    assert all(
        kept.get(run.key, run) == run for scale in (FULL, quick_data) for run in everything(scale)
    )


@EVERY
def test_every_run_has_a_known_problem_and_method_and_a_size_if_it_needs_one(scale: Scale) -> None:
    for run in everything(scale):
        assert run.data in SOURCES
        assert METHODS[run.method].sized == (run.size is not None)
        options = dict(run.options)
        model = build(run.method, run.size, seed=run.seed, standardize=True, options=options)
        settings = model.get_params()
        for name, value in {**METHODS[run.method].settings, **options}.items():
            of_optimizer = run.method != "RVM" and name in OPTIMIZER
            assert settings[f"optimizer__{name}" if of_optimizer else name] == value


@EVERY
def test_only_nystrom_star_optimizes_the_nystrom_method(scale: Scale) -> None:
    runs = [run for run in everything(scale) if run.method == "Nyström"]
    assert {run.options for run in runs if run.start is None} == {()}
    assert {run.options for run in runs if run.start is not None} == {(("max_iter", 0),)}
    assert build("Nyström", 7, seed=0, standardize=True).optimizer is None
    assert isinstance(build("Nyström*", 7, seed=0, standardize=True).optimizer, eigengp.LBFGS)


@EVERY
def test_runs_begin_from_the_exact_gp_on_the_same_data(scale: Scale) -> None:
    for run in everything(scale):
        if run.start is not None:
            assert (run.start.data, run.start.method) == (run.data, "exact GP")
            assert run.start.start is None
            assert run.before == (run.start,)
            assert run.key.endswith(f" from [{run.start.key.partition(': ')[2]}]")


def test_a_key_tells_all_that_a_result_depends_on() -> None:
    run = Run("friedman1", "FITC", 10, 1, (("max_iter", 5),), 10, Run("friedman1", "exact GP"))
    changed = [
        replace(run, data="friedman2"),
        replace(run, method="SSGP"),
        replace(run, size=20),
        replace(run, seed=2),
        replace(run, options=(("max_iter", 6),)),
        replace(run, share=1),
        replace(run, start=None),
        replace(run, start=Run("friedman1", "exact GP", share=10)),
        replace(run, start=Run("friedman1", "exact GP", options=(("max_iter", 5),))),
        replace(run, start=Run("friedman1", "exact GP", start=Run("friedman1", "exact GP"))),
    ]
    assert len({each.key for each in [run, *changed]}) == 1 + len(changed)
    assert run.label == "FITC, M = 10 on friedman1, 1/10 of the rows, run 2"


def test_table_1_has_every_method_on_two_data_sets_ten_times() -> None:
    runs = EXPERIMENTS["table1"].runs(FULL)
    expected = {
        (method, data, seed)
        for method in METHODS
        for data in ("snelson", "nonstationary")
        for seed in range(10)
    }
    assert {(run.method, run.data, run.seed) for run in runs} == expected
    assert len(runs) == len(expected) == 20 * len(METHODS)
    sizes = {(run.data, run.size) for run in runs if run.size is not None}
    assert sizes == {("snelson", 7), ("nonstationary", 14)}


def test_figure_4_has_the_papers_sizes_on_the_papers_data() -> None:
    runs = EXPERIMENTS["figure4"].runs(FULL)
    sized = [run for run in runs if run.size is not None]
    assert (
        {run.data for run in runs}
        == {"california", "protein", "pole"}
        == set(published.NYSTROM_LARGE)
    )
    sizes = {25, 50, 100, 200, 400}
    for data, method in {(run.data, run.method) for run in sized}:
        assert {run.size for run in sized if (run.data, run.method) == (data, method)} == sizes
    assert {run.size for run in sized} == set(published.NYSTROM_LARGE["pole"])
    assert {run.method for run in sized} == {
        *("EigenGP", "EigenGP*", "EigenGP, guarded", "FITC", "SSGP", "Nyström", "Nyström*")
    }
    for run in sized:
        settings = dict(run.options)
        assert settings["max_iter"] == (0 if run.method == "Nyström" else 100)
        assert (settings.get("strategy") == "direct") == (run.method == "EigenGP*")
    assert {run.start for run in sized} == {
        Run(data, "exact GP", options=(("max_iter", 100),), share=10)
        for data in ("california", "protein", "pole")
    }
    assert {run for run in runs if run.method == "RVM"} == {
        Run(data, "RVM", options=FULL.rvm_large) for data in ("california", "protein", "pole")
    }


@EVERY
def test_the_longest_runs_of_figure_4_begin_first(scale: Scale) -> None:
    runs = with_starts(EXPERIMENTS["figure4"].runs(scale))
    depths = [len(run.before) for run in runs]
    sizes = [run.size for run in runs if run.size is not None]
    assert depths == sorted(depths)
    assert sizes == sorted(sizes, reverse=True)


@EVERY
def test_the_rvm_tries_widths_on_every_draw_of_data_set_2(scale: Scale) -> None:
    runs = [run for run in EXPERIMENTS["rvm"].runs(scale) if run.method == "RVM"]
    tried = {run for run in runs if run.options != scale.rvm}
    widths = {run.options for run in tried}
    assert len(widths) == 8
    places = {(data, seed) for data in (SECOND, MORE_ROWS) for seed in range(scale.n_runs)}
    places |= {(fixed_draw(number), 0) for number in FIXED_DRAWS}
    assert tried == {
        Run(data, "RVM", None, seed, width) for data, seed in places for width in widths
    }


@EVERY
def test_runs_that_several_experiments_need_are_the_same(scale: Scale) -> None:
    runs = {name: set(with_starts(each.runs(scale))) for name, each in EXPERIMENTS.items()}
    figure_2 = {run for run in runs["figure2"] if run.size == 7}
    assert len(figure_2) == 6
    assert figure_2 < runs["table1"]
    assert runs["figure3"] < runs["table1"]
    assert searched(scale, "snelson", "exact GP", None) in (
        runs["figure1"] & runs["figure2"] & runs["table1"]
    )
    rvm = {run for run in runs["rvm"] & runs["table1"] if run.method == "RVM"}
    assert len(rvm) == 2 * scale.n_runs


def test_searched_runs_drop_the_size_of_methods_without_one() -> None:
    assert searched(QUICK, "friedman1", "RVM", 7).size is None
    assert searched(QUICK, "friedman1", "RVM", 7).options == QUICK.rvm
    assert searched(QUICK, "friedman1", "exact GP", 7).options == ()
    assert searched(QUICK, "friedman1", "FITC", 7, 3) == Run(
        "friedman1", "FITC", 7, 3, QUICK.searched
    )
    assert [run.seed for run in repeated(QUICK, "friedman1", "FITC", 7)] == [0, 1]


def test_every_method_of_the_paper_is_here() -> None:
    assert set(published.TABLE_1) <= set(METHODS)
    assert set(published.RVM_COMPARISON) <= set(METHODS)
    assert set(published.WIDTHS) <= set(METHODS)
    assert {name for name, method in METHODS.items() if name != method.name} == set()


def test_methods_are_told_apart_by_colour_and_marker() -> None:
    looks = [(method.color, method.marker) for method in METHODS.values()]
    assert len(set(looks)) == len(METHODS)


@pytest.mark.parametrize("name", METHODS)
def test_a_prediction_has_the_colour_of_its_method(name: str) -> None:
    curves = {"mean": [0.0, 1.0, 0.0], "std": [0.1, 0.2, 0.1]}
    record = fake_record(Run("snelson", name), curves=curves)
    _, (axes,) = drawing.new_figure(1, 1)
    drawing.draw_prediction(axes, [0.0, 1.0, 2.0], record)
    assert to_hex(axes.lines[0].get_color()) == METHODS[name].color.lower()
    assert to_hex(axes.collections[0].get_facecolor()[0]) == METHODS[name].color.lower()
    assert axes.lines[0].get_ydata().tolist() == curves["mean"]
    band = axes.collections[0].get_datalim(axes.transData)
    assert (band.ymin, band.ymax) == pytest.approx((-0.2, 1.4))


def test_basis_points_are_crosses_where_they_are() -> None:
    _, (axes,) = drawing.new_figure(1, 1)
    axes.set_xlim(0.0, 3.0)
    run = Run("snelson", "EigenGP", 2)
    drawing.draw_inducing_points(axes, fake_record(run))
    assert not axes.lines
    drawing.draw_inducing_points(
        axes, fake_record(run, hyperparameters={"inducing_points": [[0.5], [3.0]]})
    )
    (points,) = axes.lines
    assert (points.get_marker(), points.get_xdata().tolist()) == ("x", [0.5, 3.0])


@pytest.mark.parametrize(
    ("points", "edges"),
    [
        ([0.0, 0.5, 1.0], []),
        ([-2.0, -0.1, 0.5], [("left", "◂ 2")]),
        ([1.1], [("right", "1 ▸")]),
        ([-1.0, 0.5, 3.0, 4.0, 5.0], [("left", "◂ 1"), ("right", "3 ▸")]),
    ],
)
def test_basis_points_beyond_the_panel_are_counted_at_its_edges(
    points: list[float], edges: list[tuple[str, str]]
) -> None:
    _, (axes,) = drawing.new_figure(1, 1)
    axes.set_xlim(0.0, 1.0)
    inputs = {"inducing_points": [[point] for point in points]}
    drawing.draw_inducing_points(
        axes, fake_record(Run("snelson", "EigenGP", 2), hyperparameters=inputs)
    )
    assert [(text.get_ha(), text.get_text()) for text in axes.texts] == edges
    crosses = [x for line in axes.lines for x in line.get_xdata()]
    assert crosses == [point for point in points if 0.0 <= point <= 1.0]
    assert axes.get_xlim() == (0.0, 1.0)


def test_the_legend_of_a_prediction_belongs_to_no_method() -> None:
    figure, (axes,) = drawing.new_figure(1, 1)
    record = fake_record(Run("snelson", "FITC"), curves={"mean": [0.0] * 3, "std": [0.1] * 3})
    drawing.draw_prediction(axes, [0.0, 1.0, 2.0], record)
    drawing.prediction_legend(figure, axes, 2)
    band, mean = figure.legends[0].legend_handles
    greys = to_hex("0.85"), to_hex("0.4")
    assert (to_hex(band.get_facecolor()), to_hex(mean.get_color())) == greys
    assert to_hex(axes.lines[0].get_color()) == METHODS["FITC"].color.lower()


def test_the_peak_of_every_eigenfunction_is_one_whatever_its_sign_and_size() -> None:
    _, (axes,) = drawing.new_figure(1, 1)
    functions = [[0.25, -0.5, 0.125], [10.0, 80.0, -20.0]]
    record = fake_record(Run("snelson", "EigenGP", 2), curves={"eigenfunctions": functions})
    drawing.draw_eigenfunctions(axes, [0.0, 1.0, 2.0], record)
    drawn = [line.get_ydata().tolist() for line in axes.lines[:2]]
    assert drawn == [[-0.5, 1.0, -0.25], [0.125, 1.0, -0.25]]
