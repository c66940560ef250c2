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
    Consent,
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


def test_withdrawal_deletes_the_voices_made_with_it(tmp_path: Path) -> None:
    """Voices of the consent are gone for every server of the folder; others stay."""
    clones = VoiceFolder(tmp_path)
    records, others = VoiceRecords(clones), VoiceRecords(VoiceFolder(tmp_path))
    consent = Consent(name="Anna", language="en", method="recording")
    records.save_consent(consent, voice_file(1, 0))
    for name, consent_id in (("anna", consent.id), ("bert", None)):
        record = VoiceRecord(name=name, consent_id=consent_id, key_id="k")
        records.add_voice(record, voice_file(1, 0))
    assert others.owned_by("k") == {"anna", "bert"}
    assert others.withdraw(consent.id) == ["anna"]
    assert clones.names() == ["bert"]
    assert not records.consents() and list(records.voices()) == ["bert"]
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
