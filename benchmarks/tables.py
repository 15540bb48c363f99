"""Tables of mixed columns beside gradient boosting with native categories.

`levels`: a categorical effect of 30 levels with few rows each, made by a function. `wage` and
`hitters`: data of the package ISLP, read from the folder in `EIGENGP_ISLP` or from the installed
package. `messy`: a CSV file as people write them, compared with features made by hand.
"""

from __future__ import annotations

import io
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from drawing import console, new_table
from record import Results
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import KFold

from eigengp import EigenGPRegressor

DATA = ("levels", "wage", "hitters", "messy")
_REPEATS = {"levels": 5, "wage": 1, "hitters": 2, "messy": 1}
_FOLDS = 5
_LEVELS, _ROWS = 30, 180
_OURS = "EigenGP"


def run(out: Path, *, data: tuple[str, ...]) -> None:
    """Measure, and print the table."""
    results = Results(out, "tables", {"folds": _FOLDS, "repeats": _REPEATS}, ["data"])
    for name in data:
        models = make_models(name)
        squares: dict[str, list[float]] = {each: [] for each in models}
        seconds = dict.fromkeys(models, 0.0)
        for frame, y, train, test in list_splits(name):
            for library, predict in models.items():
                start = time.process_time()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    mean = predict(frame.iloc[train], y[train], frame.iloc[test])
                seconds[library] += time.process_time() - start
                squares[library].append(float(np.mean((mean - y[test]) ** 2)))
        for library, own in squares.items():
            record = {"library": library, "data": name, "rmse": float(np.sqrt(np.mean(own)))}
            results.extend([record | {"splits": len(own), "cpu_seconds": seconds[library]}])
    table = new_table("tables", "data", "library", "RMSE", "CPU s", words=2)
    for each in results.records:
        numbers = f"{each['rmse']:.4g}", f"{each['cpu_seconds']:.1f}"
        table.add_row(each["data"], each["library"], *numbers)
    console.print(table)


def make_text(out: Path) -> str:
    """Return the stored numbers as a table in Markdown."""
    found = _read_errors(out)
    libraries = sorted({library for _, library in found}, key=_order_libraries)
    names = [name for name in DATA if any(data == name for data, _ in found)]
    lines = [f"| RMSE | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for library in libraries:
        cells = (found.get((name, library)) for name in names)
        texts = ["" if cell is None else _format_error(cell) for cell in cells]
        lines.append(f"| {library} | {' | '.join(texts)} |")
    return "\n".join(lines) + "\n"


def list_ahead(out: Path) -> str:
    """Return the libraries with a smaller error than the default, by data set, as text."""
    found = _read_errors(out)
    return "; ".join(
        f"{library} on {name} ({_format_error(error)}, ours {_format_error(found[name, _OURS])})"
        for (name, library), error in found.items()
        if _OURS not in library and error < found[name, _OURS]
    )


def _read_errors(out: Path) -> dict[tuple[str, str], float]:
    """Return the stored error of each data set and library."""
    records = json.loads((out / "tables.json").read_text())["records"]
    return {(each["data"], each["library"]): each["rmse"] for each in records}


def _order_libraries(name: str) -> tuple[bool, str]:
    return _OURS not in name, name


def _format_error(value: float) -> str:
    return f"{value:.3f}" if value < 10.0 else f"{value:,.1f}"


def list_splits(name: str) -> Iterator[tuple[pd.DataFrame, Any, Any, Any]]:
    """Yield frame, targets, and the rows to learn from and to test on."""
    for seed in range(_REPEATS[name]):
        frame, y = load_table(name, seed)
        for train, test in KFold(_FOLDS, shuffle=True, random_state=seed).split(frame):
            yield frame, y, train, test


def load_table(name: str, seed: int) -> tuple[pd.DataFrame, Any]:
    """Return the inputs and targets of a set."""
    if name == "levels":
        return make_levels(seed)
    if name == "messy":
        frame = make_messy(seed)
        text = frame.pop("Preis €").str.replace(".", "").str.replace(",", ".")
        return frame, text.astype(float).to_numpy()
    target = {"wage": "wage", "hitters": "Salary"}[name]
    frame = pd.read_csv(find_islp() / f"{name.capitalize()}.csv").dropna(subset=[target])
    # The logarithm of the target is no input.
    return frame.drop(columns=[target, "logwage"], errors="ignore"), frame[target].to_numpy()


def find_islp() -> Path:
    """Return the folder with the data of the package ISLP."""
    if "EIGENGP_ISLP" in os.environ:
        return Path(os.environ["EIGENGP_ISLP"])
    spec = find_spec("ISLP")
    if spec is None or spec.origin is None:
        raise SystemExit("Install ISLP, or name the folder with its data in EIGENGP_ISLP.")
    return Path(spec.origin).parent / "data"


def make_levels(seed: int) -> tuple[pd.DataFrame, Any]:
    """Make rows with the effects of 30 levels, two smooth inputs, and noise."""
    rng = np.random.default_rng(seed)
    effects, level = rng.normal(size=_LEVELS), rng.integers(0, _LEVELS, _ROWS)
    x = rng.uniform(-2.0, 2.0, (_ROWS, 2))
    y = np.sin(2.0 * x[:, 0]) + 0.5 * x[:, 1] + effects[level] + 0.3 * rng.normal(size=_ROWS)
    return pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "town": [f"t{i}" for i in level]}), y


