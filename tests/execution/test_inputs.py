"""Input files are read within bounds that are checked before data is held in memory."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from gpusim.errors import MOST_REPEATED, excerpt
from gpusim.files import inputs
from gpusim.files.inputs import parsed_json, read_bytes, unpacked


def test_a_file_is_read_up_to_the_limit_and_refused_above(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(2**20))
    assert len(read_bytes(path, 2**20)) == 2**20
    path.write_bytes(bytes(2**20 + 1))
    with pytest.raises(OSError, match="it is more than 1 MiB, the most that is read"):
        read_bytes(path, 2**20)


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (Path("/dev/zero"), tmp_path / "pipe"):
        with pytest.raises(OSError, match="not a regular file"):
            read_bytes(path)
    with pytest.raises(IsADirectoryError):
        read_bytes(tmp_path)


def test_a_packed_file_is_expanded_up_to_the_limit_and_refused_above() -> None:
    assert len(unpacked(gzip.compress(bytes(2**20)), 2**20)) == 2**20
    with pytest.raises(OSError, match="it expands to more than 1 MiB, the most that is read"):
        unpacked(gzip.compress(bytes(2**20 + 1)), 2**20)


def test_json_is_bounded_in_values_and_in_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parsed_json(b'{"a": [1, "b\t"]}') == {"a": [1, "b\t"]}
    with pytest.raises(ValueError, match="nested too deep"):
        parsed_json(b"[" * 100_000)
    monkeypatch.setattr(inputs, "MOST_JSON_VALUES", 4)
    with pytest.raises(OSError, match="more than 4 JSON values"):
        parsed_json(b"[1, 2, 3, 4, 5]")


def test_a_message_repeats_so_much_of_the_input_and_one_line() -> None:
    assert excerpt("a\nb") == "a b"
    assert len(excerpt("x" * 10_000)) == MOST_REPEATED
