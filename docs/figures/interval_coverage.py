"""Coverage of 90 % intervals on test rows, from the stored results of `benchmarks quality`."""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

folder = next(each for each in Path.cwd().parents if (each / "benchmarks" / "results").exists())
stored = json.loads((folder / "benchmarks" / "results" / "quality.json").read_text())["records"]
shown = {
    ("eigengp", "the default"): "EigenGPRegressor()",
    ("eigengp", "max_time=5"): "with max_time=5",
    ("eigengp", "eigenfunctions alone"): "residual=None",
    ("gpboost", "Vecchia"): "GPBoost",
    ("catboost", "RMSEWithUncertainty"): "CatBoost, uncertainty",
    ("lightgbm", ""): "LightGBM",
    ("gpflow", ""): "GPflow",
}
fig, ax = plt.subplots(figsize=(7.4, 3.0))
marks = {"california": "o", "protein": "s", "pole": "^", "kin40k": "D"}
ax.axvline(90, color="0.4", linewidth=0.9, linestyle="--")
names = {
    key: label
    for key, label in shown.items()
    if any((each["library"], each["variant"]) == key for each in stored)
}
for place, key in enumerate(names):
    for number, (name, mark) in enumerate(marks.items()):
        found = [
            100 * each["coverage"]
            for each in stored
            if (each["library"], each["variant"]) == key and each["data"] == name
        ]
        label = name if place == 0 else None
        heights = np.full(len(found), place + 0.12 * (number - 1.5))
        ax.plot(found, heights, mark, color=f"C{number}", markersize=4, alpha=0.8, label=label)
ax.set_yticks(range(len(names)), names.values())
ax.invert_yaxis()
ax.set_xlabel("test targets inside 90 % intervals, %")
ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
