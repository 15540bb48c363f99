"""The paper's experimental section as one command: `eigengp reproduce`.

An experiment (`experiments/`) says which runs it needs and how they are shown. Runs are carried out
in worker processes (`workers`), each is stored as it ends (`store`), and the page (`page`) is drawn
from what is stored. The paper's own numbers are in `paper`, the methods with their colours in
`methods`, and what `--quick` makes smaller in `scale`.
"""
