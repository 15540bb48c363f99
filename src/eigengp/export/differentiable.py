"""Posteriors through which PyTorch differentiates, by the pull-backs that features have.

Features are computed in place wherever they can be, and rounding at coinciding points would spoil
a derivative that is taken step by step. So PyTorch sees each of them as one function, whose
derivative is `Features.input_gradient`; what follows are plain products.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from eigengp.gp.exact_posterior import ConditionalPosterior
from eigengp.gp.features import Features
from eigengp.gp.posterior import Posterior
from eigengp.gp.precision import Arithmetic
from eigengp.kernels import Kernel


def differentiable(posterior: Posterior | ConditionalPosterior) -> Any:
    """Return a posterior whose means and covariances of tensors can be differentiated.

    They are in float64, and can be mapped over batches of inputs by `torch.vmap`.
    """
    features: Any = _Features(posterior.features)
    if isinstance(posterior, ConditionalPosterior):
        return replace(posterior, features=features)
    kernel: Any = None if posterior.kernel is None else _Gram(posterior.kernel)
    return replace(posterior, features=features, kernel=kernel, arithmetic=Arithmetic())


@dataclass(frozen=True)
class _Features:
    """Features of rows that a posterior can differentiate through."""

    features: Features

    @property
    def prior_scale(self) -> float:
        return self.features.prior_scale

    def prior_variance(self, X: torch.Tensor) -> Any:
        return self.features.prior_variance(X)

    @property
    def kernel(self) -> _Gram:
        return _Gram(self.features.kernel)  # type: ignore[attr-defined]

    def matrix(self, X: torch.Tensor, dtype: str = "float64") -> Any:
        return _FeatureMatrix.apply(X, self.features)


@dataclass(frozen=True)
class _Gram:
    """A kernel between the same rows."""

    kernel: Kernel

    def matrix(self, X: torch.Tensor, Z: torch.Tensor) -> Any:
        assert X is Z
        return _GramMatrix.apply(X, self.kernel)


# mypy does not look into PyTorch.
class _FeatureMatrix(torch.autograd.Function):  # type: ignore[misc]
    """`X ↦ φ(X)`, from shape (n, D) to (n, P)."""

    @staticmethod
    def forward(X: torch.Tensor, features: Features) -> Any:
        return features.matrix(X)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor, Features], output: Any) -> None:
        X, ctx.features = inputs
        ctx.save_for_backward(X)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, bar: torch.Tensor) -> tuple[Any, None]:
        (X,) = ctx.saved_tensors
        return ctx.features.input_gradient(X, bar), None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int, None], X: torch.Tensor, features: Features
    ) -> tuple[Any, int]:
        X = X.movedim(in_dims[0], 0)
        rows = _FeatureMatrix.apply(X.flatten(0, 1), features)
        return rows.unflatten(0, X.shape[:2]), 0


class _GramMatrix(torch.autograd.Function):  # type: ignore[misc]
    """`X ↦ k(X, X)`, from shape (n, D) to (n, n)."""

    @staticmethod
    def forward(X: torch.Tensor, kernel: Kernel) -> Any:
        return kernel.matrix(X, X)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor, Kernel], output: Any) -> None:
        X, ctx.kernel = inputs
        ctx.save_for_backward(X)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, bar: torch.Tensor) -> tuple[Any, None]:
        """Pull back to both arguments: the kernel is symmetric, so by one call."""
        (X,) = ctx.saved_tensors
        _, back = ctx.kernel.forward(X, X)
        return back(bar + bar.T).points, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int, None], X: torch.Tensor, kernel: Kernel
    ) -> tuple[Any, int]:
        each = X.unbind(in_dims[0])
        return torch.stack([_GramMatrix.apply(rows, kernel) for rows in each]), 0
