"""Check the fused kernels on a GPU, and time them for several tilings.

Run as `python3 benchmarks/tune_fused.py`. Every job runs in a process that goes on to the next
one; after a job that takes the GPU's context with it, a new process takes over.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[1]
SPEC = importlib.util.spec_from_file_location(
    "triton_kernels", ROOT / "src/eigengp/flow/triton_kernels.py"
)
kernels: Any = importlib.util.module_from_spec(SPEC)
sys.modules["triton_kernels"] = kernels
SPEC.loader.exec_module(kernels)

D, N, SECONDS = 8, 20_000_000, 235.0
SE = "squared_exponential"

SUMS: dict[int, list[dict[str, Any]]] = {
    128: [
        {},
        {"rows": 32},
        {"basis": 64, "warps": 4},
        {"basis": 64, "warps": 4, "registers": 168, "programs": 6},
        {"basis": 64, "warps": 4, "rows": 128},
        {"programs": 2},
        {"programs": 8},
        {"flush": 256},
        {"pieces": 3},
        {"flush": 4096},
        {"pieces": 1},
    ],
    512: [
        {},
        {"rows": 32},
        {"basis": 64, "warps": 4},
        {"basis": 64, "warps": 4, "registers": 168, "programs": 6},
        {"basis": 64, "warps": 4, "rows": 128},
        {"programs": 8},
        {"flush": 256},
        {"pieces": 3},
        {"pieces": 1},
    ],
}
PULL: dict[int, list[dict[str, Any]]] = {
    128: [
        {},
        {"rows": 32},
        {"rows": 32, "programs": 8},
        {"basis": 64, "warps": 4, "inner": 64, "stages": 2},
        {"basis": 64, "warps": 4, "inner": 32, "stages": 2},
        {"basis": 64, "warps": 4, "inner": 32, "stages": 2, "registers": 168},
        {"rows": 128, "inner": 32, "basis": 64, "stages": 2},
        {"programs": 2},
        {"programs": 8},
        {"pieces": 1},
    ],
    512: [
        {},
        {"stages": 2},
        {"stages": 4},
        {"inner": 64, "stages": 2},
        {"rows": 64, "inner": 64, "stages": 2},
        {"rows": 64, "inner": 32},
        {"rows": 64, "basis": 64, "warps": 4, "inner": 64, "stages": 2},
        {"rows": 64, "basis": 64, "warps": 4, "inner": 32},
        {"rows": 128, "basis": 64, "warps": 4, "inner": 32, "stages": 2},
        {"programs": 8},
        {"pieces": 1},
    ],
}


def data(rows: int) -> tuple[Any, Any]:
    torch.manual_seed(0)
    X = torch.randn(rows, D, device="cuda") / D**0.5
    return X, torch.sin(3 * X[:, 0]) + X[:, 1] ** 2 + 0.2 * torch.randn(rows, device="cuda")


def exact(X: Any, y: Any, s: Any, Z: Any, profile: str, bars: tuple[Any, ...] = ()) -> list[Any]:
    """Return `A, b`, or what pulling back `C, g` gives, in float64 by blocks."""
    total: list[Any] = []
    for first in range(0, len(y), 50_000):
        part = slice(first, first + 50_000)
        weight = None if s is None else s[part]
        rows = kernels._Rows(X[part], y[part], weight, None, 0)
        run = kernels._plain_pull_back if bars else kernels._plain_sums
        terms = run(rows, Z, profile, *bars)
        total = [a + b for a, b in zip(total, terms, strict=True)] if total else list(terms)
    return total


def off(found: Any, expected: Any) -> str:
    return f"{float((found - expected).norm() / expected.norm()):.1e}"


def cotangents(A: Any, b: Any, Z: Any, noise: float = 0.05) -> tuple[Any, Any]:
    """Return `C = (P + m mᵀ)/σ²` and `g = −m/σ²` of the evidence."""
    eye = torch.eye(len(b), dtype=torch.float64, device="cuda")
    K = kernels._plain_profile(Z.double(), Z.double(), SE)[0] + 1e-6 * eye
    F = torch.linalg.inv(torch.linalg.cholesky(K)).T
    G = eye + F.T @ A @ F / noise
    m = F @ torch.linalg.solve(G, F.T @ b / noise)
    P = F @ torch.linalg.solve(G, F.T)
    return (P + torch.outer(m, m)) / noise, -m / noise


def check(profile: str, M: int) -> str:
    X, y = data(100_037)
    Z = X[:M] + 0.05 * torch.randn(M, D, device="cuda")
    C = torch.randn(M, M, dtype=torch.float64, device="cuda")
    bars = (C + C.T, torch.randn(M, dtype=torch.float64, device="cuda"))
    line = f"check {profile} M={M}:"
    for s in (None, torch.rand(len(y), device="cuda")):
        sums = kernels.sums(X, y, s, Z, profile)
        pulled = kernels.pull_back(X, y, s, Z, profile, *bars)
        again = kernels.pull_back(X, y, s, Z, profile, *bars)
        names = ("A", "b", *pulled._fields)
        expected = exact(X, y, s, Z, profile) + exact(X, y, s, Z, profile, bars)
        found = zip(names, (*sums, *pulled), expected, strict=True)
        line += " weighted" if s is not None else ""
        line += "".join(f" {name} {off(a, b)}" for name, a, b in found)
        same = all(torch.equal(a, b) for a, b in zip(pulled, again, strict=True))
        line += "" if same else " NOT THE SAME BITS TWICE"
    return line


def accuracy(M: int) -> str:
    """Compare a gradient at a realistic `C`, from exact and from fused sums, and in float32."""
    X, y = data(1_000_000)
    Z = X[:M].contiguous()
    A, b = exact(X, y, None, Z, SE)
    bars = cotangents(A, b, Z)
    expected = exact(X, y, None, Z, SE, bars)
    fused = kernels.sums(X, y, None, Z, SE)
    lines = [f"accuracy M={M} max|C| {float(bars[0].abs().max()):.1e}: A {off(fused[0], A)}"]
    found = {
        "pull_back": kernels.pull_back(X, y, None, Z, SE, *bars),
        "sums, exact pull_back": exact(X, y, None, Z, SE, cotangents(*fused, Z)),
        "both": kernels.pull_back(X, y, None, Z, SE, *cotangents(*fused, Z)),
        "float32": plain_pull_back(X, y, Z, *bars),
        "float32 both": plain_pull_back(X, y, Z, *cotangents(*plain_sums(X, y, Z), Z)),
    }
    by_z = expected[1] - expected[0][:, None] * Z.double()
    for name, (column, TX, squares, value) in found.items():
        own = TX - column[:, None] * Z.double()
        lines.append(
            f"  {name}: column {off(column, expected[0])} TX {off(TX, expected[1])}"
            f" dz {off(own, by_z)} squares {off(squares, expected[2])}"
            f" value {off(value, expected[3])}"
        )
    return "\n".join(lines)


def plain_features(X: Any, Z: Any) -> Any:
    t = (X * X).sum(1)[:, None] + (Z * Z).sum(1) - 2.0 * X @ Z.T
    return torch.exp(-0.5 * t.clamp_min(0.0))


def plain_sums(X: Any, y: Any, Z: Any, block: int = 1 << 20) -> tuple[Any, Any]:
    A = b = 0.0
    for x, targets in zip(X.split(block), y.split(block), strict=True):
        rho = plain_features(x, Z)
        A, b = A + (rho.T @ rho).double(), b + (rho.T @ targets).double()
    return A, b


def plain_pull_back(X: Any, y: Any, Z: Any, C: Any, g: Any, block: int = 1 << 20) -> list[Any]:
    C, g, total = C.float(), g.float(), []
    for x, targets in zip(X.split(block), y.split(block), strict=True):
        rho = plain_features(x, Z)
        rho_bar = rho @ C + targets[:, None] * g
        T = -0.5 * rho_bar * rho
        terms = [T.sum(0), T.T @ x, T.sum(1) @ x**2, (rho_bar * rho).sum()]
        terms = [a.double() for a in terms]
        total = [a + b for a, b in zip(total, terms, strict=True)] if total else terms
    return total


def milliseconds(run: Any) -> float:
    """Return the median of five runs after two, scaled to 10⁸ rows."""
    times = []
    for _ in range(7):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in "ab")
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return sorted(times[2:])[2] * 1e8 / N


def timed(M: int, name: str, changes: dict[str, Any]) -> str:
    X, y = data(N)
    Z = X[:M].contiguous()
    C = torch.randn(M, M, dtype=torch.float64, device="cuda")
    bars = (C + C.T, C[0])
    if name == "plain":
        torch.backends.cuda.matmul.allow_tf32 = True
        pair = [lambda: plain_sums(X, y, Z), lambda: plain_pull_back(X, y, Z, *bars)]
        return f"M={M} PyTorch TF32: sums, pull_back {[round(milliseconds(f)) for f in pair]} ms"
    tiling = getattr(kernels.tiling_for(M, D), name)._replace(**changes)
    start = time.perf_counter()
    if name == "sums":
        run = lambda: kernels.sums(X, y, None, Z, SE, tiling)  # noqa: E731
    else:
        run = lambda: kernels.pull_back(X, y, None, Z, SE, *bars, tiling)  # noqa: E731
    run()
    torch.cuda.synchronize()
    first = time.perf_counter() - start
    return f"M={M} {name} {changes or 'default'}: {milliseconds(run):.1f} ms, first {first:.1f} s"


def jobs() -> list[tuple[Any, ...]]:
    every: list[tuple[Any, ...]] = [(check, p, M) for M in (100, 128, 300) for p in kernels.SLOPES]
    every += [(accuracy, 128), (accuracy, 512)]
    for M in (128, 512):
        every.append((timed, M, "plain", {}))
        every += [(timed, M, "sums", changes) for changes in SUMS[M]]
        every += [(timed, M, "pull_back", changes) for changes in PULL[M]]
    return every


def work(first: int, deadline: float) -> None:
    """Run the jobs from the first on, saying which before each; stop where the context is lost."""
    for k, (function, *settings) in enumerate(jobs()[first:], first):
        print(f"@{k}", flush=True)
        if time.time() > deadline:
            print("out of time", flush=True)
            return
        try:
            print(function(*settings), flush=True)
        except Exception as error:
            print(f"{function.__name__} {settings} FAILED: {error!s:.300}", flush=True)
            torch.cuda.synchronize()


def main() -> None:
    first, deadline = 0, time.time() + SECONDS
    while first < len(jobs()) and time.time() < deadline:
        command = [sys.executable, __file__, str(first), str(deadline)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout:
                if line.startswith("@"):
                    first = int(line[1:]) + 1
                else:
                    print(line, end="", flush=True)
        if process.returncode == 0:
            return
        print(f"job {first - 1} took the process with it", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        work(int(sys.argv[1]), float(sys.argv[2]))
    else:
        main()
