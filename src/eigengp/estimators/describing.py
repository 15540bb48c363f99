"""What a fitted model says of itself: which inputs matter to it, and its picture in a notebook."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from eigengp._html import with_summary
from eigengp._typing import Array
from eigengp.backend.namespace import AnyArray
from eigengp.data.views import Scaling
from eigengp.gp.features import KernelFeatures
from eigengp.gp.sensitivity import sensitivities, total_indices
from eigengp.gp.vecchia_posterior import VecchiaPosterior
from eigengp.kernels import Kernel

_MOST_POINTS = 100


class SelfDescribing:
    """A fitted regressor that tells what it has learned."""

    kernel_: Kernel
    _posterior: Any
    _scaling: Scaling
    _mean_alone: Callable[[AnyArray], AnyArray]

    def input_relevance(self) -> Array:
        """Return how much of the prior's variance goes with each input, shape (D,).

        `1 − E k(x, x′)/k(x, x)`, where `x′` is `x` with input d alone drawn anew from a normal
        distribution of the data's spread `s_d`: the share of the variance (Sobol's total index)
        that functions of the learned prior are expected to owe to that input, alone or
        together with others. It is 0 for an input that is constant or has a lengthscale far
        beyond its spread and nears 1 as that gets short; for a squared exponential it is
        `1 − 1/√(1 + 2s_d²/ℓ_d²)`. Shares overlap and do not add up to one.

        It says how fast the function may vary along an input, not how far it does: a strong but
        nearly linear effect has a long lengthscale and a low relevance. `input_effects` says how
        far. The inputs of an `RVMRegressor` share one lengthscale, so there it tells nothing.

        Returns
        -------
        relevance : array of shape (D,)
            Each between 0 and 1, for sums and products of kernels too; of SSGP by its waves.
        """
        check_is_fitted(self)
        return sensitivities(self._prior_correlation, self._scaling.input_spread)

    def input_effects(self) -> Array:
        """Return how much of the prediction's variance goes with each input, shape (D,).

        `½ E(μ(x) − μ(x′))² / Var μ(x)` of the predictive mean μ, where `x′` is `x` with input d
        alone exchanged for that of another point: Sobol's total index. It is 0 for an input that
        the prediction does not depend on, and near 1 for one that decides it; inputs that work
        together count in full for each of them, so the values need not add up to one. No data
        are needed: the points are basis points or relevance vectors, training rows of the
        methods that keep them (at most 100), and draws over the range of the data for SSGP,
        which has neither.

        Returns
        -------
        effects : array of shape (D,)
            Each between 0 and 1, in the order of the inputs.

        Examples
        --------
        >>> import numpy as np
        >>> from eigengp import ExactGPRegressor
        >>> X = np.random.default_rng(0).normal(size=(60, 2))
        >>> model = ExactGPRegressor(n_restarts=1, random_state=0).fit(X, 5 * X[:, 1])
        >>> model.input_effects().round(1)
        array([0., 1.])
        """
        check_is_fitted(self)
        points = self._own_points()
        return total_indices(self._mean_alone, points, np.arange(points.shape[1])[:, None])

    def _prior_correlation(self, apart: Array) -> Array:
        """Return `k(x, x + δ)/k(x, x)` for differences δ in the units of the data, shape (n,).

        Where `k(x, x)` varies, `1 − ½ E(f(x) − f(x′))²/k` of pairs about the centre of the data,
        with `k` a mean over them.
        """
        kernel = self.kernel_.with_ard(apart.shape[1])
        if kernel.constant_diagonal is not None:
            matrix = kernel.matrix(apart, np.zeros((1, apart.shape[1])))
            return np.asarray(matrix[:, 0] / kernel.constant_diagonal)
        x, z = (self._scaling.input_centre + sign * 0.5 * apart for sign in (1.0, -1.0))
        between = np.array(
            [kernel.matrix(a[None], b[None])[0, 0] for a, b in zip(x, z, strict=True)]
        )
        own = 0.5 * (kernel.diag(x) + kernel.diag(z))
        return np.asarray(1.0 - (own - between) / np.mean(own))

    def _own_points(self) -> Array:
        """Return inputs at which the model knows the function, in the units of the data."""
        posterior, scaling = self._posterior, self._scaling
        features = posterior.features
        if isinstance(features, KernelFeatures):
            local = isinstance(posterior, VecchiaPosterior)
            points = posterior.rows.X if local else features.inducing_points
            steps = np.linspace(0, len(points) - 1, min(_MOST_POINTS, len(points)))
            points = points[steps.astype(int)]
        else:
            size = (_MOST_POINTS, scaling.input_scale.size)
            points = np.sqrt(3.0) * np.random.default_rng(0).uniform(-1.0, 1.0, size)
        return scaling.in_units(points)

    def _repr_html_inner(self) -> str:
        # scikit-learn's class comes after this one.
        diagram: str = super()._repr_html_inner()  # type: ignore[misc]
        return with_summary(diagram, self) if self.__sklearn_is_fitted__() else diagram

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        # As above.
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)  # type: ignore[misc]
        if "text/html" in bundle and self.__sklearn_is_fitted__():
            bundle["text/html"] = with_summary(bundle["text/html"], self)
        return bundle

    def __sklearn_is_fitted__(self) -> bool:
        """Say whether a fit has ended well."""
        return hasattr(self, "_posterior")
