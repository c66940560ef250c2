import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.model.prompt import Cloned
from voiceagent_tts.server.voice_records import (
    EVERYTHING,
    Consent,
    Viewer,
    VoiceRecord,
    VoiceRecords,
    speaker_embedding,
)
from voiceagent_tts.voices import VoiceFolder


def voice_file(*embedding: float) -> bytes:
    """A voice file with this embedding."""
    return Cloned(torch.tensor(embedding)).to_bytes()


@contextlib.contextmanager
def full_disk(largest_bytes: int) -> Iterator[None]:
    """Let no file grow beyond a size within the block."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@contextlib.contextmanager
def no_files() -> Iterator[None]:
    """Let this process open no file within the block."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@contextlib.contextmanager
def damaged(path: Path) -> Iterator[None]:
    """Let a file have another content within the block."""
    content = path.read_bytes()
    path.write_bytes(content[:-9])
    try:
        yield
    finally:
        path.write_bytes(content)


@contextlib.contextmanager
def no_folder(path: Path) -> Iterator[None]:
    """Let the folder of a file be none within the block."""
    away = path.parent.rename(path.parent.with_suffix(".away"))
    path.parent.touch()
    try:
        yield
    finally:
        path.parent.unlink()
        away.rename(path.parent)


OWNER, OTHER, ADMIN = Viewer("k", is_admin=False), Viewer("other", is_admin=False), EVERYTHING


@pytest.mark.parametrize("fault", ["no files", "damaged", "no folder"])
def test_a_voice_whose_record_cannot_be_read_is_nobodys(tmp_path: Path, fault: str) -> None:
    """Only an admin sees and owns it meanwhile, whatever it is; afterwards it is its key's."""
    records = VoiceRecords(VoiceFolder(tmp_path))
    records.add_voice(VoiceRecord(name="anna", key_id="k"), voice_file(1, 0))
    path = tmp_path / "records" / "anna@k.json"
    blocks = {"no files": no_files(), "damaged": damaged(path), "no folder": no_folder(path)}
    with blocks[fault]:
        unknown = records.voice("anna@k")
    for viewer in (OWNER, OTHER):
        assert not viewer.sees(unknown) and not viewer.owns(unknown)
    assert ADMIN.sees(unknown) and ADMIN.owns(unknown)
    known = records.voice("anna@k")
    assert OWNER.owns(known) and not OTHER.sees(known)


@pytest.mark.parametrize("fault", ["damaged", "no folder"])
def test_no_consent_is_withdrawn_without_its_voices(tmp_path: Path, fault: str) -> None:
    """While a record cannot be read, its voice may be of the consent: nothing is deleted.

    The error does not tell the name, which may be another key's.
    """
    records = VoiceRecords(VoiceFolder(tmp_path))
    consent = Consent(name="Anna", language="en", method="attest", statement="yes", key_id="k")
    records.save_consent(consent, None)
    for name in ("anna", "other"):
        record = VoiceRecord(name=name, consent_id=consent.id, key_id="k")
        records.add_voice(record, voice_file(1, 0))
    path = tmp_path / "records" / "other@k.json"
    blocks = {"damaged": damaged(path), "no folder": no_folder(path)}
    with blocks[fault], pytest.raises(InvalidRequestError) as failed:
        records.withdraw(consent.id, OWNER)
    assert failed.value.code is ErrorCode.STORAGE_UNAVAILABLE
    assert "other" not in failed.value.message
    assert records.consents() == [consent] and set(records.voices()) == {"anna@k", "other@k"}
    assert records.withdraw(consent.id, OWNER) == ["anna", "other"]


def test_a_consent_that_cannot_be_read_is_not_taken_for_withdrawn(tmp_path: Path) -> None:
    """Neither its statement nor the voice of its recording counts as missing."""
    records = VoiceRecords(VoiceFolder(tmp_path))
    consent = Consent(name="Anna", language="en", method="recording")
    records.save_consent(consent, voice_file(1, 0))
    for read in (
        lambda: records.consent(consent.id),
        lambda: records.similarity(consent, voice_file(0, 1)),
    ):
        with no_files(), pytest.raises(InvalidRequestError) as failed:
            read()
        assert failed.value.code is ErrorCode.STORAGE_UNAVAILABLE


