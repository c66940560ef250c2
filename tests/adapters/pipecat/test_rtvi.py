"""What RTVI tells a page of a reply, on a scripted clock: words as they are heard."""

import asyncio
import re
from typing import Any

import pytest
from pipecat.frames.frames import InterruptionFrame
from pipecat.processors.frameworks.rtvi import models as rtvi

from testbed.pipecat_conversation import Conversation, reply, scripted
from testbed.scripted_server import whole
from testbed.scripted_time import run_scripted
from voiceagent_tts.core import SAMPLE_RATE_HZ

TEXT = "a b c. d e f. g h i."
WORDS_MS = range(0, 2_700, 300)
SPOKEN = whole(9)
HEARD_MS = 20
LONG_S = 4.0
"""Time in which a whole reply is heard."""
VERSIONS = ["1.0.0", "2.2.0"]
"""Of RTVI: older pages get words otherwise than newer ones."""

Told = list[tuple[int, dict[str, Any]]]


def heard_words(played_samples: int) -> int:
    """How many words of `TEXT` were heard."""
    played_ms = 1000 * played_samples / SAMPLE_RATE_HZ
    return sum(start_ms + HEARD_MS <= played_ms for start_ms in WORDS_MS)


async def connect(talk: Conversation, version: str) -> None:
    """Let a page connect that understands this version of RTVI."""
    about = {"version": version, "about": {"library": "test"}}
    ready = rtvi.Message(label="rtvi-ai", type="client-ready", id="1", data=about)
    await talk.worker.rtvi.handle_message(ready)
    await asyncio.sleep(0.1)
    assert "bot-ready" in [message["type"] for _, message in talk.loudspeaker.told]


async def interrupted(talk: Conversation, version: str, after_s: float) -> list[str]:
    """Say `TEXT` to a page, interrupt it, and return the words that were heard."""
    await connect(talk, version)
    await talk.say(reply(TEXT))
    await asyncio.sleep(after_s)
    await talk.worker.queue_frame(InterruptionFrame())
    await asyncio.sleep(LONG_S)
    (played,) = talk.loudspeaker.played_samples
    return TEXT.split()[: heard_words(played)]


def told_of(talk: Conversation, kind: str) -> Told:
    """The messages of a kind, with what was played by then, and empty the list."""
    told, talk.loudspeaker.told = talk.loudspeaker.told, []
    return [(played, message["data"]) for played, message in told if message["type"] == kind]


def words_told(talk: Conversation) -> list[str]:
    """The words that the page has been told; each had begun to be heard by then."""
    told = told_of(talk, "bot-tts-text")
    for number, (played, _) in enumerate(told, start=1):
        assert number <= heard_words(played)
    return [data["text"].strip() for _, data in told]


def spoken_told(talk: Conversation) -> str:
    """What of its segments the page shows as spoken."""
    progress: dict[int, str] = {}
    for _, data in told_of(talk, "bot-output"):
        progress[data["segment_id"]] = data["spoken_progress"]["accumulated_text"]
    return " ".join(progress.values())


@pytest.mark.parametrize("after_s", [0.07, 0.95, 1.97, LONG_S])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_page_is_told_each_word_when_it_is_heard(version: str, after_s: float) -> None:
    """In order and once, up to an interruption; what is said next is told for itself."""

    async def run() -> None:
        async with scripted(SPOKEN, has_page=True) as talk:
            heard = await interrupted(talk, version, after_s)
            assert words_told(talk) == heard
            assert talk.messages == [" ".join(heard)]
            await talk.say(reply("x y z."))
            await asyncio.sleep(LONG_S)
            assert words_told(talk) == ["x", "y", "z."]

    run_scripted(run())


@pytest.mark.parametrize("after_s", [0.95, 1.3, LONG_S])
def test_a_page_shows_as_spoken_what_was_heard(after_s: float) -> None:
    """Segment by segment, whether the reply is interrupted or not."""

    async def run() -> None:
        async with scripted(SPOKEN, has_page=True) as talk:
            heard = await interrupted(talk, VERSIONS[-1], after_s)
            assert re.sub(r"\s+", " ", spoken_told(talk)).strip() == " ".join(heard)

    run_scripted(run())
