"""Gaussian-process classification of two and many classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, _fit_context
from sklearn.utils import check_array
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from eigengp._typing import Array
from eigengp.backend.namespace import AnyArray, dtype_name, namespace, on_host
from eigengp.data.dask_source import is_dask
from eigengp.data.formats import write_table
from eigengp.data.frames import find_unlabelled
from eigengp.data.open import (
    check_further_rows,
    check_weight,
    follows_dispatch,
    is_out_of_core,
)
from eigengp.data.out_of_core import predict_files, predict_lazily, read_chunks, read_labelled
from eigengp.estimators.base import KERNEL_NAMES, GPEstimator
from eigengp.estimators.sparse import POINTS
from eigengp.fitting.learn import learn
from eigengp.fitting.settings import Settings
from eigengp.fitting.variational import extend_posterior
from eigengp.gp.latent import NeighborLatent
from eigengp.gp.likelihoods import Bernoulli, Softmax
from eigengp.gp.variational import LatentPosterior
from eigengp.kernels import Kernel

_LEAST = float(np.finfo(np.float64).tiny)


def _keeps_no_rows(classifier: EigenGPClassifier) -> bool:
    fitted = isinstance(getattr(classifier, "_posterior", None), NeighborLatent)
    if fitted or classifier.residual == "neighbors":
        raise AttributeError(
            "partial_fit keeps no rows, which a nearest-neighbour residual needs; fit with "
            "residual=None, or start with partial_fit."
        )
    return True


# scikit-learn ships no types.
class EigenGPClassifier(ClassifierMixin, GPEstimator):  # type: ignore[misc]
    """Gaussian-process classification with inducing points, of two and many classes.

    Two classes have one latent function with a logistic link; more have one latent function for
    each class and softmax. The latent functions share a kernel and inducing points, which maximise
    a lower bound of the log marginal likelihood. In this bound, each row acts on a latent function
    as a Gaussian observation, whose weight and target are updated in rounds. An evaluation takes
    O(C·N·M²) time for C latent functions.

    With more than 500 rows of two classes, predictions also use the nearest rows (see `residual`).

    Two factors, of the means and of the standard deviations of the latent functions, are then
    fitted to leave-one-out predictions: the variational posterior alone gives probabilities that
    are too cautious.

    Parameters
    ----------
    n_components : int or "auto"
        M, the number of inducing points. "auto" with neighbours is one for 25 rows, at most 400.
        Without, it is 200, or 400 from 5,000 to 200,000 rows of two classes; if there are no more
        than 500 rows of two classes, or 200 rows of more, all rows are inducing points.
    kernel : {"auto"}, Kernel or str
        The covariance function of the latent functions. A `Kernel` object is in the units of the
        inputs; its hyperparameters are initial values. A name such as "matern52" selects that
        kernel. "auto" chooses among squared exponential, Matérn 5/2, 3/2 and 1/2 by the bound of
        1,000 rows; for up to three inputs also a `Warped` squared exponential, and the best of
        them with one lengthscale for all inputs, divided by their standard deviations or, where
        these differ, by their ranges. With neighbours it chooses among the four kernels, rational
        quadratic and three sums of these, in three rounds of up to 6,000 rows.
    residual : {"auto", None, "neighbors"}
        How predictions use what the inducing points leave out. None does not use it; the inducing
        points are then learned. "neighbors" conditions each prediction also on the nearest training
        rows, which act as Gaussian observations (Vecchia approximation); the kernel is then
        learned from groups of at most 600 nearby rows, and the inducing points are placed once.
        "auto" is "neighbors" for 501 to 100,000 rows of two classes, at most 1,000 rows for each
        second of `max_time`, and None otherwise, for a `Warped` kernel and in `partial_fit`.
    n_neighbors : int
        The number of nearest training rows on which a prediction is conditioned.
    class_weight : {"balanced"}, dict or None
        Weights of the classes, by label; "balanced" weighs classes by the inverse of their number
        of rows. Probabilities are then those of data in which classes count so.
    optimizer : {"auto"} or LBFGS
        How the bound is maximised; `max_iter` and `checkpoint` are used, and "auto" is at most 100
        iterations. A fit that resumes from a checkpoint ends within the tolerance of the rounds.
    max_time : float or None
        Approximate time limit of the fit in seconds; None is no limit.
    device : str or None
        Where passes over many rows are computed: None is the CPU, "cuda" a GPU (through PyTorch),
        and "auto" a GPU if there is one; see `selection_`. Tensors on a GPU are computed there
        (with scikit-learn's `array_api_dispatch`); probabilities are then tensors, and labels are
        in NumPy. With neighbours learning is on the CPU, and more than 5,000 rows at once are
        predicted on the GPU.

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

    _posterior: LatentPosterior | NeighborLatent = field(init=False)
    _online: None = field(init=False)
    _learn = staticmethod(learn)
    _learns_in_memory = True
    _takes_unlabelled = True

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **{
            name: own
            for name, own in GPEstimator._parameter_constraints.items()
            if name not in ("likelihood", "mean", "precision")
        },
        "n_components": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "kernel": [Kernel, KERNEL_NAMES, StrOptions({"auto"})],
        "class_weight": [StrOptions({"balanced"}), dict, None],
        "residual": [StrOptions({"auto", "neighbors"}), None],
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "inducing_points": [POINTS, "array-like"],
        "max_time": [Interval(Real, 0, None, closed="neither"), None],
    }

    n_components: int | Literal["auto"] = field(default="auto", kw_only=False)
    kernel: Kernel | str = "auto"
    residual: Literal["auto", "neighbors"] | None = "auto"
    n_neighbors: int = 64
    class_weight: Literal["balanced"] | Mapping[Any, float] | None = None
    inducing_points: Any = "auto"
    optimizer: Any = "auto"
    max_time: float | None = None
    device: str | None = None

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
        X : array of shape (N, D), frame, Dask collection, path, glob pattern or PyArrow dataset
            Inputs. Frames and files may hold text, categories, flags, dates and missing values.
            Files and Dask collections are read into memory; all columns but `y` and
            `sample_weight` are inputs.
        y : array of shape (N,), or str
            Labels: numbers or strings, or the name of their column. Rows whose label is NaN or None
            are unlabelled: their inputs are used for scaling and for placing inducing points.
        sample_weight : array of shape (N,), str or None
            How many times each row counts, or the name of that column.

        Returns
        -------
        self : object
            The fitted classifier.
        """
        return self._fit_labels(X, y, sample_weight, None, self.residual)

    def _fit_labels(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        given: Any,
        residual: str | None,
        online: bool = False,
    ) -> Self:
        """Fit to rows of the classes that are given, or of those in `y`; more rows may follow."""
        frame = read_labelled(X, y, sample_weight, self.categorical_features)
        labels, known, weight = _check_labels(type(self).__name__, frame.y, frame.sample_weight)
        classes = np.unique(labels) if given is None else np.unique(given)
        codes = np.full(known.size, np.nan)
        codes[known] = _encode(labels, classes)
        if self.class_weight is not None:
            own = np.zeros(known.size)
            own[known] = compute_sample_weight(self.class_weight, labels)
            weight = own if weight is None else weight * own
        kept = np.unique(labels if weight is None else labels[weight[known] > 0.0])
        if kept.size < 2:
            raise ValueError(
                "EigenGPClassifier needs at least two classes, but the rows that count have one "
                f"class: {kept[0]!r}."
            )
        likelihood = Bernoulli() if classes.size == 2 else Softmax(int(classes.size))

        def adapt(settings: Settings) -> Settings:
            reading = settings.reading._replace(scales_targets=False, mean="constant")
            if online:
                reading = reading._replace(orders_inputs=False)  # Other inputs may vary later.
            return replace(settings, likelihood=likelihood, reading=reading, residual=residual)

        self._adopt(self._find_fit(frame._replace(y=codes, sample_weight=weight), adapt))
        self.classes_ = classes
        return self

    # scikit-learn ships no types.
    @available_if(_keeps_no_rows)  # type: ignore[untyped-decorator]
    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn from more rows; the first call is a fit.

        Later calls update the posterior, of which the one so far is the prior; earlier rows are not
        kept. Kernel, inducing points and calibration stay those of the first call, which should
        therefore have a representative sample of the rows.

        Parameters
        ----------
        X : array of shape (n, D)
            Inputs.
        y : array of shape (n,)
            Labels.
        classes : array of shape (C,) or None
            All labels, in the first call; None is those in `y`.
        sample_weight : array of shape (n,) or None
            How many times each row counts.

        Returns
        -------
        self : object
            The classifier.
        """
        if is_out_of_core(X) or is_dask(X):
            raise TypeError("partial_fit takes arrays; fit reads files and Dask collections.")
        if not self.__sklearn_is_fitted__():
            return self._fit_labels(X, y, sample_weight, classes, None, online=True)
        labels, known, _ = _check_labels(type(self).__name__, y, sample_weight)
        if not known.all():
            raise ValueError("partial_fit needs a label in each row; y contains NaN or None.")
        codes = _encode(labels, self.classes_)
        if self.class_weight is not None:
            raise ValueError("partial_fit has no class_weight after its first call; pass weights.")
        rows = self._scaling.transform_block(check_further_rows(self, X, codes, sample_weight))
        assert isinstance(self._posterior, LatentPosterior)
        self._posterior, gained = extend_posterior(self._posterior, rows)
        self.log_marginal_likelihood_ += gained
        return self

    def predict_proba(self, X: ArrayLike) -> Array:
        """Return the probabilities of all classes.

        Parameters
        ----------
        X : array of shape (n, D), path, glob pattern, PyArrow dataset or Dask collection
            Where to predict.

        Returns
        -------
        probabilities : array of shape (n, C)
            Averages over the posterior of the latent functions, in the order of `classes_`; a lazy
            Dask array for a Dask collection.
        """
        check_is_fitted(self)
        if is_dask(X):
            lazily: Array = predict_lazily(self, X, _probabilities, self.classes_.size)
            return lazily
        if not isinstance(X, np.ndarray) and is_out_of_core(X):
            found: Array = predict_files(self, X, _probabilities)
            return found
        return _probabilities(self, self._inputs(X, "predict_proba"))

    def predict_to_file(self, X: Any, path: str | Path) -> int:
        """Predict the rows of files, and write classes and probabilities to another.

        Parameters
        ----------
        X : path, glob pattern or PyArrow dataset
            Where to predict; columns are found by their names.
        path : path
            File to write: Parquet, Arrow or CSV, chosen by its suffix. Written atomically.

        Returns
        -------
        n_rows : int
            How many rows were written.
        """
        check_is_fitted(self)
        if not is_out_of_core(X):
            raise TypeError("predict_to_file reads files; use predict_proba for arrays.")
        parts = (_probabilities(self, inputs) for inputs in read_chunks(self, X))
        return write_table(path, map(self._make_columns, parts))

    def _make_columns(self, p: Array) -> dict[str, Any]:
        """Return the most probable class and all probabilities as named columns."""
        likely: dict[str, Any] = {"class": self.classes_[np.argmax(p, axis=1)].tolist()}
        names = (f"probability_{label}" for label in self.classes_.tolist())
        return likely | dict(zip(names, p.T, strict=True))

    def predict_log_proba(self, X: ArrayLike) -> Array:
        """Return the logarithms of `predict_proba`."""
        p: Any = self.predict_proba(X)
        with np.errstate(divide="ignore"):
            logs: Array = p.log() if hasattr(p, "log") else np.log(p)
        return logs

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
        p: Any = self.predict_proba(X)
        if is_dask(p):
            best = p.argmax(axis=1)
            return best.map_blocks(self.classes_.take, dtype=self.classes_.dtype)
        found: NDArray[Any] = self.classes_[np.argmax(on_host(p), axis=1)]
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
        p = self.predict_proba(X)
        log_p = namespace(p).log(namespace(p).clip(p, _LEAST, None))
        return log_p[:, 1] - log_p[:, 0] if log_p.shape[1] == 2 else log_p


