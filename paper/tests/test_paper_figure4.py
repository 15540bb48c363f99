"""The rules of Figure 4 flip with the numbers, and its panels are drawn as they should be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex

from fake_runs import claim, fake_section, row
from paper import drawing, published
from paper.methods import METHODS
from paper.runs import Run
from paper.scale import FULL, QUICK, Scale
from paper.section import Section

TWO = replace(FULL, large=("california", "pole"))
Changes = dict[Any, dict[str, Any]]


def figure4(folder: Path, changes: Changes, scale: Any = TWO) -> Section:
    """Return Figure 4 by data, method and size; unless changed, every claim of the paper holds."""
    usual: Changes = {
        "EigenGP": {"nmse": 10.0, "seconds": 0.1},
        "EigenGP*": {"nmse": 10.5, "seconds": 0.2},
        "EigenGP, guarded": {"nmse": 10.0, "seconds": 0.1},
        "FITC": {"nmse": 12.0, "seconds": 0.2},
        "SSGP": {"nmse": 15.0, "seconds": 0.2},
        "Nyström": {"nmse": 4000.0, "seconds": 0.1},
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


def nystrom_better(n_cases: int) -> Changes:
    """Let the Nyström method be better with k-means in so many cases."""
    return {("pole", "Nyström", size): {"nmse": 1.0} for size in FULL.sizes[:n_cases]}


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
        ("but takes longer", {("pole", "EigenGP*", 400): {"nmse": 0.0224}}, "partly"),
        ("but takes longer", {("pole", "EigenGP*", 400): {"seconds": 39.0}}, "partly"),
        ("but takes longer", everywhere("EigenGP*", 400, nmse=0.1, seconds=1.0), "fails"),
        ("but takes longer", everywhere("EigenGP*", 200, nmse=0.1, seconds=1.0), "holds"),
        ("orders of magnitude worse", {}, "holds"),
        ("orders of magnitude worse", {("pole", "Nyström*", 50): {"nmse": 31.0}}, "holds"),
        ("orders of magnitude worse", {("pole", "Nyström*", 50): {"nmse": 29.0}}, "partly"),
        ("orders of magnitude worse", {("pole", "Nyström*", 50): {"nmse": 2.9}}, "fails"),
        ("orders of magnitude worse", {("pole", "EigenGP*", 50): {"nmse": 1.0}}, "partly"),
        ("orders of magnitude worse", {("pole", "EigenGP*", 50): {"nmse": 5.0}}, "fails"),
        ("better than basis points by k-means", {}, "holds"),
        (
            "better than basis points by k-means",
            {("pole", "Nyström", 50): {"nmse": 39.0}},
            "partly",
        ),
        ("better than basis points by k-means", nystrom_better(4), "partly"),
        ("better than basis points by k-means", nystrom_better(5), "fails"),
    ],
)
def test_the_claims_of_figure_4_flip_with_the_numbers(
    part: str, changes: Changes, mark: str, tmp_path: Path
) -> None:
    assert claim(figure4(tmp_path, changes), part).mark == mark


def test_figure_4_tells_who_was_best_and_when_it_was_passed(tmp_path: Path) -> None:
    changes = {("pole", "EigenGP", 200): {"nmse": 0.029, "seconds": 7.77}}
    told = claim(figure4(tmp_path, changes), "using shorter time").evidence
    assert "California Housing: EigenGP 0.025, the best other method (FITC) 0.030 in 80 s, " in told
    assert "which EigenGP reaches in 7.8 s. Lowest MNLP: " in told
    changes = everywhere("FITC", 400, nmse=0.001)
    assert "reaches" not in claim(figure4(tmp_path, changes), "using shorter time").evidence


def test_figure_4_tells_who_is_best_by_density(tmp_path: Path) -> None:
    changes = {
        ("california", "SSGP", 100): {"mnlp": 0.1},
        ("pole", "EigenGP*", 25): {"mnlp": -1.0},
        ("pole", "EigenGP, guarded", 25): {"mnlp": -9.0},
    }
    told = claim(figure4(tmp_path, changes), "using shorter time").evidence
    assert told.endswith(
        "Lowest MNLP: SSGP on California Housing (0.100), EigenGP* on Pole Telecomm (−1.00)."
    )


def test_figure_4_counts_where_the_evidence_helps_nystrom(tmp_path: Path) -> None:
    found = claim(figure4(tmp_path, nystrom_better(3)), "better than basis points by k-means")
    assert found.evidence == "It has the lower NMSE in 7 of 10 cases."


def test_figure_4_puts_the_papers_numbers_beside_ours(tmp_path: Path) -> None:
    section = figure4(tmp_path, {})
    california, pole, nystrom = section.tables
    assert row(pole, "FITC")[-1].paper == published.FITC_POLE_400
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


@pytest.mark.parametrize(
    ("mnlp", "mark"), [(1.29, "better"), (1.296, "same"), (1.304, "same"), (1.306, "worse")]
)
def test_the_rvm_of_figure_4_is_judged_by_what_rounding_leaves(
    mnlp: float, mark: str, tmp_path: Path
) -> None:
    california = figure4(tmp_path, {("california", "RVM", None): {"mnlp": mnlp}}).tables[0]
    assert row(california, "RVM (M = 3 found)")[0].mark == mark


def test_nystrom_on_large_data_is_judged_by_its_error(tmp_path: Path) -> None:
    table = figure4(tmp_path, {("pole", "Nyström*", 400): {"nmse": 85.0}}).tables[-1]
    assert [cell.mark for cell in row(table, "Pole Telecomm")] == ["better"] * 4 + ["worse"]
    quick = figure4(tmp_path, {}, replace(QUICK, large=("friedman1",))).tables[-1]
    assert {(cell.paper, cell.mark) for cell in row(quick, "Friedman 1")} == {("", "none")}


@pytest.mark.parametrize(
    ("scale", "differences", "remarks"),
    [
        (FULL, 2, 1),
        (TWO, 2, 2),
        (replace(FULL, large=("california",)), 1, 2),
        (replace(TWO, sizes=(25, 50)), 1, 2),
        (QUICK, 0, 2),
    ],
)
def test_figure_4_explains_what_stands_beside_the_papers(
    scale: Scale, differences: int, remarks: int, tmp_path: Path
) -> None:
    section = figure4(tmp_path, {}, scale)
    assert len(section.differences) == differences
    told = "FITC on Pole Telecomm with M = 400 has 0.030 / 0.200 in 80 s against the paper's 0.033"
    assert any(each.startswith(told) for each in section.differences) == (differences == 2)
    assert len(section.remarks) == remarks
    assert ("The paper's data are California Housing" in section.remarks[-1]) == (remarks == 2)


def test_figure_4_says_where_the_rvm_has_not_converged(tmp_path: Path) -> None:
    warned = {"warnings": ["The relevance vector machine has not converged in 300 iterations"]}
    changes = {("pole", "RVM", None): warned, ("california", "FITC", 25): warned}
    remark = figure4(tmp_path, changes).remarks[1]
    limit = dict(FULL.rvm_large)["max_iter"]
    assert f"not converged on Pole Telecomm after {limit} iterations." in remark
    both = figure4(tmp_path, {(data, "RVM", None): warned for data in TWO.large}).remarks[1]
    assert " on California Housing and Pole Telecomm after " in both


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
