"""Read the settings for a command; an invalid setting is reported in one sentence."""

import contextlib
import os
from collections.abc import Generator, Iterator
from tomllib import TOMLDecodeError
from typing import Any

from pydantic import ValidationError

from voiceagent_tts.config import Settings
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.mistakes import mistake_in
from voiceagent_tts.settings.group import Needs

_CLIENT_KEY = "VOICEAGENT_TTS_API_KEY"  # the variable with the key that clients send


def read_settings(given: dict[str, Any]) -> Settings:
    """Read the settings; `given` has priority over all other sources.

    Raises:
        InvalidRequestError: a value is invalid; the message names the setting.
    """
    with _invalid_settings():
        return Settings(**given)


def read_server_settings(given: dict[str, Any]) -> Settings:
    """Read the settings of a server that others may reach, as `read_settings` does."""
    settings = read_settings(given)
    _refuse_lone_client_key(settings)
    return settings


def _refuse_lone_client_key(settings: Settings) -> None:
    """Refuse to serve without keys where the environment has a key, but in a client's variable."""
    if os.environ.get(_CLIENT_KEY) and not settings.needs_key and not settings.allow_anonymous:
        raise InvalidRequestError(
            f"settings: expected the server's keys in {_CLIENT_KEY}S, got {_CLIENT_KEY}, which is "
            f"a client's; set {_CLIENT_KEY}S, or unset {_CLIENT_KEY} to serve this machine "
            "without keys"
        )


def without_effect(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield the settings that do nothing without others, and what they need.

    Call it once the engine is chosen. A value that is the default does nothing either way.
    """
    for name in sorted(settings.model_fields_set):
        field = type(settings).model_fields[name]
        for each in field.metadata:
            is_lone = isinstance(each, Needs) and not any(_has(settings, it) for it in each.any_of)
            if is_lone and getattr(settings, name) != field.default:
                yield name, " or ".join(each.any_of)


def _has(settings: Settings, need: str) -> bool:
    name, _, value = need.partition("=")
    found = getattr(settings, name)
    return found == value if value else bool(found)


@contextlib.contextmanager
def _invalid_settings() -> Generator[None, None, None]:
    try:
        yield
    except ValidationError as error:
        place, mistake = mistake_in(error)
        if error.errors()[0]["type"] == "extra_forbidden":
            mistake = "unknown setting"
        raise InvalidRequestError(f"{place}: {mistake}" if place else mistake) from None
    except (TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"the settings file is not TOML: {error}") from None
    except ValueError as error:
        raise InvalidRequestError(f"settings: {error}") from None