def _probabilities(model: EigenGPClassifier, X: AnyArray) -> Array:
    """Return the probabilities of all classes at inputs in the units of the data, shape (n, C)."""
    likelihood, posterior = model.likelihood_, model._posterior
    found: Array = model._by_blocks(
        lambda rows: likelihood.predict_classes(*posterior.latent(rows)), X, predicts=True
    )
    return found


def _check_labels(
    name: str, y: Any, sample_weight: Any
) -> tuple[NDArray[Any], NDArray[np.bool_], Array | None]:
    """Return validated labels, which rows have one, and the weights of all rows."""
    if y is None:
        raise ValueError(
            f"This {name} estimator requires y to be passed, but the target y is None."
        )
    if follows_dispatch(y):
        y = on_host(y).astype(dtype_name(y))
    missing = find_unlabelled(y)
    finite: Any = True if missing is None else "allow-nan"
    y = check_array(y, ensure_2d=False, dtype=None, input_name="y", ensure_all_finite=finite)
    labels = column_or_1d(y, warn=True)
    known = np.ones(labels.size, bool) if missing is None else ~missing
    if not known.any():
        raise ValueError("All labels in y are missing (NaN or None); some rows need a label.")
    if missing is not None:
        labels = np.array(labels[known].tolist())
    check_classification_targets(labels)
    return labels, known, check_weight(sample_weight, known.size)


def _encode(labels: NDArray[Any], classes: NDArray[Any]) -> Array:
    """Return the positions of labels among the classes, shape (n,)."""
    found = np.minimum(np.searchsorted(classes, labels), classes.size - 1)
    unknown = classes[found] != labels
    if np.any(unknown):
        raise ValueError(
            f"y has the label {labels[unknown][0]!r}, which is not among the classes "
            f"{classes.tolist()}."
        )
    return found.astype(np.float64)
