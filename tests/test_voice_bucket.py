"""Voices in a bucket of a real S3 server, and two servers' copies of them."""

import json
import os
import stat
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from testbed.s3_server import S3Server, s3_server
from voiceagent_tts.errors import ErrorCode, InvalidRequestError, OverloadedError
from voiceagent_tts.lexicon import read_lexicon
from voiceagent_tts.model.prompt import Cloned
from voiceagent_tts.server.voice_records import Consent, VoiceRecord, VoiceRecords
from voiceagent_tts.voice_bucket import BucketVoiceFolder, open_voices

pytestmark = pytest.mark.services

Open = Callable[..., BucketVoiceFolder]


@pytest.fixture
def s3(free_port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """An S3 server."""
    with s3_server(free_port, monkeypatch) as server:
        yield server


@pytest.fixture
def opened(s3: S3Server, tmp_path: Path) -> Open:
    """Open the voices of the bucket, with the copies of one server."""

    def opened(name: str, max_bytes: float = 1e6) -> BucketVoiceFolder:
        folder = open_voices(f"s3://{s3.bucket}/voices", tmp_path / name, max_bytes)
        assert isinstance(folder, BucketVoiceFolder)
        return folder

    return opened


def voice_file(*embedding: float) -> bytes:
    """A voice file with this embedding."""
    return Cloned(torch.tensor(embedding)).to_bytes()


FIRST, SECOND = voice_file(1, 0), voice_file(0, 1)


def files_of(folder: BucketVoiceFolder) -> list[str]:
    """The names of all copies, with those of hidden files."""
    found = (each for each in folder.path.rglob("*") if each.is_file())
    return sorted(each.relative_to(folder.path).as_posix() for each in found)


def test_each_server_has_the_voices_of_all(opened: Open, s3: S3Server) -> None:
    """A voice is added, replaced and removed by any of them; letters of all scripts are names."""
    a, b = opened("a"), opened("b")
    a.save("Änne 名前", FIRST)
    assert s3.get("voices/änne 名前.safetensors") == FIRST
    assert b.names() == [] and b.pull() and not b.pull()
    assert b.read("änne 名前") == FIRST
    version = b.version("änne 名前")
    b.save("änne 名前", SECOND)
    assert a.pull() and a.read("änne 名前") == SECOND
    assert a.version("änne 名前") != version
    a.remove("änne 名前")
    assert b.pull() and b.names() == [] and s3.objects() == {}
    assert "änne 名前.safetensors" not in files_of(b)


def test_a_bucket_that_is_away_stops_changes_alone(opened: Open, s3: S3Server) -> None:
    """The voices stay, and nothing is left of what could not be stored; later all goes on."""
    folder = opened("a")
    folder.save("anna", FIRST)
    before = files_of(folder)
    s3.stop()
    for change in (
        lambda: folder.save("anna", SECOND),
        lambda: folder.save("bert", SECOND),
        lambda: folder.remove("anna"),
        folder.pull,
        lambda: VoiceRecords(folder).remove_voice("anna"),
    ):
        with pytest.raises(OverloadedError) as refused:
            change()
        assert refused.value.code is ErrorCode.STORAGE_UNAVAILABLE
        assert s3.bucket not in str(refused.value) and refused.value.is_retryable
    assert folder.read("anna") == FIRST
    assert set(files_of(folder)) <= {*before, ".lock"}
    again = opened("a")
    assert again.read("anna") == FIRST
    s3.start()
    assert not again.pull() and again.read("anna") == FIRST
    again.save("anna", SECOND)
    assert s3.get("voices/anna.safetensors") == SECOND


def test_a_start_copies_only_what_is_new(opened: Open) -> None:
    """Copies of an earlier start are used."""
    opened("a").save("anna", FIRST)
    first = opened("b")
    first.pull()
    version = first.version("anna")
    again = opened("b")
    assert not again.pull() and again.version("anna") == version


def test_what_others_do_to_the_bucket_is_followed(opened: Open, s3: S3Server) -> None:
    """An object that was removed or added without a server is gone or there; a lexicon too."""
    folder = opened("a")
    folder.save("anna", FIRST)
    s3.delete("voices/anna.safetensors")
    s3.put("voices/bert.safetensors", SECOND)
    s3.put("voices/bert.lexicon.toml", b'Anna = "Berta"')
    folder.pull()
    assert folder.names() == ["bert"] and "anna" not in folder
    assert list(read_lexicon(folder.lexicon_file("bert"))) == ["Anna"]
    with pytest.raises(InvalidRequestError):
        folder.read("anna")


DEEP = b"[" * 100_000


@pytest.mark.parametrize(
    "damage",
    [b"", FIRST[:-1], FIRST[:20], b"<html>", bytes(len(FIRST)), struct.pack("<Q", 100_000) + DEEP],
    ids=["empty", "cut", "start", "text", "zeros", "deep"],
)
def test_a_damaged_object_replaces_no_voice(opened: Open, s3: S3Server, damage: bytes) -> None:
    """The last good copy stays; a server without one has no such voice, and all the others."""
    a, b = opened("a"), opened("b")
    a.save("anna", FIRST)
    a.save("bert", SECOND)
    s3.put("voices/anna.safetensors", damage)
    s3.put("voices/records/anna.json", DEEP)
    for folder in (a, b):
        folder.pull()
        assert not folder.pull()
    assert a.read("anna") == FIRST and a.names() == ["anna", "bert"]
    assert b.names() == ["bert"]
    s3.put("voices/anna.safetensors", SECOND)
    assert b.pull() and b.read("anna") == SECOND


def test_a_damaged_voice_is_withdrawn_everywhere(opened: Open, s3: S3Server) -> None:
    """Also by a server that could not copy it."""
    a, b = opened("a"), opened("b")
    consent = Consent(name="Anna", language="en", method="attest", statement="yes")
    VoiceRecords(a).save_consent(consent, None)
    VoiceRecords(a).add_voice(VoiceRecord(name="anna", consent_id=consent.id), FIRST)
    s3.put("voices/anna.safetensors", b"damaged")
    assert VoiceRecords(b).withdraw(consent.id) == ["anna"]
    a.pull()
    assert s3.objects() == {} and a.names() == b.names() == []


@pytest.mark.parametrize(
    "key",
    [
        "../evil.safetensors",
        "records/../../evil.json",
        "a/b.safetensors",
        "/etc/evil.safetensors",
        ".etags.json",
        ".lock",
        "records/.json",
        "consents/evil.json",
        "Anna.safetensors",
        "back\\slash.safetensors",
        f"{'𐍈' * 64}.safetensors",
        "x" * 300 + ".safetensors",
    ],
)
def test_odd_names_in_a_bucket_stay_there(
    opened: Open, s3: S3Server, tmp_path: Path, key: str
) -> None:
    """No copy is made of them, inside the folder or outside, and the others are copied."""
    folder = opened("a")
    s3.put(f"voices/{key}", FIRST)
    s3.put("voices/bert.safetensors", SECOND)
    folder.pull()
    assert files_of(folder) == [".copies.lock", ".etags.json", "bert.safetensors"]
    assert json.loads((folder.path / ".etags.json").read_bytes()).keys() == {"bert.safetensors"}
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a"]


@pytest.mark.parametrize("name", ["../anna", "a/b", "", ".", "records/anna", "a\0b", "𐍈" * 64])
def test_odd_names_are_no_objects(opened: Open, s3: S3Server, name: str) -> None:
    """A voice's name never leaves the prefix."""
    with pytest.raises(InvalidRequestError) as refused:
        opened("a").save(name, FIRST)
    assert refused.value.code is ErrorCode.INVALID_VOICE and s3.objects() == {}


def test_copies_have_a_bound_and_one_reader(opened: Open, s3: S3Server) -> None:
    """Only their owner reads them; a voice that is too much is refused, or not copied."""
    mask = os.umask(0)
    try:
        folder = opened("a", max_bytes=2.5 * len(FIRST))
        folder.save("anna", FIRST)
        folder.write("records/anna.json", b"{}")
    finally:
        os.umask(mask)
    modes = {stat.S_IMODE(each.stat().st_mode) for each in folder.path.rglob("*.safetensors")}
    assert modes == {0o600}
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder.path / "records").stat().st_mode) == 0o700
    with pytest.raises(InvalidRequestError) as refused:
        folder.save("bert", FIRST + FIRST)
    assert refused.value.code is ErrorCode.VOICE_QUOTA
    for name in ("bert", "carl", "dora"):
        s3.put(f"voices/{name}.safetensors", FIRST)
    folder.pull()
    assert folder.names() == ["anna", "bert"] and "records/anna.json" in files_of(folder)


