"""The benchmarks: `python benchmarks <command>`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

# The checkout, for `realdata`.
sys.path.append(str(Path(__file__).resolve().parents[1]))

app = typer.Typer(
    help="Measure eigengp, and other libraries where an environment with them is named.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)

Peers = Annotated[
    list[Path] | None,
    typer.Option(help="Python interpreter of an environment with peers; may be repeated."),
]
Out = Annotated[Path, typer.Option(help="Folder for the results.")]
Only = Annotated[list[str] | None, typer.Option(help="Run only this library; may be repeated.")]
Skip = Annotated[list[str] | None, typer.Option(help="Leave this library out; may be repeated.")]
Threads = Annotated[int, typer.Option(min=1, help="Cores that each process may use.")]
Rows = Annotated[int, typer.Option(min=1, help="Rows of data.")]
Inputs = Annotated[int, typer.Option(min=3, help="Inputs of a row.")]
Size = Annotated[int, typer.Option(min=1, help="Inducing points M.")]
Sizes = Annotated[
    list[int] | None, typer.Option("--size", help="Inducing points M; may be repeated.")
]
Turns = Annotated[int, typer.Option(min=1, help="The best of so many turns counts.")]

RESULTS = Path(__file__).resolve().parent / "results"


def hold_to(threads: int) -> None:
    """Hold this process and its children to a few cores, before any library counts them."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


@app.command()
def evalcost(
    peers: Peers = None,
    out: Out = RESULTS,
    only: Only = None,
    skip: Skip = None,
    threads: Threads = 2,
    rows: Rows = 20_000,
    inputs: Inputs = 9,
    size: Sizes = None,
    turns: Turns = 7,
) -> None:
    """Value and gradient of the evidence compared with the bare BLAS floor (M from 50 to 800)."""
    hold_to(threads)
    import evalcost as benchmark
    from peers.asking import Panel

    panel = Panel.of(benchmark.LIBRARIES, peers, only, skip)
    sizes = size or [50, 100, 200, 400, 800]
    benchmark.run(panel, out, rows=rows, inputs=inputs, sizes=sizes, turns=turns)


@app.command()
def fit(
    peers: Peers = None,
    out: Out = RESULTS,
    only: Only = None,
    skip: Skip = None,
    threads: Threads = 2,
    data: Annotated[
        list[str] | None, typer.Option(help="A data set; may be repeated. All unless named.")
    ] = None,
    size: Size = 200,
    rows: Annotated[
        int | None, typer.Option(min=100, help="Learn from the first rows only: for a quick look.")
    ] = None,
    iterations: Annotated[int, typer.Option(min=1, help="Iterations of the peers.")] = 100,
    max_iter: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Iterations of ours; may be repeated. 5 to 100 unless named."),
    ] = None,
) -> None:
    """Test error against seconds on california, protein, pole and kin40k."""
    hold_to(threads)
    import fit as benchmark
    from peers.asking import Panel

    panel = Panel.of(benchmark.LIBRARIES, peers, only, skip)
    budgets = max_iter or benchmark.BUDGETS
    names = data or list(benchmark.SETS)
    benchmark.run(
        panel, out, data=names, size=size, rows=rows, iterations=iterations, budgets=budgets
    )


@app.command()
def predict(
    peers: Peers = None,
    out: Out = RESULTS,
    only: Only = None,
    skip: Skip = None,
    threads: Threads = 2,
    rows: Rows = 200_000,
    train_rows: Annotated[int, typer.Option(min=1, help="Rows to learn from.")] = 10_000,
    inputs: Inputs = 9,
    size: Size = 200,
    turns: Turns = 5,
) -> None:
    """Rows predicted in a second, mean alone and with the standard deviation."""
    hold_to(threads)
    import predict as benchmark
    from peers.asking import Panel

    panel = Panel.of(benchmark.LIBRARIES, peers, only, skip)
    settings = {"rows": rows, "train_rows": train_rows, "inputs": inputs, "size": size}
    benchmark.run(panel, out, settings, turns=turns)


