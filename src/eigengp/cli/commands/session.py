"""Output and errors of a command: results on standard output, notes and errors on standard error.

With `--json` the result is one JSON object that includes the notes, and nothing else is written to
standard output.
"""

from __future__ import annotations

import json
import math
import os
import sys
import traceback
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import typer

from eigengp._format import make_printable

FAILED, INTERRUPTED = 1, 130


@dataclass
class Session:
    """One run of a command.

    Parameters
    ----------
    json : bool
        Whether to write the result as JSON.
    quiet : bool
        Whether to omit notes and progress.
    debug : bool
        Whether to show tracebacks.
    """

    json: bool = False
    quiet: bool = False
    debug: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def shows_progress(self) -> bool:
        """Whether standard error is a terminal that shows progress."""
        return not (self.json or self.quiet) and sys.stderr.isatty()

    @property
    def verbose(self) -> int:
        """How fits show their progress: by a bar, or by a line every few seconds."""
        return 0 if self.json or self.quiet else 1 if sys.stderr.isatty() else 2

    def say(self, text: str) -> None:
        """Print a line of the result, unless `--quiet`."""
        if not (self.json or self.quiet):
            print(make_printable(text))

    def show(self, *parts: Any) -> None:
        """Print tables of Rich; their texts are shown as they are, not as markup."""
        if self.json:
            return
        from rich.console import Console

        class Plain(Console):
            def render_str(self, text: str, **options: Any) -> Any:
                return super().render_str(make_printable(text), **options)

        console = Plain(highlight=False, markup=False, emoji=False)
        for part in parts:
            console.print(part)

    def note(self, text: str) -> None:
        """Print a note, once."""
        if text in self.notes:
            return
        self.notes.append(text)
        if not (self.json or self.quiet):
            print(make_printable(f"note: {text}"), file=sys.stderr)

    def write_result(self, values: Mapping[str, Any]) -> None:
        """Write the result as JSON, with `--json`."""
        if self.json:
            _write_json({**values, "notes": self.notes})

    def check_output_path(self, path: Path, endings: Collection[str]) -> None:
        """Raise unless a file with one of these endings can be written; note if it exists."""
        if path.suffix.lower() not in endings:
            raise ValueError(f"{path} must end in {' or '.join(endings)}.")
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a folder; name a file in it.")
        if not path.parent.is_dir():
            raise FileNotFoundError(f"The folder {path.parent} does not exist; create it first.")
        try:
            TemporaryFile(dir=path.parent).close()
        except OSError as error:
            raise PermissionError(f"{path} cannot be written: {error.strerror}.") from error
        if path.exists():
            self.note(f"{path} exists and is replaced.")

    def fail(self, message: object, code: int = FAILED) -> None:
        """Print an error in one line and exit."""
        text = " ".join(str(message).split()) or type(message).__name__
        if self.debug:
            print(make_printable(traceback.format_exc()), file=sys.stderr)
        if self.json:
            _write_json({"error": text, "notes": self.notes})
        print(make_printable(f"eigengp: {text}"), file=sys.stderr)
        raise typer.Exit(code) from None


@contextmanager
def open_session(json: bool, quiet: bool, debug: bool) -> Iterator[Session]:
    """Run a command: warnings become notes, and errors one line and an exit code."""
    out = Session(json, quiet, debug)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = lambda message, *_, **__: out.note(
                " ".join(str(message).split())
            )
            yield out
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader of the output has closed it; Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(FAILED) from None
    except KeyboardInterrupt:
        out.fail("Interrupted; nothing was written.", INTERRUPTED)
    except (ValueError, TypeError, OSError, ImportError) as error:
        out.fail(error)
    except MemoryError:
        out.fail("Not enough memory; use fewer rows or components.")
    except (typer.Exit, typer.BadParameter):
        raise
    except Exception as error:
        hint = "" if debug else " (--debug shows the traceback)"
        out.fail(f"Unexpected {type(error).__name__}: {error}{hint}")


def _write_json(values: Mapping[str, Any]) -> None:
    print(make_printable(json.dumps(_to_plain(values), ensure_ascii=False, allow_nan=False)))


def _to_plain(value: Any) -> Any:
    """Convert to types of JSON; numbers that are not finite become null."""
    if isinstance(value, Mapping):
        return {str(name): _to_plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain(each) for each in value]
    if hasattr(value, "tolist"):
        return _to_plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
