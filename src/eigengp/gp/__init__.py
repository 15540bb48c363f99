"""The mathematics, in the order in which a row passes through it; knows no scikit-learn.

Rows to the log marginal likelihood: `blocks` (rows, and sums over them) → `sums` (their features to
M × M sums, and back) → `linalg` (the prior of the coefficients) → `evidence` (value and adjoints) →
`approximations`, `residual` (one pass over the rows for each kind of model) → `model`,
`sparse_spectrum` (what is learned). Predictions: `posterior`. The full GP: `exact`,
`exact_posterior`. Nearest neighbours: `vecchia`, `vecchia_posterior`, and `conjugate_gradients` for
the mean of all rows. Non-Gaussian likelihoods: `variational`, `latent`. `likelihoods` and `mean`
say what targets are and what the function is far away; `heteroscedastic` how the noise depends on
the input.
`precision`, `gpu` and `sensitivity` are tools of all.
"""
