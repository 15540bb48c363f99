#!/usr/bin/env bash
# Set up an environment in .venv and run every check: documentation, lint, format, types, layers,
# tests.
# PYTHON names the interpreter to build it with; further arguments go to pytest, such as
# --cov=eigengp for the coverage, which takes twice the time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PIP_DISABLE_PIP_VERSION_CHECK=1

if [[ ! -x .venv/bin/python ]]; then
    "${PYTHON:-python3}" -m venv .venv
fi
# Versions are those of tests/constraints.txt, so that tests give the same numbers on another day.
# The CPU build of PyTorch, for tests alone; and Triton, whose interpreter needs no GPU.
.venv/bin/python -m pip install -q "torch==2.13.0" "triton==3.6.0"
.venv/bin/python -m pip install -q -c tests/constraints.txt -e ".[botorch,docs,test]"

# The site, with the gallery's examples; warnings are errors.
OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 \
    .venv/bin/sphinx-build -W --keep-going -q docs build/docs &
site=$!
.venv/bin/ruff check
.venv/bin/ruff format --check
.venv/bin/mypy
.venv/bin/lint-imports --no-logo
wait "$site"
# Two test processes, so one BLAS thread for each. Each takes neighbouring tests, so that what
# they share is made once, and then some of the other's, so that both end together.
export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1
if ! .venv/bin/python -m pytest -n 2 --dist worksteal "$@"; then
    # A process can end or lose a race for reasons that lie outside of a test. What fails again,
    # alone, is wrong; both results are printed.
    echo "The tests that failed run once more, alone:"
    .venv/bin/python -m pytest --last-failed --last-failed-no-failures none "$@"
fi
