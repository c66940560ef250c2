"""Every place that keeps files: a full disk is said, leaves nothing by halves, and is got over."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.file_faults import full_disk
from voiceagent_tts.clones import VoiceFolder
from voiceagent_tts.errors import ErrorCode, VoiceAgentError
from voiceagent_tts.plugins.clones.consents import Consent, Consents
from voiceagent_tts.plugins.clones.stored_voices import add_voice
from voiceagent_tts.plugins.clones.voice_records import VoiceRecord, VoiceRecords
from voiceagent_tts.plugins.jobs.storage import JobStorage
from voiceagent_tts.plugins.keys.key_store import KeyFile
from voiceagent_tts.plugins.keys.keys import KeyDocument, Scope, make_key
from voiceagent_tts.plugins.keys.limiter import Quota
from voiceagent_tts.plugins.provenance.keys import watermark_keys
from voiceagent_tts.plugins.request_log.disk_log import LineFile
from voiceagent_tts.replacing import replacing
from voiceagent_tts.settings.plugins import ProvenanceSettings

Write = Callable[[Path, str], None]
"""Writes something new into a folder; the text is a name for it."""


def _save_voice(folder: Path, name: str) -> None:
    record = VoiceRecord(name=name, consent_id=None)
    add_voice(VoiceRecords(VoiceFolder(folder)), record, bytes(1_000))


def _save_consent(folder: Path, name: str) -> None:
    clones = VoiceFolder(folder)
    consent = Consent(name=name, language="en", method="recording")
    Consents(clones, VoiceRecords(clones)).save(consent, b"voice")


def _add_key(folder: Path, name: str) -> None:
    def change(document: KeyDocument) -> KeyDocument:
        new = make_key(name, frozenset({Scope.SPEAK}), Quota())
        return document.with_key(new.key)

    asyncio.run(KeyFile(folder / "keys.json").change(change))


def _make_watermark_key(folder: Path, name: str) -> None:
    watermark_keys(ProvenanceSettings(watermark_key_file=folder / name))


def _save_job(folder: Path, name: str) -> None:
    JobStorage(folder, b"secret").save(f"{name.encode().hex():0>32}.wav", bytes(1_000))


def _append_line(folder: Path, name: str) -> None:
    LineFile(folder / "requests.jsonl").append(100 * name)


def _replace_file(folder: Path, name: str) -> None:
    with replacing(folder / f"{name}.bin") as unfinished:
        unfinished.write_bytes(bytes(1_000))


WRITES: dict[str, tuple[Write, type[Exception], ErrorCode | None]] = {
    "a voice": (_save_voice, VoiceAgentError, ErrorCode.STORAGE_UNAVAILABLE),
    "a consent": (_save_consent, VoiceAgentError, ErrorCode.STORAGE_UNAVAILABLE),
    "a key": (_add_key, VoiceAgentError, None),
    "a watermark key": (_make_watermark_key, VoiceAgentError, None),
    "a file of a job": (_save_job, OSError, None),
    "a line of the request log": (_append_line, OSError, None),
    "a file of a command": (_replace_file, VoiceAgentError, ErrorCode.INVALID_PARAM),
}
"""What is written, how it fails, and the code of the error, where a client or a command is told."""


def _content(folder: Path) -> dict[str, bytes]:
    """All files in a folder that have a content."""
    files = {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {path: data for path, data in files.items() if data}


@pytest.mark.parametrize("most_bytes", [0, 10, 100, 400])
@pytest.mark.parametrize("what", WRITES)
def test_a_full_disk_leaves_what_was_there(what: str, most_bytes: int, tmp_path: Path) -> None:
    """Whether the first byte, the tenth or a later file has no room: as before, or all of it."""
    write, failure, code = WRITES[what]
    write(tmp_path, "first")
    before = _content(tmp_path)
    with full_disk(most_bytes):
        try:
            write(tmp_path, "second")
        except failure as error:
            assert code is None or (isinstance(error, VoiceAgentError) and error.code is code)
            assert _content(tmp_path) == before
        else:
            assert most_bytes >= 100  # enough for a key, for example
    write(tmp_path, "third")
    assert before.keys() <= _content(tmp_path).keys() and _content(tmp_path) != before
