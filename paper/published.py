"""The numbers that the paper reports, in its own order (Peng and Qi, IJCAI 2015)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class Reported:
    """A number as the paper prints it.

    Parameters
    ----------
    text : str
        As printed, with a standard error where the paper has one.
    mean : float
        The number.
    error : float
        Its standard error, 0 where there is none.
    rounding : float
        Half of the last digit: what rounding hides.

    Examples
    --------
    >>> Reported.of("−0.33 ± 0.00")
    Reported(text='−0.33 ± 0.00', mean=-0.33, error=0.0, rounding=0.005)
    """

    text: str
    mean: float
    error: float = 0.0
    rounding: float = 0.0

    @classmethod
    def of(cls, text: str) -> Self:
        """Read a number as it is printed."""
        mean, _, error = text.replace("−", "-").partition(" ± ")
        decimals = len(mean.partition(".")[2])
        return cls(text, float(mean), float(error or 0.0), 0.5 * 10.0**-decimals)


def _reported(*columns: tuple[tuple[int, str], str]) -> dict[tuple[int, str], Reported]:
    return {cell: Reported.of(text) for cell, text in columns}


def _table_row(
    nmse_1: str, nmse_2: str, mnlp_1: str, mnlp_2: str
) -> dict[tuple[int, str], Reported]:
    return _reported(
        ((1, "nmse"), nmse_1), ((2, "nmse"), nmse_2), ((1, "mnlp"), mnlp_1), ((2, "mnlp"), mnlp_2)
    )


SIZES = {1: 7, 2: 14}
"""Basis functions on the two synthetic data sets."""

TABLE_1 = {
    "Nyström": _table_row("39 ± 18", "1526 ± 769", "645 ± 56", "2561 ± 1617"),
    "Nyström*": _table_row("2.41 ± 0.53", "2721 ± 370", "7.39 ± 1.66", "40 ± 5"),
    "FITC": _table_row("0.02 ± 0.005", "0.50 ± 0.04", "−0.07 ± 0.01", "0.88 ± 0.05"),
    "SSGP": _table_row("0.54 ± 0.01", "0.22 ± 0.05", "1.22 ± 0.03", "0.87 ± 0.09"),
    "EigenGP": _table_row("0.006 ± 0.001", "0.06 ± 0.02", "−0.33 ± 0.00", "0.40 ± 0.07"),
    "EigenGP*": _table_row("0.009 ± 0.002", "0.06 ± 0.02", "−0.31 ± 0.01", "0.44 ± 0.07"),
    "EigenGP+": _reported(((1, "nmse"), "0.014 ± 0.001"), ((1, "mnlp"), "−0.081 ± 0.004")),
    "RVM": _reported(((1, "nmse"), "0.048"), ((2, "nmse"), "0.0111 ± 0.0004")),
}
"""Table 1, by data set and metric; the numbers of EigenGP+ and RVM stand in the text."""

RVM_SIZES = {1: 30, 2: 50}
"""Basis functions of EigenGP* where it is compared with the RVM."""

RVM_COMPARISON = {
    "RVM": _reported(
        ((1, "nmse"), "0.048"),
        ((1, "seconds"), "2.0"),
        ((2, "nmse"), "0.0111 ± 0.0004"),
        ((2, "seconds"), "1.4 ± 0.05"),
    ),
    "EigenGP*": _reported(
        ((1, "nmse"), "0.039 ± 0.017"),
        ((1, "seconds"), "0.33 ± 0.04"),
        ((2, "nmse"), "0.0110 ± 0.0006"),
        ((2, "seconds"), "0.89 ± 0.1042"),
    ),
}

WIDTHS = {"FITC": "207.75", "EigenGP": "0.07"}
"""Average kernel width η on data set 2, as printed."""

NYSTROM_LARGE: dict[str, dict[int, tuple[float, float]]] = {
    "california": {
        25: (146, 917),
        50: (183, 120),
        100: (230, 103),
        200: (359, 317),
        400: (751, 95),
    },
    "protein": {
        25: (258, 1.7e5),
        50: (304, 6.4e4),
        100: (415, 1.3e4),
        200: (853, 8.1e3),
        400: (2001, 8.1e3),
    },
    "pole": {
        25: (179, 2.3e4),
        50: (205, 5.8e3),
        100: (267, 3.8e3),
        200: (478, 4.5e2),
        400: (959, 84),
    },
}
"""Nyström* on the large data sets: seconds and NMSE for each M."""

RVM_LARGE_MNLP = {
    name: Reported.of(text)
    for name, text in (("california", "1.30"), ("protein", "1.25"), ("pole", "0.95"))
}
FITC_POLE_400 = "0.033 / −1.27 (3485 s)"
"""NMSE, MNLP and seconds of FITC on Pole Telecomm with M = 400."""
