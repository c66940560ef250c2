"""How generated audio is marked, and files are signed."""

from pathlib import Path

from pydantic import model_validator

from voiceagent_tts.settings.group import SettingsGroup, UserPath


class ProvenanceSettings(SettingsGroup):
    """The watermark of all audio, and the certificate of signed files.

    Attributes:
        watermark: Mark all generated audio with an inaudible watermark, which `voiceagent-tts
            detect` and `/v1/provenance/detect` find. Turn it off only where the law does not ask
            for it, or where something else marks the audio.
        watermark_key_file: File of watermark keys, one per line: the first one marks, all are
            detected. Created with a random key at the first start. All servers that share a
            service need the same keys.
        c2pa_certfile: Certificate chain in PEM form that signs a C2PA manifest (content
            credentials) for WAV, MP3 and FLAC files; package `c2pa-python`.
        c2pa_keyfile: Private key of the certificate: P-256, P-384 or P-521, as PKCS #8.
    """

    watermark: bool = True
    watermark_key_file: UserPath = Path("~/.local/share/voiceagent-tts/watermark.keys")
    c2pa_certfile: UserPath | None = None
    c2pa_keyfile: UserPath | None = None

    @model_validator(mode="after")
    def _check_c2pa(self) -> "ProvenanceSettings":
        if (self.c2pa_certfile is None) != (self.c2pa_keyfile is None):
            raise ValueError("expected c2pa_certfile and c2pa_keyfile together; got one of them")
        return self
