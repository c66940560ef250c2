"""What Pipecat's history says of a reply, to a letter: all of it, or up to the last word heard."""

import asyncio
from collections.abc import Callable, Iterable, Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pipecat.frames.frames import (
    EagerTranscriptionFrame,
    Frame,
    InterimTranscriptionFrame,
    InterruptionFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    ServiceSwitcherRequestMetadataFrame,
    TextFrame,
    TranscriptionFrame,
)
from pipecat.processors.frame_processor import FrameDirection
from pipecat.services.tts_service import TextAggregationMode

from testbed.examples import examples
from testbed.pipecat_conversation import Conversation, Outcome, history, reply
from testbed.scripted_server import Script, Step, words_in
from testbed.texts import agent_text, chunked
from voiceagent_tts.adapters.pipecat import VoiceAgentTTSService
from voiceagent_tts.adapters.pipecat.text import ClauseAggregator
from voiceagent_tts.core import SAMPLE_RATE_HZ

AUDIO_S = 2.0
WORD_MS = 40
SPOKEN = Script(
    (
        Step(0.0, samples=round(AUDIO_S * SAMPLE_RATE_HZ)),
        Step(0.1, words_ms=tuple(range(0, round(1000 * AUDIO_S), WORD_MS))),
    ),
    end_s=0.2,
)
MODES = [None, TextAggregationMode.TOKEN]

SYMBOLS = [
    "👨‍👩‍👧", "👍🏽", "🇩🇪", "1️⃣", "❤️", "😀", "→", "€", "%", "&", "#", "*", "—", "-", "«", "»", "“",
    "”", '"', "'", "(", ")", "[", "]", "<", "…",
]  # fmt: skip
MARKS = [".", "!", "?", ",", ";", ":", "。", "،", "؟", "।"]
WORDS = [
    "Hi", "there", "cafe\u0301", "สวัสดีครับ", "مرحبا", "你好", "キャ", "नमस्ते", "x²", "it's", "3.5",
]  # fmt: skip
SPACES = ["", " ", " ", "\n"]
TAGS = [
    ("<spell>", "</spell>"), ('<say-as interpret-as="digits">', "</say-as>"),
    ('<sub alias="twenty one">', "</sub>"), ('<phoneme alphabet="ipa" ph="mɛt">', "</phoneme>"),
    ("<speak>", "</speak>"), ("<emphasis>", "</emphasis>"), ('<prosody rate="slow">', "</prosody>"),
]  # fmt: skip
LONE_TAGS = ['<break time="200ms"/>', "<break/>", "<<m|ɛ|t>>", '<speed ratio="1.2"/>']

SYMBOLIC = st.lists(
    st.tuples(st.sampled_from([*WORDS, *SYMBOLS, *MARKS]), st.sampled_from(SPACES)), max_size=8
).map(lambda parts: "".join(map("".join, parts)))
PLAIN = st.lists(st.sampled_from([*WORDS, *MARKS, " ", " "]), min_size=1, max_size=4).map("".join)