def test_one_server_changes_the_voices_at_a_time(opened: Open, s3: S3Server) -> None:
    """The other one waits, and then sees what the first one has stored."""
    a, b = opened("a"), opened("b")
    seen = list[list[str]]()

    def change() -> None:
        with b.changing():
            seen.append(b.names())

    with a.changing():
        other = threading.Thread(target=change)
        other.start()
        other.join(0.5)
        assert other.is_alive() and not seen
        a.save("anna", FIRST)
    other.join(20)
    assert seen == [["anna"]]
    assert "voices/changing.lock" not in s3.objects()


def test_the_lock_of_a_dead_server_ends(
    opened: Open, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fresh one is respected, and an old one taken over; its owner does not end the new one."""
    a, b = opened("a"), opened("b")
    monkeypatch.setattr("voiceagent_tts.voice_bucket._LOCK_WAIT_S", 0.2)
    with a.changing():
        with pytest.raises(OverloadedError, match="another server"), b.changing():
            pass
        monkeypatch.setattr("voiceagent_tts.voice_bucket._LOCK_LIFE_S", -10.0)
        changing = b.changing()
        changing.__enter__()
        held = s3.get("voices/changing.lock")
    assert s3.get("voices/changing.lock") == held
    changing.__exit__(None, None, None)
    assert s3.objects() == {}


def test_a_withdrawal_knows_the_voices_of_other_servers(opened: Open, s3: S3Server) -> None:
    """A voice that was added a moment ago elsewhere is deleted; afterwards none can be added."""
    a, b = opened("a"), opened("b")
    consent = Consent(name="Anna", language="en", method="recording")
    VoiceRecords(a).save_consent(consent, voice_file(1, 0))
    b.pull()
    VoiceRecords(b).add_voice(VoiceRecord(name="anna", consent_id=consent.id), FIRST)
    assert VoiceRecords(a).withdraw(consent.id) == ["anna"]
    assert s3.objects() == {}
    with pytest.raises(InvalidRequestError, match="withdrawn"), b.changing():
        VoiceRecords(b).consent(consent.id)
