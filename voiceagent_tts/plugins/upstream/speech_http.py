"""OpenAI's speech API over HTTP: a request for each text."""

import contextlib
from collections.abc import Iterator

import httpx

from voiceagent_tts.errors import EngineError
from voiceagent_tts.plugins.upstream.download import Download
from voiceagent_tts.plugins.upstream.speech_api import (
    OPENAI_VOICES,
    SpeechAPI,
    SpeechRequest,
    retry_wait_s,
    voices_in,
)

_CONNECT_S = 5.0
_READ_BYTES = 4096


class OpenAISpeech:
    """The connections to one upstream. All methods run in one event loop.

    Args:
        timeout_s: longest wait for its next byte.
    """

    def __init__(
        self, api: SpeechAPI, key: str | None, *, timeout_s: float, max_requests: int
    ) -> None:
        self.model = api.model
        self._api = api
        self._timeout_s = timeout_s
        self._client = httpx.AsyncClient(
            headers={} if key is None else {"Authorization": f"Bearer {key}"},
            timeout=httpx.Timeout(timeout_s, connect=_CONNECT_S, pool=None),
            limits=httpx.Limits(max_connections=max_requests),
        )

    @property
    def address(self) -> str:
        """The address for messages, without secrets."""
        return self._api.address

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def voices(self) -> list[str]:
        """Ask for the voices; those of OpenAI's API if the upstream does not list any.

        Raises:
            EngineError: the upstream cannot be reached, or refuses the key.
        """
        with self._explained():
            answer = await self._client.get(f"{self._api.url}/audio/voices")
            if answer.status_code in (401, 403):
                raise self._api.failure(answer.status_code, None)
        try:
            listed = voices_in(answer.json()) if answer.is_success else []
        except ValueError:
            listed = []
        return listed or list(OPENAI_VOICES)

    async def attempt(
        self, request: SpeechRequest, download: Download, usual_s: float | None
    ) -> float | None:
        """Send a request and receive its audio.

        Args:
            request: the text.
            download: receives the audio.
            usual_s: seconds to wait before the next attempt; None for the last attempt.

        Returns:
            Seconds after which to try again; None if all audio has arrived.

        Raises:
            VoiceAgentError: the upstream does not speak this text, and will not the next time.
        """
        with self._explained():
            return await self._attempt(request, download, usual_s)

    async def _attempt(
        self, request: SpeechRequest, download: Download, usual_s: float | None
    ) -> float | None:
        url, body = f"{self._api.url}/audio/speech", self._api.body(request)
        try:
            async with self._client.stream("POST", url, json=body) as answer:
                if answer.is_success:
                    await self._receive(answer, download)
                    return None
                status, retry_after = answer.status_code, answer.headers.get("retry-after")
        except (httpx.ConnectError, httpx.RemoteProtocolError, httpx.ReadError):
            if usual_s is None or download.has_begun:
                raise
            return usual_s
        wait_s = None if usual_s is None else retry_wait_s(status, retry_after, usual_s)
        if wait_s is None:
            raise self._api.failure(status, retry_after)
        return wait_s

    async def _receive(self, answer: httpx.Response, download: Download) -> None:
        async for data in answer.aiter_bytes(_READ_BYTES):
            if not download.has_begun:
                self._api.check_audio(answer.headers.get("content-type", ""), data)
            download.push(data)
            await download.wait_for_room()
        if not download.has_begun:
            raise EngineError(f"the upstream {self._api.address} sent no audio")

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn errors of the connection into sentences."""
        address = self._api.address
        try:
            yield
        except httpx.TimeoutException as error:
            raise EngineError(
                f"the upstream {address} sent nothing for {self._timeout_s:g} s"
            ) from error
        except httpx.ConnectError as error:
            raise EngineError(f"the upstream {address} cannot be reached") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise EngineError(
                f"the upstream {address} broke off ({type(error).__name__})"
            ) from error
