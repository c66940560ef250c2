"""The files of consents: kept, compared, withdrawn with their voices, or refused with a reason."""

from pathlib import Path

import numpy as np
import pytest

from testbed.clones import voice_file
from testbed.file_faults import damaged, full_disk, no_files, no_folder
from voiceagent_tts.clones import VoiceFolder
from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.plugins.clones.consents import Consent, Consents, speaker_embedding
from voiceagent_tts.plugins.clones.stored_voices import add_voice
from voiceagent_tts.plugins.clones.voice_records import Viewer, VoiceRecord, VoiceRecords

OWNER = Viewer("k", is_admin=False)


def stores(path: Path) -> tuple[VoiceRecords, Consents]:
    """The records and consents of a folder of voices, as one server has them."""
    clones = VoiceFolder(path)
    records = VoiceRecords(clones)
    return records, Consents(clones, records)


@pytest.mark.parametrize("fault", ["damaged", "no folder"])
def test_no_consent_is_withdrawn_without_its_voices(tmp_path: Path, fault: str) -> None:
    """While a record cannot be read, its voice may be of the consent: nothing is deleted.

    The error does not tell the name, which may be another key's.
    """
    records, consents = stores(tmp_path)
    consent = Consent(name="Anna", language="en", method="attest", statement="yes", key_id="k")
    consents.save(consent, None)
    for name in ("anna", "other"):
        record = VoiceRecord(name=name, consent_id=consent.id, key_id="k")
        add_voice(records, record, voice_file(1, 0))
    path = tmp_path / "records" / "other@k.json"
    blocks = {"damaged": damaged(path), "no folder": no_folder(path)}
    with blocks[fault], pytest.raises(InvalidRequestError) as failed:
        consents.withdraw(consent.id, OWNER)
    assert failed.value.code is ErrorCode.STORAGE_UNAVAILABLE
    assert "other" not in failed.value.message
    assert consents.seen_by() == [consent] and set(records.voices()) == {"anna@k", "other@k"}
    assert consents.withdraw(consent.id, OWNER) == ["anna", "other"]


def test_a_consent_that_cannot_be_read_is_not_taken_for_withdrawn(tmp_path: Path) -> None:
    """Neither its statement nor the voice of its recording counts as missing."""
    records, consents = stores(tmp_path)
    consent = Consent(name="Anna", language="en", method="recording")
    consents.save(consent, voice_file(1, 0))
    for read in (
        lambda: consents.find(consent.id),
        lambda: consents.similarity(consent, voice_file(0, 1)),
    ):
        with no_files(), pytest.raises(InvalidRequestError) as failed:
            read()
        assert failed.value.code is ErrorCode.STORAGE_UNAVAILABLE


def test_withdrawal_deletes_the_voices_made_with_it(tmp_path: Path) -> None:
    """Voices of the consent are gone for every server of the folder; others stay."""
    clones = VoiceFolder(tmp_path)
    records, consents = stores(tmp_path)
    _, others = stores(tmp_path)
    consent = Consent(name="Anna", language="en", method="recording")
    consents.save(consent, voice_file(1, 0))
    for name, consent_id in (("anna", consent.id), ("bert", None)):
        record = VoiceRecord(name=name, consent_id=consent_id, key_id="k")
        add_voice(records, record, voice_file(1, 0))
    assert others.withdraw(consent.id) == ["anna@k"]
    assert clones.names() == ["bert@k"]
    assert not consents.seen_by() and list(records.voices()) == ["bert@k"]
    assert not list(tmp_path.glob(f"**/{consent.id}*"))


def test_speakers_are_compared(tmp_path: Path) -> None:
    """The cosine of the embeddings; none where a file has no embedding, or another width."""
    records, consents = stores(tmp_path)
    consent = Consent(name="Anna", language="en", method="recording")
    consents.save(consent, voice_file(1, 0))
    assert consents.similarity(consent, voice_file(2, 0)) == pytest.approx(1)
    assert consents.similarity(consent, voice_file(0, 3)) == pytest.approx(0)
    assert consents.similarity(consent, voice_file(1, 0, 0)) is None
    assert consents.similarity(consent, b"no voice") is None
    embedding = speaker_embedding(voice_file(0.5, 2))
    assert embedding is not None and np.allclose(embedding, [0.5, 2])


def test_a_voice_that_was_replaced_by_half_goes_with_either_consent(tmp_path: Path) -> None:
    """The old sound stays when the new one cannot be stored; withdrawing its consent deletes it."""
    clones = VoiceFolder(tmp_path)
    records, consents = stores(tmp_path)
    anna, berta, clara = (
        Consent(name=name, language="en", method="attest", statement="yes") for name in "abc"
    )
    for consent in (anna, berta, clara):
        consents.save(consent, None)
    add_voice(records, VoiceRecord(name="voice", consent_id=anna.id), voice_file(1, 0))
    for consent in (berta, clara):
        with full_disk(5_000), pytest.raises(InvalidRequestError) as refused:
            add_voice(records, VoiceRecord(name="voice", consent_id=consent.id), bytes(100_000))
        assert refused.value.code is ErrorCode.STORAGE_UNAVAILABLE
    assert clones.read("voice") == voice_file(1, 0)
    assert consents.withdraw(anna.id) == ["voice"]
    assert clones.names() == []


def test_a_replaced_voice_belongs_to_its_new_consent_alone(tmp_path: Path) -> None:
    """The old consent is withdrawn without it."""
    records, consents = stores(tmp_path)
    anna, berta = (
        Consent(name=name, language="en", method="attest", statement="yes") for name in "ab"
    )
    for consent in (anna, berta):
        consents.save(consent, None)
        add_voice(records, VoiceRecord(name="voice", consent_id=consent.id), voice_file(1, 0))
    assert consents.withdraw(anna.id) == []
    assert consents.withdraw(berta.id) == ["voice"]
