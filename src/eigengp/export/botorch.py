"""A fitted regressor as a model of BoTorch, for Bayesian optimisation.

Features are computed in place where possible, and step-by-step differentiation loses precision at
coinciding points. So PyTorch sees features and kernels as single functions, whose derivatives are
those of the library; the rest are plain products.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from sklearn.utils.validation import check_is_fitted

from eigengp.baselines.nystrom import NystromRegressor
from eigengp.estimators.base import GPRegressor
from eigengp.gp.exact_posterior import ConditionalPosterior, MixturePosterior
from eigengp.gp.mean import check_mean
from eigengp.gp.posterior import Posterior
from eigengp.gp.precision import Arithmetic
from eigengp.gp.target_maps import compute_moments
from eigengp.kernels import Kernel, KernelColumns

try:
    import torch
    from botorch.models.model import Model
    from botorch.posteriors.gpytorch import GPyTorchPosterior
    from gpytorch.distributions import MultivariateNormal
    from linear_operator import to_linear_operator
    from torch.autograd.function import once_differentiable
except ImportError as error:
    raise ImportError(
        f'This module needs the package {error.name}: pip install "eigengp[botorch]".'
    ) from error


_JITTER = 1e-12  # Added to the variances of several points, in units of the targets' variance.


# mypy does not look into BoTorch.
class BoTorchModel(Model):  # type: ignore[misc]
    """The posterior of a fitted regressor, for acquisition functions of BoTorch.

    It is the posterior of the latent function, jointly over the q points of a batch and
    differentiable with respect to them; observation noise is optional. The variance that
    `residual="diagonal"` adds is part of the function. Inputs and values are in the units of the
    data; computations are in float64.

    The model itself is not trained, and cannot be conditioned on observations or fantasies: fit the
    regressor, wrap it, propose points, evaluate them, and fit again with the new rows.

    Parameters
    ----------
    regressor : GPRegressor
        A fitted regressor. `NystromRegressor`, whose variances can be negative, and
        `residual="neighbors"`, whose predictions are discontinuous, are not supported.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> from botorch.acquisition import LogExpectedImprovement
    >>> from eigengp import EigenGPRegressor
    >>> from eigengp.export.botorch import BoTorchModel
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> regressor = EigenGPRegressor(8, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> model = BoTorchModel(regressor)
    >>> points = torch.tensor([[[1.5]], [[4.5]]], dtype=torch.float64, requires_grad=True)
    >>> model.posterior(points).mean.shape
    torch.Size([2, 1, 1])
    >>> gain = LogExpectedImprovement(model, best_f=0.5)(points)
    >>> bool(gain[0] > gain[1])
    True
    """

    def __init__(self, regressor: GPRegressor) -> None:
        super().__init__()
        check_is_fitted(regressor)
        check_mean(regressor, "wrapped for BoTorch")
        # The latent function; with heteroscedastic noise, only its observation noise varies.
        posterior: Any = getattr(regressor._posterior, "own", regressor._posterior)
        known = isinstance(posterior, Posterior | ConditionalPosterior | MixturePosterior)
        if not known or isinstance(regressor, NystromRegressor):
            raise ValueError(
                "BoTorch needs one output with Gaussian noise, continuous predictions and positive "
                'variances, which classifiers, other likelihoods, residual="neighbors" and the '
                "Nyström method do not have. Fit an EigenGPRegressor with residual=None or "
                '"diagonal" instead.'
            )
        self.regressor = regressor
        self._scaling = regressor._scaling
        self._function = differentiable(posterior)

    @property
    def num_outputs(self) -> int:
        """The number of outputs, 1."""
        return 1

    @property
    def batch_shape(self) -> torch.Size:
        """The batch shape of the model: empty."""
        return torch.Size()

    def posterior(
        self,
        X: torch.Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | torch.Tensor = False,
        posterior_transform: Any = None,
    ) -> Any:
        """Return the joint posterior at the points of each batch.

        Parameters
        ----------
        X : tensor of shape (..., q, D)
            Points; the q points of a batch are predicted jointly.
        output_indices : list of int or None
            Must be [0] or None: there is one output.
        observation_noise : bool or tensor of shape (..., q, 1)
            Whether to add the learned noise; a tensor gives the noise variances to add instead.
        posterior_transform : PosteriorTransform or None
            BoTorch's transform of the posterior.

        Returns
        -------
        posterior : GPyTorchPosterior
            With mean and variance of shape (..., q, 1).
        """
        D = self.regressor._scaling.input_scale.size
        if X.ndim < 2 or X.shape[-1] != D:
            raise ValueError(f"X must have the shape (..., q, {D}), got {tuple(X.shape)}.")
        if output_indices is not None:
            self.subset_output(output_indices)
        mean, covariance = self._joint(X.to(torch.float64))
        variances = self._noise(observation_noise, X.shape[-2]).to(mean).expand_as(mean)
        mean, covariance = self._map(mean, covariance + torch.diag_embed(variances))
        covariance = to_linear_operator(covariance)
        found = GPyTorchPosterior(MultivariateNormal(mean, covariance))
        return found if posterior_transform is None else posterior_transform(posterior=found, X=X)

    def _joint(self, X: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return mean (..., q) and covariance (..., q, q) of the function, in the data's units."""
        inputs = self._scaling.transform_inputs(X)
        batches = inputs.reshape(-1, *inputs.shape[-2:])
        mean = torch.vmap(self._function.mean)(batches)
        covariance = torch.vmap(self._function.latent_covariance)(batches)
        shape, q = X.shape[:-1], X.shape[-2]
        unit = self._scaling.target_scale**2
        mean = self._scaling.restore_targets(X.reshape(-1, X.shape[-1]), mean.reshape(-1))
        return mean.reshape(shape), unit * covariance.reshape(*shape, q)

    def _map(
        self, mean: torch.Tensor, covariance: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the moments of targets from those of their values, with the same correlations."""
        own = self.regressor._target_map
        if own is None:
            return mean, covariance
        std = torch.sqrt(torch.diagonal(covariance, dim1=-2, dim2=-1))
        mean, other = compute_moments(own, mean, std)
        ratio = other / std
        return mean, covariance * ratio[..., :, None] * ratio[..., None, :]

    def _noise(self, observation_noise: bool | torch.Tensor, q: int) -> torch.Tensor:
        """Return the variances to add to those of the function, shape (..., q or 1).

        Without noise it is a small jitter: few eigenfunctions leave a covariance singular.
        """
        if isinstance(observation_noise, torch.Tensor):
            if self.regressor._target_map is not None:
                raise ValueError("Noise variances cannot be given where targets are transformed.")
            return observation_noise.squeeze(-1)
        certain = q == 1 and self.regressor._target_map is None
        jitter = 0.0 if certain else _JITTER * self._scaling.target_scale**2
        noise = self.regressor.noise_variance_ if observation_noise else jitter
        return torch.tensor([noise], dtype=torch.float64)

    def subset_output(self, idcs: list[int]) -> BoTorchModel:
        """Return the model itself, which has one output."""
        if set(idcs) != {0}:
            raise ValueError(f"The only output is 0, got {idcs}.")
        return self


def differentiable(posterior: Posterior | ConditionalPosterior | MixturePosterior) -> Any:
    """Return a posterior whose means and covariances of tensors can be differentiated.

    They are in float64, and can be mapped over batches of inputs by `torch.vmap`.
    """
    if isinstance(posterior, MixturePosterior):
        return replace(posterior, parts=tuple(map(differentiable, posterior.parts)))
    features: Any = _Features(posterior.features)
    if isinstance(posterior, ConditionalPosterior):
        return replace(posterior, features=features)
    kernel: Any = None if posterior.kernel is None else _Gram(posterior.kernel)
    return replace(posterior, features=features, kernel=kernel, arithmetic=Arithmetic())


@dataclass(frozen=True)
class _Features:
    """Features of rows, differentiable."""

    features: KernelColumns

    def __getattr__(self, name: str) -> Any:
        return getattr(self.features, name)

    @property
    def kernel(self) -> _Gram:
        return _Gram(self.features.kernel)

    def matrix(self, X: torch.Tensor, dtype: str = "float64") -> Any:
        return _Function.apply(X, self.features.matrix, self.features.input_gradient, True)


@dataclass(frozen=True)
class _Gram:
    """A kernel between the same rows, differentiable."""

    kernel: Kernel

    def matrix(self, X: torch.Tensor, Z: torch.Tensor) -> Any:
        assert X is Z
        return _Function.apply(X, lambda X: self.kernel.matrix(X, X), self._gradient, False)

    def _gradient(self, X: torch.Tensor, bar: torch.Tensor) -> Any:
        """Pull back to both arguments: the kernel is symmetric, so by one call."""
        _, back = self.kernel.forward(X, X)
        return back(bar + bar.T).points


# mypy does not look into PyTorch.
class _Function(torch.autograd.Function):  # type: ignore[misc]
    """A function of rows `X` with its gradient; `rowwise` if each row has its own values."""

    @staticmethod
    def forward(X: Any, function: Callable[..., Any], gradient: Any, rowwise: bool) -> Any:
        return function(X)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        X, _, ctx.gradient, _ = inputs
        ctx.save_for_backward(X)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, bar: torch.Tensor) -> tuple[Any, ...]:
        return ctx.gradient(*ctx.saved_tensors, bar), None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, X: Any, *rest: Any) -> tuple[Any, int]:
        batches = X.movedim(in_dims[0], 0)
        if rest[-1]:
            rows = _Function.apply(batches.flatten(0, 1), *rest)
            return rows.unflatten(0, batches.shape[:2]), 0
        return torch.stack([_Function.apply(batch, *rest) for batch in batches]), 0
