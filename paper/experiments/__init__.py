"""The experiments of the paper, one file each: its runs, its figures and tables, its claims."""

from paper.experiments.experiment import Experiment
from paper.experiments.figure1 import FIGURE_1
from paper.experiments.figure2 import FIGURE_2
from paper.experiments.figure3 import FIGURE_3
from paper.experiments.figure4 import FIGURE_4
from paper.experiments.rvm import RVM
from paper.experiments.table1 import TABLE_1

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (FIGURE_1, FIGURE_2, TABLE_1, FIGURE_3, RVM, FIGURE_4)
}
"""In the order of the page, which is the paper's."""

__all__ = ["EXPERIMENTS", "Experiment"]
