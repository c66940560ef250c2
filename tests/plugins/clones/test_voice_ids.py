"""Voices by the ids that uploads have answered."""

import os
import uuid
from functools import partial
from pathlib import Path

import pytest

from testbed.servers import StartServer
from testbed.waiting import until
from voiceagent_tts.clones import SeenClones, VoiceFolder
from voiceagent_tts.plugins.clones.stored_voices import add_voice, remove_voice
from voiceagent_tts.plugins.clones.voice_ids import VoiceIds
from voiceagent_tts.plugins.clones.voice_records import Viewer, VoiceRecord, VoiceRecords

OWNER, OTHER = Viewer("k", is_admin=False), Viewer("other", is_admin=False)


def ids_of(folder: Path) -> tuple[VoiceIds, VoiceRecords]:
    """The ids and records of a folder."""
    clones = VoiceFolder(folder)
    records = VoiceRecords(clones)
    return VoiceIds(clones, records), records


def found(ids: VoiceIds, records: VoiceRecords, viewer: Viewer, voice_id: str) -> str | None:
    """The file of the voice that a viewer finds by an id."""
    is_seen = partial(records.is_seen, viewer=viewer)
    return SeenClones(records.clones, viewer.key_id, is_seen, ids.find).find(voice_id)


def test_a_clone_is_found_by_its_id(tmp_path: Path) -> None:
    """By who may speak with it alone, until another voice has its name, or it is gone."""
    ids, records = ids_of(tmp_path)
    record = VoiceRecord(name="anna", key_id="k")
    add_voice(records, record, b"first")
    ids.add(record)
    assert found(ids, records, OWNER, record.id) == "anna@k"
    assert found(ids, records, OTHER, record.id) is None
    second = VoiceRecord(name="anna", key_id="k")
    add_voice(records, second, b"second")
    assert found(ids, records, OWNER, record.id) is None
    ids.add(second)
    assert found(ids, records, OWNER, second.id) == "anna@k"
    remove_voice(records, "anna@k")
    assert found(ids, records, OWNER, second.id) is None


async def test_a_server_finds_what_another_one_has_stored(
    start_server: StartServer, tmp_path: Path
) -> None:
    """Before its start, and while it runs."""
    _, of_other = ids_of(tmp_path)
    early, late = VoiceRecord(name="early"), VoiceRecord(name="late")
    add_voice(of_other, early, b"voice")
    server = await start_server(voices_folder=tmp_path)
    seen = server.state.clones_of(None)
    assert seen.find(early.id) == "early"
    add_voice(of_other, late, b"voice")
    await until(lambda: seen.find(late.id) == "late", "the voices are read again")


@pytest.mark.parametrize("is_at_rest", [True, False])
def test_ids_that_no_voice_has_read_no_voices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_at_rest: bool
) -> None:
    """Any client may ask for one, also while voices change: others' audio would wait meanwhile."""
    ids, records = ids_of(tmp_path)
    for name in ("anna", "ben", "cleo"):
        add_voice(records, VoiceRecord(name=name, key_id="k"), b"voice")
    if is_at_rest:
        for folder in (tmp_path, tmp_path / "records"):
            os.utime(folder, (1, 1))
    ids.read()
    read: list[str] = []
    monkeypatch.setattr(records, "voice", read.append)
    monkeypatch.setattr(VoiceFolder, "names", lambda _: read.append("names"))
    for _ in range(3):
        assert found(ids, records, OTHER, str(uuid.uuid4())) is None
    assert read == []
