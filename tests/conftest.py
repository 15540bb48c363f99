"""What all tests share: reproducible property tests, the core of the suite, reference data."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
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

HERE = Path(__file__).resolve().parent

NOT_CORE = {
    "slow": "atomic campaign checkpoint classifier determinism exact_of_few imports input_map "
    "invariance memory methods noise_level plot power_ep io* regression_likelihoods stored_fits "
    "threads variational vecchia_fit",
    "around the model": "bad_input conformal eigen_features extremes files inspection open "
    "transformed validation",
    "baselines": "nystrom relevance rvm",
    "other libraries": "array_api botorch dask frames fused neighbors onnx realdata robust triton*",
    "commands and pages": "cli command* docs hostile_names html report* tables",
}
"""Modules that `pytest -m core` leaves out, without `test_`."""
NOT_CORE_NAMES = ("estimator_checks", "fewer_eigenfunctions", "torch")
"""In the names of single tests that it leaves out."""

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


def pytest_configure(config: pytest.Config) -> None:
    """Leave examples in docstrings and tests of other folders out of the core."""
    if config.option.markexpr == "core":
        config.option.doctestmodules = False
        if config.args_source is config.ArgsSource.TESTPATHS:
            config.args = [str(HERE)]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import modules outside the core if only the core is to run."""
    return True if config.option.markexpr == "core" and not _in_core(collection_path) else None


def _in_core(path: Path) -> bool:
    names = " ".join(NOT_CORE.values()).split()
    return HERE in path.parents and not any(path.match(f"test_{name}.py") for name in names)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the core; leave out scikit-learn's checks for absent array libraries and devices."""
    for item in items:
        if _in_core(item.path) and not any(name in item.name for name in NOT_CORE_NAMES):
            item.add_marker("core")
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


@cache
def _golden_cases() -> dict[str, Any]:
    reference = json.loads((HERE / "data" / "golden" / "eigengp_reference.json").read_text())
    return {case["name"]: case for case in reference["cases"]}


@pytest.fixture(params=GOLDEN_CASES)
def golden_case(request: pytest.FixtureRequest) -> dict[str, Any]:
    """One case of the reference vectors, as their README describes it."""
    return _golden_cases()[request.param]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Return a headless browser, or skip where there is none."""
    from browsing import started

    with started() as browser:
        yield browser


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
