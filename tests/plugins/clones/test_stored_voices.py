"""A voice, its record and its file, when one of them cannot be written."""

from pathlib import Path

import pytest

from testbed.file_faults import full_disk
from voiceagent_tts.clones import VoiceFolder
from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.plugins.clones.clone_files import write_file
from voiceagent_tts.plugins.clones.stored_voices import add_voice
from voiceagent_tts.plugins.clones.voice_records import Viewer, VoiceRecord, VoiceRecords


def test_a_voice_that_was_replaced_by_half_is_not_for_everyone(tmp_path: Path) -> None:
    """The sound is a key's, until that of an admin, which every key may use, is there.

    Voices of keys were stored by their names alone before each key had names of its own.
    """
    records = VoiceRecords(VoiceFolder(tmp_path))
    add_voice(records, VoiceRecord(name="anna"), b"first")
    (tmp_path / "records" / "anna.json").write_text('{"name": "anna", "key_id": "k"}')
    shared = VoiceRecord(name="anna", key_id="admin", is_shared=True)
    with full_disk(5_000), pytest.raises(InvalidRequestError):
        add_voice(records, shared, bytes(100_000))
    assert not Viewer("other", is_admin=False).sees(records.voice("anna"))
    add_voice(records, shared, b"second")
    assert records.voice("anna") == shared


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    """An unwritable place is named, with the setting that chooses another."""
    (tmp_path / "file").touch()
    with pytest.raises(InvalidRequestError, match="file/voices: cannot save .*FOLDER") as refused:
        write_file(VoiceFolder(tmp_path / "file" / "voices").file("anna"), b"prompt")
    assert refused.value.code is ErrorCode.STORAGE_UNAVAILABLE
