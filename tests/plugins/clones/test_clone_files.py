"""Files of clones that cannot be written."""

import os
from pathlib import Path

import pytest

from testbed.file_faults import full_disk
from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.plugins.clones.clone_files import write_file
from voiceagent_tts.voices import VoiceFolder


def test_a_full_disk_leaves_the_old_voice(tmp_path: Path) -> None:
    """A write that fails half-way changes nothing, leaves nothing, and says what to do."""
    folder = VoiceFolder(tmp_path / "voices")
    write_file(folder.file("anna"), b"first")
    refused = pytest.raises(InvalidRequestError, match=r"cannot save anna\.safetensors: .*FOLDER")
    with full_disk(1000), refused:
        write_file(folder.file("anna"), os.urandom(100_000))
    assert folder.read("anna") == b"first"
    assert len(list(folder.path.iterdir())) == 1


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    """An unwritable place is named, with the setting that chooses another."""
    (tmp_path / "file").touch()
    with pytest.raises(InvalidRequestError, match="file/voices: cannot save .*FOLDER") as refused:
        write_file(VoiceFolder(tmp_path / "file" / "voices").file("anna"), b"prompt")
    assert refused.value.code is ErrorCode.STORAGE_UNAVAILABLE
