"""The kinds of models that can be learned: where each begins, and what in it is free.

A new kind of sparse model is a class here that fulfils `Family`; screening,
search and stages are the same for all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from eigengp.data.summary import Extent
from eigengp.fitting.initialization import BasisInit, kernels_to_try, make_starts
from eigengp.fitting.parameters import (
    Parameters,
    eigengp_parameters,
    kernel_parameters,
    spectrum_parameters,
)
from eigengp.gp.blocks import RowBlock
from eigengp.gp.exact import ExactGP
from eigengp.gp.model import EigenGP
from eigengp.gp.precision import Arithmetic
from eigengp.gp.sparse_spectrum import SparseSpectrum


class Family(Protocol):
    """One kind of model."""

    @property
    def screening_rows(self) -> int:
        """On how many rows the kernel is settled where there are many."""

    @property
    def relocates(self) -> bool:
        """Whether points may be moved to where the model misses."""

    @property
    def warms_up(self) -> bool:
        """Whether a part of the rows is learned on before all of them."""

    def parameters(
        self, model: Any, box: Extent, basis: bool = True, weights: bool = False
    ) -> Parameters[Any]:
        """Return what is free: kernel and points if `basis`, weights of their own if `weights`."""

    def starts(
        self, template: Any, rows: RowBlock, size: int, count: int, rng: np.random.RandomState
    ) -> list[Any]:
        """Return `count` models of `size` features; the first has the template's kernel."""

    def placed(self, model: Any, rows: RowBlock, size: int, rng: np.random.RandomState) -> Any:
        """Return the model with `size` features, their points placed for its kernel."""

    def computed_with(self, model: Any, arithmetic: Arithmetic) -> Any:
        """Return the model, its passes over the rows to be computed so from now on."""


@dataclass(frozen=True)
class InducingFamily:
    """Models with basis points: EigenGP and all that share its flow."""

    init: BasisInit
    screening_rows: int = 1_000
    warms_up: bool = True

    @property
    def relocates(self) -> bool:
        """See `Family.relocates`; points that were given stay where they are."""
        return isinstance(self.init.method, str)

    def parameters(
        self, model: EigenGP, box: Extent, basis: bool = True, weights: bool = False
    ) -> Parameters[EigenGP]:
        """See `Family.parameters`."""
        return eigengp_parameters(model, box, basis, weights)

    def starts(
        self, template: EigenGP, rows: RowBlock, size: int, count: int, rng: np.random.RandomState
    ) -> list[EigenGP]:
        """See `Family.starts`; where not all given points can be used, k-means places them."""
        given = isinstance(self.init.method, np.ndarray) and len(self.init.method) == size
        init = self.init if self.relocates or given else BasisInit("kmeans")
        blank = np.zeros((size, rows.X.shape[1]))
        sized = replace(template, inducing_points=blank, n_components=size)
        return make_starts(sized, rows, init, count, rng)

    def placed(
        self, model: EigenGP, rows: RowBlock, size: int, rng: np.random.RandomState
    ) -> EigenGP:
        """See `Family.placed`."""
        points = self.init.place(rows, size, model.kernel, rng)
        return replace(model, inducing_points=points, n_components=size)

    def computed_with(self, model: EigenGP, arithmetic: Arithmetic) -> EigenGP:
        """See `Family.computed_with`."""
        return replace(model, arithmetic=arithmetic)


@dataclass(frozen=True)
class SpectralFamily:
    """Models with spectral points, which begin as a draw from the kernel's spectral density."""

    screening_rows: int = 1_000
    relocates: bool = False
    warms_up: bool = True

    def parameters(
        self, model: SparseSpectrum, box: Extent, basis: bool = True, weights: bool = False
    ) -> Parameters[SparseSpectrum]:
        """See `Family.parameters`; weights are integrated out, points not bound to the box."""
        return spectrum_parameters(model)

    def starts(
        self,
        template: SparseSpectrum,
        rows: RowBlock,
        size: int,
        count: int,
        rng: np.random.RandomState,
    ) -> list[SparseSpectrum]:
        """See `Family.starts`."""
        tried = kernels_to_try(template.kernel, rows.X.shape[1], count - 1, rng)
        models = [template, *(replace(template, kernel=kernel) for kernel in tried)]
        return [self.placed(model, rows, size, rng) for model in models]

    def placed(
        self, model: SparseSpectrum, rows: RowBlock, size: int, rng: np.random.RandomState
    ) -> SparseSpectrum:
        """See `Family.placed`; a spectral point is two features."""
        points = model.kernel.draw_frequencies((size + 1) // 2, rows.X.shape[1], rng)
        return replace(model, spectral_points=points)

    def computed_with(self, model: SparseSpectrum, arithmetic: Arithmetic) -> SparseSpectrum:
        """See `Family.computed_with`."""
        return replace(model, arithmetic=arithmetic)


@dataclass(frozen=True)
class ExactFamily:
    """The full GP, which has no points of its own."""

    screening_rows: int = 400
    relocates: bool = False
    warms_up: bool = False

    def parameters(
        self, model: ExactGP, box: Extent, basis: bool = True, weights: bool = False
    ) -> Parameters[ExactGP]:
        """See `Family.parameters`."""
        return kernel_parameters(model)

    def starts(
        self, template: ExactGP, rows: RowBlock, size: int, count: int, rng: np.random.RandomState
    ) -> list[ExactGP]:
        """See `Family.starts`; the starts differ in their lengthscales."""
        tried = kernels_to_try(template.kernel, rows.X.shape[1], count - 1, rng)
        return [template, *(replace(template, kernel=kernel) for kernel in tried)]

    def placed(
        self, model: ExactGP, rows: RowBlock, size: int, rng: np.random.RandomState
    ) -> ExactGP:
        """See `Family.placed`; there is nothing to place."""
        return model

    def computed_with(self, model: ExactGP, arithmetic: Arithmetic) -> ExactGP:
        """See `Family.computed_with`; the full GP knows one arithmetic alone."""
        return model
