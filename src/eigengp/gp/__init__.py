"""The mathematics, in the order in which a row passes through it.

`sums` (rows to M × M sums, and back) → `prior` (that of the
coefficients) → `evidence` (value and adjoints) → `model` (all of it in one
object) → `posterior` (predictions).
"""
