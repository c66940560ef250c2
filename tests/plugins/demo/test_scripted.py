"""The demo's stand-in for a language model answers what the user has said, and nothing else."""

from typing import Any

import pytest
from pipecat.frames.frames import ErrorFrame, LLMContextFrame, LLMTextFrame
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.tests.utils import run_test

from voiceagent_tts.plugins.demo.scripted import ScriptedLLM

QUESTION = {"role": "user", "content": "Who are you?"}
NOT_RECOGNIZED = {
    "role": "developer",
    "content": "The user spoke, but their words were not recognized.",
}


@pytest.mark.parametrize(
    ("messages", "answer"),
    [
        ([QUESTION], "Your agent."),
        ([QUESTION, NOT_RECOGNIZED], ""),
        ([NOT_RECOGNIZED, QUESTION], "Your agent."),
    ],
)
async def test_a_message_of_pipecats_own_is_no_question(messages: list[Any], answer: str) -> None:
    """It comes where the user was heard and no text has arrived: the question follows."""
    llm = ScriptedLLM({"Who are you?": ("en", "Your agent.")}, first_token_s=0.0)
    down, up = await run_test(llm, frames_to_send=[LLMContextFrame(LLMContext(messages))])
    assert "".join(each.text for each in down if isinstance(each, LLMTextFrame)) == answer
    assert not any(isinstance(each, ErrorFrame) for each in up)
