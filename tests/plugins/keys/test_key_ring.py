"""The keys of a running server: found in constant time, reloaded, and kept where a store breaks."""

import asyncio
import hmac
import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from voiceagent_tts.config import Settings
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.plugins.keys.key_store import KeyChange, KeyFile, KeyRing
from voiceagent_tts.plugins.keys.keys import KeyDocument, NewKey, Scope, make_key
from voiceagent_tts.settings.access import Quota, hash_key

KEYS = [make_key(f"key {number}", frozenset({Scope.SPEAK}), Quota()) for number in range(3)]


def write(path: Path, *keys: NewKey) -> None:
    path.write_text(KeyDocument(keys=tuple(each.key for each in keys)).dump())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with two keys."""
    path = tmp_path / "keys.json"
    write(path, *KEYS[:2])
    return path


async def ring_of(path: Path, changes: list[KeyChange] | None = None) -> KeyRing:
    """A started ring over a file."""
    report = (lambda change: None) if changes is None else changes.append
    ring = KeyRing(Settings(keys=str(path), api_keys=("plain",)), report)
    await ring.start()
    return ring


@pytest.mark.parametrize(
    "offered",
    [KEYS[0].secret, KEYS[1].secret, "plain", "wrong", ""],
    ids=["first", "last", "of the settings", "wrong", "empty"],
)
async def test_every_key_is_compared_whichever_is_right(
    path: Path, offered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look-up compares hashes of all keys in constant time, and stops at none."""
    ring = await ring_of(path)
    compared: list[tuple[str, str]] = []
    original = hmac.compare_digest

    def compare(one: str, other: str) -> bool:
        compared.append((one, other))
        return original(one, other)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    found = ring.find(offered)
    assert (found is None) == (offered in ("wrong", ""))
    assert found is None or found.hash == hash_key(offered)
    stored = {hash_key("plain"), KEYS[0].key.hash, KEYS[1].key.hash}
    assert {other for _, other in compared} == stored and len(compared) == len(ring) == 3
    assert {one for one, _ in compared} == {hash_key(offered)}


async def test_an_old_secret_of_a_key_is_removed(path: Path) -> None:
    """An id with another hash is another key, so that sockets of the old one are closed."""
    changes: list[KeyChange] = []
    ring = await ring_of(path, changes)
    rotated = KEYS[0].key.model_copy(update={"hash": KEYS[2].key.hash})
    write(path, NewKey(rotated, ""), KEYS[1])
    await ring.reload()
    assert changes == [KeyChange(added=(rotated,), removed=(KEYS[0].key,), changed=())]


@pytest.mark.parametrize("damage", ["malformed", "missing", "a folder", "not UTF-8", "unfinished"])
async def test_a_file_that_breaks_later_changes_nothing_and_is_reported_once(
    path: Path, damage: str
) -> None:
    """The keys of the last good reading stay; the log says so once, and when it is over."""
    ring = await ring_of(path)
    good = path.read_text()
    path.unlink()
    match damage:
        case "malformed":
            path.write_text('{"keys": [{}]}')
        case "a folder":
            path.mkdir()
        case "not UTF-8":
            path.write_bytes(b"\xff\xfe")
        case "unfinished":
            path.write_text(good[: len(good) // 2])
        case _:
            pass
    with capture_logs() as logs:
        for _ in range(3):
            await ring.reload()
    assert [line["event"] for line in logs] == ["keys_not_read"]
    assert ring.problem is not None and str(path) in ring.problem
    assert ring.find(KEYS[0].secret) == KEYS[0].key
    if path.is_dir():
        path.rmdir()
    path.write_text(good)
    with capture_logs() as logs:
        await ring.reload()
    assert [line["event"] for line in logs] == ["keys_read_again"] and ring.problem is None


@pytest.mark.parametrize("content", [None, "", "{", '{"keys": [{"id": "a"}]}'])
async def test_a_file_without_valid_keys_is_refused_at_the_start(
    path: Path, content: str | None
) -> None:
    path.unlink()
    if content is not None:
        path.write_text(content)
    with pytest.raises(InvalidRequestError, match=r"keys\.json"):
        await ring_of(path)


async def test_two_programs_can_change_a_file_at_once(path: Path) -> None:
    """No key is lost, and the file is never without content for a reader."""
    stores = [KeyFile(path) for _ in range(8)]
    new = [make_key("parallel", frozenset({Scope.SPEAK}), Quota()) for _ in stores]

    def adding(key: NewKey):
        return lambda document: document.with_key(key.key)

    await asyncio.gather(
        *(store.change(adding(key)) for store, key in zip(stores, new, strict=True))
    )
    document = KeyDocument.parse(path.read_text(), "here")
    assert {key.id for key in document.keys} >= {key.key.id for key in new}
    assert len(document.keys) == 10
    assert path.stat().st_mode & 0o077 == 0  # only its owner may read it


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
async def test_a_change_by_root_leaves_the_file_to_its_owner(path: Path) -> None:
    """A server that runs as another user must be able to read that a key was revoked."""
    os.chown(path, 4242, 4343)
    await KeyFile(path).change(lambda document: document.without(KEYS[0].key.id))
    status = path.stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (4242, 4343, 0o600)
