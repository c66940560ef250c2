"""C2PA manifests of the files that `say` and `batch` write."""

from dataclasses import dataclass

from voiceagent_tts.cli.settings import read_settings
from voiceagent_tts.protocol.messages import ProvenanceFields
from voiceagent_tts.provenance.credentials import Credentials
from voiceagent_tts.provenance.manifest import MANIFEST_TYPES, credentials_of, sign
from voiceagent_tts.provenance.record import Provenance


def own_credentials() -> Credentials | None:
    """Return what signs the files of this machine, by its settings; None if nothing does.

    Raises:
        InvalidRequestError: the settings or the certificates cannot be used.
    """
    return credentials_of(read_settings({}))


@dataclass(frozen=True, slots=True)
class Manifest:
    """What the manifest of one file says, and who signs it."""

    credentials: Credentials
    provenance: Provenance

    @classmethod
    def of(
        cls, credentials: Credentials | None, sha256: str, stated: ProvenanceFields | None
    ) -> "Manifest | None":
        """Build the manifest of a file whose server has `stated` where the audio comes from.

        Args:
            credentials: sign the manifest.
            sha256: hex digest of the file's PCM16 samples.
            stated: what the server said.

        Returns:
            None without credentials, or from a server that states nothing.
        """
        if credentials is None or stated is None:
            return None
        return cls(credentials, Provenance(sha256, stated.model, stated.time, stated.key_id))

    def added_to(self, file: bytes, suffix: str) -> bytes:
        """Return a file with the manifest, if files with this suffix can have one."""
        audio_format = suffix.removeprefix(".")
        if audio_format not in MANIFEST_TYPES:
            return file
        return sign(file, audio_format, self.provenance, self.credentials)
