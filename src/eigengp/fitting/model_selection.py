"""Decisions of a fit: the choice, the candidates and their scores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

EXACT_UP_TO = 2_000  # Up to so many rows the default is the exact GP.


@dataclass(frozen=True)
class Decision:
    """One decision of a fit.

    Parameters
    ----------
    name : str
        The parameter.
    chosen : str
        The choice.
    reason : str
        The reason, or the name of the score.
    scores : dict
        The score of each candidate, lower is better; empty if there was no comparison.

    Examples
    --------
    >>> print(Decision("kernel", "Matern32", "lowest loss", {"Matern32": 0.51, "Matern52": 0.55}))
    kernel: Matern32 (lowest loss: Matern32 0.51, Matern52 0.55)
    """

    name: str
    chosen: str
    reason: str
    scores: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        ranked = sorted(self.scores.items(), key=lambda each: each[1])
        scores = ", ".join(f"{name} {score:.4g}" for name, score in ranked)
        return f"{self.name}: {self.chosen} ({self.reason}{': ' * bool(scores)}{scores})"


@dataclass(frozen=True)
class Selection:
    """All decisions of a fit, one line each; `selection["kernel"]` returns one of them."""

    decisions: tuple[Decision, ...] = ()

    def __iter__(self) -> Iterator[Decision]:
        return iter(self.decisions)

    def __contains__(self, name: object) -> bool:
        return any(each.name == name for each in self.decisions)

    def __getitem__(self, name: str) -> Decision:
        for each in self.decisions:
            if each.name == name:
                return each
        known = ", ".join(each.name for each in self.decisions) or "none"
        raise KeyError(f"There was no decision about {name!r}; there were: {known}.")

    def __repr__(self) -> str:
        return "\n".join(map(str, self.decisions)) or "nothing to choose"