def _tagged(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    element = st.builds(lambda tag, text: tag[0] + text + tag[1], st.sampled_from(TAGS), inner)
    parts = st.one_of(inner, element, element, st.sampled_from(LONE_TAGS), st.sampled_from(SPACES))
    return st.lists(parts, min_size=1, max_size=5).map("".join)


MARKUP = _tagged(_tagged(PLAIN))


def say_all(
    replies: Sequence[Sequence[str]],
    mode: TextAggregationMode | None,
    *,
    cut_s: float | None = None,
    has_markup: bool = False,
) -> Outcome:
    """Speak replies one after another, each in these tokens.

    Args:
        replies: their tokens.
        mode: how Pipecat passes tokens on.
        cut_s: when each one is interrupted, after its first chunk; None for never.
        has_markup: whether tags have an effect.
    """
    acts: list[tuple[float, list[Frame]]] = []
    for tokens in replies:
        acts.append((0.5, reply(*tokens)))
        acts.append((AUDIO_S + 0.5, []) if cut_s is None else (cut_s + 0.2, [InterruptionFrame()]))
    options = VoiceAgentTTSService.Settings(markup=has_markup)
    return history(SPOKEN, *acts, settings=options, text_aggregation_mode=mode)


def check_whole(outcome: Outcome, texts: Sequence[str]) -> None:
    """The server has got the texts to a letter, and so has the history."""
    expected = [text.strip() for text in texts]
    assert [text.strip() for text in outcome.server.texts] == expected
    assert outcome.messages == expected


@pytest.mark.parametrize("mode", MODES)
def test_an_emoji_of_two_tokens_is_whole(mode: TextAggregationMode | None) -> None:
    """As a server of an LLM streams it that counts in UTF-16; half of one alone mutes no reply."""
    replies = [["Hi \ud83d", "\ude00 there", "."], ["Hi", " \ud83d", " there."], ["Hi \ud83d"]]
    messages = say_all(replies, mode).messages
    assert messages == ["Hi 😀 there.", "Hi \ufffd there.", "Hi \ufffd"]


def unspoken(text: str) -> Frame:
    """A token of a reply that is not spoken."""
    token = LLMTextFrame(text)
    token.skip_tts = True
    return token


@pytest.mark.parametrize(
    ("other", "direction"),
    [
        (TranscriptionFrame("Sure", "user", "now"), FrameDirection.DOWNSTREAM),
        (InterimTranscriptionFrame("Sure", "user", "now"), FrameDirection.DOWNSTREAM),
        (EagerTranscriptionFrame("Sure", "user", "now"), FrameDirection.DOWNSTREAM),
        (unspoken("Sure"), FrameDirection.DOWNSTREAM),
        (LLMTextFrame("Sure"), FrameDirection.UPSTREAM),
    ],
    ids=["transcription", "interim", "eager", "unspoken", "upstream"],
)
def test_text_of_others_between_the_halves_of_an_emoji_stays_as_it_is(
    other: TextFrame, direction: FrameDirection
) -> None:
    """The emoji is whole after it."""
    begin, half, rest, end = reply("Hi \ud83d", "\ude00 there.")

    async def say(talk: Conversation) -> None:
        await talk.push(begin, half)
        await asyncio.sleep(0.1)
        await talk.service.queue_frame(other, direction)
        await asyncio.sleep(0.1)
        await talk.push(rest, end)

    texts = history(SPOKEN, (0.0, say), (AUDIO_S, [])).server.texts
    assert other.text == "Sure" and texts[-1].endswith("😀 there.")


def start_again(_: Conversation) -> Frame:
    """The LLM begins another reply."""
    return LLMFullResponseStartFrame()


def switch_back(talk: Conversation) -> Frame:
    """A `ServiceSwitcher` returns to the service."""
    return ServiceSwitcherRequestMetadataFrame(service=talk.service)


@pytest.mark.parametrize("cause", [start_again, switch_back])
def test_half_an_emoji_is_of_no_later_reply(cause: Callable[[Conversation], Frame]) -> None:
    """The end of its own reply never comes."""
    begin, half, rest, end = reply("Hi \ud83d", "there.")

    async def say(talk: Conversation) -> None:
        await talk.push(begin, half, cause(talk), rest, end)

    texts = history(SPOKEN, (0.0, say), (AUDIO_S, [])).server.texts
    assert texts[-1].endswith("there.") and not any("\ufffd" in text for text in texts)


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=examples(8))
@given(
    texts=st.lists(
        st.one_of(SYMBOLIC, agent_text()).filter(lambda text: bool(words_in(text))),
        min_size=1,
        max_size=4,
    ),
    data=st.data(),
)
@example(["🇩🇪\n—x²\nHi\nthere #", "25 👨‍👩‍👧 ،", "okok C#\n→ 😀 ; ?", "👍🏽. Hi."], None)
def test_a_whole_reply_is_in_the_history(
    mode: TextAggregationMode | None, texts: list[str], data: st.DataObject | None
) -> None:
    """Symbols, marks and scripts of every kind, however the tokens divide them."""
    texts = [text.encode("utf-8", "ignore").decode() for text in texts]
    replies = [list(text) if data is None else data.draw(chunked(text)) for text in texts]
    check_whole(say_all(replies, mode), texts)


@pytest.mark.parametrize("tokens", [["h", "a ha", " ha"], ["<<m", "|ɛ|t>> <<m|ɛ|t>>"]])
def test_equal_words_of_which_a_token_divides_one_are_said_as_often_as_they_are_written(
    tokens: list[str],
) -> None:
    """Pipecat makes two frames of the divided word; the second one is no further word."""
    check_whole(say_all([tokens], TextAggregationMode.TOKEN, has_markup=True), ["".join(tokens)])


@pytest.mark.parametrize("divided_at", [64, 69, 86, 90])
def test_a_token_may_divide_a_tag_behind_the_last_word(divided_at: int) -> None:
    """Such a tag belongs to no word, and may be in several of Pipecat's segments."""
    pause = '<break time="200ms"/>'
    text = f'<say-as interpret-as="digits">Hi{pause}Hi</say-as>{pause}{pause}'
    tokens = [text[:divided_at], text[divided_at:]]
    check_whole(say_all([tokens], TextAggregationMode.TOKEN, has_markup=True), [text])


