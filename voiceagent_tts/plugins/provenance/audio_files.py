"""Signs the files that `say` and `batch` write."""

from functools import partial

from voiceagent_tts.cli.files import FileFilter
from voiceagent_tts.plugins.provenance.manifest import credentials_of, sign
from voiceagent_tts.settings.plugins import ProvenanceSettings


def file_filter(settings: ProvenanceSettings) -> FileFilter | None:
    """Return what signs the files of this machine; None if nothing does.

    Raises:
        InvalidRequestError: the certificates cannot be used.
    """
    credentials = credentials_of(settings)
    return None if credentials is None else partial(sign, credentials)
