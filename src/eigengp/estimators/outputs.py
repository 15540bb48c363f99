"""Several outputs: targets of shape (N, P) with missing values, standardised one by one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.utils import check_array

from eigengp._typing import Array
from eigengp.data.frames import count_outputs
from eigengp.data.standardize import make_usable
from eigengp.fitting.run import FitResult
from eigengp.fitting.settings import Settings
from eigengp.gp.likelihoods import Coregionalized


@dataclass(frozen=True)
class Outputs:
    """The outputs of a fit, in the units of the data."""

    values: Array  # Targets of shape (N, P), NaN where missing.

    @classmethod
    def of(cls, y: Any) -> Outputs:
        """Validate targets with two dimensions."""
        finite: Any = "allow-nan" if count_outputs(y) > 1 else True
        return cls(check_array(y, dtype=np.float64, ensure_all_finite=finite, input_name="y"))

    @cached_property
    def scaling(self) -> tuple[Array, Array]:
        """Means and standard deviations of all outputs, each of shape (P,)."""
        known = np.isfinite(self.values)
        few = np.flatnonzero(known.sum(axis=0) < 2)
        if few.size:
            raise ValueError(f"Output {few[0]} of y has fewer than two values that are not NaN.")
        centre = np.nanmean(self.values, axis=0)
        return centre, make_usable(np.nanstd(self.values, axis=0), centre)

    def adapt(self, settings: Settings) -> Settings:
        """Return settings for outputs."""
        if settings.likelihood is not None or settings.noise == "heteroscedastic":
            raise ValueError(
                "Several outputs have Gaussian noise: use likelihood='auto' or 'gaussian', or fit "
                "one output at a time."
            )
        if settings.transform not in (None, "auto"):
            raise ValueError("Several outputs are not transformed; fit one output at a time.")
        if settings.noise_variance is not None:
            raise ValueError("Several outputs learn their noise variances; use 'gaussian'.")
        if settings.reading.mean != "constant":
            raise ValueError("Several outputs have mean='constant'; fit one output at a time.")
        centre, scale = self.scaling
        reading = settings.reading._replace(in_memory=True, scales_targets=False)
        likelihood = Coregionalized((self.values - centre) / scale)
        return replace(settings, likelihood=likelihood, reading=reading, transform=None)

    def restore(self, result: FitResult) -> FitResult:
        """Return the result of a fit in the units of the outputs."""
        posterior: Any = result.posterior
        own, likelihood = dict(result.attributes), posterior.likelihood
        centre, scale = self.scaling
        posterior = replace(posterior, likelihood=replace(likelihood, targets=self.values[:0]))
        variance = float(np.mean(own["kernel_"].diag(own["inducing_points_"])))
        mixing = scale[:, None] * likelihood.mixing
        unit = float(np.isfinite(self.values).sum(axis=0) @ np.log(scale))
        del own["likelihood_"]
        own |= {
            "_posterior": posterior,
            "_scaling": replace(own["_scaling"], target_centre=centre, target_scale=scale),
            "target_mean_": centre,
            "noise_variance_": scale**2 * likelihood.noise,
            "output_covariance_": variance * mixing @ mixing.T,
            "log_marginal_likelihood_": own["log_marginal_likelihood_"] - unit,
        }
        return replace(result, posterior=posterior, attributes=own)
