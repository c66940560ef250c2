"""Stores and deletes a voice with its record, so that neither is there without the other's owner.

The folder has both; callers change it within `clone_files.changing`.
"""

from voiceagent_tts.clones import CLONE_SUFFIX
from voiceagent_tts.errors import VoiceAgentError
from voiceagent_tts.plugins.clones.clone_files import delete_file, write_file, write_record
from voiceagent_tts.plugins.clones.voice_records import NO_KEY, VoiceRecord, VoiceRecords


def add_voice(records: VoiceRecords, record: VoiceRecord, voice_file: bytes) -> None:
    """Store a voice and its record; replaces an earlier one of its name."""
    clones, record_file = records.clones, records.files.path(record.stored)
    earlier = records.files.read(record.stored) if record.stored in clones else None
    # A voice is never without the record of its consent, nor the earlier one another key's,
    # also if this ends in the middle.
    unfinished = record if earlier is None else _replacing(earlier, record)
    write_record(record_file, unfinished)
    try:
        write_file(clones.file(record.stored), voice_file)
    except VoiceAgentError:
        if earlier is None:
            delete_file(record_file)
        raise
    if unfinished != record:
        write_record(record_file, record)


def remove_voice(records: VoiceRecords, stored: str) -> None:
    """Delete what there is of a voice and its record.

    Args:
        records: those of the folder.
        stored: name of the voice's file; also of one that only other servers can read now.
    """
    delete_file(records.clones.path / f"{stored}{CLONE_SUFFIX}")
    delete_file(records.files.path(stored))


def _replacing(earlier: VoiceRecord, record: VoiceRecord) -> VoiceRecord:
    """The record until the voice is replaced; of no key, if the two are not one key's."""
    replaced = earlier.consent_ids - record.consent_ids
    unfinished = record.model_copy(update={"replaced_consent_ids": replaced})
    if (earlier.key_id, earlier.is_shared) == (record.key_id, record.is_shared):
        return unfinished
    return unfinished.model_copy(update={"key_id": NO_KEY, "is_shared": False})
