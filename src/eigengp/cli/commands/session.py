"""Output and errors of a command: results on standard output, notes and errors on standard error.

With `--json` the result is one JSON object that includes the notes, and nothing else is written to
standard output.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated, Any

import typer

from eigengp._atomic import check_target
from eigengp._format import make_printable

FAILED, INTERRUPTED = 1, 130
RIGHT: dict[str, Any] = {"justify": "right", "no_wrap": True}
DIM: dict[str, Any] = {"style": "dim", "overflow": "fold"}
_SHARED = {
    "as_json": typer.Option(
        "--json", help="Write one JSON object to standard output and nothing else."
    ),
    "quiet": typer.Option("--quiet", "-q", help="No notes and no progress."),
    "debug": typer.Option("--debug", help="Show the traceback of an error."),
}


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
    def verbose(self) -> int:
        """How fits show their progress: by a bar, or by a line every few seconds."""
        return 0 if self.json or self.quiet else 1 if sys.stderr.isatty() else 2

    def say(self, text: str) -> None:
        """Print a line of the result, unless `--quiet`."""
        if not (self.json or self.quiet):
            print(make_printable(text))

    def show(
        self, columns: Mapping[str, Mapping[str, Any]], rows: Iterable[Sequence[Any]], title: str
    ) -> None:
        """Print a table; texts are shown as they are, not as markup.

        Parameters
        ----------
        columns : mapping
            Their headings, and settings of Rich.
        rows : iterable of sequences
            Texts, or other things that Rich renders.
        title : str
            Stands above the table.
        """
        if self.json:
            return
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        def plain(cell: Any) -> Any:
            return Text(make_printable(cell)) if isinstance(cell, str) else cell

        table = Table(title=plain(title), title_justify="left", box=box.SIMPLE_HEAD)
        table.show_header = any(map(str.strip, columns))
        for heading, settings in columns.items():
            table.add_column(heading, **settings)
        for row in rows:
            table.add_row(*map(plain, row))
        Console(highlight=False).print(table)

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

    def check_output_path(self, path: Path | None, endings: Collection[str]) -> None:
        """Raise unless a file with one of these endings can be written; note if it exists."""
        if path is None:
            return
        check_target(path, endings)
        try:
            TemporaryFile(dir=path.parent).close()
        except OSError as error:
            raise PermissionError(f"{path} cannot be written: {error.strerror}.") from error
        if path.exists():
            self.note(f"{path} exists and will be replaced.")

    def fail(self, message: object, code: int = FAILED) -> None:
        """Print an error in one line and exit."""
        text = " ".join(str(message).split()) or type(message).__name__
        if self.debug:
            print(make_printable(traceback.format_exc()), file=sys.stderr)
        if self.json:
            _write_json({"error": text, "notes": self.notes})
        print(make_printable(f"eigengp: {text}"), file=sys.stderr)
        raise typer.Exit(code) from None


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Make a command of a function of a `Session` and of options.

    It also has `--json`, `--quiet` and `--debug`; warnings become notes, and errors one line and
    an exit code.
    """

    @wraps(function)
    def run(as_json: bool, quiet: bool, debug: bool, **options: Any) -> None:
        out = Session(as_json, quiet, debug)
        with _explain_errors(out), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = lambda text, *_, **__: out.note(" ".join(str(text).split()))
            function(out, **options)
            sys.stdout.flush()

    own = signature(function, eval_str=True)
    shared = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, option])
        for name, option in _SHARED.items()
    ]
    run.__signature__ = own.replace(  # type: ignore[attr-defined]
        parameters=[*list(own.parameters.values())[1:], *shared]
    )
    return run


@contextmanager
def _explain_errors(out: Session) -> Iterator[None]:
    try:
        yield
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
        hint = "" if out.debug else " (--debug shows the traceback)"
        out.fail(f"Unexpected {type(error).__name__}: {error}{hint}")


def _write_json(values: Mapping[str, Any]) -> None:
    """Write an object of JSON; numbers that are not finite become null."""
    text = json.dumps(values, default=lambda each: each.tolist())
    plain = json.loads(text, parse_constant=lambda _: None)
    print(make_printable(json.dumps(plain, ensure_ascii=False)))
