"""Files that appear in one step: their permissions, links, and what a kill leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from eigengp._atomic import replace_atomically, write_atomically

pytestmark = pytest.mark.skipif(os.name != "posix", reason="permissions and signals of POSIX")

_WAIT = """
import sys, time
from pathlib import Path
from eigengp._atomic import replace_atomically
with replace_atomically(Path(sys.argv[1])) as scratch:
    scratch.write_text("half")
    print("writing", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444])
def test_a_file_keeps_its_permissions_and_is_never_more_open(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("old")
    path.chmod(mode)
    with replace_atomically(path) as scratch:
        assert scratch.stat().st_mode & 0o777 == 0o600
        scratch.write_text("new")
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == mode


def test_a_new_file_has_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    write_atomically(tmp_path / "a.csv", b"new")
    assert (tmp_path / "a.csv").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_a_symbolic_link_stays(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    link, target = tmp_path / "a.csv", tmp_path / "folder" / "b.csv"
    link.symlink_to(target)
    for content in (b"first", b"second"):  # The first makes the file.
        write_atomically(link, content)
        assert link.is_symlink()
        assert target.read_bytes() == content


def test_the_longest_name_can_be_written(tmp_path: Path) -> None:
    write_atomically(tmp_path / f"{'a' * 250}.csv", b"new")
    assert [len(each.name) for each in tmp_path.iterdir()] == [254]


def test_what_a_kill_leaves_goes_with_the_next_file_but_not_what_is_being_written(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("old")
    writers = [
        subprocess.Popen([sys.executable, "-c", _WAIT, path], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        for each in writers:
            assert each.stdout is not None
            assert each.stdout.readline() == "writing\n"
        writers[0].send_signal(signal.SIGKILL)
        writers[0].wait()
        assert path.read_text() == "old"
        assert len([*tmp_path.iterdir()]) == 3
        write_atomically(path, b"new")
        left = [each for each in tmp_path.iterdir() if each != path]
        assert len(left) == 1
        assert f"-{writers[1].pid}-" in left[0].name
    finally:
        for each in writers:
            each.kill()
            each.wait()
    write_atomically(path, b"newer")
    assert [*tmp_path.iterdir()] == [path]
