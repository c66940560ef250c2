"""Files that are read whole, if they are files and not too large."""

from pathlib import Path

import pytest

from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.reading import read_file


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    """Also one whose size the system states as 0; a hole of 3 GB is not read."""
    (tmp_path / "three").write_bytes(b"abc")
    assert read_file(tmp_path / "three", 3) == b"abc"
    assert read_file(Path("/proc/self/cmdline"), 10**6)
    with (tmp_path / "hole").open("wb") as file:
        file.truncate(3 * 10**9)
    for large in (tmp_path / "three", tmp_path / "hole"):
        with pytest.raises(InvalidRequestError, match="at most 2 bytes, got a larger one"):
            read_file(large, 2)