@app.command()
def scale(
    out: Out = RESULTS,
    threads: Threads = 2,
    rows: Annotated[
        list[int] | None,
        typer.Option(min=1, help="N; may be repeated. 10⁴ to 10⁷ unless named."),
    ] = None,
    inputs: Inputs = 8,
    size: Size = 100,
    turns: Turns = 3,
) -> None:
    """Seconds and memory of one value and gradient as the rows grow."""
    hold_to(threads)
    import scale as benchmark

    benchmark.run(out, rows or benchmark.ROWS, inputs=inputs, size=size, turns=turns)


@app.command()
def gpu(
    out: Out = RESULTS,
    part: Annotated[
        list[str] | None,
        typer.Option(
            help="evaluate, agreement, small or whole; may be repeated. All unless named."
        ),
    ] = None,
    share: Annotated[
        float, typer.Option(help="Use this share of the rows: for a quick look.")
    ] = 1.0,
    turns: Turns = 3,
) -> None:
    """Up to 10⁹ rows on a GPU, compared with plain PyTorch; needs CUDA."""
    os.environ.setdefault("SCIPY_ARRAY_API", "1")  # scikit-learn asks for it before SciPy comes in.
    import gpu as benchmark

    benchmark.run(out, parts=part or list(benchmark.PARTS), share=share, turns=turns)


@app.command()
def files(
    out: Out = RESULTS,
    threads: Threads = 2,
    rows: Annotated[int, typer.Option(min=4, help="Rows of the set that is made.")] = 20_000_000,
) -> None:
    """Fits from Parquet files and from memory: airline2001, and synthetic rows."""
    hold_to(threads)
    import files as benchmark

    from realdata import data_folder

    folder = data_folder()
    if folder is None:
        raise ValueError("EIGENGP_DATA must name the folder with the data as Parquet files.")
    benchmark.run(out, data=folder, generated=rows)


@app.command()
def cluster(
    out: Out = RESULTS,
    threads: Threads = 2,
    rows: Rows = 1_000_000,
    size: Size = 200,
    turns: Turns = 3,
) -> None:
    """One value and gradient on one and two Dask workers: speed and bytes moved."""
    hold_to(threads)
    import cluster as benchmark

    benchmark.run(out, rows=rows, size=size, turns=turns)


@app.command()
def quality(
    peers: Peers = None,
    out: Out = RESULTS,
    only: Only = None,
    skip: Skip = None,
    threads: Threads = 2,
    data: Annotated[
        list[str] | None, typer.Option(help="A data set; may be repeated. All unless named.")
    ] = None,
    seed: Annotated[
        list[int] | None, typer.Option(help="A split; may be repeated. 0, 1 and 2 unless named.")
    ] = None,
    variant: Annotated[
        list[str] | None, typer.Option(help="A variant; may be repeated. All unless named.")
    ] = None,
    cpu_limit: Annotated[
        int | None, typer.Option(min=1, help="CPU seconds for a fit of another library.")
    ] = None,
) -> None:
    """Test error, density and coverage: ours, an ablation, and other libraries."""
    hold_to(threads)
    import quality as benchmark
    from peers.asking import Panel

    panel = Panel.of(benchmark.LIBRARIES, peers, only, skip)
    benchmark.run(
        panel,
        out,
        data=data or benchmark.ALL,
        seeds=seed or [0, 1, 2],
        variants=variant,
        cpu_limit=cpu_limit,
    )


