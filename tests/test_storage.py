"""Files are whole or absent; a malformed row is named by file and line; a full disk is said as what
it is."""

import json
import os
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plumbline.errors import DataError, StorageError
from plumbline.storage import (
    JsonLines,
    apply_umask,
    read_bytes,
    read_json,
    read_jsonl,
    read_text,
    sha256_of,
    write_json,
    write_jsonl,
    write_text,
)


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "file.json"
    write_json(path, {"old": 1})
    with pytest.raises(ValueError, match="JSON"):
        write_json(path, {"new": float("nan")})
    assert read_json(path) == {"old": 1}
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_named(tmp_path):
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(StorageError, match="No space left"):
        JsonLines(tmp_path / "metrics.jsonl").append({"step": 1})


def test_a_row_that_did_not_fit_leaves_the_rows_before_it_and_the_next_one_stands_alone(tmp_path):
    """A limit on the size of files takes the first bytes of a row, as a disk does that fills up."""
    lines = JsonLines(tmp_path / "events.jsonl")
    lines.append({"step": 1})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (lines.size() + 7, hard))
    try:
        with pytest.raises(StorageError, match="No space left"):
            lines.append({"step": 2})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    lines.append({"step": 3})
    assert lines.rows() == [{"step": 1}, {"step": 3}]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": 1}\n{"a": \n', r"rows.jsonl:2: not JSON"),
        (b'{"a": 1}\n\n[1]\n', r"rows.jsonl:3: .* not list"),
        (b'{"a": 1}\n{"a": "\xff"}\n', r"rows.jsonl:\d+: not UTF-8"),
    ],
)
def test_a_malformed_row_is_named_by_file_and_line(tmp_path, content, message):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        list(read_jsonl(path))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.dictionaries(st.text(), st.one_of(st.text(), st.integers(), st.none(), st.booleans()))
    )
)
def test_rows_read_back_as_they_were_written(rows):
    """Line separators inside texts (U+2028, vertical tab, ...) do not end a row."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        write_jsonl(path, rows)
        assert [row for _, row in read_jsonl(path)] == rows
        assert JsonLines(path).rows() == rows


def test_half_a_surrogate_is_written_as_an_escape_and_refused_in_a_users_rows(tmp_path):
    """A model may have written one, and losing its record for that would be worse; no tokenizer
    takes one."""
    row = {"text": "a\ud83d", "whole": "\N{LLAMA}"}
    write_json(tmp_path / "a.json", row)
    assert read_json(tmp_path / "a.json") == row
    lines = JsonLines(tmp_path / "rows.jsonl")
    lines.append(row)
    assert lines.rows() == [row]
    assert "\N{LLAMA}" in lines.path.read_text(encoding="utf-8")
    with pytest.raises(DataError, match=r"rows\.jsonl:1 .*surrogates"):
        list(read_jsonl(lines.path))
    write_jsonl(lines.path, [{"text": "\\ud83d in words, and \N{LLAMA}"}])
    assert len(list(read_jsonl(lines.path))) == 1


def test_appended_rows_are_cut_back_to_a_mark_and_a_torn_line_is_left_out(tmp_path):
    lines = JsonLines(tmp_path / "metrics.jsonl")
    assert lines.rows() == []
    lines.append({"step": 1})
    mark = lines.size()
    lines.append({"step": 2, "text": "caf\u00e9\u2028"})
    with lines.path.open("ab") as file:
        file.write(b'{"step": 3, "te')
    assert [row["step"] for row in lines.rows()] == [1, 2]
    lines.cut_torn()
    lines.append({"step": 3})
    assert [row["step"] for row in lines.rows()] == [1, 2, 3]
    lines.truncate(mark)
    assert lines.rows() == [{"step": 1}]
    assert lines.path.read_bytes() == (json.dumps({"step": 1}) + "\n").encode()
    assert lines.path.stat().st_size == mark


def special(path, kind):
    """Put what is no ordinary file at a path."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
    elif kind == "sparse":
        with path.open("wb") as file:
            file.truncate(6 * 10**9)
    elif kind == "pipe-link":
        os.mkfifo(path.with_name("pipe"))
        path.symlink_to("pipe")
    else:
        path.symlink_to("/dev/zero")


@pytest.mark.parametrize("kind", ["pipe", "folder", "socket", "sparse", "pipe-link", "device"])
@pytest.mark.parametrize(
    "read",
    [
        read_json,
        read_text,
        read_bytes,
        sha256_of,
        lambda path: list(read_jsonl(path)),
        lambda path: JsonLines(path).rows(),
    ],
)
def test_what_is_no_ordinary_file_is_refused_at_once(tmp_path, monkeypatch, kind, read):
    monkeypatch.chdir(tmp_path)  # the name of a socket has to be short
    if kind == "sparse" and read is sha256_of:
        return  # of any size, in pieces
    special(Path("file"), kind)
    signal.alarm(60)
    try:
        with pytest.raises(DataError, match=r"file(:1)? (cannot|is)"):
            read(Path("file"))
    finally:
        signal.alarm(0)


def test_rows_are_not_appended_to_a_pipe_that_nobody_reads(tmp_path):
    os.mkfifo(tmp_path / "events.jsonl")
    with pytest.raises(StorageError, match="cannot write"):
        JsonLines(tmp_path / "events.jsonl").append({"step": 1})


def test_what_this_process_was_given_open_is_read_to_its_end(tmp_path):
    """`<(...)` and `/dev/stdin` are pipes, which the user names."""
    (tmp_path / "rows.jsonl").write_text('{"a": 1}\n' * 3)
    code = "import sys; from pathlib import Path; from plumbline.storage import read_jsonl\n"
    code += "print(sum(len(list(read_jsonl(Path(place)))) for place in sys.argv[1:]))"
    command = 'sleep 0.2 | cat - rows.jsonl | "$0" -c "$1" /dev/stdin <(sleep 0.2; cat rows.jsonl)'
    done = subprocess.run(
        ["bash", "-c", command, sys.executable, code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "6\n", done.stderr


def test_files_have_the_permissions_that_the_umask_leaves(tmp_path):
    for mask, mode in ((0o077, 0o600), (0o022, 0o644), (0o007, 0o660)):
        before = os.umask(mask)
        try:
            write_text(tmp_path / "a.txt", "a")
            (tmp_path / f"{mask}").mkdir(0o700)
            (tmp_path / f"{mask}" / "model").touch(0o600)
            apply_umask(tmp_path / f"{mask}")
        finally:
            os.umask(before)
        assert (tmp_path / "a.txt").stat().st_mode & 0o777 == mode
        assert (tmp_path / f"{mask}" / "model").stat().st_mode & 0o777 == mode
        assert (tmp_path / f"{mask}").stat().st_mode & 0o777 == 0o777 & ~mask
