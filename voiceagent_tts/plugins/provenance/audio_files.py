"""Signs the files that `say` and `batch` write."""

from functools import partial

from voiceagent_tts.cli.files import FileFilter
from voiceagent_tts.plugins.provenance.manifest import (
    MANIFEST_TYPES,
    Credentials,
    credentials_of,
    sign,
)
from voiceagent_tts.protocol.messages import ProvenanceFields
from voiceagent_tts.settings.plugins import ProvenanceSettings


def file_filter(settings: ProvenanceSettings) -> FileFilter | None:
    """Return what signs the files of this machine; None if nothing does.

    Raises:
        InvalidRequestError: the certificates cannot be used.
    """
    credentials = credentials_of(settings)
    return None if credentials is None else partial(_signed, credentials)


def _signed(
    credentials: Credentials, file: bytes, audio_format: str, provenance: ProvenanceFields
) -> bytes:
    """Return a file with a C2PA manifest, if files of this format can have one."""
    if audio_format not in MANIFEST_TYPES:
        return file
    return sign(file, audio_format, provenance, credentials)
