"""Read the settings for a command; an invalid setting is reported in one sentence."""

import contextlib
from collections.abc import Generator
from tomllib import TOMLDecodeError
from typing import Any

from pydantic import ValidationError

from voiceagent_tts.config import Settings, refuse_lone_client_key
from voiceagent_tts.errors import InvalidRequestError, mistake_in


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
    with _invalid_settings():
        refuse_lone_client_key(settings)
    return settings


@contextlib.contextmanager
def _invalid_settings() -> Generator[None, None, None]:
    try:
        yield
    except ValidationError as error:
        place, mistake = mistake_in(error)
        if error.errors()[0]["type"] == "extra_forbidden":
            mistake = "unknown setting"
        sentence = mistake.removeprefix("Value error, ")
        raise InvalidRequestError(f"{place}: {sentence}" if place else sentence) from None
    except (TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"the settings file is not TOML: {error}") from None
    except ValueError as error:
        raise InvalidRequestError(f"settings: {error}") from None
