"""Group 16 of the acceptance list: plugins for other services, by URL, on real sessions.

The tests allow for the limits of these plugins: those for HTTP have no word times, the one for
Cartesia keeps its socket open after a barge-in until the next reply, and none adapts its word times
to LiveKit's clock, so that a history may be two words off. The one for ElevenLabs keeps the last
word until its turn ends, and shows no reason of an error.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

import aiohttp
import pytest
from livekit.agents import APIConnectOptions, tts
from livekit.agents.types import USERDATA_TIMED_TRANSCRIPT, TimedString

from testbed.listening import words_of
from testbed.livekit_conversation import check_frames, seconds, talking, tokens
from testbed.server_process import ServerProcess
from testbed.servers import StartServer
from testbed.waiting import until
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.server.serve import RunningServer

SHORT = "It costs $25, I think."
TEXT = "Of course, I can help you with that. Your order left on Tuesday, at nine."
WITH_WORDS = ("baseten", "cartesia", "elevenlabs")
ALL = (*WITH_WORDS, "openai", "simplismart")
AT_24_KHZ = {"elevenlabs": {"encoding": "pcm_24000"}}
"""Options where the default is another rate: ElevenLabs' plugin asks for MP3 at 22.05 kHz."""

MakeStock = Callable[..., tts.TTS]


@pytest.fixture
async def make_stock() -> AsyncIterator[MakeStock]:
    """Return a function that makes stock plugins for a server; sessions close their plugins."""
    # Imported by the tests that use them: they load a thousand modules.
    from livekit.plugins import baseten, cartesia, elevenlabs, openai, simplismart

    async with aiohttp.ClientSession() as session:

        def make(name: str, server: RunningServer | ServerProcess, **options: Any) -> tts.TTS:
            common: dict[str, Any] = {"api_key": "none", "http_session": session}
            match name:
                case "baseten":
                    url = f"ws{server.url.removeprefix('http')}/v1/audio/speech/stream"
                    speaking = {"voice": "default", "language": "English", "word_timestamps": True}
                    return baseten.TTS(
                        model="qwen3-tts", model_endpoint=url, **common | speaking | options
                    )
                case "cartesia":  # its default is a voice of Cartesia's library
                    return cartesia.TTS(base_url=server.url, **common | options)
                case "elevenlabs":  # whose default is a voice of its library, too
                    if "voice" in options:
                        options["voice_id"] = options.pop("voice")
                    url = f"{server.url}/livekit/v1"
                    return elevenlabs.TTS(base_url=url, **common | options)
                case "openai":
                    return openai.TTS(
                        base_url=f"{server.url}/v1",
                        api_key="none",
                        response_format="pcm",
                        **options,
                    )
                case _:
                    url = f"{server.url}/v1/audio/speech"
                    voice = {"model": "qwen-tts", "voice": "default"}
                    return simplismart.TTS(base_url=url, **common | voice | options)

        yield make


def rows_used(server: RunningServer) -> int:
    """Rows of the engine that are in use."""
    worker = server.state.synthesizer.supervisors["espeak"].worker
    assert worker is not None
    return worker.rows_used


async def for_each(names: Iterable[str], talk: Callable[[str], Awaitable[None]]) -> None:
    """Run the conversations of several plugins concurrently, because they run in real time."""
    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(talk(name), name=name)


async def test_group_16_a_stock_plugin_speaks(server: RunningServer, make_stock: MakeStock) -> None:
    """A reply is heard and committed word for word, and so is the next one."""
    words = await words_of(server.websocket_url, SHORT, voice="default", language="en")
    last_start_s = words[-1].start_sample / SAMPLE_RATE_HZ

    async def talk(name: str) -> None:
        async with talking(make_stock(name, server)) as conversation:
            assert (await conversation.spoken(*tokens(SHORT))).rstrip() == SHORT, name
            assert conversation.loudspeaker.played_s > last_start_s, name
            assert (await conversation.spoken("Yes.")).rstrip() == "Yes.", name
            for silent in ("...", "![](http://x.y/z.png)"):
                assert await conversation.spoken(silent) == silent, name
            assert not conversation.errors, name

    await for_each(ALL, talk)
    await until(lambda: not rows_used(server), "no row is used")


@pytest.mark.parametrize("container", ["mp3", "opus", "aac", "flac", "wav", "pcm"])
async def test_group_16_openai_gets_audio_for_a_text_without_speech(
    served: ServerProcess, container: str
) -> None:
    """Without any, LiveKit would speak the text again and again, and then fail the reply."""
    from livekit.plugins import openai

    url = f"{served.url}/v1"
    voice = openai.TTS(base_url=url, api_key="none", response_format=container)
    once = APIConnectOptions(max_retry=0)
    async with voice.synthesize("\U0001f44d", conn_options=once) as stream:
        assert [event async for event in stream]
    await voice.aclose()


