"""The experiments of the paper, one file each: its runs, its figures and tables, its claims."""

from eigengp.reproduce.experiments.experiment import Experiment
from eigengp.reproduce.experiments.figure1 import FIGURE_1
from eigengp.reproduce.experiments.figure2 import FIGURE_2
from eigengp.reproduce.experiments.figure3 import FIGURE_3
from eigengp.reproduce.experiments.figure4 import FIGURE_4
from eigengp.reproduce.experiments.rvm import RVM
from eigengp.reproduce.experiments.table1 import TABLE_1

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (FIGURE_1, FIGURE_2, TABLE_1, FIGURE_3, RVM, FIGURE_4)
}
"""In the order of the page, which is the paper's."""

__all__ = ["EXPERIMENTS", "Experiment"]
