"""What all tests share: reproducible property tests and the way to the shared data."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# Read by SciPy when it is first imported; scikit-learn's array-API checks skip without it.
os.environ.setdefault("SCIPY_ARRAY_API", "1")
# Read by Triton when it is first imported: without a GPU its kernels run as plain Python.
if not Path("/dev/nvidia0").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")

settings.register_profile(
    "eigengp", deadline=None, derandomize=True, database=None, max_examples=25
)
settings.load_profile("eigengp")

SHARED = Path(__file__).resolve().parents[2] / "shared"

GOLDEN_CASES = (
    "d1_n40_m5_case00",
    "d1_n45_m6_case01",
    "d1_n50_m7_case02",
    "d1_n60_m8_case03",
    "d3_n40_m5_case06",
    "d3_n45_m6_case07",
    "d3_n50_m7_case08",
    "d3_n60_m8_case09",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out scikit-learn's checks for array libraries and devices that are not here."""
    absent = [item for item in items if not _possible(item)]
    if absent:
        config.hook.pytest_deselected(items=absent)
        items[:] = [item for item in items if _possible(item)]


def _possible(item: pytest.Item) -> bool:
    own = getattr(item, "callspec", None)  # Parametrised items alone have one.
    check = own and own.params.get("check")
    if not isinstance(check, partial):
        return True
    own = check.keywords
    wanted = [(own.get("array_namespace"), own.get("device_name"))]
    wanted += [own[name] for name in ("X_ns_and_device", "other_ns_and_device") if name in own]
    return all(_is_here(library, device) for library, device in wanted)


@cache
def _is_here(library: str | None, device: Any) -> bool:
    if library is None:
        return True
    if find_spec(library.partition(".")[0]) is None:
        return False
    if library != "torch" or device in (None, "cpu"):
        return True
    import torch

    return device == "cuda" and torch.cuda.is_available()


@pytest.fixture
def short_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Screen starts by few iterations and move few inducing points, for tests of other things."""
    monkeypatch.setattr("eigengp.fitting.restarts.ROUNDS", ((1.0, 4),))
    monkeypatch.setattr("eigengp.fitting.restarts.RELOCATIONS", 2)


@pytest.fixture
def triton_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a scalar of Triton's interpreter bound a loop, which NumPy ≥ 2.4 refuses it."""
    if not os.environ.get("TRITON_INTERPRET"):
        return
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor

    def patch_with_index(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    monkeypatch.setattr(interpreter, "_patch_lang_tensor", patch_with_index)


def _shared_path(name: str) -> Path:
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"needs the shared file {path}, which is not here")
    return path


@cache
def _golden_cases(path: Path) -> dict[str, Any]:
    reference = json.loads(path.read_text())
    return {case["name"]: case for case in reference["cases"]}


@pytest.fixture
def shared_data() -> Callable[[str], Path]:
    """Return the path of a data set such as `shared_data("snelson.parquet")`, or skip."""
    return lambda name: _shared_path(f"data/{name}")


@pytest.fixture(params=GOLDEN_CASES)
def golden_case(request: pytest.FixtureRequest) -> dict[str, Any]:
    """One case of the reference vectors, as their README describes it."""
    return _golden_cases(_shared_path("golden/eigengp_reference.json"))[request.param]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a fresh data folder for scikit-learn; no network, and no data but what a test puts."""
    path = tmp_path / "home"
    monkeypatch.delenv("EIGENGP_DATA", raising=False)
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(path))
    for name in ("fetch_california_housing", "fetch_openml"):
        monkeypatch.setattr(f"sklearn.datasets.{name}", _refuse)
    return path


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that a tiny reproduction has left, to be read and not written."""
    from tiny_reproduction import reproduced

    base = tmp_path_factory.getbasetemp()
    return reproduced(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Return a headless browser, or skip where there is none."""
    from browsing import started

    with started() as browser:
        yield browser


def _refuse(**settings: object) -> None:
    raise AssertionError(f"a download was tried: {settings}")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a table to learn from, one to test on, and a model; to be read only."""
    pa, pacsv = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.csv")
    from command_line import call, houses

    path = tmp_path_factory.mktemp("commands")
    for name, n, seed in (("houses", 60, 0), ("test", 30, 1)):
        pacsv.write_csv(pa.table(houses(n, seed)), path / f"{name}.csv")
    result = call(
        *("fit", path / "houses.csv", "--target", "price", "--out", path / "m.eigengp"),
        *("--method", "exact", "--holdout", "0.25", "--seed", "3"),
    )
    assert result.exit_code == 0, result.stderr
    (path / "said").write_text(result.stdout)
    return path
