"""A Pipecat turn whose server context broke off resumes: each word is committed once."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from pipecat.frames.frames import ErrorFrame, TTSAudioRawFrame, TTSUpdateSettingsFrame
from pipecat.services.tts_service import TextAggregationMode
from pipecat.utils.errors import ErrorCategory

from testbed.pipecat_conversation import ENGLISH, Conversation, is_exact_part, talking
from testbed.proxy import Router, routing
from testbed.scripted_server import LOSES_ITS_TEXT, Script, ScriptedServer
from testbed.server_process import serving
from testbed.servers import StartServer, close_sockets, silent
from testbed.waiting import PATIENCE_S, undisturbed, until
from voiceagent_tts.adapters.pipecat import VoiceAgentTTSService
from voiceagent_tts.client import TTSClient
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.protocol.client_connection import ClientAudio, ClientEvent
from voiceagent_tts.protocol.messages import DoneMessage
from voiceagent_tts.server.serve import RunningServer

COUNTING = "One, two, three, four, five. Six, seven, eight, nine, ten."


def service(url: str, **options: Any) -> VoiceAgentTTSService:
    """A service for `url` whose server runs only a little ahead of playback."""
    options = {"settings": ENGLISH, "response_timeout_s": 5.0, "max_lead_s": 0.5} | options
    return VoiceAgentTTSService(url=url, **options)


@contextlib.asynccontextmanager
async def on_a_line(
    server: RunningServer, **options: Any
) -> AsyncIterator[tuple[Conversation, Router]]:
    """A conversation whose connection to the server can fail."""
    async with (
        routing(server.websocket_url) as (line, url),
        talking(service(url, **options)) as conversation,
    ):
        yield conversation, line


async def length_s(server: RunningServer, text: str) -> float:
    """Duration of `text` without failures."""
    async with TTSClient(server.websocket_url) as client:
        events = client.say(text, language="en", voice="default", max_lead_s=0.0)
        sizes = [len(event.pcm) async for event in events if isinstance(event, ClientAudio)]
    return sum(sizes) / BYTES_PER_SAMPLE / SAMPLE_RATE_HZ


def played_s(conversation: Conversation, context_id: str) -> float:
    """Played seconds of a turn."""
    return conversation.played_samples(context_id) / SAMPLE_RATE_HZ


async def lose(conversation: Conversation, line: Router) -> None:
    """Take the line down, and wait until the service has failed to reconnect."""
    line.go_down()
    await until(lambda: bool(conversation.errors), "the outage is noticed")


def words_spoken(conversation: Conversation) -> list[str]:
    """The words that the server has spoken: Pipecat commits the end of a text without them."""
    return [each.word.text for words in conversation.words.values() for each in words]


def turn_errors(conversation: Conversation) -> list[str]:
    """Error codes of failed turns, without the errors of the connection."""
    codes = [error.error.partition(":")[0] for error in conversation.errors]
    return [code for code in codes if code in set(ErrorCode)]


async def test_a_server_lost_before_sound_says_it_all(start_server: StartServer) -> None:
    """A turn without audio is spoken on the next connection."""
    server = await start_server()
    whole_s = await length_s(server, COUNTING)
    async with talking(service(server.websocket_url)) as conversation:
        with silent(server):
            context_id = await conversation.reply(COUNTING)
            await until(lambda: server.state.synthesizer.contexts_active == 1, "a context is open")
            assert not conversation.count(TTSAudioRawFrame)
            close_sockets(server)
        assert await conversation.spoken() == COUNTING
        await conversation.played_out()
        assert not conversation.errors
        assert played_s(conversation, context_id) == pytest.approx(whole_s, abs=0.3)


async def test_a_server_lost_in_mid_turn_goes_on_where_it_broke_off(server: RunningServer) -> None:
    """Each word is heard once and committed once, and no error is reported."""
    whole_s = await length_s(server, COUNTING)
    async with talking(service(server.websocket_url)) as conversation:
        context_id = await conversation.reply(COUNTING)
        await conversation.play(context_id, 1.2)
        close_sockets(server)
        assert await conversation.spoken() == COUNTING
        await conversation.played_out()
        assert not conversation.errors
        assert abs(played_s(conversation, context_id) - whole_s) < 0.8  # one word is started again


async def test_a_server_that_is_killed_and_restarted_in_mid_turn_goes_on(free_port: int) -> None:
    """A process that takes seconds to start speaks the rest while the listener has audio left."""
    text = f"{COUNTING} {COUNTING} {COUNTING}"
    with contextlib.ExitStack() as servers:
        first = servers.enter_context(serving(port=str(free_port)))
        async with talking(service(first.websocket_url, max_lead_s=None)) as conversation:
            context_id = await conversation.reply(text)
            await conversation.play(context_id, 1.2)
            first.process.kill()
            await asyncio.to_thread(first.process.wait)
            restarted = serving(port=str(free_port))
            await asyncio.to_thread(servers.enter_context, restarted)
            assert await conversation.spoken() == text
            assert not turn_errors(conversation)


async def test_what_was_heard_after_a_failure_is_committed(server: RunningServer) -> None:
    """Words of the resuming context are timed by the audio of the whole turn."""

    async def cut() -> tuple[str, str]:
        async with talking(service(server.websocket_url)) as conversation:
            context_id = await conversation.reply(COUNTING)
            await conversation.play(context_id, 1.0)
            close_sockets(server)
            await conversation.play(context_id, 3.1)
            texts = await conversation.cut(context_id, COUNTING)
            await until(lambda: not server.state.synthesizer.contexts_active, "the row is free")
            return texts

    committed, heard = await undisturbed(cut, holds=is_exact_part(COUNTING))
    assert committed == heard
    assert "five" in committed


async def test_audio_whose_words_are_not_known_yet_is_not_repeated(
    start_server: StartServer,
) -> None:
    """If words arrive just ahead of playback, the turn resumes near the end of its audio."""
    server = await start_server(throttle={"without_words": True}, max_lead_s=2.5, aligner="online")
    whole_s = await length_s(server, COUNTING)
    async with talking(service(server.websocket_url, max_lead_s=None)) as conversation:
        context_id = await conversation.reply(COUNTING)
        await conversation.play(context_id, 1.0)
        close_sockets(server)
        assert await conversation.spoken() == COUNTING
        await conversation.played_out()
        assert -0.8 < played_s(conversation, context_id) - whole_s < 1.6


async def test_words_that_were_noise_are_not_in_the_history() -> None:
    """A model that loses its text fails the turn, after one more try, and nothing was heard."""
    async with (
        ScriptedServer(LOSES_ITS_TEXT).running() as server,
        talking(service(server.addresses["ws"])) as conversation,
    ):
        await conversation.reply("OK")
        assert await conversation.spoken() == "OK", "it sounded as if it were speech"
        await until(lambda: not conversation.committed, "it is taken back")
        assert turn_errors(conversation) == [ErrorCode.TEXT_LOST]
        assert conversation.errors[0].category is ErrorCategory.SERVER


async def test_an_engine_that_dies_at_one_word_is_given_up(start_server: StartServer) -> None:
    """Audio without another complete word does not count as progress."""
    server = await start_server(throttle={"crash_after_s": 0.08})
    async with talking(service(server.websocket_url)) as conversation:
        context_id = await conversation.reply(COUNTING)
        committed = await conversation.spoken()
        await conversation.played_out()
        assert committed == conversation.heard(context_id, COUNTING) == "One,"
        assert turn_errors(conversation) == [ErrorCode.ENGINE_ERROR]
        assert conversation.errors[0].category is ErrorCategory.SERVER
        assert conversation.tts.is_usable


async def test_what_a_dead_server_never_spoke_is_not_committed(server: RunningServer) -> None:
    """A turn that cannot resume ends with the words that were heard, and one error."""

    async def lose_it() -> tuple[str, str]:
        async with on_a_line(server) as (conversation, line):
            context_id = await conversation.reply(COUNTING)
            await conversation.play(context_id, 1.2)
            line.go_down()
            committed = await conversation.spoken()
            await conversation.played_out()
            heard = conversation.heard(context_id, COUNTING)
            assert turn_errors(conversation) == [ErrorCode.CONNECTION_LOST]
            line.come_up()
            await until(lambda: len(server.state.sessions) == 1, "the service is connected")
            await conversation.reply("Yes, I can.")
            assert await conversation.spoken() == "Yes, I can."
        await until(lambda: not server.state.sessions, "the service has gone")
        return committed, heard

    committed, heard = await undisturbed(lose_it, holds=is_exact_part(COUNTING))
    assert committed == heard
    assert committed and committed != COUNTING


async def test_an_interruption_during_an_outage_ends_the_turn(server: RunningServer) -> None:
    """An interrupted turn is not spoken or committed when the server is back."""

    async def interrupt() -> tuple[str, str]:
        async with on_a_line(server) as (conversation, line):
            context_id = await conversation.reply(COUNTING)
            await conversation.play(context_id, 1.2)
            await lose(conversation, line)
            committed = await conversation.interrupt()
            heard = conversation.heard(context_id, COUNTING)
            sounds = conversation.count(TTSAudioRawFrame)
            line.come_up()
            await until(lambda: len(server.state.sessions) == 1, "the service is connected")
            await conversation.reply("Yes, I can.")
            assert await conversation.spoken() == "Yes, I can."
            assert conversation.committed == [committed, "Yes, I can."]
            frames = [f for f in conversation.frames if isinstance(f, TTSAudioRawFrame)]
            assert all(frame.context_id != context_id for frame in frames[sounds:])
            assert not turn_errors(conversation)
        await until(lambda: not server.state.sessions, "the service has gone")
        return committed, heard

    committed, heard = await undisturbed(interrupt, holds=is_exact_part(COUNTING))
    assert committed == heard != ""


@pytest.mark.parametrize("before", ["One, two, three. ", ""])
async def test_text_that_comes_during_an_outage_is_spoken(
    server: RunningServer, before: str
) -> None:
    """Text that the LLM writes during an outage is spoken after it."""
    after = "Four, five, six."
    async with on_a_line(server) as (conversation, line):
        if before:
            context_id = await conversation.begin(before)
            await conversation.play(context_id, 0.5)
        await lose(conversation, line)
        if before:
            await conversation.append(after)
        else:
            await conversation.begin(after)
        await conversation.end()
        line.come_up()
        assert await conversation.spoken() == before + after
        assert not turn_errors(conversation)


async def test_a_new_voice_during_an_outage_loses_no_word(server: RunningServer) -> None:
    """Text before the change keeps the old voice; text after it has the new voice."""
    async with on_a_line(server) as (conversation, line):
        first = await conversation.begin("One, two, three. ")
        await conversation.play(first, 0.5)
        await lose(conversation, line)
        delta = VoiceAgentTTSService.Settings(voice="en-gb+f3")
        await conversation.push(TTSUpdateSettingsFrame(delta=delta))
        await conversation.append("Four, five.")
        await conversation.end()
        line.come_up()
        assert await conversation.spoken() == "One, two, three. Four, five."
        played = conversation.transport.utterances  # after a standstill, later than the words
        await until(lambda: len(played) == 2, "both voices")
        assert played[0].context_id == first
        assert not turn_errors(conversation)


async def test_an_end_that_comes_late_overtakes_no_word(server: RunningServer) -> None:
    """A transport that starts early moves later frames forward, but not before the last word."""
    async with on_a_line(server) as (conversation, line):
        first = await conversation.begin("One, two, three. ")
        await conversation.play(first, 0.5)
        await lose(conversation, line)
        sounds = [frame for frame in conversation.frames if isinstance(frame, TTSAudioRawFrame)]
        left_s = sum(len(sound.audio) for sound in sounds) / BYTES_PER_SAMPLE / SAMPLE_RATE_HZ
        # Just before the loudspeaker runs dry; it plays whole chunks of 40 ms.
        await conversation.play(first, left_s - 0.06)
        line.come_up()
        delta = VoiceAgentTTSService.Settings(voice="en-gb+f3")
        await conversation.push(TTSUpdateSettingsFrame(delta=delta))
        await conversation.append("Four, five, six. ")
        second = await conversation.begun()
        await conversation.play(second, 0.1)
        await conversation.end()
        assert await conversation.spoken() == "One, two, three. Four, five, six."


async def test_a_connection_that_is_lost_in_silence_is_replaced(server: RunningServer) -> None:
    """A router drops the connection without a sign, and the turn still resumes."""
    async with on_a_line(server, response_timeout_s=2.0) as (conversation, router):
        context_id = await conversation.reply(COUNTING)
        await conversation.play(context_id, 0.5)
        router.forget()
        assert await conversation.spoken() == COUNTING
        assert router.accepted == 2
        assert not conversation.errors


async def test_a_silent_server_is_noticed_while_the_model_writes() -> None:
    """Text that goes out is no answer, and does not put the end of the server's time off."""

    async def write(conversation: Conversation) -> None:
        await conversation.begin("One, two. ")
        while True:
            await conversation.append("Three, four. ")
            await asyncio.sleep(0.02)

    async with (
        ScriptedServer(Script((), end_s=PATIENCE_S)).running() as server,
        talking(service(server.addresses["ws"], response_timeout_s=0.3)) as conversation,
    ):
        writing = asyncio.create_task(write(conversation))
        await conversation.until(ErrorFrame)
        writing.cancel()
        assert turn_errors(conversation) == [ErrorCode.ENGINE_ERROR]
        assert conversation.errors[0].category is ErrorCategory.SERVER
        assert conversation.tts.is_usable and not conversation.committed


