"""Keys of the watermark: made once, kept private, read from a file."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from voiceagent_tts.config import Settings
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.plugins.provenance.keys import WatermarkKey, watermark_keys


def keys_of(path: Path, **settings: Any) -> tuple[WatermarkKey, ...]:
    """The keys of a server whose file is at `path`."""
    return watermark_keys(Settings(watermark_key_file=path, **settings))


def test_a_key_is_made_at_the_first_start(tmp_path: Path) -> None:
    """The file is private, in a folder that is made for it; later starts read the same key."""
    path = tmp_path / "data" / "watermark.keys"
    (key,) = keys_of(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert keys_of(path) == (key,)
    assert [each.name for each in path.parent.iterdir()] == ["watermark.keys"]
    assert keys_of(tmp_path / "other.keys") != (key,)


def test_servers_that_start_at_once_agree(tmp_path: Path) -> None:
    """The first of several servers makes the key; all use it."""
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(keys_of, [tmp_path / "keys"] * 16))
    assert len(set(found)) == 1


def test_a_file_may_have_older_keys(tmp_path: Path) -> None:
    """The first key marks; the others are found in older audio."""
    path = tmp_path / "keys"
    path.write_text("11" * 32 + "\n" + "AB" * 32 + "\n")
    assert keys_of(path) == (WatermarkKey(b"\x11" * 32), WatermarkKey(b"\xab" * 32))


@pytest.mark.parametrize("content", ["\n", "zz" * 32, "11" * 33, "\0"])
def test_a_bad_file_is_refused(tmp_path: Path, content: str) -> None:
    """A file without a key names the file and the remedy, and not what is in it."""
    path = tmp_path / "keys"
    path.write_text(content)
    with pytest.raises(InvalidRequestError, match="openssl rand -hex 32") as refused:
        keys_of(path)
    assert str(path) in refused.value.message
    assert not content.strip() or content not in refused.value.message


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """A server that cannot keep its key does not start, and says what to do."""
    (tmp_path / "folder").symlink_to("/proc/none")
    with pytest.raises(InvalidRequestError, match="watermark_key_file.*--no-watermark"):
        keys_of(tmp_path / "folder" / "keys")


def test_the_id_is_public_and_the_key_is_not() -> None:
    """The id has 16 hex digits; neither it nor `repr` shows the key."""
    key = WatermarkKey(b"\x11" * 32)
    assert len(key.id) == 16 and int(key.id, 16)
    assert "1111" not in repr(key) and "x11" not in repr(key) and key.id in repr(key)
