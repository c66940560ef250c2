"""Settings of plugins: here, so that one place names every setting and finds a misspelt one."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SecretStr, field_validator, model_validator
from pydantic_settings import NoDecode

from voiceagent_tts.settings.group import (
    Count,
    InputFile,
    Needs,
    SettingsGroup,
    Texts,
    UserFile,
    UserPath,
    parse_object,
)

_UPSTREAM = Needs("engine=openai", "overflow")


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
    cache_after: Annotated[Count, Needs("cache_mb")] = 2
    cache_redis_mb: float = Field(default=0.0, ge=0, le=1e6)


class CloneSettings(SettingsGroup):
    """Who may add clones over HTTP.

    Attributes:
        consent_mode: What a clone over HTTP needs: `statement` (a line that says who agreed, or a
            consent) or `recording` (a consent with a recording of its phrase).
        voices_per_key: Most clones that one key may have added, and most consents to clones.
            Default: no limit of clones, and 1,000 consents.
    """

    consent_mode: Literal["statement", "recording"] = "statement"
    voices_per_key: Annotated[Count | None, Needs("keys", "api_keys")] = None


class JobSettings(SettingsGroup):
    """Jobs, their files, and the webhooks that report them.

    Attributes:
        jobs_storage: Folder for the files of jobs, which all servers share. Jobs need `redis`.
        webhook_secret: Secret that signs the news of jobs. Default: no webhooks are sent.
        webhook_private: Allow webhooks to http and to addresses of private networks. Only for
            clients that may reach everything that the server can reach.
    """

    jobs_storage: Annotated[UserPath, Needs("redis")] = Path("~/.local/share/voiceagent-tts/jobs")
    webhook_secret: Annotated[SecretStr | None, Needs("redis")] = None
    webhook_private: Annotated[bool, Needs("webhook_secret")] = False


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
    c2pa_certfile: InputFile | None = None
    c2pa_keyfile: InputFile | None = None

    @model_validator(mode="after")
    def _check_c2pa(self) -> "ProvenanceSettings":
        if (self.c2pa_certfile is None) != (self.c2pa_keyfile is None):
            raise ValueError("expected c2pa_certfile and c2pa_keyfile together; got one of them")
        return self


class UpstreamSettings(SettingsGroup):
    """The server whose speech is used, and how much of it.

    Attributes:
        upstream: Address of another server's speech API, up to `/audio/speech`, such as
            `http://127.0.0.1:8880/v1`: any server with OpenAI's API that streams PCM.
        upstream_key: API key for the upstream.
        upstream_model: Model that the upstream is asked for.
        upstream_voices: Names of the upstream's voices, separated by commas, the default first.
            Default: those that it lists, or those in the documentation of its API.
        upstream_fields: JSON object of further fields for every request to the upstream, such as
            `{"lang_code": "a"}`.
        upstream_chars_per_day: Maximum number of characters sent upstream within 24 hours; beyond
            it, contexts are refused as overloaded. Counted from the start of the server. Default:
            no limit.
        overflow: Send contexts upstream while all rows of the engine are in use, instead of
            refusing them. Needs `upstream` and `upstream_chars_per_day`.
    """

    upstream: Annotated[str | None, _UPSTREAM] = None
    upstream_key: Annotated[SecretStr | None, _UPSTREAM] = None
    upstream_model: Annotated[str, _UPSTREAM] = "tts-1"
    upstream_voices: Annotated[Texts, _UPSTREAM] = ()
    upstream_fields: Annotated[
        dict[str, Any] | None, NoDecode, BeforeValidator(parse_object), _UPSTREAM
    ] = None
    upstream_chars_per_day: Annotated[Count | None, _UPSTREAM] = None
    overflow: bool = False

    @field_validator("upstream", mode="after")
    @classmethod
    def _check_address(cls, value: str | None) -> str | None:
        if value is not None and not re.match(r"https?://[^/\s]", value):
            raise ValueError("expected an address such as http://127.0.0.1:8880/v1")
        return value
