"""Saved models come back as they were, to the last bit."""

from __future__ import annotations

import json
import math
import pickle
from pathlib import Path
from typing import Any

import array_api_strict
import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import eigengp
from eigengp import (
    LBFGS,
    EigenGPRegressor,
    ExactGPRegressor,
    Gaussian,
    NegativeVarianceWarning,
    Stochastic,
    io,
)
from eigengp.estimators.base import GPRegressor
from eigengp.io import SavedModelError, known
from eigengp.io.models import FORMAT
from eigengp.kernels import Kernel, Stationary
from saved_models import KEPT, KINDS, SAVED, answers, assert_same_answers, fitted, rows

pytestmark = pytest.mark.filterwarnings(
    f"ignore::{NegativeVarianceWarning.__module__}.NegativeVarianceWarning"
)


def there_and_back(model: Any, tmp_path: Path) -> Any:
    model.save(tmp_path / "model.eigengp")
    return eigengp.load(tmp_path / "model.eigengp")


@pytest.fixture
def own_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget, after a test, what it has registered."""
    monkeypatch.setattr(known, "_RECORDS", dict(known._RECORDS))


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_comes_back_to_the_last_bit(kind: str, tmp_path: Path) -> None:
    model = fitted(kind)
    again = there_and_back(model, tmp_path)
    assert type(again) is type(model)
    assert vars(again).keys() == vars(model).keys()
    assert repr(again.get_params()) == repr(model.get_params())
    for name in ("history_", "n_iter_", "kernel_", "noise_variance_", "selection_"):
        assert getattr(again, name, None) == getattr(model, name, None)
    assert_same_answers(model, again)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_model_is_the_same_file(kind: str, tmp_path: Path) -> None:
    once = there_and_back(fitted(kind), tmp_path)
    fitted(kind).save(tmp_path / "again.eigengp")
    assert (tmp_path / "again.eigengp").read_bytes() == (tmp_path / "model.eigengp").read_bytes()
    there_and_back(once, tmp_path).save(tmp_path / "again.eigengp")
    assert (tmp_path / "again.eigengp").read_bytes() == (tmp_path / "model.eigengp").read_bytes()


@pytest.mark.parametrize("kind", ["sequential", "heteroscedastic", "stochastic", "SSGP"])
def test_a_loaded_model_is_fitted_cloned_and_pickled(kind: str, tmp_path: Path) -> None:
    again = there_and_back(fitted(kind), tmp_path)
    assert_same_answers(again, pickle.loads(pickle.dumps(again)))
    expected = KINDS[kind]().fit(*rows(60, seed=2))
    assert_same_answers(expected, clone(again).fit(*rows(60, seed=2)))
    assert_same_answers(expected, again.fit(*rows(60, seed=2)))


@pytest.mark.parametrize(
    "kind",
    [
        "sequential",
        "nothing learned",
        "diagonal",
        "linear mean",
        "heteroscedastic alone",
        "stochastic",
    ],
)
def test_learning_goes_on_after_loading(kind: str, tmp_path: Path) -> None:
    model = KINDS[kind]().fit(*rows(110)).partial_fit(*rows(30, seed=4))
    again = there_and_back(model, tmp_path)
    assert_same_answers(model, again)
    for seed in (5, 6):
        model.partial_fit(*rows(25, seed))
        again.partial_fit(*rows(25, seed))
        assert_same_answers(model, again)


def test_calibration_is_kept(tmp_path: Path) -> None:
    model = pickle.loads(pickle.dumps(fitted("sequential")))
    X, y = rows(40, seed=7)
    plain = model.predict_interval(X)
    again = there_and_back(model.calibrate(X, y), tmp_path)
    np.testing.assert_array_equal(again.conformity_, model.conformity_)
    np.testing.assert_array_equal(again.predict_interval(X), model.predict_interval(X))
    assert not np.array_equal(again.predict_interval(X), plain)
    few = there_and_back(model.calibrate(X[:3], y[:3]), tmp_path)  # Too few for 0.9.
    np.testing.assert_array_equal(few.predict_interval(X, 0.5), model.predict_interval(X, 0.5))


def test_names_of_columns_are_kept(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    X, y = rows(40)
    frame = pd.DataFrame(X, columns=["width", "Höhe"])
    model = ExactGPRegressor(optimizer=LBFGS(n_restarts=1, max_iter=1), random_state=0).fit(
        frame, y
    )
    again = there_and_back(model, tmp_path)
    assert again.feature_names_in_.tolist() == ["width", "Höhe"]
    assert io.read(tmp_path / "model.eigengp").header["feature_names"] == ["width", "Höhe"]
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))
    with pytest.raises(ValueError, match="feature names"):
        again.predict(frame.rename(columns={"width": "length"}))


@pytest.mark.parametrize("kind", ["neighbors", "exact", "stochastic"])
def test_weights_of_rows_are_kept(kind: str, tmp_path: Path) -> None:
    weight = np.random.default_rng(8).integers(1, 4, size=60)
    make = KINDS[kind]().set_params(likelihood="gaussian")  # Variances have a gradient.
    model = make.fit(*rows(60), sample_weight=weight)
    assert_same_answers(model, there_and_back(model, tmp_path))


def test_every_regressor_is_known_here_and_to_files() -> None:
    offered = {getattr(eigengp, name) for name in eigengp.__all__}
    regressors = {
        each for each in offered if isinstance(each, type) and issubclass(each, GPRegressor)
    }
    assert {type(make()) for make in KINDS.values()} == regressors
    assert regressors <= {known.record_named(name).kind for name in known.HOMES}


@pytest.mark.parametrize("name", known.HOMES)
def test_every_class_of_files_is_where_they_look_for_it(name: str) -> None:
    found = known.record_named(name)
    assert found.kind.__name__ == name
    assert known.record_of(found.kind) is found


def test_a_random_state_goes_on_from_where_it_was(tmp_path: Path) -> None:
    rng = np.random.RandomState(3)
    optimizer = Stochastic(batch_size=20, n_restarts=1)
    model = EigenGPRegressor(4, optimizer=optimizer, random_state=rng).fit(*rows(40))
    again = there_and_back(model, tmp_path)
    assert_same_answers(model.fit(*rows(50)), again.fit(*rows(50)))


def test_parameters_of_all_kinds_are_kept(tmp_path: Path) -> None:
    given = {
        "optimizer__checkpoint": tmp_path / "checkpoint",
        "optimizer__tol": np.float32(0.5),
        "inducing_points": rows(4)[0].astype(np.float32).tolist(),
        "n_components": np.int64(4),
        "likelihood": Gaussian(variance=0.1),
        "random_state": None,
    }
    model = EigenGPRegressor(optimizer=LBFGS(n_restarts=1, max_iter=1)).set_params(**given)
    model.fit(*rows(40))
    again = there_and_back(model, tmp_path)
    assert {name: again.get_params()[name] for name in given} == given


def test_learned_attributes_of_all_kinds_are_kept(tmp_path: Path) -> None:
    model = ExactGPRegressor(optimizer=LBFGS(n_restarts=1, max_iter=1)).fit(*rows(30))
    shared = [1, "two", -0.0]
    model.extra_ = {3: (np.inf, -np.inf), "three": shared, None: {"flag": np.True_}}
    model.other_, model.lone_ = shared, float("nan")
    model.turned_, model.swapped_ = np.ones((3, 2), order="F"), np.arange(3, dtype=">i2")
    model.scalar_, model.strided_ = np.array(2.5), np.arange(10.0)[::3]
    again = there_and_back(model, tmp_path)
    assert repr(again.extra_) == repr(model.extra_).replace("np.True_", "True")
    assert again.other_ == again.extra_["three"] == shared
    assert math.isnan(again.lone_)
    assert again.turned_.flags.f_contiguous
    assert not again.turned_.flags.c_contiguous
    for name in ("turned_", "swapped_", "scalar_", "strided_"):
        found = getattr(again, name)
        np.testing.assert_array_equal(found, getattr(model, name))
        assert found.shape == getattr(model, name).shape
        assert found.flags.writeable


def test_arrays_of_other_libraries_come_back_as_those_of_numpy(tmp_path: Path) -> None:
    X, y = rows(40)
    with config_context(array_api_dispatch=True):
        model = EigenGPRegressor(4, optimizer=LBFGS(n_restarts=1, max_iter=1), random_state=0)
        model.fit(*map(array_api_strict.asarray, (X, y)))
        mean = np.from_dlpack(model.predict(array_api_strict.asarray(X)))
    again = there_and_back(model, tmp_path)
    assert type(again.inducing_points_) is np.ndarray
    with config_context(array_api_dispatch=True):
        np.testing.assert_allclose(again.predict(X), mean, rtol=1e-12)


def test_what_is_stored_beside_a_model_comes_back(tmp_path: Path) -> None:
    about = {"encoding": {"columns": ["a", "b"], "fill": 0.1}, "rows": 110, "none": None}
    io.save(fitted("VFE"), tmp_path / "model.eigengp", about=about)
    saved = io.read(tmp_path / "model.eigengp")
    assert saved.about == about
    assert saved.header["class"] == "VFERegressor"
    assert saved.header["format"] == FORMAT
    assert saved.header["versions"]["eigengp"] == eigengp.__version__
    assert saved.header["n_features"] == 2
    assert_same_answers(fitted("VFE"), saved.model)
    with pytest.raises(SavedModelError, match="JSON"):
        io.save(fitted("VFE"), tmp_path / "model.eigengp", about={"rng": object()})
    with pytest.raises(SavedModelError, match="characters"):
        io.save(fitted("VFE"), tmp_path / "model.eigengp", about={"text": "x" * 20_000_001})
    assert io.read(tmp_path / "model.eigengp").about == about


def test_arrays_can_be_read_without_eigengp(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    fitted("sequential").save(tmp_path / "model.eigengp")
    arrays = load_file(tmp_path / "model.eigengp").values()
    points = fitted("sequential").inducing_points_
    assert any(each.shape == points.shape and np.all(each == points) for each in arrays)


class Agnesi(Stationary):
    def profile(self, t: Any) -> Any:
        return 1.0 / (1.0 + t)

    def slope(self, t: Any, rho: Any) -> Any:
        return -rho * rho


@pytest.mark.usefixtures("own_classes")
def test_a_kernel_of_ones_own_must_be_registered(tmp_path: Path) -> None:
    path = tmp_path / "model.eigengp"
    model = ExactGPRegressor(Agnesi(), optimizer=LBFGS(n_restarts=1, max_iter=1)).fit(*rows(30))
    with pytest.raises(SavedModelError, match=r"eigengp\.io\.register\(Agnesi\)"):
        model.save(path)
    assert not path.exists()
    assert io.register(Agnesi) is Agnesi
    assert_same_answers(model, there_and_back(model, tmp_path))
    del known._RECORDS["Agnesi"]
    with pytest.raises(SavedModelError, match=r"'Agnesi'.*io\.register"):
        io.load(path)


@pytest.mark.usefixtures("own_classes")
def test_a_kernel_with_a_parameter_of_its_own_is_kept(tmp_path: Path) -> None:
    @io.register
    class Blunt(Agnesi):
        power: Unknown = 1.0  # type: ignore[name-defined]  # noqa: F821

    model = ExactGPRegressor(Blunt(0.5, power=2.0), optimizer=LBFGS(max_iter=0)).fit(*rows(20))
    assert there_and_back(model, tmp_path).kernel_.power == 2.0


@pytest.mark.usefixtures("own_classes")
def test_an_estimator_of_ones_own_must_be_registered(tmp_path: Path) -> None:
    class Own(ExactGPRegressor):
        pass

    model = Own(optimizer=LBFGS(n_restarts=1, max_iter=1)).fit(*rows(30))
    with pytest.raises(SavedModelError, match=r"io\.register\(Own\)"):
        model.save(tmp_path / "model.eigengp")
    io.register(Own)
    assert type(there_and_back(model, tmp_path)) is Own


@pytest.mark.usefixtures("own_classes")
def test_only_classes_whose_fields_say_all_can_be_registered() -> None:
    class Silent(Agnesi):
        def __init__(self) -> None:
            super().__init__(2.0)

    class Matern32(Agnesi):
        pass

    for each, message in ((Silent, "dataclass"), (Matern32, "of its own"), (Kernel, "dataclass")):
        with pytest.raises(SavedModelError, match=message):
            io.register(each)
    io.register(Agnesi)
    other = type("Agnesi", (Agnesi,), {"__module__": "elsewhere"})
    with pytest.raises(SavedModelError, match="already"):
        io.register(other)


def defined_again() -> type[Agnesi]:
    """Define a class once more, as a notebook does whenever its cell runs."""

    class Lorentzian(Agnesi):
        pass

    return Lorentzian


@pytest.mark.usefixtures("own_classes")
def test_a_class_that_was_redefined_can_be_registered_again(tmp_path: Path) -> None:
    before, after = (io.register(defined_again()) for _ in range(2))
    assert before is not after
    old, new = (
        ExactGPRegressor(kind(0.5), optimizer=LBFGS(max_iter=0)).fit(*rows(20))
        for kind in (before, after)
    )
    again = there_and_back(new, tmp_path)
    assert type(again.kernel_) is after
    assert_same_answers(new, again)
    with pytest.raises(SavedModelError, match=r"io\.register\(Lorentzian\)"):
        old.save(tmp_path / "old.eigengp")
    assert io.register(after) is after


def test_what_cannot_be_saved_says_so(tmp_path: Path) -> None:
    path = tmp_path / "model.eigengp"
    with pytest.raises(NotFittedError):
        EigenGPRegressor().save(path)
    model = ExactGPRegressor(optimizer=LBFGS(n_restarts=1, max_iter=1)).fit(*rows(30))
    model.note = "mine"
    with pytest.raises(SavedModelError, match="'note'"):
        model.save(path)
    del model.note
    model.random_state = np.random.RandomState(np.random.PCG64(0))
    with pytest.raises(SavedModelError, match="PCG64"):
        model.save(path)
    model.random_state = 0
    model.extra_ = np.array([1j])
    with pytest.raises(SavedModelError, match="extra_ is an array of complex128"):
        model.save(path)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("name", KEPT)
def test_stored_files_stay_readable(name: str) -> None:
    found = answers(eigengp.load(SAVED / f"{name}-{FORMAT}.eigengp"))
    expected = json.loads((SAVED / f"{name}-{FORMAT}.json").read_text())
    assert expected.keys() == found.keys()
    del expected[
        "functions"
    ]  # Eigenvectors, of which some are drawn, may have other signs elsewhere.
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-6, atol=1e-9, err_msg=name)
