"""FITC: the fully independent training conditional approximation."""

from __future__ import annotations

from eigengp.estimators.inducing import InducingRegressor


class FITCRegressor(InducingRegressor):
    """Sparse GP with pseudo-inputs (Snelson and Ghahramani, 2006).

    The covariance of the training targets is exact on its diagonal and
    `K_XB K_BB⁻¹ K_BX` elsewhere; pseudo-inputs `B`, kernel and noise are
    learned together by maximising the evidence. It is stage 1 of EigenGP+.
    What the basis leaves out acts as noise that depends on the input, which
    gives good densities, but it can stand in for the noise itself:
    `noise_variance_` may come out much too small.

    Parameters
    ----------
    n_components : int or None
        M, how many pseudo-inputs. None takes 100, or a quarter of the rows
        if that is fewer.
    kernel, noise_variance, init, n_restarts, max_iter, tol, standardize, random_state, verbose
        As in `EigenGPRegressor`.

    Attributes
    ----------
    inducing_points_, kernel_, noise_variance_, log_marginal_likelihood_, history_, n_iter_, \
jitter_, target_mean_
        As in `EigenGPRegressor`.

    Examples
    --------
    >>> import numpy as np
    >>> from eigengp import FITCRegressor
    >>> X = np.linspace(0, 6, 120)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=120)
    >>> model = FITCRegressor(8, n_restarts=4, random_state=0).fit(X, y)
    >>> bool(abs(model.predict([[2.0]])[0] - np.sin(2.0)) < 0.1)
    True
    """

    _power = 1.0
    _draws_jointly = True