SPOKEN_MARKUP = st.lists(
    MARKUP.filter(lambda text: bool(words_in(text, has_markup=True))), min_size=1, max_size=4
)


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=examples(8))
@given(texts=SPOKEN_MARKUP, data=st.data())
@example(
    [
        "One <emphasis>two</emphasis> three.", '<sub alias="a b">20</sub>, ok', "a<break/>b",
        '<phoneme alphabet="ipa" ph="mɛt">你好 </phoneme> <break time="200ms"/>',
        "<speak>it's <<m|ɛ|t>> ok</speak> </speak>",
    ],
    None,
)  # fmt: skip
def test_a_whole_reply_has_its_tags(
    mode: TextAggregationMode | None, texts: list[str], data: st.DataObject | None
) -> None:
    """At the start and the end, nested, beside marks and words, and behind the last word."""
    replies = [list(text) if data is None else data.draw(chunked(text)) for text in texts]
    check_whole(say_all(replies, mode, has_markup=True), texts)


@settings(max_examples=examples(12))
@given(texts=SPOKEN_MARKUP, cut_s=st.sampled_from([0.1, 0.13, 0.2, 0.26, 0.4]), data=st.data())
@example(
    [
        "One <emphasis>two</emphasis> three.", "One, <spell>AB</spell> three, four.",
        '<sub alias="a b">20</sub>, <emphasis>ok</emphasis>', "Hi 👍🏽. ok ok",
    ],
    0.01,
    None,
)  # fmt: skip
@example(["One <emphasis>two</emphasis> three.", 'Ok <break time="1s"/>. Hi hi hi'], 0.05, None)
def test_a_cut_reply_has_all_of_the_words_that_were_heard(
    texts: list[str], cut_s: float, data: st.DataObject | None
) -> None:
    """Their tags and marks included, and nothing of the next word."""
    replies = [[text] if data is None else data.draw(chunked(text)) for text in texts]
    outcome = say_all(replies, None, cut_s=cut_s, has_markup=True)
    heard: list[str] = []
    for text, samples in zip(texts, outcome.played_samples, strict=True):
        words = words_in(text, has_markup=True)
        count = sum(k * WORD_MS + 20 <= samples * 1000 / SAMPLE_RATE_HZ for k in range(len(words)))
        heard.append(text[: words[count - 1].char_end].strip())
    assert outcome.messages == heard


async def pieces_of(chunks: Iterable[str], *, by_token: bool = False) -> list[str]:
    """The pieces that the aggregator passes on for the `chunks` of one reply."""
    aggregator = ClauseAggregator(by_token=by_token)
    pieces = [piece.text for chunk in chunks async for piece in aggregator.aggregate(chunk)]
    rest = await aggregator.flush()
    return pieces if rest is None else [*pieces, rest.text]


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("Hello. How are you?", ["Hello. ", "How are you?"]),
        ("Well, yes.\n\nNo.", ["Well, ", "yes.\n", "\nNo."]),
        ("I think that it is so", ["I think that ", "it is so"]),
        ("It costs 3.5 or 1,000 euros.", ["It costs 3.5 ", "or 1,000 euros."]),
        ("你好。「再见。」好", ["你好。", "「再见。」", "好"]),
        ('He said "no." Then he left.', ['He said "no." ', "Then he left."]),
        ("... well", ["... well"]),
    ],
)
async def test_a_clause_leaves_with_the_white_space_after_it(text: str, pieces: list[str]) -> None:
    """A clause, or the first two or three words, is passed on without the text after it."""
    assert await pieces_of(text) == pieces


@pytest.mark.parametrize(
    ("tokens", "pieces"),
    [
        (["Mon", "day", " and", " more"], ["Mon", "day", " and", " more"]),
        (["Done", ".", " ", "Next"], ["Done", ".", " Next"]),
        (["**", "Sure", "!", "**", " Here"], ["**Sure", "!", "** Here"]),
        (["😊", " two", " 😊", " <", " 3"], ["😊 two", " 😊 < 3"]),
        (["你", "好", "，", "再"], ["你", "好", "，再"]),
    ],
)
async def test_a_token_leaves_at_once(tokens: list[str], pieces: list[str]) -> None:
    """A symbol waits for a word."""
    assert await pieces_of(tokens, by_token=True) == pieces
