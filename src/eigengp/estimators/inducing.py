"""What all methods with basis points share: sizes, starts, and the model's own attributes."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_array
from sklearn.utils._param_validation import Interval, StrOptions

from eigengp._typing import Array, Standardize
from eigengp.data.validation import distinct_rows
from eigengp.estimators.base import LARGE_DATA_CONSTRAINTS, GPRegressor
from eigengp.fitting.families import InducingFamily
from eigengp.fitting.initialization import BasisInit
from eigengp.fitting.settings import RELATIVE_JITTER, Plan, default_size
from eigengp.fitting.training import Training
from eigengp.gp.approximations import Outcome
from eigengp.gp.exact import ExactGP
from eigengp.gp.model import EigenGP, Jitter
from eigengp.gp.posterior import Predictive
from eigengp.kernels import Kernel


class InducingRegressor(GPRegressor):
    """A method with basis points, all of which are learned with kernel and noise."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **GPRegressor._parameter_constraints,
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "init": [StrOptions({"kmeans", "random", "greedy"}), "array-like"],
        **LARGE_DATA_CONSTRAINTS,
    }

    def __init__(
        self,
        n_components: Any = None,
        *,
        kernel: Kernel | str | None = None,
        noise_variance: float | None = None,
        init: Literal["kmeans", "random", "greedy"] | ArrayLike = "kmeans",
        n_restarts: int | None = None,
        max_iter: int | None = None,
        tol: float = 1e-9,
        standardize: Standardize = True,
        precision: Literal["double", "mixed", "single"] = "double",
        memory_limit: int | str | None = None,
        device: str | None = None,
        checkpoint: str | Path | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool | int = False,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.noise_variance = noise_variance
        self.init = init
        self.n_restarts = n_restarts
        self.max_iter = max_iter
        self.tol = tol
        self.standardize = standardize
        self.precision = precision
        self.memory_limit = memory_limit
        self.device = device
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.verbose = verbose

    @property
    def _power(self) -> float | None:
        """How rows carry what the basis leaves out (see `EigenGP.power`); None if not at all."""
        return None

    def _learn(self, training: Training) -> EigenGP:
        points = self._initial_points(training.rows.n_features)
        start = self._start(training)
        plan = self._plan(training, points, start.kernel)
        scaled = None if points is None else training.scaling.inputs(points)
        family = InducingFamily(BasisInit(str(self.init) if scaled is None else scaled))
        template = EigenGP(
            start.kernel,
            np.zeros((plan.n_inducing, training.rows.n_features)),
            start.noise_variance,
            plan.n_components,
            residual=self._power is not None,
            jitter=Jitter(relative=RELATIVE_JITTER),
            power=self._power or 0.0,
        )
        model: EigenGP = training.learn(family, plan, template)
        return model

    def _start(self, training: Training) -> ExactGP:
        """Return kernel and noise to start from."""
        return training.start(self.kernel, self.noise_variance)

    def _plan(self, training: Training, points: Array | None, kernel: Kernel) -> Plan:
        """Resolve the parameters against the data."""
        rows = training.rows
        given = None if points is None else points.shape[0]
        default = self._default_size(rows.n_rows, kernel)
        R, M = self._sizes(default, given)
        possible = given or distinct_rows(rows, M)
        if possible < M != default:
            training.notes.append(
                f"X has only {possible} distinct rows: {possible} basis points are used instead "
                f"of {M}."
            )
        M = min(M, possible)
        return training.plan(self, min(R, M), M)

    def _default_size(self, n_rows: int, kernel: Kernel) -> int:
        """Return how many basis points to use if nothing was asked for."""
        return default_size(n_rows)

    def _sizes(self, default: int, given: int | None) -> tuple[int, int]:
        """Return how many components and basis points were asked for.

        Parameters
        ----------
        default : int
            How many to use if nothing was asked for.
        given : int or None
            How many basis points `init` holds.
        """
        if given and self.n_components not in (None, given):
            raise ValueError(
                f"init holds {given} basis points but n_components is {self.n_components}."
            )
        size = given or self.n_components or default
        return size, size

    def _initial_points(self, n_features: int) -> Array | None:
        if isinstance(self.init, str):
            return None
        points: Array = check_array(self.init, dtype=np.float64, input_name="init")
        if points.shape[1] != n_features:
            raise ValueError(
                f"init has {points.shape[1]} columns but X has {n_features} features; "
                "each basis point needs one value for each feature."
            )
        return points

    def _condition(self, model: EigenGP, outcome: Outcome, training: Training) -> Predictive:
        posterior = model.posterior(outcome)
        return replace(posterior, kernel=model.kernel) if self._draws_jointly else posterior

    def _keep(self, model: EigenGP, training: Training, outcome: Any = None) -> None:
        super()._keep(model, training, outcome)
        self.inducing_points_ = training.like_given(training.in_units(model.inducing_points))
        self.jitter_ = model.jitter.of(model.features) * training.unit
