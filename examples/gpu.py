"""
Fit on a GPU
============

``device="cuda"`` moves NumPy rows to a GPU through PyTorch; nothing else changes. Without a GPU,
this program uses the CPU.
"""

from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np

from eigengp import LBFGS, EigenGPRegressor

try:
    import torch

    device = "cuda" if torch.cuda.is_available() else None
except ImportError:
    device = None
print("computing on a GPU" if device else "no GPU here: computing on the CPU")

# %%
# Up to 5,000 rows are always computed on the CPU, which is faster for so few, so this example has
# more. ``precision="single"`` computes the sums over the rows in one fused kernel, and falls back
# to float64 where float32 does not hold enough digits.

n_rows = 1_000_000 if device else 10_000
rng = np.random.default_rng(0)
X = rng.normal(size=(n_rows, 4))
y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=n_rows)

start = perf_counter()
optimizer = LBFGS(n_restarts=1, max_iter=5)
model = EigenGPRegressor(32, optimizer=optimizer, device=device, precision="single", random_state=0)
model.fit(X, y)
mean, std = model.predict(X[:1000], return_std=True)
print(f"{n_rows} rows fitted in {perf_counter() - start:.1f} s")
print(f"mean squared error {np.mean((y[:1000] - mean) ** 2):.3f}, of which noise 0.010")

# %%
# The effect of the first input, with the others fixed at zero.

line = np.zeros((200, 4))
line[:, 0] = np.linspace(-3, 3, 200)
lower, upper = model.predict_interval(line, coverage=0.9)
fig, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.fill_between(line[:, 0], lower, upper, alpha=0.25, label="90 % interval")
ax.plot(line[:, 0], model.predict(line), label="mean")
ax.plot(line[:, 0], np.sin(2 * line[:, 0]), "k:", label="truth")
ax.set(xlabel="first input")
ax.legend(frameon=False)
