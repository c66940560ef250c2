"""Settings of plugins: here, so that one place names every setting and finds a misspelt one."""

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, model_validator

from voiceagent_tts.settings.group import Count, SettingsGroup, UserFile, UserPath


class CacheSettings(SettingsGroup):
    """Size and contents of the cache.

    Attributes:
        cache_mb: Memory for phrases that are spoken again and again, in units of 10^6 bytes (one
            minute of speech takes 2.9). 0 turns the cache off: every text is spoken by an engine.
        cache_after: A phrase is stored when it is spoken for this time. With 1, sentences that are
            spoken only once fill the memory too.
        cache_redis_mb: Size of the cached phrases in Redis, in units of 10^6 bytes, which all
            servers share. Needs `redis`. Default: each server has its own phrases only.
    """

    cache_mb: float = Field(default=128.0, ge=0, le=1e6)
    cache_after: Count = 2
    cache_redis_mb: float = Field(default=0.0, ge=0, le=1e6)


class CloneSettings(SettingsGroup):
    """Who may add clones over HTTP.

    Attributes:
        consent_mode: What a clone over HTTP needs: `statement` (a line that says who agreed, or a
            consent) or `recording` (a consent with a recording of its phrase).
        voices_per_key: Most clones that one key may have added. Default: no limit.
    """

    consent_mode: Literal["statement", "recording"] = "statement"
    voices_per_key: Count | None = None


class JobSettings(SettingsGroup):
    """Jobs, their files, and the webhooks that report them.

    Attributes:
        jobs_storage: Folder for the files of jobs, which all servers share. Jobs need `redis`.
        webhook_secret: Secret that signs the news of jobs. Default: no webhooks are sent.
        webhook_private: Allow webhooks to http and to addresses of private networks. Only for
            clients that may reach everything that the server can reach.
    """

    jobs_storage: UserPath = Path("~/.local/share/voiceagent-tts/jobs")
    webhook_secret: SecretStr | None = None
    webhook_private: bool = False


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
    watermark_key_file: UserFile = Path("~/.local/share/voiceagent-tts/watermark.keys")
    c2pa_certfile: UserFile | None = None
    c2pa_keyfile: UserFile | None = None

    @model_validator(mode="after")
    def _check_c2pa(self) -> "ProvenanceSettings":
        if (self.c2pa_certfile is None) != (self.c2pa_keyfile is None):
            raise ValueError("expected c2pa_certfile and c2pa_keyfile together; got one of them")
        return self
