"""Numbers are spoken as people write them, and compared with the paper's by one rule."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from fake_runs import fake_record, stored
from paper import published
from paper.published import Reported
from paper.runs import Run
from paper.scale import QUICK
from paper.section import Cell, Results, Sample, spoken, verdict


def sample(*values: float) -> Sample:
    return Sample(np.array(values))


def test_a_sample_has_mean_median_and_standard_error_of_the_mean() -> None:
    numbers = sample(1.0, 2.0, 6.0)
    assert numbers.mean == pytest.approx(3.0)
    assert numbers.median == 2.0
    assert numbers.error == pytest.approx(math.sqrt(7.0 / 3.0))
    assert str(numbers) == "3.00 ± 1.53"


def test_a_single_run_has_no_standard_error() -> None:
    assert sample(0.25).error is None
    assert str(sample(0.25)) == "0.250"


@pytest.mark.parametrize(
    ("ours", "mark"),
    [
        (0.0399, "better"),
        (0.0401, "same"),
        (0.06, "same"),
        (0.0799, "same"),
        (0.0801, "worse"),
    ],
)
def test_the_same_is_within_two_standard_errors_of_the_paper(ours: float, mark: str) -> None:
    assert sample(ours).compared(Reported.of("0.06 ± 0.01")) == mark


@pytest.mark.parametrize(("shift", "mark"), [(-1.01, "better"), (-0.99, "same"), (1.01, "worse")])
def test_the_margin_is_of_both_errors_together(shift: float, mark: str) -> None:
    spread = np.array([-0.04, 0.04])  # a standard error of 0.04, so 0.05 with the paper's 0.03
    ours = Sample(0.5 + shift * 0.1 + spread)
    assert ours.error == pytest.approx(0.04)
    assert ours.compared(Reported.of("0.50 ± 0.03")) == mark


def test_what_rounding_hides_is_no_difference() -> None:
    reported = Reported.of("−0.33 ± 0.00")
    assert sample(-0.3251).compared(reported) == "same"
    assert sample(-0.3249).compared(reported) == "worse"
    assert sample(-0.3349).compared(reported) == "same"
    assert sample(-0.3351).compared(reported) == "better"


@pytest.mark.parametrize(("shift", "mark"), [(0.079, "same"), (0.081, "worse"), (-0.081, "better")])
def test_rounding_is_not_added_to_the_errors(shift: float, mark: str) -> None:
    ours = Sample(0.5 + shift + np.array([-0.04, 0.04]))
    assert ours.compared(Reported.of("0.5")) == mark


def test_rounding_counts_where_it_is_larger_than_the_errors() -> None:
    ours = Sample(0.549 + np.array([-0.001, 0.001]))
    assert ours.compared(Reported.of("0.5 ± 0.01")) == "same"
    assert ours.compared(Reported.of("0.50 ± 0.01")) == "worse"


def test_a_cell_stands_beside_the_papers_number() -> None:
    reported = Reported.of("0.22 ± 0.05")
    cell = sample(0.4, 0.4).against(reported)
    assert cell == Cell("0.400 ± 0.000", "0.22 ± 0.05", "worse")
    assert cell.unjudged == Cell("0.400 ± 0.000", "0.22 ± 0.05", "none")
    assert sample(0.4, 0.4).against(None) == Cell("0.400 ± 0.000", "", "none")


@pytest.mark.parametrize(
    ("text", "mean", "error", "rounding"),
    [
        ("39 ± 18", 39.0, 18.0, 0.5),
        ("0.048", 0.048, 0.0, 0.0005),
        ("−0.081 ± 0.004", -0.081, 0.004, 0.0005),
        ("0.89 ± 0.1042", 0.89, 0.1042, 0.005),
        ("−0.33 ± 0.00", -0.33, 0.0, 0.005),
        ("1.4 ± 0.05", 1.4, 0.05, 0.05),
        ("40 ± 0", 40.0, 0.0, 0.5),
    ],
)
def test_the_papers_numbers_are_read_as_printed(
    text: str, mean: float, error: float, rounding: float
) -> None:
    assert Reported.of(text) == Reported(text, mean, error, pytest.approx(rounding))


def test_the_papers_table_is_as_printed() -> None:
    assert published.TABLE_1["EigenGP"][2, "nmse"].text == "0.06 ± 0.02"
    assert published.TABLE_1["FITC"][1, "mnlp"].mean == -0.07
    assert published.TABLE_1["SSGP"][2, "mnlp"].mean == 0.87
    assert published.TABLE_1["Nyström"][1, "mnlp"].mean == 645
    assert published.NYSTROM_LARGE["pole"][400] == (959, 84)


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (0.0, None, "0"),
        (0.0, 0.0, "0"),
        (0.0, 0.00012, "0.0000 ± 0.0001"),
        (0.004281, 0.000061, "0.0043 ± 0.0001"),
        (0.0199, None, "0.0199"),
        (0.02, None, "0.020"),
        (-0.3424, 0.0012, "−0.342 ± 0.001"),
        (3.14159, None, "3.14"),
        (-42.42, None, "−42.4"),
        (1241.3, 103.2, "1241 ± 103"),
        (99_999.0, None, "99999"),
        (170_000.0, 12.0, "1.7·10⁵"),
        (-170_000.0, None, "−1.7·10⁵"),
        (3.2e12, None, "3.2·10¹²"),
        (2.04e-13, None, "2.0e−13"),
        (math.inf, None, "∞"),
        (-math.inf, math.nan, "−∞"),
        (math.nan, None, "nan"),
    ],
)
def test_numbers_are_spoken_as_people_write_them(
    value: float, error: float | None, text: str
) -> None:
    assert spoken(value, error) == text


def test_a_verdict_is_holds_or_partly_or_fails() -> None:
    assert verdict(True, True) == verdict(True, False) == "holds"
    assert verdict(False, True) == "partly"
    assert verdict(False, False) == "fails"


def test_results_are_read_from_the_store_and_a_run_that_is_not_there_is_named(
    tmp_path: Path,
) -> None:
    runs = [Run("friedman1", "FITC", 10, seed) for seed in range(3)]
    records = [fake_record(run, mnlp=0.5 * run.seed) for run in runs[:2]]
    results = Results(stored(tmp_path / "runs.jsonl", records), QUICK)
    assert results[runs[1]] == records[1]
    assert results.values(runs[:2], "mnlp").values.tolist() == [0.0, 0.5]
    with pytest.raises(KeyError, match="FITC, M = 10 on friedman1, run 3 has not been run"):
        results[runs[2]]
