"""The rival of the `gpu` benchmark: the same evidence with PyTorch's own operations.

Rows pass in blocks through buffers that are made once. The two products with M² numbers for a row
run in TF32 where the data is float32; all else keeps the precision of the data, and sums over
blocks and M × M work are float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Gradient:
    """Derivatives of `−ln p(y)`; positive parameters through their logarithms."""

    theta: Tensor
    """Lengthscales, then the variance."""
    inducing_points: Tensor
    log_noise_variance: Tensor


@contextmanager
def tensor_cores() -> Iterator[None]:
    """Let products of float32 run in TF32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


class PlainTorch:
    """A squared exponential kernel of variance one at inducing points, and the noise.

    Parameters
    ----------
    points : tensor of shape (M, D), float64
        The inducing points, on the device of the data.
    lengthscale, noise_variance, jitter : float
        As in the model that it is compared with.
    block_rows : int
        Rows in a block.
    """

    def __init__(
        self,
        points: Tensor,
        lengthscale: float,
        noise_variance: float,
        jitter: float,
        block_rows: int = 1 << 20,
    ) -> None:
        n_inputs = points.shape[1]
        start = [math.log(lengthscale)] * n_inputs + [0.0]
        self.points = points.clone().requires_grad_()
        self.theta = points.new_tensor(start).requires_grad_()
        self.log_noise = points.new_tensor(math.log(noise_variance)).requires_grad_()
        self.jitter, self.block_rows = jitter, block_rows

    def value_and_gradient(self, X: Tensor, y: Tensor) -> tuple[float, Gradient]:
        """Return `−ln p(y)` and its gradient: two passes over the rows."""
        G, b, yy = self._sums(X, y)
        leaves = (self.theta, self.points, self.log_noise, G.requires_grad_(), b.requires_grad_())
        value = self._value(G, b, yy, X.shape[0])
        theta, points, noise, G_bar, b_bar = torch.autograd.grad(value, leaves)
        row_theta, row_points = self._pull_back(X, y, G_bar, b_bar)
        return float(value.detach()), Gradient(theta + row_theta, points + row_points, noise)

    @torch.no_grad()
    def _sums(self, X: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return `KᵀK`, `Kᵀy` and `yᵀy`."""
        M = self.points.shape[0]
        G, b, yy = (self.points.new_zeros(shape) for shape in ((M, M), (M,), ()))
        for _, t, K in self._blocks(X, y):
            with tensor_cores():
                G += K.T @ K
            b += K.T @ t
            yy += torch.dot(t, t)
        return G, b, yy

    def _value(self, G: Tensor, b: Tensor, yy: Tensor, n_rows: int) -> Tensor:
        """Return `−ln N(y; 0, K K_BB⁻¹ Kᵀ + σ²I)` from the sums, in float64."""
        scaled = self.points / self.theta[:-1].exp()
        squares = (scaled**2).sum(1)
        exponent = scaled @ scaled.T - 0.5 * (squares[:, None] + squares[None, :])
        eye = torch.eye(b.shape[0], dtype=b.dtype, device=b.device)
        gram = self.theta[-1].exp() * (exponent.exp() + self.jitter * eye)
        noise = self.log_noise.exp()
        L = torch.linalg.cholesky_ex(gram).L
        half = torch.linalg.solve_triangular(L, G, upper=False)
        A = eye + torch.linalg.solve_triangular(L, half.T, upper=False) / noise
        L_A = torch.linalg.cholesky_ex(0.5 * (A + A.T)).L
        c = torch.linalg.solve_triangular(L, b[:, None], upper=False)
        c = torch.linalg.solve_triangular(L_A, c, upper=False) / noise
        log_determinant = 2.0 * L_A.diagonal().log().sum() + n_rows * self.log_noise
        return 0.5 * (
            n_rows * math.log(2.0 * math.pi) + log_determinant + yy / noise - (c**2).sum()
        )

    @torch.no_grad()
    def _pull_back(self, X: Tensor, y: Tensor, G_bar: Tensor, b_bar: Tensor) -> tuple[Tensor, ...]:
        """Pull cotangents of the sums back through the rows to `θ` and `B`.

        With `W = K ∘ (K P + y b̄ᵀ)`, `P = Ḡ + Ḡᵀ`, all follows from `Wᵀ[x, x², 1]`.
        """
        B, D = self.points, self.points.shape[1]
        P = (G_bar + G_bar.T).to(X.dtype)
        S = B.new_zeros(B.shape[0], 2 * D + 1)
        T = X.new_empty(min(self.block_rows, X.shape[0]), B.shape[0])
        for x, t, K in self._blocks(X, y):
            moments = torch.cat([x, x**2, torch.ones_like(t)[:, None]], dim=1)
            with tensor_cores():
                W = torch.mm(K, P, out=T[: x.shape[0]]).mul_(K)
            S += W.T @ moments
            S += b_bar[:, None] * (K.T @ (moments * t[:, None]))
        first, second, total = S[:, :D], S[:, D:-1], S[:, -1:]
        scale = torch.exp(-2.0 * self.theta[:-1])
        lengthscales = scale * (second - 2.0 * B * first + total * B**2).sum(0)
        return torch.cat([lengthscales, total.sum()[None]]), scale * (first - total * B)

    def _blocks(self, X: Tensor, y: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield inputs, targets and `K = k(x, B)` of each block; the next block overwrites `K`."""
        scale = torch.exp(-self.theta[:-1])
        B = self.points * scale
        bias = self.theta[-1] - 0.5 * (B**2).sum(1)
        columns = torch.cat([B, torch.ones_like(bias)[:, None], bias[:, None]], dim=1)
        columns, scale = columns.T.to(X.dtype), scale.to(X.dtype)
        buffer = X.new_empty(min(self.block_rows, X.shape[0]), B.shape[0])
        for start in range(0, X.shape[0], self.block_rows):
            x, t = X[start : start + self.block_rows], y[start : start + self.block_rows]
            z = x * scale
            half = -0.5 * (z**2).sum(1, keepdim=True)
            rows = torch.cat([z, half, torch.ones_like(half)], dim=1)
            yield x, t, torch.mm(rows, columns, out=buffer[: x.shape[0]]).exp_()
