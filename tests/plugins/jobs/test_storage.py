"""Storage of files: complete or not there, links that end, old files deleted."""

import os
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from voiceagent_tts.errors import InvalidRequestError, UnauthorizedError
from voiceagent_tts.plugins.jobs.storage import JobStorage

NAME = "0123456789abcdef" * 2 + ".mp3"
HOUR_S = 3600.0


def parts_of(link: str) -> tuple[str, int, str]:
    """Name, expiry and signature of a link to a server."""
    parts = urlsplit(link)
    query = parse_qs(parts.query)
    return parts.path.rpartition("/")[2], int(query["expires"][0]), query["signature"][0]


def soon() -> int:
    """A moment that has not come yet."""
    return int(time.time()) + 60


def test_links_cannot_be_changed(tmp_path: Path) -> None:
    """Another name, time, signature or secret is refused, and so is a link that has ended."""
    storage = JobStorage(tmp_path, b"secret")
    storage.save(NAME, b"sound")
    name, expires_at, signature = parts_of(storage.link(NAME, "http://host/", soon()))
    _, past, old_signature = parts_of(storage.link(NAME, "http://host/", int(time.time()) - 1))
    _, _, foreign = parts_of(JobStorage(tmp_path, b"other").link(NAME, "", expires_at))
    for link in (
        ("f" * 32 + ".mp3", expires_at, signature),
        (name, expires_at + 1, signature),
        (name, expires_at, ""),
        (name, expires_at, "é" * 64),
        (name, expires_at, foreign),
        (name, past, old_signature),
    ):
        with pytest.raises(UnauthorizedError):
            storage.open_link(*link)


@pytest.mark.parametrize("name", ["../secret.mp3", "/etc/passwd", NAME + "\0", "x.mp3", ""])
def test_only_files_of_jobs_are_read(tmp_path: Path, name: str) -> None:
    """A name that is none of ours is not there, even where its signature is right."""
    storage = JobStorage(tmp_path / "jobs", b"secret")
    (tmp_path / "secret.mp3").write_text("secret")
    _, expires_at, signature = parts_of(storage.link(NAME, "http://host/", soon()))
    signature = storage._signature(name, expires_at)
    with pytest.raises(InvalidRequestError):
        storage.open_link(name, expires_at, signature)


def test_old_files_are_deleted(tmp_path: Path) -> None:
    """Files of jobs that are no longer kept go; others in the folder stay."""
    storage = JobStorage(tmp_path / "jobs", b"secret")
    assert storage.delete_old(HOUR_S) == 0
    storage.save(NAME, b"new")
    for name in ("f" * 32 + ".wav", f"{NAME}.7.unfinished", "notes.txt"):
        path = storage.folder / name
        path.write_text("old")
        os.utime(path, (0, 0))
    assert storage.delete_old(HOUR_S) == 2
    assert sorted(path.name for path in storage.folder.iterdir()) == [NAME, "notes.txt"]
