"""A voice, its record and its file, when one of them cannot be written."""

from pathlib import Path

import pytest

from voiceagent_tts.clones import VoiceFolder
from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.plugins.clones.clone_files import write_file


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    """An unwritable place is named, with the setting that chooses another."""
    (tmp_path / "file").touch()
    with pytest.raises(InvalidRequestError, match="file/voices: cannot save .*FOLDER") as refused:
        write_file(VoiceFolder(tmp_path / "file" / "voices").file("anna"), b"prompt")
    assert refused.value.code is ErrorCode.STORAGE_UNAVAILABLE
