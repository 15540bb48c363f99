"""Mean functions: what the latent function is before any row is seen, and far from all rows.

A mean is a function of the inputs in the units of the data. Targets enter the model less their
mean, and predictions add it again. A new mean function is a class here with `fit`, `__call__` and
`gradient`, and a name in `MEANS`; the constant and the zero mean are part of the standardisation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np

from eigengp._typing import Array
from eigengp.backend.namespace import Additive, AnyArray, beside, cast, namespace, on_host
from eigengp.gp.blocks import RowBlock, RowSource


class Mean(Protocol):
    """A mean function; those in `MEANS` also have a class method `fit`, like `LinearMean`."""

    def __call__(self, X: AnyArray) -> AnyArray:
        """Return the mean at inputs in the units of the data, shape (n,), in float64."""

    def gradient(self, X: AnyArray) -> AnyArray:
        """Return its derivative with respect to the inputs, shape (n, D) or (D,)."""


@dataclass(frozen=True)
class _Moments(Additive):
    """`Σ s (z, 1)(z, 1)ᵀ` and `Σ s y (z, 1)`."""

    A: AnyArray
    b: AnyArray


@dataclass(frozen=True)
class LinearMean:
    """`m(x) = intercept + coefficientsᵀx`, by least squares.

    Parameters
    ----------
    coefficients : array of shape (D,)
        In the units of the target per unit of each input.
    intercept : float
        In the units of the target.
    """

    coefficients: Array
    intercept: float

    @classmethod
    def fit(cls, source: RowSource, centre: Array, scale: Array) -> Self:
        """Fit the rows of a source by sums over its blocks.

        Inputs are centred and scaled, so that no digits are lost.

        Parameters
        ----------
        source : RowSource
            Rows in the units of the data.
        centre, scale : arrays of shape (D,)
            Of the inputs.
        """

        def moments(block: RowBlock) -> _Moments:
            xp = namespace(block.X)
            Z = (cast(block.X, "float64") - beside(centre, block.X)) / beside(scale, block.X)
            Z = xp.concat([Z, xp.ones_like(Z[:, :1])], axis=1)
            weighted = Z * cast(block.weight, "float64")[:, None]
            return _Moments(weighted.T @ Z, weighted.T @ cast(block.y, "float64"))

        found = source.total(moments)
        solution = np.linalg.lstsq(found.A, found.b, rcond=None)[0]
        coefficients = solution[:-1] / scale
        return cls(coefficients, float(solution[-1] - coefficients @ centre))

    def __call__(self, X: AnyArray) -> AnyArray:
        """See `Mean.__call__`."""
        return cast(X, "float64") @ beside(self.coefficients, X) + self.intercept

    def gradient(self, X: AnyArray) -> AnyArray:
        """See `Mean.gradient`."""
        return beside(self.coefficients, X)


@dataclass(frozen=True)
class RegressorMean:
    """The predictions of a fitted regressor with a `predict` method."""

    regressor: Any

    def __call__(self, X: AnyArray) -> AnyArray:
        """See `Mean.__call__`; the regressor predicts in NumPy."""
        predicted = np.asarray(self.regressor.predict(on_host(X)), dtype=np.float64)
        return beside(predicted.reshape(X.shape[0]), X)

    def gradient(self, X: AnyArray) -> AnyArray:
        """Refuse: a regressor has no derivative."""
        raise ValueError(
            f"The mean is a {type(self.regressor).__name__}, whose derivative is not known. Use "
            "mean='constant' or mean='linear' for gradients."
        )


# Mean functions by the names that estimators accept, beside "constant" and "zero".
MEANS: dict[str, type[Any]] = {"linear": LinearMean}


def check_mean(model: Any, purpose: str) -> None:
    """Raise if the mean of a fitted model is a foreign regressor, which `purpose` rules out."""
    if isinstance(model._scaling.mean, RegressorMean):
        name = type(model._scaling.mean.regressor).__name__
        raise ValueError(
            f"A model whose mean is a {name} cannot be {purpose}. Fit with mean='linear' or "
            "mean='constant', or pickle the model."
        )
