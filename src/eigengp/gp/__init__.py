"""The mathematics, in the order in which a row passes through it; knows no scikit-learn.

Rows to the log marginal likelihood: `blocks` (rows, and sums over them) → `features` (rows to
features) → `sums` (features to M × M sums, and back) → `prior` (of the coefficients) → `evidence`
(value and adjoints) → `approximations` (one pass over the rows for each kind of model) → `model`,
`exact`, `sparse_spectrum` (what is learned). Predictions: `posterior`, `exact_posterior`.
Nearest neighbours: `vecchia`, `vecchia_posterior`. `likelihoods` and `mean` say what targets are
and what the function is far away; `heteroscedastic` how the noise depends on the input.
`linalg`, `precision` and `gpu` are tools of all.
"""
