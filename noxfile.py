#!/usr/bin/env -S uv run --script
# /// script
# dependencies = ["nox>=2025.2"]
# ///
"""Tasks of a contributor, each in an environment of its own: `nox --list`, `nox -s core`."""

import nox

nox.needs_version = ">=2025.2"
nox.options.default_venv_backend = "uv|virtualenv"

PROJECT = nox.project.load_toml("pyproject.toml")


@nox.session
def lint(session: nox.Session) -> None:
    """Check lint, format, types, layers, spelling and workflows with the hooks of pre-commit."""
    session.install("pre-commit")
    session.run("pre-commit", "run", "--all-files", *session.posargs)


@nox.session
def core(session: nox.Session) -> None:
    """Run the fast tests; arguments go to pytest."""
    session.install("-e", ".", *nox.project.dependency_groups(PROJECT, "core"))
    session.run("pytest", "-m", "core", *session.posargs)


@nox.session(default=False, venv_backend="none")
def tests(session: nox.Session) -> None:
    """Run every check and test in .venv; arguments go to pytest."""
    session.run("bash", "tests/run.sh", *session.posargs, external=True)


@nox.session(default=False)
def docs(session: nox.Session) -> None:
    """Build the site in build/docs."""
    session.install(".[docs]")
    session.run("sphinx-build", "-W", "--keep-going", "-q", "docs", "build/docs")


@nox.session(default=False)
def build(session: nox.Session) -> None:
    """Build the package in dist/."""
    session.install("build", "twine")
    session.run("python", "-m", "build")
    session.run("twine", "check", "--strict", "dist/*")


if __name__ == "__main__":
    nox.main()
