"""The speech API of another server, as the engine or for contexts without a row."""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, SecretStr, field_validator
from pydantic_settings import NoDecode

from voiceagent_tts.settings.group import Count, SettingsGroup, Texts, parse_object


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

    upstream: str | None = None
    upstream_key: SecretStr | None = None
    upstream_model: str = "tts-1"
    upstream_voices: Texts = ()
    upstream_fields: Annotated[dict[str, Any] | None, NoDecode, BeforeValidator(parse_object)] = (
        None
    )
    upstream_chars_per_day: Count | None = None
    overflow: bool = False

    @field_validator("upstream", mode="after")
    @classmethod
    def _check_address(cls, value: str | None) -> str | None:
        if value is not None and not re.match(r"https?://[^/\s]", value):
            raise ValueError("expected an address such as http://127.0.0.1:8880/v1")
        return value
