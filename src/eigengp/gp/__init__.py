"""The mathematics, in the order in which a row passes through it; knows no scikit-learn.

Rows to the log marginal likelihood: `blocks` (rows, and sums over them) → `sums` (their features to
M × M sums, and back) → `linalg` (the prior of the coefficients) → `evidence` (value and adjoints) →
`approximations`, `residual` (one pass over the rows for each kind of model) → `model`,
`sparse_spectrum` (what is learned). Predictions: `posterior`. The full GP with its predictions:
`exact`. Nearest neighbours: `vecchia`, `vecchia_posterior`. `likelihoods` and `mean` say what
targets are and what the function is far away; `heteroscedastic` how the noise depends on the input.
`precision` and `gpu` are tools of all.
"""
