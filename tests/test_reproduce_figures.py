"""The numbers decide what the page says of the figures: its words flip with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex

from eigengp.reproduce import drawing, paper
from eigengp.reproduce.methods import METHODS
from eigengp.reproduce.problems import problem
from eigengp.reproduce.runs import Run
from eigengp.reproduce.scale import FULL, QUICK
from eigengp.reproduce.section import Section
from fake_runs import claim, fake_curve, fake_section, row

TWO = replace(FULL, large=("california", "pole"))
Changes = dict[Any, dict[str, Any]]


def figure1(folder: Path, fixed: dict[str, Any], learned: dict[str, Any]) -> Section:
    """Return Figure 1 from the fit with k-means and from the learned one."""

    def numbers(run: Run) -> dict[str, Any]:
        given = dict(learned if run.start is None else fixed)
        points, gap = given.pop("points", [0, 1, 2, 3, 4]), given.pop("gap", 0.01)
        width = given.pop("width", 10)
        functions = (np.arange(241) < width).astype(float)[None].repeat(5, axis=0).tolist()
        kernel = {"inducing_inputs": [[point] for point in points]}
        curves = fake_curve(run, gap, eigenfunctions=functions)
        return given | curves | {"hyperparameters": kernel}

    return fake_section(folder, QUICK, numbers, "figure1")


def inside(low: float, high: float, gap: float) -> Callable[[Any], Any]:
    """Return a gap that is there on a part of the range only."""
    return lambda x: np.where((low < x) & (x < high), gap, 0.01)


@pytest.mark.parametrize(
    ("learned", "mark"),
    [
        ({"nmse": 0.049, "gap": 0.1}, "holds"),
        ({"nmse": 0.051, "gap": 0.1}, "partly"),
        ({"nmse": 0.049, "gap": inside(3, 5, 0.6)}, "partly"),
        ({"nmse": 0.049, "gap": inside(5, 7, 0.6)}, "holds"),
        ({"nmse": 0.51, "gap": 0.1}, "fails"),
    ],
)
def test_figure_1_asks_for_a_tenth_of_the_error_and_half_the_gap(
    learned: dict[str, Any], mark: str, tmp_path: Path
) -> None:
    section = figure1(tmp_path, {"nmse": 0.5, "gap": 1.0}, learned)
    assert claim(section, "comes very close to the full GP").mark == mark


@pytest.mark.parametrize(
    ("learned", "mark"),
    [
        ({"points": [0, 3, 3.5, 4, 6], "width": 50}, "holds"),
        ({"points": [0, 3, 3.5, 4, 6], "width": 150}, "partly"),
        ({"points": [0, 1, 2, 3, 4.2], "width": 50}, "partly"),
        ({"points": [0, 1, 2, 3, 4], "width": 150}, "fails"),
    ],
)
def test_figure_1_asks_for_uneven_points_and_narrow_functions(
    learned: dict[str, Any], mark: str, tmp_path: Path
) -> None:
    section = figure1(tmp_path, {"points": [0, 1, 2, 3, 4.4], "width": 100}, learned)
    found = claim(section, "more localised")
    assert found.mark == mark
    assert f"41% and {learned['width'] / 241:.0%}" in found.evidence


def figure2(folder: Path, changes: Changes) -> Section:
    """Return Figure 2 by method and size; unless changed, every claim of the paper holds."""
    usual: Changes = {
        "Nyström": {"nmse": 5.0},
        "Nyström*": {"nmse": 5.0},
        "SSGP": {"gap": lambda x: 5 * np.sin(3 * x)},
        "FITC": {"nmse": 0.02, "gap": 0.5},
        "EigenGP": {"nmse": 0.01, "gap": 0.1, "std": 0.2},
        "EigenGP+": {"nmse": 0.02, "std": 0.9},
        "exact GP": {"std": 1.0},
    }

    def numbers(run: Run) -> dict[str, Any]:
        given = usual[run.method] | changes.get((run.method, run.size), {})
        curves = fake_curve(run, given.pop("gap", 0.01), given.pop("std", 1.0))
        return given | curves

    return fake_section(folder, QUICK, numbers, "figure2")


@pytest.mark.parametrize(
    ("part", "changes", "mark"),
    [
        ("several orders of magnitude", {}, "holds"),
        ("several orders of magnitude", {("Nyström", 7): {"nmse": 0.9}}, "partly"),
        ("several orders of magnitude", {("Nyström", 7): {"nmse": 0.009}}, "fails"),
        ("oscillates outside", {}, "holds"),
        ("oscillates outside", {("SSGP", 7): {"gap": 0.1}}, "fails"),
        ("oscillates outside", {("SSGP", 7): {"gap": lambda x: -0.03 * x}}, "partly"),
        ("turns of the data", {}, "holds"),
        ("turns of the data", {("FITC", 7): {"gap": inside(3.5, 4.5, 0.19)}}, "partly"),
        ("turns of the data", {("FITC", 7): {"gap": inside(5, 7, 9.0)}}, "fails"),
        ("far from the data", {}, "holds"),
        ("far from the data", {("EigenGP+", 7): {"std": 9.0}}, "partly"),
        ("far from the data", {("EigenGP+", 7): {"nmse": 0.001}}, "partly"),
        ("far from the data", {("EigenGP+", 7): {"std": 0.1, "nmse": 0.001}}, "fails"),
        ("With M = 10", {}, "holds"),
        ("With M = 10", {("Nyström*", 10): {"nmse": 0.1}}, "partly"),
        ("With M = 10", {("EigenGP+", 10): {"nmse": 0.06}}, "fails"),
    ],
)
def test_the_claims_of_figure_2_flip_with_the_numbers(
    part: str, changes: Changes, mark: str, tmp_path: Path
) -> None:
    assert claim(figure2(tmp_path, changes), part).mark == mark


def test_the_table_of_figure_2_has_both_sizes(tmp_path: Path) -> None:
    changes = {
        ("FITC", 7): {"nmse": 0.31, "mnlp": 0.32},
        ("FITC", 10): {"nmse": 0.33, "mnlp": 0.34},
    }
    (table,) = figure2(tmp_path, changes).tables
    assert [cell.ours for cell in row(table, "FITC")] == ["0.310", "0.320", "0.330", "0.340"]
    assert list(table.head[1:]) == ["NMSE, M = 7", "MNLP, M = 7", "NMSE, M = 10", "MNLP, M = 10"]


def figure3(folder: Path, changes: Changes) -> Section:
    """Return Figure 3 by method; unless changed, every claim of the paper holds."""
    truth = problem(QUICK.second, 0)
    usual: Changes = {
        "SSGP": {"gap": 0.2, "lengthscale": 0.3},
        "FITC": {"gap": lambda x: -0.5 * truth.y_test, "lengthscale": 0.31},
        "EigenGP": {"gap": 0.1, "lengthscale": 0.2},
    }

    def numbers(run: Run) -> dict[str, Any]:
        given = usual[run.method] | changes.get(run.method, {})
        lengthscale = given["lengthscale"] * (1.1 if run.seed else 0.9)
        return {"hyperparameters": {"lengthscale": [lengthscale]}} | fake_curve(run, given["gap"])

    return fake_section(folder, QUICK, numbers, "figure3")


@pytest.mark.parametrize(
    ("part", "changes", "mark"),
    [
        ("wavy patterns", {}, "holds"),
        ("wavy patterns", {"SSGP": {"gap": 0.14}}, "partly"),
        ("wavy patterns", {"SSGP": {"gap": inside(1.5, 3.1, 9.0)}}, "fails"),
        ("smaller amplitude", {}, "holds"),
        ("smaller amplitude", {"FITC": {"gap": 0.5}}, "partly"),
        ("smaller amplitude", {"FITC": {"gap": inside(0.0, 1.5, 9.0)}}, "fails"),
        ("too large a kernel width", {}, "holds"),
        ("too large a kernel width", {"FITC": {"lengthscale": 0.29}}, "partly"),
        ("too large a kernel width", {"FITC": {"lengthscale": 0.21}}, "fails"),
    ],
)
def test_the_claims_of_figure_3_flip_with_the_numbers(
    part: str, changes: Changes, mark: str, tmp_path: Path
) -> None:
    assert claim(figure3(tmp_path, changes | {}), part).mark == mark


def test_the_table_of_figure_3_has_the_widths_of_both(tmp_path: Path) -> None:
    (table,) = figure3(tmp_path, {"EigenGP": {"lengthscale": 0.2}}).tables
    eta = np.mean([0.5 / 0.18**2, 0.5 / 0.22**2])
    length, width, reported = row(table, "EigenGP")
    assert length.ours == "0.200 ± 0.020"
    assert width.ours.startswith(f"{eta:.1f} ± ")
    assert (reported.ours, row(table, "FITC")[2].ours) == ("0.07", "207.75")


def figure4(folder: Path, changes: Changes, scale: Any = TWO) -> Section:
    """Return Figure 4 by data, method and size; unless changed, every claim of the paper holds."""
    usual: Changes = {
        "EigenGP": {"nmse": 10.0, "seconds": 0.1},
        "EigenGP*": {"nmse": 10.5, "seconds": 0.2},
        "EigenGP, guarded": {"nmse": 10.0, "seconds": 0.1},
        "FITC": {"nmse": 12.0, "seconds": 0.2},
        "SSGP": {"nmse": 15.0, "seconds": 0.2},
        "Nyström*": {"nmse": 2000.0, "seconds": 0.1},
    }

    def numbers(run: Run) -> dict[str, Any]:
        if run.size is None:
            found = {"nmse": 0.2, "mnlp": 1.5, "seconds": 12.0}
        else:
            own = usual[run.method]
            found = {"nmse": own["nmse"] / run.size, "seconds": own["seconds"] * run.size}
        return found | changes.get((run.data, run.method, run.size), {})

    return fake_section(folder, scale, numbers, "figure4")


def everywhere(method: str, size: int | None, **numbers: float) -> Changes:
    return {(data, method, size): numbers for data in TWO.large}


@pytest.mark.parametrize(
    ("part", "changes", "mark"),
    [
        ("using shorter time", {}, "holds"),
        ("using shorter time", {("pole", "FITC", 400): {"nmse": 0.0249}}, "partly"),
        ("using shorter time", {("pole", "RVM", None): {"nmse": 0.0249}}, "partly"),
        ("using shorter time", everywhere("FITC", 400, nmse=0.0249), "fails"),
        ("using shorter time", {("pole", "EigenGP", 400): {"seconds": 81.0}}, "partly"),
        ("using shorter time", everywhere("EigenGP", 400, seconds=81.0), "fails"),
        (
            "using shorter time",
            everywhere("EigenGP", 400, seconds=81.0) | everywhere("EigenGP", 200, nmse=0.029),
            "holds",
        ),
        ("but takes longer", {}, "holds"),
        ("but takes longer", {("pole", "EigenGP*", 400): {"nmse": 0.0276}}, "partly"),
        ("but takes longer", everywhere("EigenGP*", 400, nmse=0.1, seconds=1.0), "fails"),
        ("but takes longer", everywhere("EigenGP*", 200, nmse=0.1, seconds=1.0), "holds"),
        ("orders of magnitude worse", {}, "holds"),
        ("orders of magnitude worse", {("pole", "Nyström*", 50): {"nmse": 0.3}}, "partly"),
        ("orders of magnitude worse", {("pole", "Nyström*", 50): {"nmse": 0.1}}, "fails"),
    ],
)
def test_the_claims_of_figure_4_flip_with_the_numbers(
    part: str, changes: Changes, mark: str, tmp_path: Path
) -> None:
    assert claim(figure4(tmp_path, changes), part).mark == mark


def test_figure_4_tells_who_was_best_and_when_it_was_passed(tmp_path: Path) -> None:
    changes = {("pole", "EigenGP", 200): {"nmse": 0.029, "seconds": 7.77}}
    told = claim(figure4(tmp_path, changes), "using shorter time").evidence
    assert "California Housing: EigenGP 0.025, the best rival (FITC) 0.030 in 80 s, " in told
    assert told.endswith("an error that EigenGP passes in 7.8 s.")


def test_figure_4_puts_the_papers_numbers_beside_ours(tmp_path: Path) -> None:
    section = figure4(tmp_path, {})
    california, pole, nystrom = section.tables
    assert row(pole, "FITC")[-1].paper == paper.FITC_POLE_400
    assert not any(cell.paper for cell in row(california, "FITC"))
    assert row(california, "RVM (M = 3 found)")[0].paper == "MNLP 1.30"
    assert row(california, "RVM (M = 3 found)")[0].ours == "0.200 / 1.50 (12 s)"
    assert [cell.paper for cell in row(nystrom, "Pole Telecomm")] == [
        "23000 (179 s)",
        "5800 (205 s)",
        "3800 (267 s)",
        "450 (478 s)",
        "84.0 (959 s)",
    ]
    assert row(nystrom, "Pole Telecomm")[0].ours == "80.0 (2.5 s)"


def test_figure_4_says_that_data_are_missing(tmp_path: Path) -> None:
    assert len(figure4(tmp_path / "all", {}, FULL).notes) == 1
    assert "Only data that are here" in figure4(tmp_path / "two", {}).notes[-1]


@pytest.mark.parametrize("columns", [2, 1])
def test_curves_of_figure_4_have_the_colours_of_their_methods(columns: int, tmp_path: Path) -> None:
    (picture,) = figure4(tmp_path, {}).pictures
    assert picture.columns == len(TWO.large)
    with drawing.style():
        figure = picture.draw(columns)
    assert len(figure.axes) == 4
    for axes in figure.axes:
        lines = {line.get_label(): line for line in axes.lines}
        assert {"EigenGP", "EigenGP*", "FITC", "SSGP", "RVM"} <= set(lines)
        for name in set(lines) & set(METHODS):
            assert to_hex(lines[name].get_color()) == METHODS[name].color.lower()
    titles = [(axes.get_title(loc="left"), axes.get_ylabel()[-4:]) for axes in figure.axes]
    first, second = "California Housing", "Pole Telecomm"
    wide = [(first, "NMSE"), (second, "NMSE"), (first, "MNLP"), (second, "MNLP")]
    narrow = [(first, "NMSE"), (first, "MNLP"), (second, "NMSE"), (second, "MNLP")]
    assert titles == (wide if columns == 2 else narrow)
    seconds = figure.axes[0].lines[0].get_xdata()
    np.testing.assert_allclose(seconds, [2.5, 5, 10, 20, 40])
