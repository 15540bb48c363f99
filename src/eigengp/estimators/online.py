"""Learning from more rows, and from batches: what EigenGP adds to a method with basis points."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import _fit_context
from sklearn.utils.metaestimators import available_if

from eigengp.backend.threads import at_work
from eigengp.data.array_source import ArraySource
from eigengp.data.dask_source import is_dask
from eigengp.data.formats import is_table
from eigengp.data.validation import further_rows
from eigengp.estimators.inducing import InducingRegressor
from eigengp.fitting.online import Online
from eigengp.fitting.settings import default_size
from eigengp.fitting.streaming import Stream
from eigengp.fitting.training import Training
from eigengp.gp.approximations import Outcome
from eigengp.gp.blocks import RowBlock
from eigengp.gp.model import EigenGP

_FIRST_ROWS_PER_POINT = 10


def _keeps_no_rows(estimator: OnlineRegressor) -> bool:
    if estimator.residual == "local":
        raise AttributeError(
            "partial_fit keeps no rows, which residual='local' looks at; call fit with all rows, "
            "or choose another residual."
        )
    return True


class OnlineRegressor(InducingRegressor):
    """A method with basis points whose posterior can take in more rows."""

    residual: str | None
    optimization: str
    batch_size: int
    forgetting: float
    _training: Training
    _online: Online | None
    """The sums over all rows so far; None where they would not do."""
    _stream: Stream
    _without_rows: bool = False
    """Whether the fit that runs is to keep no rows."""

    def _learn_from_batches(self, training: Training) -> EigenGP:
        """Learn from the first rows by the evidence, and from batches after that."""
        R, M = self._sizes(default_size(training.rows.n_rows), None)
        if R < M or self.residual not in (None, "auto"):
            raise ValueError(
                "optimization='stochastic' keeps all eigenfunctions and knows no residual: leave "
                "n_inducing and residual at None, or choose another optimization."
            )
        count = max(self.batch_size, _FIRST_ROWS_PER_POINT * M)
        self._stream = Stream.begin(training, count, super()._learn)
        passes = 1 if self.max_iter is None else self.max_iter
        with at_work(M):
            return self._stream.over(training.rows, self.batch_size, passes)

    def _keep(
        self,
        model: EigenGP,
        training: Training,
        outcome: Any = None,
        online: Online | None = None,
    ) -> None:
        outcome = outcome or self._outcome(model, training)
        super()._keep(model, training, outcome)
        self._training = training.on(RowBlock.empty())
        if online is None and self.optimization != "stochastic" and not model.vecchia:
            online = Online.of(model, outcome, training.source)
        self._online = online

    def _outcome(self, model: EigenGP, training: Training) -> Outcome:
        """Return what the rows say of a model that was learned."""
        return model.forward(training.source)

    # scikit-learn ships no types.
    @available_if(_keeps_no_rows)  # type: ignore[untyped-decorator]
    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Learn from more rows; the first call is `fit`.

        Eigenfunctions stay as they are, and the posterior of their weights is
        updated exactly: it is that of all rows so far, which need not be
        kept. The weights' prior variances and the noise are learned again,
        unless `max_iter` is 0 or there is a residual. With
        `optimization="stochastic"` eigenfunctions are learned on too; the
        posterior is then that of a sample of at most 10,000 of all rows.

        Parameters
        ----------
        X : array of shape (n, D)
            Inputs.
        y : array of shape (n,)
            Targets.
        sample_weight : array of shape (n,) or None
            How many times each row counts.

        Returns
        -------
        self : object
            The regressor.
        """
        if is_table(X) or is_dask(X):
            raise TypeError("partial_fit takes arrays; fit reads files and Dask collections.")
        if not self.__sklearn_is_fitted__():
            self._without_rows = True
            try:
                return self.fit(X, y, sample_weight)
            finally:
                del self._without_rows
        rows = further_rows(self, X, y, sample_weight)
        with at_work(self.inducing_points_.shape[0]):
            if self.optimization == "stochastic":
                self._follow(rows)
            else:
                self._add(rows)
        return self

    def _follow(self, rows: RowBlock) -> None:
        """Learn everything from more rows, and condition on those that are kept."""
        model = self._stream.absorb(rows, self.batch_size, learn=self.max_iter != 0)
        kept = self._stream.kept
        weight = float(np.sum(kept.weight))
        self._keep(model, self._training.on(kept).counting(weight))

    def _add(self, rows: RowBlock) -> None:
        """Add more rows to the sums, and learn noise and weights again."""
        if self._online is None:
            raise ValueError(
                "partial_fit cannot go on from a fit that looks at neighbours, for it keeps no "
                "rows. Fit with residual=None, or begin with partial_fit."
            )
        more = ArraySource.of(rows, self._online.sums.b.size)
        online = self._online.after(more, self.forgetting)
        if self.max_iter != 0:
            online = online.refreshed()
        training = self._training.counting(online.sums.n)
        self._keep(online.model, training, online.outcome, online)
