"""What a stock service of Pipecat must do with this server: speak turns, and be interrupted."""

from collections.abc import Callable

from pipecat.frames.frames import TTSAudioRawFrame
from pipecat.services.tts_service import TTSService

from testbed.listening import words_of
from testbed.pipecat_conversation import HEARD_SAMPLES, talking
from testbed.waiting import undisturbed, until
from voiceagent_tts.server.serve import RunningServer

TEXT = "Of course I can. It cost $25."
PIECES = [f"{word} " for word in TEXT.split()[:-1]] + [TEXT.split()[-1]]


async def check_turns(tts: TTSService, server: RunningServer) -> None:
    """Check that two turns are committed word for word, on one socket."""
    async with talking(tts) as conversation:
        for text in (PIECES, ["Yes."]):
            await conversation.reply(*text)
            assert await conversation.spoken() == "".join(text)
            await conversation.played_out()
        assert not conversation.errors
        assert conversation.count(TTSAudioRawFrame) > 10
        accepted = server.state.metrics.registry.get_sample_value("tts_ws_accepted_total")
        assert accepted == 1


async def check_barge_in(make: Callable[[], TTSService], server: RunningServer) -> None:
    """Check a barge-in on a server that is slow enough for one.

    The history is within a word of what was heard, the row is free, and the socket stays open.

    Args:
        make: makes the service of each attempt.
        server: a throttled server.
    """
    words = await words_of(server.websocket_url, TEXT, language="en")
    worker = server.state.synthesizer.supervisors["espeak"].worker
    assert worker is not None

    async def difference() -> int:
        async with talking(make()) as conversation:
            context_id = await conversation.reply(*PIECES)
            await conversation.play(context_id, 1.6)
            committed = await conversation.interrupt()
            assert committed and TEXT.startswith(committed)
            heard_samples = conversation.played_samples(context_id) - HEARD_SAMPLES
            began = sum(word.start_sample < heard_samples for word in words)
            await until(lambda: not worker.rows_used, "the row is free")
            await conversation.reply("Yes.")
            assert await conversation.spoken() == "Yes."
            assert not conversation.errors
            return len(committed.split()) - began

    assert abs(await undisturbed(difference, holds=lambda words: abs(words) <= 1)) <= 1
