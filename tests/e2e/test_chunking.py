"""Words and their times do not depend on how an agent splits its text into messages."""

import random

import pytest

from testbed.sentences import SENTENCES
from testbed.servers import StartServer
from testbed.wire import ReceivedContext, Wire

_MIXED = (
    "# Your order\n\n1. Two **pizzas**, at $12.50 each.\n2. Dr. Müller's \U0001f355 voucher!\n\n"
    "Das war's. 全部で三千円です。Merci beaucoup, et à 19h30 ! See example.com... OK?"
)
_TEXTS = [
    (None, _MIXED),
    *((language, " ".join(sentences[:4])) for language, sentences in SENTENCES.items()),
]


@pytest.mark.parametrize(
    "lengths", [(4,), pytest.param((1, 30), marks=pytest.mark.thorough)], ids=str
)
async def test_pain_08_every_word_has_a_time_however_its_text_is_split(
    start_server: StartServer, lengths: tuple[int, ...]
) -> None:
    """Texts of ten languages, split at random, have the audio and times of the whole text.

    Numbers, markdown and emoji included. `Wire` checks that words are verbatim, in order, and cover
    every letter and digit.
    """
    whole = await _speak_all(start_server, longest=None)
    for longest in lengths:
        chunked = await _speak_all(start_server, longest)
        for one, other in zip(chunked, whole, strict=True):
            assert len(one.words) > 15
            assert all(word.end_sample is not None for word in one.words[:-1])
            assert one.words == other.words
            assert one.pcm == other.pcm


async def _speak_all(start_server: StartServer, longest: int | None) -> list[ReceivedContext]:
    # espeak's samples depend a little on its earlier texts, so each server starts afresh
    server = await start_server()
    async with Wire.connected(server.websocket_url) as wire:
        return [
            await _say(wire, [text] if longest is None else _chunks(text, longest), language)
            for language, text in _TEXTS
        ]


async def _say(wire: Wire, chunks: list[str], language: str | None) -> ReceivedContext:
    received = await wire.open(max_lead_s=0, max_buffer_delay_ms=3000, language=language)
    for chunk in chunks:
        await wire.text(received, chunk)
    return await wire.speak(received)


def _chunks(text: str, longest: int) -> list[str]:
    source = random.Random(longest)
    chunks = []
    while text:
        length = source.randint(1, longest)
        chunks.append(text[:length])
        text = text[length:]
    return chunks