@app.command()
def curve(
    out: Out = RESULTS,
    data: Annotated[
        list[str] | None, typer.Option(help="A data set; may be repeated. All unless named.")
    ] = None,
    rows: Annotated[
        list[int] | None, typer.Option(min=5, help="Training rows; may be repeated.")
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="A model; may be repeated. All unless named.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="10 up to 300 rows and 3 beyond, unless given.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Fits at a time, each on one core.")] = 2,
) -> None:
    """Learning curves from 30 to 10,000 rows: the default compared with the exact GP and others."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ[name] = "1"
    import curve as benchmark

    benchmark.run(
        out,
        data=data or benchmark.DATA,
        rows=rows or benchmark.ROWS,
        models=model or list(benchmark.MODELS),
        seeds=seeds,
        jobs=jobs,
    )


@app.command()
def page(
    out: Out = RESULTS,
    check: Annotated[
        bool, typer.Option(help="Write nothing; fail if a file has other numbers.")
    ] = False,
) -> None:
    """Write the stored numbers into docs/how-good-is-it.md, docs/measured/ and README.md."""
    import measured

    if not check:
        measured.write(out)
    elif outdated := measured.find_outdated(out):
        names = ", ".join(str(path.relative_to(measured.ROOT)) for path in outdated)
        typer.echo(
            f"Numbers differ from the stored results in {names}: run python benchmarks page."
        )
        raise typer.Exit(1)


@app.command()
def classify(
    peers: Peers = None,
    out: Out = RESULTS,
    only: Only = None,
    skip: Skip = None,
    threads: Threads = 2,
    data: Annotated[
        list[str] | None, typer.Option(help="A data set; may be repeated. All unless named.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the split.")] = 50,
) -> None:
    """Log loss, error and calibration of the classifier and of other libraries."""
    hold_to(threads)
    import classify as benchmark
    from peers.asking import Panel

    panel = Panel.of(benchmark.LIBRARIES, peers, only, skip)
    benchmark.run(panel, out, data=tuple(data or benchmark.DATA), seed=seed)


@app.command()
def unlabelled(
    out: Out = RESULTS,
    threads: Threads = 2,
    seeds: Annotated[int, typer.Option(min=1, help="Sets of each kind.")] = 10,
) -> None:
    """Ten labels among 1,000 rows: what the other rows add."""
    hold_to(threads)
    import unlabelled as benchmark

    benchmark.run(out, seeds=seeds)


@app.command()
def tables(
    out: Out = RESULTS,
    threads: Threads = 1,
    data: Annotated[
        list[str] | None, typer.Option(help="A data set; may be repeated. All unless named.")
    ] = None,
) -> None:
    """Errors on tables of mixed columns compared with gradient boosting with native categories."""
    hold_to(threads)
    import tables as benchmark

    benchmark.run(out, data=tuple(data or benchmark.DATA))


@app.command()
def online(out: Out = RESULTS, threads: Threads = 2, size: Size = 100) -> None:
    """One pass over kin40k in batches compared with the fit of all rows at once."""
    hold_to(threads)
    import online as benchmark

    benchmark.run(out, size=size)


@app.command()
def exact_gp(
    threads: Threads = 2, rows: Rows = 2_000, inputs: Inputs = 20, turns: Turns = 3
) -> None:
    """One value and gradient of the exact GP and of scikit-learn's: time, memory, agreement."""
    hold_to(threads)
    import exact_gp as benchmark

    benchmark.run(rows, inputs, turns)


@app.command()
def basis_size(
    data: Annotated[list[str] | None, typer.Option(help="A data set; may be repeated.")] = None,
    size: Sizes = None,
    max_iter: Annotated[int | None, typer.Option(min=1, help="At most so many.")] = None,
    strength: Annotated[float | None, typer.Option(help="Of the guard; 0 is none.")] = None,
    threads: Threads = 2,
) -> None:
    """Test error of eigenfunctions alone as M grows: california and protein."""
    hold_to(threads)
    import basis_size as benchmark

    names, sizes = data or ["california", "protein"], size or [100, 400, 1000]
    benchmark.run(names, sizes, max_iter, strength)


Cases = Annotated[int, typer.Option(min=0, help="How many cases.")]


@app.command()
def campaign(
    out: Out = RESULTS,
    fits: Cases = 10_000,
    larger_fits: Cases = 500,
    likelihoods: Cases = 1_000,
    files: Cases = 10_000,
    tables: Cases = 500,
    kills: Cases = 200,
    processes: Cases = 100,
    resources: Cases = 100,
    again: Annotated[bool, typer.Option(help="Repeat batches with failures.")] = False,
    minutes: Annotated[float | None, typer.Option(help="Start no batch after so long.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="How many processes.")] = 1,
) -> None:
    """Fuzzed fits, forged files, malformed tables, kills: how many keep what is promised."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    import campaign as benchmark

    sizes = (fits, larger_fits, likelihoods, files, tables, kills, processes, resources)
    counts = dict(zip(benchmark.PARTS, sizes, strict=True))
    if not benchmark.run(out, counts=counts, again=again, minutes=minutes, jobs=jobs):
        raise typer.Exit(1)


def main() -> None:
    """Run the command line; errors are reported in one line."""
    try:
        app()
    except (ValueError, OSError) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        raise SystemExit(1) from error


if __name__ == "__main__":
    main()
