import os
import stat
from pathlib import Path

from voiceagent_tts.replacing import replacing


def test_a_pipe_or_a_device_is_written_and_never_replaced(tmp_path: Path) -> None:
    """`-o /dev/null` of an administrator left a regular file in the place of the device."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR)
    with replacing(pipe) as path:
        path.write_bytes(b"audio")
    assert os.read(reader, 5) == b"audio"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode) and list(tmp_path.iterdir()) == [pipe]


def test_a_link_keeps_leading_to_its_file(tmp_path: Path) -> None:
    """Such as `/dev/stdout`, or a link to another disk."""
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_bytes(b"old")
    link.symlink_to(file)
    with replacing(link) as path:
        path.write_bytes(b"new")
    assert link.is_symlink() and file.read_bytes() == b"new"
