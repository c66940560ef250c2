"""Pipecat's own OpenAI service, by URL, on a real pipeline."""

import openai
import pytest
from pipecat.services.openai.tts import OpenAITTSService

from testbed.pipecat_conversation import speaks, talking
from testbed.server_process import ServerProcess


@pytest.mark.parametrize("text", ["\U0001f44d", "...", "&nbsp;"])
async def test_a_reply_without_speech_is_no_error(
    served: ServerProcess, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """It is committed, and the next reply is spoken."""
    url = f"{served.url}/v1"
    async with openai.AsyncOpenAI(api_key="none", base_url=url) as client:
        service = OpenAITTSService(
            api_key="none", settings=OpenAITTSService.Settings(voice="alloy")
        )
        monkeypatch.setattr(service, "_client", client)  # it never closes its own one
        async with talking(service) as conversation:
            await speaks(conversation, text)
            await speaks(conversation)
            assert not conversation.errors
