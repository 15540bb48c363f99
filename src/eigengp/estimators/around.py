"""What estimators share that are built around a regressor."""

from __future__ import annotations

from typing import Any, ClassVar


class Around:
    """An estimator whose inputs are those of a regressor that it fits."""

    _inner: ClassVar[str]  # The attribute that holds the fitted regressor.

    @property
    def n_features_in_(self) -> int:
        """How many inputs there are."""
        return int(self._fitted("n_features_in_"))

    @property
    def feature_names_in_(self) -> Any:
        """The names of the inputs, where `fit` was given names."""
        return self._fitted("feature_names_in_")

    def _fitted(self, name: str) -> Any:
        """Return an attribute of the fitted regressor, as if it were one of this object."""
        if self._inner not in vars(self):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r} before fit.")
        return getattr(vars(self)[self._inner], name)
