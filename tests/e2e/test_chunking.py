"""However an agent's text is cut into messages, its words and their times are the same."""

import random

import pytest

from tests.conftest import StartServer
from tests.espeak.sentences import SENTENCES
from tests.wire import Heard, Wire

_MIXED = (
    "# Your order\n\n1. Two **pizzas**, at $12.50 each.\n2. Dr. Müller's \U0001f355 voucher!\n\n"
    "Das war's. 全部で三千円です。Merci beaucoup, et à 19h30 ! See example.com... OK?"
)
_TEXTS = [(language, " ".join(sentences)) for language, sentences in SENTENCES.items()]


@pytest.mark.parametrize("longest", [1, 4, 30])
async def test_chunking_changes_no_word(start_server: StartServer, longest: int) -> None:
    """Texts of ten languages, cut at random, sound and are timed as when sent whole."""
    # What espeak says depends a little on what it said before, so both start afresh.
    sent_whole, sent_in_chunks = await start_server(), await start_server()
    async with (
        Wire.connected(sent_whole.websocket_url) as wire,
        Wire.connected(sent_in_chunks.websocket_url) as other_wire,
    ):
        for language, text in [*_TEXTS, (None, _MIXED)]:
            whole = await _say(wire, [text], language)
            chunked = await _say(other_wire, _chunks(text, longest), language)
            assert len(whole.words) > 20
            assert chunked.words == whole.words
            assert chunked.pcm == whole.pcm


async def _say(wire: Wire, chunks: list[str], language: str | None) -> Heard:
    heard = await wire.open(max_lead_s=0, max_buffer_delay_ms=3000, language=language)
    for chunk in chunks:
        await wire.text(heard, chunk)
    await wire.end(heard)
    return await wire.finish(heard)


def _chunks(text: str, longest: int) -> list[str]:
    source = random.Random(longest)
    chunks = []
    while text:
        length = source.randint(1, longest)
        chunks.append(text[:length])
        text = text[length:]
    return chunks
