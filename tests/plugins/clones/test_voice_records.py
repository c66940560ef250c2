"""The records of clones: who may speak with a voice, also when a file cannot be read or written."""

from pathlib import Path

import pytest

from testbed.file_faults import damaged, no_files, no_folder
from voiceagent_tts.clones import VoiceFolder
from voiceagent_tts.plugins.clones.stored_voices import add_voice
from voiceagent_tts.plugins.clones.voice_records import Viewer, VoiceRecord, VoiceRecords

OWNER, OTHER = Viewer("k", is_admin=False), Viewer("other", is_admin=False)
ADMIN = Viewer(None, is_admin=True)


def test_who_speaks_with_a_clone() -> None:
    """Its key, every admin, and every key if it is no key's or an admin has added it."""
    own = VoiceRecord(name="anna", key_id="one")
    shared = VoiceRecord(name="bert", key_id="admin", is_shared=True)
    of_no_key = VoiceRecord(name="carl")
    one, two = Viewer("one", is_admin=False), Viewer("two", is_admin=False)
    assert [one.sees(each) for each in (own, shared, of_no_key, None)] == [True] * 4
    assert [two.sees(each) for each in (own, shared, of_no_key, None)] == [False, True, True, True]
    assert Viewer("admin", is_admin=True).sees(own)
    assert not two.owns(shared) and not two.owns(None)


@pytest.mark.parametrize("fault", ["no files", "damaged", "no folder"])
def test_a_voice_whose_record_cannot_be_read_is_nobodys(tmp_path: Path, fault: str) -> None:
    """Only an admin sees and owns it meanwhile, whatever it is; afterwards it is its key's."""
    records = VoiceRecords(VoiceFolder(tmp_path))
    add_voice(records, VoiceRecord(name="anna", key_id="k"), b"first")
    path = tmp_path / "records" / "anna@k.json"
    blocks = {"no files": no_files(), "damaged": damaged(path), "no folder": no_folder(path)}
    with blocks[fault]:
        unknown = records.voice("anna@k")
    for viewer in (OWNER, OTHER):
        assert not viewer.sees(unknown) and not viewer.owns(unknown)
    assert ADMIN.sees(unknown) and ADMIN.owns(unknown)
    known = records.voice("anna@k")
    assert OWNER.owns(known) and not OTHER.sees(known)
