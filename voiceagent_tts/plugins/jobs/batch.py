"""`POST /v1/audio/speech/batch`: several texts in one request, each spoken into a file of its own.

All files have batch priority, since no listener waits for them. An item that fails does not stop
the others. The answer is one object with the results in order, or one line for each as it is ready.
"""

import asyncio
import base64
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from voiceagent_tts.errors import ErrorCode, InvalidRequestError, VoiceAgentError
from voiceagent_tts.plugins.speech.request import Served, SpeechRequest
from voiceagent_tts.plugins.speech.server import error_fields
from voiceagent_tts.plugins.speech.speaking import (
    Listener,
    Speech,
    SpeechFile,
    SpeechResponse,
    collect_file,
    listener_of,
    start_speaking,
)
from voiceagent_tts.server.callers import Caller
from voiceagent_tts.server.error_answers import log_if_unexpected
from voiceagent_tts.server.state import ServerState

MAX_ITEMS = 64
"""Maximum number of texts in one request."""
_AT_ONCE = 4
"""Texts of one request that are spoken at the same time, as far as rows are free."""
_RETRY_S = 0.5
MAX_WAIT_S = 60.0
"""Longest wait for capacity or for a limit; a limit of a day fails the text at once."""
BUSY = frozenset({ErrorCode.OVERLOADED, ErrorCode.RATE_LIMITED, ErrorCode.MODEL_NOT_READY})
"""Codes after which a file that has no audio yet tries again: other contexts use the capacity."""

_PATH = "/v1/audio/speech/batch"

router = APIRouter(tags=["speech"])


class BatchRequest(BaseModel):
    """The body: the texts, with what each of them sets, and what all of them share."""

    model_config = ConfigDict(extra="allow")

    items: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=MAX_ITEMS)] = Field(
        description="One object for each text, with the fields of `POST /v1/audio/speech`. Fields "
        "beside `items` are the defaults of all of them."
    )
    stream_format: Literal["json", "ndjson"] = Field(
        "json",
        description="`json`: one object, when all texts are spoken. `ndjson`: one line for each "
        "text, as soon as it is spoken.",
    )

    @property
    def shared(self) -> dict[str, Any]:
        """Fields of a request that stand beside `items`."""
        given = self.model_extra or {}
        return {name: given[name] for name in SpeechRequest.meant(given)}

    async def requests(self, max_chars: int, served: Served) -> list[SpeechRequest]:
        """The requests of all items, each checked in a turn of the event loop of its own.

        Raises:
            InvalidRequestError: an item has a mistake, or all texts together are too long.
        """
        shared = self.shared
        requests: list[SpeechRequest] = []
        for index, item in enumerate(self.items):
            requests.append(SpeechRequest.parse(_over(shared, item), f"items.{index}", served))
            await asyncio.sleep(0)
        chars = sum(len(request.input) for request in requests)
        if chars > max_chars:
            raise InvalidRequestError(
                f"items: expected at most {max_chars} characters of text together, got {chars}; "
                "send several requests, or jobs",
                code=ErrorCode.TEXT_TOO_LONG,
            )
        return requests


def _over(shared: dict[str, Any], item: dict[str, Any]) -> dict[str, Any]:
    """The fields of an item, and the shared ones that it does not have by any of their names."""
    own = set(SpeechRequest.meant(item).values())
    names = SpeechRequest.meant(shared).items()
    return {name: shared[name] for name, field in names if field not in own} | item


@router.post(_PATH, response_class=JSONResponse)
async def speak_batch(request: Request, body: BatchRequest) -> Response:
    """Speak several texts; the results have the files in base64, or an error."""
    state: ServerState = request.app.state.server
    listener = listener_of(request)
    served = Served.to(state, listener.origin.caller.key_id)
    requests = await body.requests(state.synthesizer.limits.max_text_chars, served)
    results = _results(state, listener, requests)
    if body.stream_format == "ndjson":
        return SpeechResponse(_lines(results), media_type="application/x-ndjson")
    async with aclosing(results):
        done = sorted([result async for result in results], key=lambda result: result.index)
    return SpeechResponse(_object(done), media_type="application/json")


