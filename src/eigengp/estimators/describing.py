"""What a fitted model says of itself: which inputs matter to it."""

from __future__ import annotations

import numpy as np
from sklearn.utils.validation import check_is_fitted

from eigengp.flow.sensitivity import sensitivities
from eigengp.kernels import Kernel
from eigengp.sources.views import Scaling
from eigengp.typing import Array


class SelfDescribing:
    """A fitted regressor that tells what it has learned."""

    kernel_: Kernel
    _scaling: Scaling

    def input_relevance(self) -> Array:
        """Return how much of the prior's variance goes with each input, shape (D,).

        `1 − E k(x, x′)/k(x, x)`, where `x′` is `x` with input d alone drawn anew from a normal
        distribution of the data's spread `s_d`: the share of the variance (Sobol's total index)
        that functions of the learned prior are expected to owe to that input, alone or
        together with others. It is 0 for an input that is constant or has a lengthscale far
        beyond its spread and nears 1 as that gets short; for a squared exponential it is
        `1 − 1/√(1 + 2s_d²/ℓ_d²)`. Shares overlap and do not add up to one.

        It says how fast the function may vary along an input, not how far: a strong but nearly
        linear effect has a long lengthscale and a low relevance, which partial dependence or
        scikit-learn's `permutation_importance` set right. The inputs of an `RVMRegressor` share
        one lengthscale, so there it tells nothing.

        Returns
        -------
        relevance : array of shape (D,)
            Each between 0 and 1, for sums and products of kernels too; of SSGP by its waves.
        """
        check_is_fitted(self)
        return sensitivities(self._prior_correlation, self._scaling.input_spread)

    def _prior_correlation(self, apart: Array) -> Array:
        """Return `k(x, x + δ)/k(x, x)` for differences δ in the units of the data, shape (n,)."""
        matrix = self.kernel_(apart, np.zeros((1, apart.shape[1])))
        return matrix[:, 0] / self.kernel_.total_variance
