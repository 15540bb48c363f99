"""A small part of the campaign: the same cases that `python benchmarks campaign` begins with."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

COUNTS = {
    "fits": 30,
    "larger fits": 1,
    "likelihoods": 12,
    "files": 60,
    "tables": 20,
    "kills": 5,
    "processes": 4,
}
COUNTS["resources"] = 4


@pytest.fixture(scope="module")
def campaign() -> Any:
    for name in ("resource", "typer", "pyarrow", "safetensors", "rich"):
        pytest.importorskip(name)
    folder = str(Path(__file__).parents[1] / "benchmarks")
    sys.path.insert(0, folder)
    yield import_module("campaign")
    sys.path.remove(folder)


@pytest.mark.parametrize("part", COUNTS)
def test_promises_are_kept(part: str, campaign: Any) -> None:
    record = campaign.run_batch(part, 0, COUNTS[part])
    assert record["failures"] == []
    assert sum(record[end] for end in campaign.ENDS) == COUNTS[part]


def test_a_campaign_goes_on_where_it_was(
    campaign: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[int] = []

    def check(seed: int, folder: Path) -> str:
        ran.append(seed)
        if seed == 150 and len(ran) < 300:
            raise ValueError("broken")
        return "kept"

    monkeypatch.setattr(campaign, "get_check", lambda part: check)
    assert campaign.run(tmp_path, counts={"files": 100}, again=False)
    assert not campaign.run(tmp_path, counts={"files": 250}, again=False)
    assert ran == list(range(250))
    assert not campaign.run(tmp_path, counts={"files": 250}, again=False)
    assert len(ran) == 250
    ran += [0] * 50
    assert campaign.run(tmp_path, counts={"files": 250}, again=True)
    assert ran[300:] == list(range(100, 200))


def test_the_number_of_processes_does_not_change_a_campaign(
    campaign: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign, "BATCHES", {"fits": 4})
    found = []
    for jobs in (1, 2):
        out = tmp_path / str(jobs)
        assert campaign.run(out, counts={"fits": 9}, again=False, jobs=jobs)
        records = json.loads((out / "campaign.json").read_text())["records"]
        found.append([{**each, "run": None, "seconds": None} for each in records])
    assert found[0] == found[1]
    assert [(each["first"], each["count"]) for each in found[0]] == [(0, 4), (4, 4), (8, 1)]
