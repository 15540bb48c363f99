"""Posteriors that PyTorch differentiates with respect to the inputs.

Features are computed in place where possible, and step-by-step differentiation loses precision at
coinciding points. So PyTorch sees features and kernels as single functions, whose derivatives are
those of the library; the rest are plain products.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from eigengp.gp.exact_posterior import ConditionalPosterior, MixturePosterior
from eigengp.gp.posterior import Posterior
from eigengp.gp.precision import Arithmetic
from eigengp.kernels import Kernel, KernelColumns


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
