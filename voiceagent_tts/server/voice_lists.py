"""Lists of the voices that a caller may use; loaded when a client first asks for one."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from fastapi import FastAPI, Request, Response

from voiceagent_tts.seam.events import Capabilities, VoiceDetails
from voiceagent_tts.server.auth import caller_of
from voiceagent_tts.server.state import ServerState
from voiceagent_tts.voices import ALIASES, Voice, VoiceBook

_Make = Callable[[ServerState, str | None], Any]


@dataclass(frozen=True, slots=True)
class ListedVoice:
    """A voice as servers list it; `worker` and `stored` are as in `Voice`."""

    details: VoiceDetails
    worker: str
    alias_of: str | None = None  # the voice that an alias stands for
    stored: str = ""


def listed(book: VoiceBook) -> list[ListedVoice]:
    """Return all voices of a book, the default first, and then the aliases."""
    names = book.names()
    own = [_own(book, book.resolve(name)) for name in names]
    taken = {name.casefold() for name in names}
    aliases = [alias for alias in ALIASES if names and alias not in taken]
    return own + [_alias(book, alias) for alias in aliases]


def _own(book: VoiceBook, voice: Voice) -> ListedVoice:
    is_clone = bool(voice.stored)
    details = VoiceDetails(voice.name, "clone") if is_clone else book.details_of(voice)
    return ListedVoice(details, voice.worker, stored=voice.stored)


def _alias(book: VoiceBook, alias: str) -> ListedVoice:
    target = _own(book, book.stand_in(alias))
    details = replace(target.details, name=alias, kind="alias")
    return ListedVoice(details, target.worker, target.details.name)


def lists_of(app: FastAPI) -> "VoiceLists":
    """Return what makes the lists of a server's voices."""
    if not hasattr(app.state, "voice_lists"):
        app.state.voice_lists = VoiceLists(app.state.server)
    return app.state.voice_lists


class VoiceLists:
    """Makes the lists of voices in threads, one at a time: each has the record of every clone.

    Requests of a key that wait for the same list get the same.
    """

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._lane = asyncio.Lock()
        self._waiting: dict[tuple[_Make, str | None], asyncio.Task[bytes]] = {}

    async def answer(self, make: _Make, request: Request) -> Response:
        """The answer to a request for what `make` returns for its key."""
        wanted = make, caller_of(request.scope).key_id
        if wanted not in self._waiting:
            self._waiting[wanted] = asyncio.create_task(self._make(*wanted))
        data = await asyncio.shield(self._waiting[wanted])  # a client that goes leaves it to others
        return Response(data, media_type="application/json")

    async def _make(self, make: _Make, key_id: str | None) -> bytes:
        async with self._lane:
            del self._waiting[make, key_id]  # voices may change from now on
            return await asyncio.to_thread(
                lambda: json.dumps(make(self._state, key_id), ensure_ascii=False).encode()
            )


def _languages(
    book: VoiceBook, voice: ListedVoice, capabilities: dict[str, Capabilities]
) -> list[str]:
    """The codes that a voice accepts; an alias leaves the choice among all workers."""
    own = Voice(voice.details.name, voice.worker)
    others = capabilities.values() if voice.alias_of else ()
    of_others = chain.from_iterable(each.languages for each in others)
    return list(dict.fromkeys((*book.languages(own, capabilities[voice.worker]), *of_others)))


def voices_of(state: ServerState, key_id: str | None) -> dict[str, Any]:
    """The voices of a key; may read a file for each clone."""
    book = state.synthesizer.voices.seen_by(key_id)
    voices = listed(book)
    clones = state.listed_clones() if any(voice.stored for voice in voices) else {}
    capabilities = {
        name: supervisor.capabilities for name, supervisor in state.synthesizer.supervisors.items()
    }
    return {
        "voices": [
            {
                "id": voice.details.name,
                "name": voice.details.name,
                "kind": voice.details.kind,
                "alias_of": voice.alias_of,
                "language": voice.details.language,
                "gender": voice.details.gender,
                "languages": _languages(book, voice, capabilities),
                "takes_instruct": capabilities[voice.worker].takes_instruct,
                "needs_instruct": capabilities[voice.worker].needs_instruct,
                "voice_id": None,
                "tag": None,
                **clones.get(voice.stored, {}),
            }
            for voice in voices
        ],
        "can_clone": False,
        "can_design": False,
        **state.new_voices(),
    }
