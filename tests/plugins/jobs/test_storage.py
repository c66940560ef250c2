"""Storage of files: complete or not there, links that end, old files deleted."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
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


def test_a_file_that_vanishes_does_not_end_the_deletion(tmp_path: Path) -> None:
    """Another server deletes old files at the same time; broken links stand for its work."""
    storage = JobStorage(tmp_path, b"secret")
    for number in range(20):
        (tmp_path / f"{number}.unfinished").symlink_to(tmp_path / "vanished")
        path = tmp_path / f"{number:032x}.wav"
        path.touch()
        os.utime(path, (0, 0))
    assert storage.delete_old(HOUR_S) == 20


def test_two_that_store_the_same_file_do_not_meet(tmp_path: Path) -> None:
    """A job that was taken over may be stored by both servers at the same time."""
    storage = JobStorage(tmp_path, b"secret")
    sounds = [bytes([number]) * 100_000 for number in range(8)]
    with ThreadPoolExecutor(len(sounds)) as pool:
        for _ in range(10):
            list(pool.map(lambda sound: storage.save(NAME, sound), sounds))
            assert (tmp_path / NAME).read_bytes() in sounds
    assert [path.name for path in tmp_path.iterdir()] == [NAME]
