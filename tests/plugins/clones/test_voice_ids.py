"""Voices by the ids that uploads have answered."""

import os
import uuid
from pathlib import Path

import pytest

from voiceagent_tts.plugins.clones.voice_ids import VoiceIds
from voiceagent_tts.server.voice_records import Viewer, VoiceRecord, VoiceRecords
from voiceagent_tts.voices import VoiceFolder

OWNER, OTHER = Viewer("k", is_admin=False), Viewer("other", is_admin=False)


def records_of(folder: Path) -> VoiceRecords:
    """The records of a folder, whose voices are found by id."""
    clones = VoiceFolder(folder)
    records = VoiceRecords(clones)
    records.find_id = VoiceIds(clones, records).find
    return records


def test_a_clone_is_found_by_its_id(tmp_path: Path) -> None:
    """By who may speak with it alone, until another voice has its name."""
    records = records_of(tmp_path)
    record = VoiceRecord(name="anna", key_id="k")
    records.add_voice(record, b"first")
    assert records.seen_by(OWNER).find(record.id) == "anna@k"
    assert records.seen_by(OTHER).find(record.id) is None
    second = VoiceRecord(name="anna", key_id="k")
    records.add_voice(second, b"second")
    assert records.seen_by(OWNER).find(record.id) is None
    assert records.seen_by(OWNER).find(second.id) == "anna@k"


def test_ids_that_no_voice_has_read_the_voices_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any client may ask for one: the work does not grow with the voices of others."""
    records = records_of(tmp_path)
    for name in ("anna", "ben", "cleo"):
        records.add_voice(VoiceRecord(name=name, key_id="k"), b"voice")
    for folder in (tmp_path, tmp_path / "records"):
        os.utime(folder, (1, 1))  # at rest
    read: list[str] = []
    voice = records.voice

    def noted(stored: str) -> VoiceRecord | None:
        read.append(stored)
        return voice(stored)

    monkeypatch.setattr(records, "voice", noted)
    for _ in range(3):
        assert records.seen_by(OTHER).find(str(uuid.uuid4())) is None
    assert sorted(read) == ["anna@k", "ben@k", "cleo@k"]
