"""What every maker and fetcher returns: inputs, targets, and what is known about them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from eigengp._typing import Array


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Rows to learn from, raw as their source has them.

    Parameters
    ----------
    name : str
        What the set is called.
    X : array of shape (n, D)
        Inputs.
    y : array of shape (n,)
        Targets.
    feature_names : tuple of D str
        The names of the inputs, as the source has them.
    description : str
        Where the data come from, in a few sentences.
    n_train : int, optional
        How many rows `split` gives to training unless told otherwise.
    X_test : array of shape (m, D), optional
        Inputs to predict at.
    f_test : array of shape (m,), optional
        The noiseless truth at `X_test`.
    y_runs : array of shape (n_runs, n), optional
        Targets of repeated draws at the same inputs; `y` is the first of them.

    Examples
    --------
    >>> from eigengp.datasets import make_nonstationary
    >>> data = make_nonstationary(random_state=0)
    >>> data
    <Dataset nonstationary: 200 rows, 1 input>
    >>> train, test = data.split(150, seed=1)
    >>> train.X.shape, test.y.shape
    ((150, 1), (50,))
    """

    name: str
    X: Array
    y: Array
    feature_names: tuple[str, ...]
    description: str
    n_train: int | None = None
    X_test: Array | None = None
    f_test: Array | None = None
    y_runs: Array | None = None

    def __post_init__(self) -> None:
        n_columns = len(self.feature_names)
        if self.y.ndim != 1 or self.X.shape != (self.y.size, n_columns):
            raise ValueError(
                f"X of shape {self.X.shape}, y of shape {self.y.shape} and {n_columns} feature "
                "names do not belong together: X needs a row for each target and a column for "
                "each name."
            )

    def __repr__(self) -> str:
        rows, inputs = self.X.shape
        columns = "1 input" if inputs == 1 else f"{inputs} inputs"
        runs = "" if self.y_runs is None else f", {self.n_runs} runs"
        return f"<Dataset {self.name}: {rows} rows, {columns}{runs}>"

    @property
    def n_runs(self) -> int:
        """How many draws of the targets there are."""
        return 1 if self.y_runs is None else len(self.y_runs)

    def run(self, number: int) -> Dataset:
        """Return one of the draws of the targets.

        Parameters
        ----------
        number : int
            From 1 to `n_runs`, as the authors count.

        Returns
        -------
        data : Dataset
            The same inputs with the targets `y_runs[number - 1]`.

        Examples
        --------
        >>> data = Dataset("two", np.ones((1, 1)), np.ones(1), ("x",), "", y_runs=np.eye(2)[:, :1])
        >>> [data.run(number).y.tolist() for number in (1, 2)]
        [[1.0], [0.0]]
        """
        if not 1 <= number <= self.n_runs:
            raise ValueError(
                f"run must be from 1 to {self.n_runs} for {self.name}, got {number!r}; "
                "the first run is 1."
            )
        if self.y_runs is None:
            return self
        return replace(self, y=self.y_runs[number - 1], y_runs=None)

    def split(self, n_train: int | None = None, seed: int = 0) -> tuple[Dataset, Dataset]:
        """Split the rows at random into those to learn from and those to test on.

        The first `n_train` rows of `numpy.random.default_rng(seed).permutation(n)` train, as in
        the benchmarks of this package. Nothing is standardised.

        Parameters
        ----------
        n_train : int, optional
            Rows to learn from; by default what is usual for the set.
        seed : int
            Another seed is another split.

        Returns
        -------
        train, test : Dataset
            The two parts, in the order of the permutation.

        Examples
        --------
        >>> from eigengp.datasets import make_snelson_like
        >>> train, test = make_snelson_like(n=30, random_state=0).split(20)
        >>> train, test
        (<Dataset snelson_like: 20 rows, 1 input>, <Dataset snelson_like: 10 rows, 1 input>)
        """
        n_rows = self.y.size
        count = self.n_train if n_train is None else n_train
        if count is None:
            raise ValueError(
                f"{self.name} has no usual split: say how many of its {n_rows} rows shall train, "
                f"for example split({n_rows * 3 // 4})."
            )
        if not 0 < count < n_rows:
            raise ValueError(
                f"n_train must leave rows on both sides, from 1 to {n_rows - 1} for {self.name}, "
                f"got {count!r}."
            )
        order = np.random.default_rng(seed).permutation(n_rows)
        return self._take(order[:count]), self._take(order[count:])

    def _take(self, rows: NDArray[np.int64]) -> Dataset:
        runs = None if self.y_runs is None else self.y_runs[:, rows]
        return replace(self, X=self.X[rows], y=self.y[rows], n_train=None, y_runs=runs)