def make_messy(seed: int, n: int = 600) -> pd.DataFrame:
    """Make a table of houses as a German spreadsheet stores it, through a CSV file."""
    rng = np.random.default_rng(seed)
    town, area = rng.integers(0, 40, n), rng.uniform(30.0, 200.0, n)
    day, built = rng.integers(0, 2_200, n), rng.integers(1_900, 2_020, n)
    state, balcony = rng.choice(["gut", "mittel", "schlecht"], n), rng.random(n) < 0.4
    effects = 40_000.0 * rng.normal(size=40)
    price = 3_000.0 * area + effects[town] + 20_000.0 * np.sin(2.0 * np.pi * day / 365.2425)
    price += 20.0 * day + 15_000.0 * balcony + 300.0 * (built - 1_900)
    price += np.where(state == "gut", 20_000.0, -10_000.0) + 10_000.0 * rng.normal(size=n)
    sold = pd.Timestamp("2018-01-01") + pd.to_timedelta(day, unit="D")
    frame = pd.DataFrame(
        {
            "Kunden-Nr.": [f"K-{i:05d}" for i in range(n)],
            "Größe (m²)": area.round(1),
            "Stadt / Ort": [f"Ört {i}" for i in town],
            "Verkauft am": sold.strftime("%d.%m.%Y"),
            "Balkon?": np.where(balcony, "ja", "nein"),
            "Baujahr": pd.Series(built, dtype="Int64").where(rng.random(n) > 0.15),
            "Zustand": pd.Series(state).where(rng.random(n) > 0.1),
            "Preis €": [f"{p:,.2f}".translate(str.maketrans(",.", ".,")) for p in price],
        }
    )
    text = frame.to_csv(index=False, sep=";", decimal=",")
    return pd.read_csv(io.StringIO(text), sep=";")


def make_models(name: str) -> dict[str, Callable[..., Any]]:
    """Return functions that fit training rows and predict others."""
    ours = {"EigenGP": _fit_default}
    if name == "messy":
        return {**ours, "EigenGP, features made by hand": _fit_by_hand}
    ours["EigenGP, targets as they are"] = _fit_plain
    boosting = {"HistGradientBoosting": _fit_boosting}
    if find_spec("catboost") is not None:
        boosting["CatBoost"] = _fit_catboost
    return {**ours, **boosting}


def _fit_default(frame: pd.DataFrame, y: Any, new: pd.DataFrame) -> Any:
    return EigenGPRegressor(random_state=0).fit(frame, y).predict(new)


def _fit_plain(frame: pd.DataFrame, y: Any, new: pd.DataFrame) -> Any:
    model = EigenGPRegressor(likelihood="heteroscedastic", random_state=0)
    return model.fit(frame, y).predict(new)


def _fit_boosting(frame: pd.DataFrame, y: Any, new: pd.DataFrame) -> Any:
    texts = frame.select_dtypes(exclude="number").columns
    types = {name: pd.CategoricalDtype(sorted(frame[name].dropna().unique())) for name in texts}
    model = HistGradientBoostingRegressor(categorical_features="from_dtype", random_state=0)
    return model.fit(frame.astype(types), y).predict(new.astype(types))


def _fit_catboost(frame: pd.DataFrame, y: Any, new: pd.DataFrame) -> Any:
    from catboost import CatBoostRegressor

    texts = list(frame.select_dtypes(exclude="number").columns)
    settings = {"verbose": 0, "allow_writing_files": False, "thread_count": 1, "random_seed": 0}
    return CatBoostRegressor(cat_features=texts, **settings).fit(frame, y).predict(new)


def _fit_by_hand(frame: pd.DataFrame, y: Any, new: pd.DataFrame) -> Any:
    make = partial(_make_features, towns=sorted(frame["Stadt / Ort"].unique()))
    return EigenGPRegressor(random_state=0).fit(make(frame), y).predict(make(new))


def _make_features(frame: pd.DataFrame, towns: list[str]) -> Any:
    """Return the features that a person would make of the messy table."""
    day = pd.to_datetime(frame["Verkauft am"], format="%d.%m.%Y")
    phase = 2.0 * np.pi * day.dt.dayofyear / 365.25
    area = frame["Größe (m²)"].str.replace(",", ".").astype(float)
    columns = [area, day.astype("int64") / 1e15, np.sin(phase), np.cos(phase)]
    columns += [frame["Balkon?"] == "ja", frame["Baujahr"].fillna(1_960), frame["Baujahr"].isna()]
    columns += [frame["Zustand"] == state for state in ("gut", "mittel", "schlecht")]
    columns += [frame["Stadt / Ort"] == town for town in towns]
    return np.column_stack([np.asarray(each, dtype=float) for each in columns])
