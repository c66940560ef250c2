"""`voiceagent-tts voices list`: asks a server for its voices, and prints those that match."""

import asyncio
import contextlib
import json
import sys
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from http.client import BadStatusLine, HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

from voiceagent_tts.cli.own_server import websocket_url
from voiceagent_tts.client import (
    TRY_TLS,
    VOICES_PATH,
    authorization,
    connection_problem,
    http_address,
    refusal,
    server_message,
)
from voiceagent_tts.errors import InvalidRequestError

_TIMEOUT_S = 10.0
_STRANGE = "the reply is not that of a voiceagent-tts server"


def _listed(url: str, api_key: str | None) -> list[dict[str, Any]]:
    parts = urlsplit(http_address(url, VOICES_PATH))
    place = parts.netloc.rpartition("@")[2]  # messages show no secrets
    address = parts._replace(netloc=place).geturl()
    request = urllib.request.Request(address, headers=authorization(api_key))
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
            voices: list[dict[str, Any]] = json.loads(response.read())["voices"]
            return [voice | {"id": str(voice["id"])} for voice in voices]
    except HTTPError as error:
        reason = _reason(error, address)
    except URLError as error:
        raise InvalidRequestError(connection_problem(place, error)) from error
    except (OSError, HTTPException) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, BadStatusLine) and parts.scheme == "http":
            reason += f"; {TRY_TLS}"
    except (ValueError, TypeError, KeyError):
        reason = _STRANGE
    raise InvalidRequestError(f"{address}: {reason}")


def _reason(error: HTTPError, address: str) -> str:
    told = None
    if error.code != HTTPStatus.UNAUTHORIZED:  # of which the server tells the header
        with contextlib.suppress(OSError, HTTPException):  # the reply may break off
            told = server_message(error.read())
    return f"HTTP {error.code}: {told}" if told else refusal(error.code, address)


_COLUMNS = ("name", "language", "gender", "kind")
_UNKNOWN = "-"


@dataclass(frozen=True, slots=True)
class VoiceFilter:
    """Filter for the voices to print; None matches all.

    Attributes:
        search: part of a name, in any letter case.
        language: code; `en` also matches `en-gb`, and a voice of any language.
    """

    search: str | None = None
    language: str | None = None
    gender: str | None = None

    def matches(self, voice: dict[str, Any]) -> bool:
        """Whether `voice`, as the server describes it, is one to print."""
        return (
            self._speaks(voice)
            and (self.search or "").casefold() in voice["id"].casefold()
            and self.gender in (None, voice.get("gender"))
        )

    def _speaks(self, voice: dict[str, Any]) -> bool:
        if self.language is None or self.is_made_for(voice):
            return True
        codes = voice.get("languages") if _is_of_any(voice) else ()
        return codes is None or any(map(self._is_wanted, codes))  # None: of an older server

    def is_made_for(self, voice: dict[str, Any]) -> bool:
        """Whether a voice was made for the wanted language; true if none is wanted."""
        return self.language is None or self._is_wanted(voice.get("language") or "")

    def _is_wanted(self, code: str) -> bool:
        wanted = (self.language or "").casefold()
        return code == wanted or code.startswith(f"{wanted}-")


def _is_of_any(voice: dict[str, Any]) -> bool:
    """Whether a voice has no language of its own, or stands for voices of several."""
    if (own := voice.get("language")) is None:
        return True
    bases = {code.partition("-")[0] for code in voice.get("languages") or ()}
    return voice.get("alias_of") is not None and not bases <= {own.partition("-")[0]}


async def print_voices(url: str | None, api_key: str | None, wanted: VoiceFilter) -> None:
    """Print one matching voice per line: name, language, gender and kind.

    Those that are made for the wanted language come first, and timbres of other voices last.
    """
    async with websocket_url(url) as address:
        voices = await asyncio.to_thread(_listed, address, api_key)
    matching = [voice for voice in voices if wanted.matches(voice)]
    matching.sort(key=lambda each: (each.get("kind") == "variant", not wanted.is_made_for(each)))
    rows = [_row(voice) for voice in matching]
    if not rows:
        raise InvalidRequestError(
            f"none of the {len(voices)} voices matches; `voices list` without options shows all"
        )
    sys.stdout.write(table([_COLUMNS, *rows] if sys.stdout.isatty() else rows))


def _row(voice: dict[str, Any]) -> tuple[str, ...]:
    alias_of = voice.get("alias_of")
    kind = f"alias of {alias_of}" if alias_of else voice.get("kind")
    language = "any" if _is_of_any(voice) else voice["language"]
    return voice["id"], language, voice.get("gender") or _UNKNOWN, str(kind)


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """The rows as aligned columns, one row per line; two spaces or more separate columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return "".join(f"{line}\n" for line in lines)
