"""Precision and memory of the passes over the rows, which do not change the model."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from eigengp.gp.sums import Sums, SumsAdjoint

KEPT_BYTES = 1 << 26  # How much memory features may take between the two passes, unless told.

_EPSILON = 6e-8  # The rounding of float32.
_HALF_EPSILON = 2.5e-4  # That of float16.
_VISIBLE = 1e-5  # A variance that shows, in units of the noise.
_VISIBLE_IN_GRADIENT = 1e-4  # An error that shows in the gradient of one row's evidence.
_INVISIBLE_IN_GRADIENT = 1e-5  # One that does not where there are others.

PRECISIONS = ("auto", "double", "mixed", "single")


@dataclass(frozen=True)
class Arithmetic:
    """Precision of the passes over the rows, and memory between them.

    Sums over blocks, and all that is M × M, are in float64 whatever the
    precision. Unless that is double, predictions are in float32 where that
    is accurate enough.

    Parameters
    ----------
    precision : {"auto", "double", "mixed", "single"}
        "double" is float64 throughout; "mixed" makes the sums in float64, and
        the products of the gradient and of predicted variances in float32
        where that is accurate enough; "single" makes the sums in
        float32 too, where that is accurate enough, and so does "auto", which predicts in float64.
        Rows that enter whitened or with a residual are always in float64.
    memory_limit : int
        How many bytes of features may be kept from one pass to the next;
        those beyond it are computed again.
    """

    precision: str = "double"
    memory_limit: int = KEPT_BYTES

    @property
    def guarded(self) -> Arithmetic:
        """The same with sums in float64."""
        return self if self.precision == "double" else replace(self, precision="mixed")

    @property
    def of_sums(self) -> str:
        """The data type of pass 1, whose sums are checked."""
        return "float32" if self.precision in ("auto", "single") else "float64"

    def prediction_for(self, amplified: float) -> str:
        """Return the data type of predictions.

        Parameters
        ----------
        amplified : float
            The variance that rounding adds, in units of the noise, for
            features of relative error one.
        """
        harmless = amplified * _EPSILON**2 < _VISIBLE
        exact = self.precision in ("auto", "double")
        return "float64" if exact or not harmless else "float32"


def choose_pull_back(bar: SumsAdjoint, sums: Sums, variance: float) -> tuple[str, int]:
    """Return the data type of pass 2, unless all is in float64, and the pieces of a fused one.

    These are how many float16 make up a feature where it meets cotangents. There is no fused pass,
    which has float32 for residuals, where their rounding would show.
    """
    if measure_rounding(bar, sums) * _EPSILON >= _VISIBLE_IN_GRADIENT:
        return "float64", 0
    if measure_residual_scatter(bar, sums) * _EPSILON >= _VISIBLE_IN_GRADIENT:
        return "float32", 0
    scatter = measure_scatter(bar, sums, variance)
    return "float32", 1 if scatter * _HALF_EPSILON < _INVISIBLE_IN_GRADIENT else 2


def measure_rounding(bar: SumsAdjoint, sums: Sums) -> float:
    """Return how much the rounding of these cotangents shows in the gradient of a row.

    An entry rounds the same way for all rows, and meets `Σ_n k_nm k_nm'`;
    entries of a column round independently.
    """
    met = bar.about_mean * sums.A
    return float(np.sqrt(np.max(np.einsum("ij,ij->j", met, met)))) / max(sums.n, 1.0)


def measure_residual_scatter(bar: SumsAdjoint, sums: Sums) -> float:
    """Return how much the rounding of features in `y − Km` shows in the same.

    It is independent from row to row.
    """
    squares = np.diagonal(sums.A) / max(sums.n, 1.0)
    in_residual = np.sqrt(np.sum(bar.centre**2 * squares))
    return float(in_residual * np.max(np.abs(bar.b) * np.sqrt(squares)) / np.sqrt(sums.n))


def measure_scatter(bar: SumsAdjoint, sums: Sums, variance: float) -> float:
    """Return how much the rounding of features, where they meet these, shows in the same.

    It is independent from row to row, and for rows without weights
    `Σ_n k_nm² k_nm'²` is at most `Σ_n k_nm k_nm'` times the largest
    feature, about the prior variance, squared.
    """
    square = np.einsum("ij,ij,ij->j", bar.about_mean, bar.about_mean, np.abs(sums.A))
    return float(variance * np.sqrt(np.max(square))) / max(sums.n, 1.0)
