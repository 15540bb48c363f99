"""How a command speaks: results on standard output, remarks and errors on standard error.

With `--json` the result is one JSON object, remarks are part of it, and nothing else is written to
standard output.
"""

from __future__ import annotations

import json
import math
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import typer

from eigengp._format import number as number

FAILED, INTERRUPTED = 1, 130


@dataclass
class Session:
    """One run of a command.

    Parameters
    ----------
    json : bool
        Whether the result is for machines.
    quiet : bool
        Whether remarks and progress are left out.
    debug : bool
        Whether errors come with a traceback.
    """

    json: bool = False
    quiet: bool = False
    debug: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def draws(self) -> bool:
        """Whether somebody watches who would like to see progress."""
        return not (self.json or self.quiet) and sys.stderr.isatty()

    def say(self, text: str) -> None:
        """Write a line of the result, which is left out with `--quiet`."""
        if not (self.json or self.quiet):
            print(text)

    def show(self, *parts: Any) -> None:
        """Write tables and texts of Rich: what the command was asked for."""
        if self.json:
            return
        from rich.console import Console

        console = Console(highlight=False)
        for part in parts:
            console.print(part)

    def note(self, text: str) -> None:
        """Remark on something that the user should know; nothing is said twice."""
        if text in self.notes:
            return
        self.notes.append(text)
        if not (self.json or self.quiet):
            print(f"note: {text}", file=sys.stderr)

    def result(self, values: Mapping[str, Any]) -> None:
        """Write the result for machines, if it is for them."""
        if self.json:
            _write_json({**values, "notes": self.notes})

    @contextmanager
    def running(self) -> Iterator[None]:
        """Make remarks of warnings, and one line and an exit code of whatever goes wrong."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                warnings.simplefilter("always", UserWarning)
                warnings.showwarning = self._show_warning
                yield
                sys.stdout.flush()
        except BrokenPipeError:
            # Whoever read the output has seen enough; Python would complain once more at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(FAILED) from None
        except KeyboardInterrupt:
            self._fail("Interrupted; nothing was written.", INTERRUPTED)
        except (ValueError, TypeError, OSError, ImportError) as error:
            self._fail(_one_line(error))
        except MemoryError:
            self._fail("There is not enough memory; take fewer rows or components.")
        except Exception as error:
            if isinstance(error, typer.Exit | typer.BadParameter):
                raise
            hint = "" if self.debug else " (--debug shows where)"
            self._fail(f"Unexpected {type(error).__name__}: {_one_line(error)}{hint}")

    def _fail(self, message: str, code: int = FAILED) -> None:
        if self.debug:
            traceback.print_exc()
        if self.json:
            _write_json({"error": message, "notes": self.notes})
        print(f"eigengp: {message}", file=sys.stderr)
        raise typer.Exit(code) from None

    def _show_warning(self, message: Warning | str, *_: Any, **__: Any) -> None:
        self.note(_one_line(message))


@contextmanager
def session(json: bool, quiet: bool, debug: bool) -> Iterator[Session]:
    """Run a command in a session; see `Session`."""
    out = Session(json, quiet, debug)
    with out.running():
        yield out


def _one_line(error: object) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _write_json(values: Mapping[str, Any]) -> None:
    print(json.dumps(_plain(values), ensure_ascii=False, allow_nan=False))


def _plain(value: Any) -> Any:
    """Return what JSON has words for: numbers that are not finite become null."""
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
