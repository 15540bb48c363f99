"""Sparse GPs: FITC, VFE and power EP with inducing points, and the sparse spectrum GP (SSGP)."""

from __future__ import annotations

from dataclasses import field
from numbers import Real
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.utils._param_validation import Interval

from eigengp._typing import Array
from eigengp.backend.namespace import on_host
from eigengp.estimators.base import POINTS as POINTS
from eigengp.estimators.base import GPRegressor
from eigengp.fitting.learn import learn_sparse, learn_sparse_spectrum


class InducingPointRegressor(GPRegressor):
    """A method whose inducing points are learned with kernel hyperparameters and noise variance.

    Parameters
    ----------
    n_components : int or "auto"
        M, the number of inducing points. "auto" is 100, or a quarter of the rows if that is fewer.

    Attributes
    ----------
    inducing_points_ : array of shape (M, D)
        The inducing points, in the units of the data.
    jitter_ : float
        The constant added to the diagonal of the kernel matrix at the inducing points.
    """

    n_components: int | Literal["auto"] = field(default="auto", kw_only=False)
    likelihood: Any = "gaussian"
    mean: Any = "constant"
    inducing_points: Any = "auto"
    optimizer: Any = "auto"
    precision: Literal["auto", "double", "mixed", "single"] = "auto"
    device: str | None = None
    inducing_points_: Array = field(init=False)
    _learn = staticmethod(learn_sparse)
    _takes_unlabelled = True


class FITCRegressor(InducingPointRegressor):
    """Sparse GP with pseudo-inputs (Snelson and Ghahramani, 2006).

    The prior covariance of the latent function at the training rows is replaced by `K̃ = K_XB
    K_BB⁻¹ K_BX`, except for its diagonal, which is exact. Inducing points `B`, kernel
    hyperparameters and noise variance are learned together by maximising the log marginal
    likelihood. The diagonal of the residual covariance, `k(x_n, x_n) − K̃_nn`, acts as
    input-dependent noise. That gives good densities, but it can take the place of the noise, so
    that `noise_variance_` is much too small. FITC is stage 1 of EigenGP+ without the guard, except
    that rows with equal inputs do not share this noise.

    Examples
    --------
    >>> import numpy as np
    >>> from eigengp import LBFGS, FITCRegressor
    >>> X = np.linspace(0, 6, 120)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=120)
    >>> model = FITCRegressor(8, optimizer=LBFGS(n_restarts=4), random_state=0).fit(X, y)
    >>> bool(abs(model.predict([[2.0]])[0] - np.sin(2.0)) < 0.1)
    True
    """

    _power = 1.0


class VFERegressor(InducingPointRegressor):
    """Sparse GP by a variational bound (Titsias, 2009).

    The log marginal likelihood of stage 1 of EigenGP minus the whole trace term,
    `Σ_n (k(x_n,x_n) − k̃(x_n,x_n))/(2σ²)`, is a lower bound on that of the exact GP. Maximising it
    cannot over-fit through the inducing points, and predictions approach the exact GP as their
    number grows. The predictive variance includes `k(x,x) − k̃(x,x)`. With few inducing points, the
    noise variance is over-estimated.

    Attributes
    ----------
    log_marginal_likelihood_ : float
        The bound on the log marginal likelihood of the training data.

    Examples
    --------
    >>> import numpy as np
    >>> from eigengp import LBFGS, VFERegressor
    >>> X = np.linspace(0, 6, 120)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=120)
    >>> model = VFERegressor(8, optimizer=LBFGS(n_restarts=4), random_state=0).fit(X, y)
    >>> bool(abs(model.predict([[2.0]])[0] - np.sin(2.0)) < 0.1)
    True
    """

    _power = 0.0


class PowerEPRegressor(InducingPointRegressor):
    """Sparse GP by power expectation propagation (Bui, Yan and Turner, 2017).

    A fraction α of the diagonal of the residual covariance is treated as noise of the rows, and the
    rest as a penalty: α = 1 is FITC, and α = 0 is VFE. Values in between often predict best.

    Parameters
    ----------
    alpha : float
        The power, between 0 and 1.

    Attributes
    ----------
    log_marginal_likelihood_ : float
        The power EP approximation of the log marginal likelihood of the training data.

    Examples
    --------
    >>> import numpy as np
    >>> from eigengp import LBFGS, PowerEPRegressor
    >>> X = np.linspace(0, 6, 120)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=120)
    >>> optimizer = LBFGS(n_restarts=4)
    >>> model = PowerEPRegressor(8, alpha=0.5, optimizer=optimizer, random_state=0).fit(X, y)
    >>> bool(abs(model.predict([[2.0]])[0] - np.sin(2.0)) < 0.1)
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "alpha": [Interval(Real, 0, 1, closed="both")]
    }
    alpha: float = 0.5


class SSGPRegressor(GPRegressor):
    """Sparse spectrum GP (Lázaro-Gredilla et al., 2010).

    The latent function is a sum of waves; their frequencies (spectral points), lengthscales and
    variance are learned by maximising the log marginal likelihood, with amplitudes and phases
    integrated out. The waves are global: they continue where there are no data, and learned
    frequencies can over-fit when there are many.

    Parameters
    ----------
    n_components : int or "auto"
        The number of waves. Each spectral point is two of them, a cosine and a sine, so that any
        method with as many components costs the same; an odd number is rounded up. "auto" is 100,
        or a quarter of the rows if that is fewer.
    kernel : Stationary or str
        A single stationary kernel; the initial spectral points are drawn from its spectral density.

    Attributes
    ----------
    spectral_points_ : array of shape (m, D)
        The learned angular frequencies, in the units of the data.
    kernel_ : Kernel
        Holds the learned lengthscales and variance; the covariance of the model is that of its
        waves, and other hyperparameters of the kernel keep their initial values.

    Examples
    --------
    >>> import numpy as np
    >>> from eigengp import LBFGS, SSGPRegressor
    >>> X = np.linspace(0, 6, 120)[:, None]
    >>> y = np.sin(5 * X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=120)
    >>> model = SSGPRegressor(6, optimizer=LBFGS(n_restarts=8), random_state=0).fit(X, y)
    >>> bool(np.abs(np.abs(model.spectral_points_) - 5).min() < 0.1)
    True
    """

    spectral_points_: Array = field(init=False)
    _learn = staticmethod(learn_sparse_spectrum)

    n_components: int | Literal["auto"] = field(default="auto", kw_only=False)
    likelihood: Any = "gaussian"
    mean: Any = "constant"
    optimizer: Any = "auto"
    precision: Literal["auto", "double", "mixed", "single"] = "auto"
    device: str | None = None

    def _prior_correlation(self, apart: Array) -> Array:
        phase = apart @ on_host(self.spectral_points_).T
        return np.mean(np.cos(phase), axis=1)