async def test_group_16_a_whole_text_may_be_synthesized(
    served: ServerProcess, make_stock: MakeStock
) -> None:
    """`synthesize` yields the frames that LiveKit's own tests require."""
    for name in ALL:
        voice = make_stock(name, served, **AT_24_KHZ.get(name, {}))
        async with voice.synthesize(SHORT) as stream:
            check_frames([event async for event in stream])
        await voice.aclose()


@pytest.mark.parametrize("names", [("baseten", "openai", "simplismart"), ("cartesia",)])
async def test_group_16_a_barge_in_frees_the_row(
    start_server: StartServer, make_stock: MakeStock, names: tuple[str, ...]
) -> None:
    """Only heard words are committed, the engine stops, and the next reply is complete."""
    server = await start_server(throttle={"rtf": 0.5})
    are_cut = asyncio.Barrier(len(names))

    async def talk(name: str) -> None:
        async with talking(make_stock(name, server)) as conversation:
            spoken = await conversation.cut(1.2, *tokens(f"{TEXT} {TEXT}"))
            assert spoken.strip() and TEXT.startswith(spoken.rstrip()), name
            async with are_cut:
                if name != "cartesia":  # it sends the cancel when the next reply starts
                    await until(lambda: not rows_used(server), f"the row of {name} is free")
            assert (await conversation.spoken("Yes.")).rstrip() == "Yes.", name
            await until(lambda: not rows_used(server), f"the row of {name} is free")
            assert not conversation.errors, name

    await for_each(names, talk)


async def test_group_16_words_are_there_before_they_are_heard(
    start_server: StartServer, make_stock: MakeStock
) -> None:
    """At RTF 0.9 every word arrives before its audio plays, with the time that our plugin gets."""
    server = await start_server(throttle={"rtf": 0.9})
    words = await words_of(server.websocket_url, SHORT, voice="default", language="en")

    async def talk(name: str) -> None:
        voice = make_stock(name, server, **AT_24_KHZ.get(name, {}))
        pieces: list[TimedString] = []
        sounded_s = 0.0
        async with voice.stream() as stream:
            for token in tokens(SHORT):
                stream.push_text(token)
            stream.end_input()
            async for event in stream:
                came = event.frame.userdata.get(USERDATA_TIMED_TRANSCRIPT, [])
                pieces += came
                is_held = name == "elevenlabs" and len(pieces) == len(words)  # its last word
                early = came[:-1] if is_held else came
                assert all(sounded_s <= seconds(piece.start_time) for piece in early), name
                sounded_s += event.frame.duration
        await voice.aclose()
        assert "".join(pieces).rstrip() == SHORT, name
        for piece, word in zip(pieces, words, strict=True):
            start_s = word.start_sample / SAMPLE_RATE_HZ
            assert seconds(piece.start_time) == pytest.approx(start_s, abs=0.03), name

    await for_each(WITH_WORDS, talk)


async def test_group_16_an_unknown_voice_fails_its_turn_only(
    served: ServerProcess, make_stock: MakeStock
) -> None:
    """The plugin raises an error that names the known voices; with one of them it speaks."""
    from livekit.plugins import baseten, cartesia, elevenlabs

    async def talk(name: str) -> None:
        voice = make_stock(name, served, voice="nobody")
        async with talking(voice) as conversation:
            assert await conversation.spoken("Yes.") == ""
            cause = conversation.errors[-1].error
            if isinstance(voice, elevenlabs.TTS):
                assert "voice_id_does_not_exist" in str(cause.__cause__)
                voice.update_options(voice_id="default")
            else:
                assert "nobody" in str(cause)
                assert isinstance(voice, baseten.TTS | cartesia.TTS)
                voice.update_options(voice="default")
            assert (await conversation.spoken("Yes.")).rstrip() == "Yes."

    await for_each(WITH_WORDS, talk)


async def test_group_16_baseten_lists_the_voices(server: RunningServer) -> None:
    """The plugin's helper lists the voices from the server's address."""
    from livekit.plugins import baseten

    url = f"ws{server.url.removeprefix('http')}/v1/audio/speech/stream"
    answer = await baseten.list_voices(model_endpoint=url, api_key="none")
    assert answer["voices"] == server.state.synthesizer.voices.names()


async def test_group_16_a_stock_plugin_needs_the_key(
    start_server: StartServer, make_stock: MakeStock
) -> None:
    """A wrong key is refused at the handshake; the right key is accepted as the plugin sends it."""
    server = await start_server(api_keys=("right",))

    async def talk(name: str) -> None:
        async with talking(make_stock(name, server, api_key="wrong")) as conversation:
            assert await conversation.spoken("Yes.") == ""
            assert "401" in str(conversation.errors[-1].error)
        async with talking(make_stock(name, server, api_key="right")) as conversation:
            assert (await conversation.spoken("Yes.")).rstrip() == "Yes."

    await for_each(WITH_WORDS, talk)
