"""Precision and memory of the passes over the rows, which do not change the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

KEPT_BYTES = 1 << 26
"""How much memory features may take between the two passes, unless told."""

_EPSILON = 6e-8
"""The rounding of float32."""
_HALF_EPSILON = 2.5e-4
"""That of float16."""
_VISIBLE = 1e-5
"""A variance that shows, in units of the noise."""
_VISIBLE_IN_GRADIENT = 1e-4
"""An error that shows in the gradient of one row's evidence."""
_INVISIBLE_IN_GRADIENT = 1e-5
"""One that does not where there are others."""

_PRECISIONS = {
    "double": ("float64", "float64"),
    "mixed": ("float64", "float32"),
    "single": ("float32", "float32"),
}
PRECISIONS = tuple(_PRECISIONS)


@dataclass(frozen=True)
class Arithmetic:
    """Precision of the passes over the rows, and memory between them.

    Sums over blocks, and all that is M × M, are in float64 whatever the
    precision. Unless that is double, predictions are in float32 where that
    is accurate enough.

    Parameters
    ----------
    precision : {"double", "mixed", "single"}
        "double" is float64 throughout; "mixed" makes the sums in float64, and
        the products of the gradient and of predicted variances in float32
        where that is accurate enough; "single" makes the sums in
        float32 too. Rows that enter whitened or with a residual are always in
        float64.
    memory_limit : int
        How many bytes of features may be kept from one pass to the next;
        those beyond it are computed again.
    """

    precision: str = "double"
    memory_limit: int = KEPT_BYTES

    @property
    def sums(self) -> str:
        """The data type of pass 1."""
        return _PRECISIONS[self.precision][0]

    @property
    def guarded(self) -> Arithmetic:
        """The same with a check before float32 is used: "mixed" in the place of "single"."""
        return replace(self, precision="mixed") if self.precision == "single" else self

    def gradient_for(self, amplified: Callable[[], float]) -> str:
        """Return the data type of pass 2.

        Parameters
        ----------
        amplified : callable
            Returns by how much a relative error of one shows in the gradient of a row.
        """
        if self.precision != "mixed":
            return _PRECISIONS[self.precision][1]
        return "float32" if amplified() * _EPSILON < _VISIBLE_IN_GRADIENT else "float64"

    def pieces_for(self, scatter: float, residual_scatter: float) -> int:
        """Return of how many float16 features consist in the products of a fused pass 2.

        Parameters
        ----------
        scatter : float
            By how much a relative error of one in features shows through these
            products, in the gradient of a row.
        residual_scatter : float
            The same through residuals, for which a fused pass has float32.
        """
        if self.precision == "mixed" and residual_scatter * _EPSILON >= _VISIBLE_IN_GRADIENT:
            return 0
        return 1 if scatter * _HALF_EPSILON < _INVISIBLE_IN_GRADIENT else 2

    def prediction_for(self, amplified: float) -> str:
        """Return the data type of predictions.

        Parameters
        ----------
        amplified : float
            The variance that rounding adds, in units of the noise, for
            features of relative error one.
        """
        harmless = amplified * _EPSILON**2 < _VISIBLE
        return "float64" if self.precision == "double" or not harmless else "float32"