@dataclass(frozen=True, slots=True)
class _Result:
    """The outcome of a text: a file, or an error."""

    index: int
    file: SpeechFile | None = None
    error: dict[str, Any] = field(default_factory=dict[str, Any])

    async def written(self) -> AsyncGenerator[bytes, None]:
        """Yield the result as JSON, its file in parts, which do not block the event loop."""
        if self.file is None:
            yield json.dumps({"index": self.index, "error": self.error}).encode()
            return
        fields = {
            "index": self.index,
            "content_type": self.file.content_type,
            "audio_ms": self.file.audio_ms,
            "provenance": self.file.provenance.model_dump(),
        }
        yield json.dumps(fields).removesuffix("}").encode() + b', "audio": "'
        async for part in self.file.slices():
            yield base64.b64encode(part)
        yield b'"}'


async def _object(done: list[_Result]) -> AsyncGenerator[bytes, None]:
    before = b'{"results": ['
    for result in done:
        yield before
        async for part in result.written():
            yield part
        before = b", "
    succeeded = sum(result.file is not None for result in done)
    counts = {"total": len(done), "succeeded": succeeded, "failed": len(done) - succeeded}
    yield b"], " + json.dumps(counts).removeprefix("{").encode()


async def _lines(results: AsyncGenerator[_Result, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(results):
        async for result in results:
            async for part in result.written():
                yield part
            yield b"\n"


async def _results(
    state: ServerState, listener: Listener, requests: list[SpeechRequest]
) -> AsyncGenerator[_Result, None]:
    """Yield results as they are ready; the tasks end with the iteration."""
    free = asyncio.Semaphore(_AT_ONCE)

    async def result_of(index: int, request: SpeechRequest) -> _Result:
        async with free:
            await asyncio.sleep(0)  # many texts that fail at once would be one turn of the loop
            try:
                return _Result(index, await speak_file(state, listener, request))
            except Exception as error:  # one item must not fail the others
                failure = VoiceAgentError.wrapping(error)
            log_if_unexpected(failure, index=index, **listener.origin.ids)
            state.metrics.errors.labels(failure.code).inc()
            return _Result(index, error=error_fields(failure))

    tasks = [asyncio.create_task(result_of(*each)) for each in enumerate(requests)]
    try:
        for task in asyncio.as_completed(tasks):
            yield await task
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def speak_file(state: ServerState, listener: Listener, request: SpeechRequest) -> SpeechFile:
    """Speak a text into a file in the batch class; waits while the server is busy.

    A text whose audio ends early is not spoken again: it was charged, and may end there again.

    Raises:
        UnauthorizedError: the key was removed meanwhile, or has lost the scope `speak`.
        VoiceAgentError: the text cannot be spoken, or the client has disconnected.
    """

    async def is_gone() -> bool:
        _check_key(state, listener.origin.caller)
        return await listener_is_gone()

    listener_is_gone = listener.is_gone
    listener = replace(listener, is_gone=is_gone)
    speech = await _start_when_free(state, listener, request)
    container_format = request.response_format or "mp3"
    return await collect_file(state, listener, speech, container_format, request.sample_rate)


def _check_key(state: ServerState, caller: Caller) -> None:
    """Check that a caller may still speak: its request was checked some time ago."""
    if state.access is not None:
        state.access.check_scope(caller.key_id, "POST", _PATH)


async def _start_when_free(
    state: ServerState, listener: Listener, request: SpeechRequest
) -> Speech:
    options = request.file_options(Served.to(state, listener.origin.caller.key_id))
    while True:
        _check_key(state, listener.origin.caller)
        try:
            return await start_speaking(state, listener, request.input, options)
        except VoiceAgentError as error:
            wait_s = (error.retry_after_ms or 0) / 1000 or _RETRY_S
            if error.code not in BUSY or wait_s > MAX_WAIT_S or await listener.is_gone():
                raise
            await asyncio.sleep(wait_s)
