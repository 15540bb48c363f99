"""VFE: variational learning of inducing inputs."""

from __future__ import annotations

from eigengp.estimators.inducing import InducingRegressor


class VFERegressor(InducingRegressor):
    """Sparse GP by a variational bound (Titsias, 2009).

    The evidence of stage 1 of EigenGP less the whole trace term,
    `Σ_n (k(x_n,x_n) − k̃(x_n,x_n))/(2σ²)`, is a lower bound on the evidence of
    the full GP. Maximising it cannot over-fit through the basis points, and
    predictions approach the full GP as their number grows; with few of them
    the noise is over-estimated.

    Parameters
    ----------
    n_components : int or None
        M, how many inducing inputs. None takes 100, or a quarter of the rows
        if that is fewer.
    kernel, noise_variance, init, n_restarts, max_iter, tol, standardize, random_state, verbose
        As in `EigenGPRegressor`.

    Attributes
    ----------
    log_marginal_likelihood_ : float
        The bound on the log evidence of the training data.
    inducing_points_, kernel_, noise_variance_, history_, n_iter_, jitter_, target_mean_
        As in `EigenGPRegressor`.

    Examples
    --------
    >>> import numpy as np
    >>> from eigengp import VFERegressor
    >>> X = np.linspace(0, 6, 120)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=120)
    >>> model = VFERegressor(8, n_restarts=4, random_state=0).fit(X, y)
    >>> bool(abs(model.predict([[2.0]])[0] - np.sin(2.0)) < 0.1)
    True
    """

    _power = 0.0
    _draws_jointly = True
