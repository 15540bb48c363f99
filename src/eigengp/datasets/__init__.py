"""Data to try a model on: sets that are made on the spot, and the benchmarks of the literature.

The makers need nothing. The fetchers look into the folder of Parquet files that the environment
variable `EIGENGP_DATA` names, then into a cache, and then download what scikit-learn can get.
"""

from eigengp.datasets.dataset import Dataset
from eigengp.datasets.fetchers import (
    fetch_california,
    fetch_kin40k,
    fetch_nonstationary,
    fetch_pole,
    fetch_protein,
    fetch_snelson,
)
from eigengp.datasets.makers import (
    make_nonstationary,
    make_snelson_like,
    nonstationary_function,
    snelson_like_function,
)

__all__ = [
    "Dataset",
    "fetch_california",
    "fetch_kin40k",
    "fetch_nonstationary",
    "fetch_pole",
    "fetch_protein",
    "fetch_snelson",
    "make_nonstationary",
    "make_snelson_like",
    "nonstationary_function",
    "snelson_like_function",
]
