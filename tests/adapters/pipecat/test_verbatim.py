"""The LLM's tokens reach the server verbatim, in every way in which Pipecat passes text on."""

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pipecat.frames.frames import (
    AggregatedTextFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
)
from pipecat.services.tts_service import TextAggregationMode
from pipecat.utils.text.simple_text_aggregator import SimpleTextAggregator

from testbed.examples import examples
from testbed.pipecat_conversation import Conversation, talking
from testbed.sentences import TEXTS
from testbed.server_process import ServerProcess
from testbed.texts import chunked
from testbed.waiting import until
from voiceagent_tts.adapters.pipecat import VoiceAgentTTSService
from voiceagent_tts.text.words import split_words

MODES = [None, TextAggregationMode.SENTENCE, TextAggregationMode.TOKEN]

REPLY_IN_EACH_LANGUAGE = st.tuples(
    *(st.sampled_from(texts).flatmap(chunked) for texts in TEXTS.values())
)
"""A reply in each of ten languages, as a list of tokens."""


async def words_of_server(conversation: Conversation, context_id: str, text: str) -> list[str]:
    """Wait until the server has timed all of `text`, and return its words."""

    def words() -> list[str]:
        return [timestamp.word.text for timestamp in conversation.words.get(context_id, [])]

    await until(lambda: len(visible(*words())) >= len(visible(text)), f"the words of {text!r}")
    return words()


def visible(*texts: str) -> str:
    """The characters of `texts` that are not white space."""
    return "".join("".join(texts).split())


@pytest.mark.parametrize("mode", MODES)
@settings(
    max_examples=examples(8),
    phases=[Phase.explicit, Phase.generate],  # each example takes seconds: too long to shrink
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(replies=REPLY_IN_EACH_LANGUAGE)
async def test_the_server_gets_the_llms_text(
    served: ServerProcess, mode: TextAggregationMode | None, replies: tuple[list[str], ...]
) -> None:
    """However an LLM splits its text into tokens, the server's words are spans of that text."""
    tts = VoiceAgentTTSService(url=served.websocket_url, text_aggregation_mode=mode, max_lead_s=0)
    async with talking(tts) as conversation:
        for tokens in replies:
            text = "".join(tokens)
            context_id = await conversation.reply(*tokens)
            await words_of_server(conversation, context_id, text)
            for word in (timestamp.word for timestamp in conversation.words[context_id]):
                assert text[word.char_start : word.char_end] == word.text
            await conversation.interrupt()
        assert not conversation.errors


async def test_sub_word_tokens_stay_one_word(served: ServerProcess) -> None:
    """In token mode a word, a price and a mark that come in parts are spoken as the LLM wrote."""
    tokens = ["Good", " mor", "ning", ",", " it", " is", " $", "42", ".", "50", " to", "day", "."]
    mode = TextAggregationMode.TOKEN
    tts = VoiceAgentTTSService(url=served.websocket_url, text_aggregation_mode=mode, max_lead_s=0)
    async with talking(tts) as conversation:
        context_id = await conversation.reply(*tokens)
        words = await words_of_server(conversation, context_id, "".join(tokens))
        assert words == ["Good", "morning,", "it", "is", "$42.50", "today."]


async def test_sentences_of_another_processor_are_separated(served: ServerProcess) -> None:
    """Sentences that Pipecat has stripped are joined by the white space of their script."""
    tts = VoiceAgentTTSService(url=served.websocket_url, max_lead_s=0)
    async with talking(tts) as conversation:
        sentences = [AggregatedTextFrame(text, "sentence") for text in ("Yes.", "No.", "好。")]
        await conversation.push(LLMFullResponseStartFrame(), *sentences, LLMFullResponseEndFrame())
        words = await words_of_server(conversation, await conversation.begun(), "Yes. No. 好。")
        assert words == ["Yes.", "No.", "好。"]


@pytest.mark.parametrize("tokens", [["Yes", ". No", "."], ["你", "好。再", "见。"]])
async def test_pipecats_sentences_are_separated(served: ServerProcess, tokens: list[str]) -> None:
    """Pipecat's own aggregator strips sentences; the server still gets separate words."""
    tts = VoiceAgentTTSService(
        url=served.websocket_url, text_aggregator=SimpleTextAggregator(), max_lead_s=0
    )
    async with talking(tts) as conversation:
        text = "".join(tokens)
        words = await words_of_server(conversation, await conversation.reply(*tokens), text)
        assert words == [word.text for word in split_words(text)]
