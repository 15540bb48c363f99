"""Gaussian-process classification of two and many classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, _fit_context
from sklearn.utils import check_array
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from eigengp._typing import Array
from eigengp.data.dask_source import is_dask
from eigengp.data.frames import open_frame
from eigengp.data.open import check_weight, is_out_of_core
from eigengp.estimators.base import KERNEL_NAMES, GPEstimator
from eigengp.estimators.sparse import POINTS
from eigengp.fitting.learn import learn
from eigengp.fitting.settings import LBFGS, Settings
from eigengp.gp.likelihoods import Bernoulli, Softmax
from eigengp.gp.variational import LatentPosterior
from eigengp.kernels import Kernel


# scikit-learn ships no types.
class EigenGPClassifier(ClassifierMixin, GPEstimator):  # type: ignore[misc]
    """Gaussian-process classification with inducing points, of two and many classes.

    Two classes have one latent function with a logistic link; more have one latent function for
    each class and softmax. The latent functions share a kernel and inducing points, which maximise
    a lower bound of the log marginal likelihood. In this bound, each row acts on a latent function
    as a Gaussian observation, whose weight and target are updated in rounds. An evaluation takes
    O(C·N·M²) time for C latent functions.

    Two factors, of the means and of the standard deviations of the latent functions, are then
    fitted to leave-one-out predictions: the variational posterior alone gives probabilities that
    are too cautious.

    Parameters
    ----------
    n_components : int or "auto"
        M, the number of inducing points. "auto" is 200, or 400 from 5,000 to 200,000 rows of two
        classes; if there are no more than 500 rows of two classes, or 200 rows of more, all rows
        are inducing points.
    kernel : {"auto"}, Kernel or str
        The covariance function of the latent functions. A `Kernel` object is in the units of the
        inputs; its hyperparameters are initial values. A name such as "matern52" selects that
        kernel. "auto" chooses among squared exponential, Matérn 5/2, 3/2 and 1/2 by the bound of
        1,000 rows; for up to three inputs also a `Warped` squared exponential.
    class_weight : {"balanced"}, dict or None
        Weights of the classes, by label; "balanced" weighs classes by the inverse of their number
        of rows. Probabilities are then those of data in which classes count so.
    inducing_points : {"auto", "kmeans", "random", "greedy"} or array of shape (M, D)
        The initial inducing points; "auto" is "kmeans".
    optimizer : {"auto"} or LBFGS
        How the bound is maximised; `max_iter` alone is used, and "auto" is at most 100 iterations.
    standardize : bool or "robust"
        How inputs are scaled before learning; see `EigenGPRegressor`.
    categorical_features : {"from_dtype"}, array-like, TableEncoder or None
        Which columns are categories; see `EigenGPRegressor`.
    max_time : float or None
        Approximate time limit of the fit in seconds; None is no limit.
    random_state : int, RandomState or None
        Seed of subsets of the rows and of k-means.
    verbose : bool, int or None
        Whether to show a progress bar with the bound; see `EigenGPRegressor`.

    Attributes
    ----------
    classes_ : array of shape (C,)
        The labels, sorted.
    kernel_ : Kernel
        The learned kernel, in the units of the inputs; its variance is that of a latent function.
    inducing_points_ : array of shape (M, D)
        The learned inducing points.
    log_marginal_likelihood_ : float
        The lower bound of the log marginal likelihood of the training data.
    jitter_ : float
        The constant added to the diagonal of the kernel matrix at the inducing points.
    likelihood_ : Bernoulli or Softmax
        The likelihood.

    Examples
    --------
    >>> import numpy as np
    >>> from eigengp import EigenGPClassifier
    >>> X = np.random.default_rng(0).normal(size=(80, 2))
    >>> y = np.where(np.hypot(*X.T) < 1.0, "inside", "outside")
    >>> model = EigenGPClassifier(random_state=0).fit(X, y)
    >>> model.predict([[0.0, 0.0], [3.0, 0.0]])
    array(['inside', 'outside'], dtype='<U7')
    """

    _posterior: LatentPosterior = field(init=False)
    _online: None = field(init=False)
    _learn = staticmethod(learn)
    _learns_in_memory = True

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "kernel": [Kernel, KERNEL_NAMES, StrOptions({"auto"})],
        "class_weight": [StrOptions({"balanced"}), dict, None],
        "inducing_points": [POINTS, "array-like"],
        "optimizer": [LBFGS, StrOptions({"auto"})],
        "standardize": ["boolean", StrOptions({"robust"})],
        "categorical_features": GPEstimator._parameter_constraints["categorical_features"],
        "max_time": [Interval(Real, 0, None, closed="neither"), None],
        "random_state": ["random_state"],
        "verbose": ["verbose", None],
    }

    n_components: int | Literal["auto"] = field(default="auto", kw_only=False)
    kernel: Kernel | str = "auto"
    class_weight: Literal["balanced"] | Mapping[Any, float] | None = None
    inducing_points: Any = "auto"
    optimizer: Any = "auto"
    max_time: float | None = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.array_api_support = False
        return tags

    # scikit-learn ships no types.
    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the classifier; a fit that fails leaves an earlier one unchanged.

        Parameters
        ----------
        X : array of shape (N, D) or frame
            Inputs. Frames may hold text, categories, flags, dates and missing values.
        y : array of shape (N,) or str
            Labels: numbers or strings; or the name of their column in the frame.
        sample_weight : array of shape (N,), str or None
            How many times each row counts, or the name of that column.

        Returns
        -------
        self : object
            The fitted classifier.
        """
        if is_dask(X) or is_out_of_core(X):
            raise TypeError(
                "EigenGPClassifier takes arrays and frames; read files and Dask collections into "
                "memory first."
            )
        frame = open_frame(X, y, sample_weight, self.categorical_features)
        labels, weight = _check_labels(type(self).__name__, frame.y, frame.sample_weight)
        classes, codes = np.unique(labels, return_inverse=True)
        if self.class_weight is not None:
            own = compute_sample_weight(self.class_weight, labels)
            weight = own if weight is None else weight * own
        kept = classes if weight is None else np.unique(labels[weight > 0.0])
        if kept.size < 2:
            raise ValueError(
                "EigenGPClassifier needs at least two classes, but the rows that count have one "
                f"class: {kept[0]!r}."
            )
        likelihood = Bernoulli() if classes.size == 2 else Softmax(int(classes.size))
        settings = Settings.from_estimator(self, frame)
        reading = settings.reading._replace(scales_targets=False, mean="constant")
        settings = replace(settings, likelihood=likelihood, reading=reading)
        self._adopt(self._find_fit(frame.X, codes.astype(np.float64), weight, settings))
        self.classes_ = classes
        return self

    def predict_proba(self, X: ArrayLike) -> Array:
        """Return the probabilities of all classes.

        Parameters
        ----------
        X : array of shape (n, D)
            Where to predict.

        Returns
        -------
        probabilities : array of shape (n, C)
            Averages over the posterior of the latent functions, in the order of `classes_`.
        """
        X, likelihood = self._inputs(X, "predict_proba"), self.likelihood_
        probabilities: Array = self._by_blocks(
            lambda rows: likelihood.predict_classes(*self._posterior.latent(rows)), X
        )
        return probabilities

    def predict_log_proba(self, X: ArrayLike) -> Array:
        """Return the logarithms of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the most probable class of each row.

        Parameters
        ----------
        X : array of shape (n, D)
            Where to predict.

        Returns
        -------
        labels : array of shape (n,)
            Elements of `classes_`.
        """
        best = np.argmax(self.predict_proba(X), axis=1)
        found: NDArray[Any] = self.classes_[best]
        return found

    def decision_function(self, X: ArrayLike) -> Array:
        """Return the logarithms of odds or probabilities.

        Parameters
        ----------
        X : array of shape (n, D)
            Where to predict.

        Returns
        -------
        values : array of shape (n,) or (n, C)
            For two classes, the log odds of `classes_[1]`; for more, `predict_log_proba`.
        """
        log_p = np.log(np.maximum(self.predict_proba(X), np.finfo(np.float64).tiny))
        return log_p[:, 1] - log_p[:, 0] if log_p.shape[1] == 2 else log_p


def _check_labels(name: str, y: Any, sample_weight: Any) -> tuple[NDArray[Any], Array | None]:
    """Return validated labels and weights, each of shape (N,)."""
    if y is None:
        raise ValueError(
            f"This {name} estimator requires y to be passed, but the target y is None."
        )
    y = check_array(y, ensure_2d=False, dtype=None, input_name="y", ensure_all_finite=True)
    labels = column_or_1d(y, warn=True)
    check_classification_targets(labels)
    weight = check_weight(sample_weight, labels.shape[0])
    return labels, weight