@pytest.mark.parametrize("mode", list(TextAggregationMode))
async def test_the_rest_of_an_idle_turn_is_spoken(
    start_server: StartServer, mode: TextAggregationMode
) -> None:
    """No word is lost if the LLM pauses for longer than the server waits for text."""
    server = await start_server()
    synthesizer = server.state.synthesizer
    synthesizer.limits = replace(synthesizer.limits, context_idle_s=0.5)
    tts = service(server.websocket_url, text_aggregation_mode=mode)
    async with talking(tts) as conversation:
        await conversation.begin("One, two. ")
        await conversation.played_out()
        await until(lambda: not server.state.synthesizer.contexts_active, "the context has ended")
        await conversation.append("Three, four.")
        await conversation.end()
        assert await conversation.spoken() == "One, two. Three, four."
        assert words_spoken(conversation) == ["One,", "two.", "Three,", "four."]
        assert not conversation.errors


async def test_text_behind_an_end_that_is_on_its_way_is_spoken(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Text may come when the server's context has ended, and a busy program has not read that."""
    server = await start_server()
    synthesizer = server.state.synthesizer
    synthesizer.limits = replace(synthesizer.limits, context_idle_s=0.2)
    tts, is_over, go_on = service(server.websocket_url), asyncio.Event(), asyncio.Event()
    receive = tts._receive_event

    async def receive_late(event: ClientEvent) -> None:
        if isinstance(event, DoneMessage) and not go_on.is_set():
            is_over.set()
            await go_on.wait()
        await receive(event)

    monkeypatch.setattr(tts, "_receive_event", receive_late)
    async with talking(tts) as conversation:
        await conversation.begin("One, two. ")
        await is_over.wait()
        await conversation.append("Three, four.")
        await conversation.end()
        await until(lambda: "four" in next(iter(tts._turns.values())).text, "the text is there")
        go_on.set()
        assert await conversation.spoken() == "One, two. Three, four."
        assert words_spoken(conversation) == ["One,", "two.", "Three,", "four."]
        assert not conversation.errors
