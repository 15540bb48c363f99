"""The experimental section of the EigenGP paper, run from a checkout as `python paper`.

An experiment (`experiments/`) says which runs it needs and how they are shown. Runs are carried out
in worker processes (`workers`), each is stored as it ends (`store`), and the page (`page`) is drawn
from what is stored. The numbers of the paper are in `published`, the estimators with their settings
and colours in `methods`, the data in `problems`, and what `--quick` makes smaller in `scale`.
"""
