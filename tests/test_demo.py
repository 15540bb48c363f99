"""The demonstration prints its numbers and draws its picture."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from eigengp import demo

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def printed_number(text: str, name: str) -> float:
    found = re.search(rf"^ *{re.escape(name)} +(-?[\d.]+)", text, re.MULTILINE)
    assert found, f"{name!r} is missing in:\n{text}"
    return float(found[1])


def test_it_prints_numbers_and_writes_a_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "new" / "folder"
    assert demo.main(["--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert printed_number(text, "NMSE") < 0.1
    assert printed_number(text, "noise s.d.") == pytest.approx(demo.NOISE, rel=0.2)
    assert printed_number(text, "90% interval") > 80.0
    assert printed_number(text, "log evidence") < 0.0
    assert printed_number(text, "MNLP") < 1.0
    assert printed_number(text, "time to fit") > 0.0
    picture = out / demo.PICTURE
    assert str(picture) in text
    content = picture.read_bytes()
    assert content.startswith(PNG_SIGNATURE)
    assert len(content) < 200_000


def test_without_matplotlib_it_prints_numbers_and_names_the_extra(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    out = tmp_path / "unused"
    assert demo.main(["--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert printed_number(text, "NMSE") < 0.1
    assert "eigengp[plot]" in text
    assert not out.exists()


def test_a_folder_that_cannot_be_made_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    assert demo.main(["--out", str(in_the_way)]) == 1
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert str(in_the_way) in captured.err
    assert captured.out == ""


def test_a_picture_that_cannot_be_written_still_leaves_the_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(demo, "N_COMPONENTS", 2)
    (tmp_path / demo.PICTURE).mkdir()
    assert demo.main(["--out", str(tmp_path)]) == 1
    captured = capsys.readouterr()
    assert printed_number(captured.out, "NMSE") > 0.0
    assert "cannot write" in captured.err.splitlines()[-1]
