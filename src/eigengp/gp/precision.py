"""Precision and memory of the passes over the rows, which do not change the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from eigengp.backend.namespace import AnyArray

if TYPE_CHECKING:
    from eigengp.gp.blocks import RowBlock
    from eigengp.kernels import Columns, PullBack

KEPT_BYTES = 1 << 26
"""How much memory features may take between the two passes, unless told."""

_EPSILON = 6e-8
"""The rounding of float32."""
_HALF_EPSILON = 2.5e-4
"""That of float16."""
_VISIBLE = 1e-5
"""A variance that shows, in units of the noise."""
_VISIBLE_IN_GRADIENT = 1e-4
"""An error that shows in the gradient of one row's evidence."""
_INVISIBLE_IN_GRADIENT = 1e-5
"""One that does not where there are others."""

_PRECISIONS = {
    "double": ("float64", "float64"),
    "mixed": ("float64", "float32"),
    "single": ("float32", "float32"),
}
PRECISIONS = tuple(_PRECISIONS)


@dataclass(frozen=True)
class Arithmetic:
    """Precision of the passes over the rows, and memory between them.

    Sums over blocks, and all that is M × M, are in float64 whatever the
    precision. Unless that is double, predictions are in float32 where its
    rounding does not show.

    Parameters
    ----------
    precision : {"double", "mixed", "single"}
        "double" is float64 throughout; "mixed" makes the sums in float64, and
        the products of the gradient and of predicted variances in float32
        wherever its rounding does not show; "single" makes the sums in
        float32 too. Rows that enter whitened or with a residual are always in
        float64.
    memory_limit : int
        How many bytes of features may be kept from one pass to the next;
        those beyond it are computed again.
    """

    precision: str = "double"
    memory_limit: int = KEPT_BYTES

    @property
    def sums(self) -> str:
        """The data type of pass 1."""
        return _PRECISIONS[self.precision][0]

    @property
    def guarded(self) -> Arithmetic:
        """The same with a check before float32 is used: "mixed" in the place of "single"."""
        return replace(self, precision="mixed") if self.precision == "single" else self

    def gradient_for(self, amplified: Callable[[], float]) -> str:
        """Return the data type of pass 2.

        Parameters
        ----------
        amplified : callable
            Returns by how much a relative error of one shows in the gradient of a row.
        """
        if self.precision != "mixed":
            return _PRECISIONS[self.precision][1]
        return "float32" if amplified() * _EPSILON < _VISIBLE_IN_GRADIENT else "float64"

    def pieces_for(self, scatter: float, residual_scatter: float) -> int:
        """Return of how many float16 features consist in the products of a fused pass 2.

        Parameters
        ----------
        scatter : float
            By how much a relative error of one in features shows through these
            products, in the gradient of a row.
        residual_scatter : float
            The same through residuals, for which a fused pass has float32.
        """
        if self.precision == "mixed" and residual_scatter * _EPSILON >= _VISIBLE_IN_GRADIENT:
            return 0
        return 1 if scatter * _HALF_EPSILON < _INVISIBLE_IN_GRADIENT else 2

    def prediction_for(self, amplified: float) -> str:
        """Return the data type of predictions.

        Parameters
        ----------
        amplified : float
            The variance that rounding adds, in units of the noise, for
            features of relative error one.
        """
        harmless = amplified * _EPSILON**2 < _VISIBLE
        return "float64" if self.precision == "double" or not harmless else "float32"

    def kept(self) -> Kept:
        """Return an empty store for one pass and the next."""
        return Kept(self.memory_limit)


@dataclass
class Kept:
    """Features of row blocks on their way from pass 1 to pass 2, as far as memory reaches."""

    room: int
    _made: dict[int, tuple[AnyArray, PullBack]] = field(default_factory=dict)
    _lock: Any = field(default_factory=Lock)
    _name: str = ""

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as a name: each process keeps the features of its own blocks."""
        self._name = self._name or uuid4().hex
        return _kept_here, (self._name, self.room)

    def made(self, features: Columns, block: RowBlock, dtype: str, spare: int = 0) -> AnyArray:
        """Return a block's features in pass 1, and keep them while there is room."""
        size = features.kept_arrays * block.X.shape[0] * (features.size + spare)
        size *= 8 if dtype == "float64" else 4
        with self._lock:
            fits = size <= self.room
            self.room -= size if fits else 0
        if not fits:
            return features.matrix(block.X, dtype, spare)
        self._made[block.start] = made = features.forward(block.X, dtype, spare)
        return made[0]

    def holds(self, block: RowBlock) -> bool:
        """Return whether a block's features are kept."""
        return block.start in self._made

    def taken(
        self, features: Columns, block: RowBlock, dtype: str, spare: int = 0
    ) -> tuple[AnyArray, PullBack]:
        """Return a block's features and their pull-back in pass 2, which needs them for good."""
        made = self._made.pop(block.start, None)
        return made or features.forward(block.X, dtype, spare)


_HERE: dict[str, Kept] = {}
_PASSES_HERE = 2
_here_lock = Lock()


def _kept_here(name: str, room: int) -> Kept:
    """Return this process' store of that name; only the last few are remembered."""
    with _here_lock:
        if name not in _HERE:
            _HERE[name] = Kept(room, _name=name)
            for oldest in list(_HERE)[:-_PASSES_HERE]:
                del _HERE[oldest]
        return _HERE[name]
