"""A stand-in for a language model of LiveKit, which writes at a known pace."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from livekit.agents import APIConnectOptions, llm
from livekit.agents.types import DEFAULT_API_CONNECT_OPTIONS

Script = Iterable[tuple[float, str]]
"""(wait in seconds, token) of each token of a reply."""


class ScriptedLLM(llm.LLM):
    """Writes replies by a script.

    Args:
        next_script: returns the script of the next reply.
    """

    def __init__(self, next_script: Callable[[], Script]) -> None:
        super().__init__()
        self._next_script = next_script

    def chat(
        self,
        *,
        chat_ctx: llm.ChatContext,
        tools: list[llm.Tool] | None = None,
        conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS,
        **options: Any,
    ) -> llm.LLMStream:
        """Start to write the next reply."""
        return _Writing(self, chat_ctx, conn_options, self._next_script())


class _Writing(llm.LLMStream):
    def __init__(
        self,
        writer: ScriptedLLM,
        chat_ctx: llm.ChatContext,
        conn_options: APIConnectOptions,
        script: Script,
    ) -> None:
        super().__init__(writer, chat_ctx=chat_ctx, tools=[], conn_options=conn_options)
        self._script = script

    async def _run(self) -> None:
        for wait_s, token in self._script:
            await asyncio.sleep(wait_s)
            delta = llm.ChoiceDelta(role="assistant", content=token)
            self._event_ch.send_nowait(llm.ChatChunk(id="reply", delta=delta))