def test_a_voice_that_was_replaced_by_half_is_not_for_everyone(tmp_path: Path) -> None:
    """The sound is a key's, until that of an admin, which every key may use, is there.

    Voices of keys were stored by their names alone before each key had names of its own.
    """
    records = VoiceRecords(VoiceFolder(tmp_path))
    records.add_voice(VoiceRecord(name="anna"), voice_file(1, 0))
    (tmp_path / "records" / "anna.json").write_text('{"name": "anna", "key_id": "k"}')
    shared = VoiceRecord(name="anna", key_id="admin", is_shared=True)
    with full_disk(5_000), pytest.raises(InvalidRequestError):
        records.add_voice(shared, bytes(100_000))
    assert not OTHER.sees(records.voice("anna"))
    records.add_voice(shared, voice_file(0, 1))
    assert records.voice("anna") == shared


def test_withdrawal_deletes_the_voices_made_with_it(tmp_path: Path) -> None:
    """Voices of the consent are gone for every server of the folder; others stay."""
    clones = VoiceFolder(tmp_path)
    records, others = VoiceRecords(clones), VoiceRecords(VoiceFolder(tmp_path))
    consent = Consent(name="Anna", language="en", method="recording")
    records.save_consent(consent, voice_file(1, 0))
    for name, consent_id in (("anna", consent.id), ("bert", None)):
        record = VoiceRecord(name=name, consent_id=consent_id, key_id="k")
        records.add_voice(record, voice_file(1, 0))
    assert others.owned_by("k") == {"anna@k", "bert@k"}
    assert others.withdraw(consent.id) == ["anna@k"]
    assert clones.names() == ["bert@k"]
    assert not records.consents() and list(records.voices()) == ["bert@k"]
    assert not list(tmp_path.glob(f"**/{consent.id}*"))


def test_speakers_are_compared(tmp_path: Path) -> None:
    """The cosine of the embeddings; none where a file has no embedding, or another width."""
    records = VoiceRecords(VoiceFolder(tmp_path))
    consent = Consent(name="Anna", language="en", method="recording")
    records.save_consent(consent, voice_file(1, 0))
    assert records.similarity(consent, voice_file(2, 0)) == pytest.approx(1)
    assert records.similarity(consent, voice_file(0, 3)) == pytest.approx(0)
    assert records.similarity(consent, voice_file(1, 0, 0)) is None
    assert records.similarity(consent, b"no voice") is None
    embedding = speaker_embedding(voice_file(0.5, 2))
    assert embedding is not None and np.allclose(embedding, [0.5, 2])


def test_a_damaged_record_harms_no_other(tmp_path: Path) -> None:
    """An unreadable file is skipped."""
    records = VoiceRecords(VoiceFolder(tmp_path))
    kept = Consent(name="Anna", language="en", method="attest", statement="yes")
    records.save_consent(kept, None)
    (tmp_path / "consents" / "broken.json").write_text("{")
    assert records.consents() == [kept]


def test_a_voice_that_was_replaced_by_half_goes_with_either_consent(tmp_path: Path) -> None:
    """The old sound stays when the new one cannot be stored; withdrawing its consent deletes it."""
    clones = VoiceFolder(tmp_path)
    records = VoiceRecords(clones)
    anna, berta, clara = (
        Consent(name=name, language="en", method="attest", statement="yes") for name in "abc"
    )
    for consent in (anna, berta, clara):
        records.save_consent(consent, None)
    records.add_voice(VoiceRecord(name="voice", consent_id=anna.id), voice_file(1, 0))
    for consent in (berta, clara):
        with full_disk(5_000), pytest.raises(InvalidRequestError) as refused:
            records.add_voice(VoiceRecord(name="voice", consent_id=consent.id), bytes(100_000))
        assert refused.value.code is ErrorCode.STORAGE_UNAVAILABLE
    assert clones.read("voice") == voice_file(1, 0)
    assert records.withdraw(anna.id) == ["voice"]
    assert clones.names() == []


def test_a_replaced_voice_belongs_to_its_new_consent_alone(tmp_path: Path) -> None:
    """The old consent is withdrawn without it."""
    records = VoiceRecords(VoiceFolder(tmp_path))
    anna, berta = (
        Consent(name=name, language="en", method="attest", statement="yes") for name in "ab"
    )
    for consent in (anna, berta):
        records.save_consent(consent, None)
        records.add_voice(VoiceRecord(name="voice", consent_id=consent.id), voice_file(1, 0))
    assert records.withdraw(anna.id) == []
    assert records.withdraw(berta.id) == ["voice"]
