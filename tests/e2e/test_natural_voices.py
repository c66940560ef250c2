"""hibari, Kokoro and Pocket TTS behind the real server, over the real wire.

The weights of hibari and Kokoro are the published ones, those of Pocket TTS are random. Each server
is started once, for all of its tests.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from testbed.kokoro import FOLDER, kokoro_files
from testbed.missing import skipped_if_missing
from testbed.servers import worker_of
from testbed.waiting import until
from voiceagent_tts.client import TTSClient
from voiceagent_tts.config import Settings
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ, WordTimestamp, ms_to_samples
from voiceagent_tts.errors import ErrorCode, InvalidRequestError, VoiceAgentError
from voiceagent_tts.kokoro.published import PUBLISHED
from voiceagent_tts.protocol.client_connection import ClientAudio
from voiceagent_tts.protocol.messages import WarningMessage
from voiceagent_tts.server.serve import RunningServer, running
from voiceagent_tts.text.words import split_words

TEXT = "Total: $4.20, now. Shall I send it?"
GERMAN = "Guten Tag, wie geht es Ihnen heute?"
SOUND = Path(__file__).parents[1] / "reference" / "reference.wav"

pytestmark = pytest.mark.asyncio(loop_scope="module")
KOKORO = pytest.param("kokoro", marks=pytest.mark.kokoro)

Start = Callable[[str], Awaitable[RunningServer]]


def only(*engines: Any) -> pytest.MarkDecorator:
    """The test is of these engines."""
    return pytest.mark.parametrize("engine", engines, indirect=True)


@pytest.fixture(params=["hibari", KOKORO, "pocket"])
def engine(request: pytest.FixtureRequest) -> str:
    """Name of the engine."""
    return request.param


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def servers(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Start]:
    """Starts a server of an engine, which probes its voice once, or returns the one that runs."""
    started: dict[str, RunningServer] = {}
    async with AsyncExitStack() as stack:

        async def start(engine: str) -> RunningServer:
            if engine not in started:
                with ExitStack() as during_start:
                    patch = during_start.enter_context(pytest.MonkeyPatch.context())
                    settings = settings_of(engine, tmp_path_factory, patch)
                    started[engine] = await stack.enter_async_context(running(settings))
            return started[engine]

        yield start


def settings_of(
    engine: str, folders: pytest.TempPathFactory, patch: pytest.MonkeyPatch
) -> Settings:
    """Settings of a server; `patch` changes the environment of its workers."""
    settings: dict[str, Any] = {}
    if engine == "kokoro":
        with skipped_if_missing():
            kokoro_files()
        settings = {"models": (str(FOLDER),)}
    elif engine == "pocket":
        # Imported when used: it brings PyTorch.
        from testbed.pocket import SMALL_MODEL, PocketHome

        home = folders.mktemp("pocket")
        PocketHome(home, is_short=False).store()  # it speaks 0.4 s a word
        patch.setenv("HF_HOME", str(home))
        patch.setenv("HF_HUB_OFFLINE", "1")
        settings = {"models": (SMALL_MODEL,), "voices_folder": home / "voices"}
    return Settings(port=0, engine=engine, rows=3, watchdog_s=3600.0, cache_mb=0, **settings)  # type: ignore[arg-type]


@pytest_asyncio.fixture(loop_scope="module")
async def server(engine: str, servers: Start) -> RunningServer:
    """The server of the engine."""
    return await servers(engine)


@pytest_asyncio.fixture(loop_scope="module")
async def client(server: RunningServer) -> AsyncIterator[TTSClient]:
    """A client of that server; every row is free before and after the test."""
    await until(lambda: rows_used(server) == 0, "the start-up probe has gone")
    async with TTSClient(server.websocket_url) as connected:
        yield connected
    await until(lambda: rows_used(server) == 0, "every row is free")


def rows_used(server: RunningServer) -> int:
    """Rows in use."""
    return server.state.synthesizer.rows_used


async def spoken(client: TTSClient, text: str, **options: Any) -> list:
    """All events of a text."""
    return [event async for event in client.say(text, max_lead_s=0, **options)]


def warnings_in(events: list) -> list[str]:
    """The codes of the warnings."""
    return [event.code for event in events if isinstance(event, WarningMessage)]


def pcm_of(events: list) -> bytes:
    """The audio of a context."""
    return b"".join(event.pcm for event in events if isinstance(event, ClientAudio))


async def test_every_word_comes_once_with_its_time(
    client: TTSClient, server: RunningServer
) -> None:
    """The words are the client's, also where many are said for one; a voice's own come in time."""
    is_native = "pocket" not in server.state.synthesizer.supervisors
    words: list[WordTimestamp] = []
    samples = 0
    async for event in client.say(TEXT, language="en", max_lead_s=0):
        if isinstance(event, ClientAudio):
            samples += len(event.pcm) // BYTES_PER_SAMPLE
        elif isinstance(event, WordTimestamp):
            words.append(event)
            if is_native:  # the wire has milliseconds
                assert event.start_sample + ms_to_samples(1) > samples and event.is_exact
    assert [word.word for word in words] == split_words(TEXT)
    starts = [word.start_sample for word in words]
    assert starts == sorted(starts) and starts[-1] <= samples
    if is_native:
        amount = words[1]
        assert amount.end_sample is not None and words[-1].end_sample is not None
        assert amount.end_sample - amount.start_sample > 0.6 * SAMPLE_RATE_HZ  # five words
        assert words[-1].end_sample <= samples


async def test_an_interruption_splits_the_text_and_frees_the_row(
    client: TTSClient, server: RunningServer
) -> None:
    """The cut is verbatim, and the next context needs no other row."""
    context = await client.open(language="en", max_lead_s=0.2)
    async with context:
        await context.send_text(TEXT * 3)
        await context.end()
        async for event in context:
            if isinstance(event, ClientAudio):
                break
        cut = await context.cancel(played_ms=50)
    assert cut.text_spoken + cut.text_remaining == TEXT * 3
    assert cut.text_remaining
    await until(lambda: rows_used(server) == 0, "the row is free")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"voice": "nobody"}, ErrorCode.INVALID_VOICE),
        ({"language": "klingon"}, ErrorCode.INVALID_LANGUAGE),
        ({"text_feeding": "token"}, ErrorCode.INVALID_PARAM),
    ],
)
async def test_what_it_cannot_speak_is_refused(
    client: TTSClient, options: dict[str, str], code: ErrorCode
) -> None:
    """At `open`, with a stable code."""
    with pytest.raises(InvalidRequestError) as caught:
        await spoken(client, "Hello.", **options)
    assert caught.value.code is code


# hibari, with espeak-ng beside it


@only("hibari")
@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("مرحبا كيف حالك؟ أنا بخير.", {}),
        ("مرحبا كيف حالك؟", {"voice": "heart", "language": "en"}),
        ("你好，世界。", {"voice": "heart", "language": "en"}),
        ("สวัสดีครับ", {}),
    ],
)
async def test_letters_that_it_has_no_sounds_for_are_refused(
    client: TTSClient, text: str, options: dict[str, str]
) -> None:
    """Silence would count as heard. A word of such letters inside of speech has no length."""
    with pytest.raises(InvalidRequestError) as caught:
        await spoken(client, text, **options)
    assert caught.value.code is ErrorCode.TEXT_UNSPEAKABLE
    if options:
        events = await spoken(client, f"Say {text.split()[0]} to Anna.", **options)
        said, foreign, *_ = [event for event in events if isinstance(event, WordTimestamp)]
        assert said.start_sample < foreign.start_sample == foreign.end_sample


@only("hibari")
@pytest.mark.parametrize(
    ("text", "options", "chosen"),
    [
        ("Hello there.", {}, "hibari"),
        (GERMAN, {}, "espeak"),
        (GERMAN, {"voice": "nova"}, "espeak"),
        ("Hello there.", {"voice": "f3"}, "espeak"),
    ],
)
async def test_an_engine_is_chosen_by_voice_and_language(
    client: TTSClient, server: RunningServer, text: str, options: dict[str, str], chosen: str
) -> None:
    """Without a language by that of its first text; the words are native in each case."""
    worker = worker_of(server, chosen)
    before = worker.stats.audio_samples
    events = await spoken(client, text, **options)
    words = [event for event in events if isinstance(event, WordTimestamp)]
    assert [word.word for word in words] == split_words(text)
    assert all(word.is_exact for word in words)
    assert not warnings_in(events)
    await until(lambda: worker.stats.audio_samples > before, f"{chosen} reports its audio")


@pytest.mark.parametrize(
    ("engine", "voice", "text"),
    [
        ("hibari", "heart", GERMAN),
        ("hibari", "nova", f"Hello there. {GERMAN} {GERMAN}"),
        pytest.param("kokoro", "af_heart", "Guten Tag, wie geht es?", marks=pytest.mark.kokoro),
    ],
    indirect=["engine"],
)
async def test_another_language_than_that_of_the_voice(
    client: TTSClient, voice: str, text: str
) -> None:
    """Named at `open`, it is refused; detected in the text, it is read, and the client is told."""
    if voice != "nova":
        with pytest.raises(InvalidRequestError, match=voice) as caught:
            await spoken(client, text, voice=voice, language="de")
        assert caught.value.code is ErrorCode.INVALID_LANGUAGE
    assert warnings_in(await spoken(client, text, voice=voice)) == ["language_unavailable"]


# Kokoro


@only(KOKORO)
@pytest.mark.parametrize(
    ("text", "options", "voice"),
    [
        ("Hi.", {"language": "en-GB", "voice": "onyx"}, "bm_george"),
        ("Hola.", {"language": "es"}, "ef_dora"),
        ("Buongiorno, come stai oggi?", {}, "if_sara"),
    ],
)
async def test_a_voice_is_chosen_by_language_and_gender(
    client: TTSClient, text: str, options: dict[str, str], voice: str
) -> None:
    """It sounds as with the voice of its language that it stands for, which is not named."""
    found, expected = [
        await spoken(client, text, **wanted) for wanted in (options, {"voice": voice})
    ]
    assert not warnings_in(found)
    assert pcm_of(found) == pcm_of(expected) != b""


@only(KOKORO)
@pytest.mark.parametrize("voice", ["jf_alpha", "zf_xiaobei"])
async def test_a_voice_that_nothing_here_reads_is_refused(client: TTSClient, voice: str) -> None:
    """With the sentence that a client of any unknown voice gets; the language itself is spoken."""
    with pytest.raises(InvalidRequestError, match=f"{voice}.*try") as caught:
        await spoken(client, "はい。", voice=voice)
    assert caught.value.code is ErrorCode.INVALID_VOICE
    assert pcm_of(await spoken(client, "はい。", language="ja"))  # by espeak-ng


@only(KOKORO)
async def test_the_list_says_what_each_voice_speaks(server: RunningServer) -> None:
    """A voice has the languages that it is made for, an alias those of all."""
    async with httpx.AsyncClient(base_url=server.url) as http:
        listed = (await http.get("/v1/audio/voices")).json()["voices"]
    languages = {voice["id"]: voice["languages"] for voice in listed}
    assert languages["ff_siwis"] == ["fr"] and languages["bf_emma"] == ["en", "en-gb"]
    assert {"en", "fr", "hi"} <= set(languages["nova"])


@pytest.mark.kokoro
async def test_one_server_speaks_with_three_engines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each context goes to the first engine that speaks its language, or that has its voice."""
    with skipped_if_missing():
        files = kokoro_files()
    folder = tmp_path / "hub" / f"models--{PUBLISHED.repo.replace('/', '--')}" / "snapshots"
    stored = folder / (PUBLISHED.revision or "")
    names = {"onnx/model_quantized.onnx": files.model}
    names |= {f"voices/{file.name}": file for file in files.voices.glob("[bei]f_*.bin")}
    for name, file in names.items():
        (stored / name).parent.mkdir(parents=True, exist_ok=True)
        (stored / name).symlink_to(file)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    settings = Settings(port=0, engine="hibari", beside="kokoro", rows=3, watchdog_s=3600.0)
    async with running(settings) as server, TTSClient(server.websocket_url) as client:
        await until(lambda: rows_used(server) == 0, "the start-up probe has gone")
        for engine, text, options in (
            ("hibari", "Hello there.", {}),
            ("kokoro", "Buenos días, ¿cómo está usted?", {}),
            ("kokoro", "Hello.", {"voice": "bf_emma"}),
            ("espeak", GERMAN, {}),
        ):
            worker = worker_of(server, engine)
            before = worker.stats.audio_samples
            assert not warnings_in(await spoken(client, text, **options)), text
            await until(lambda: worker.stats.audio_samples > before, f"{engine} reports its audio")  # noqa: B023


# Pocket TTS


@only("pocket")
async def test_a_voice_that_was_never_downloaded_is_said(client: TTSClient) -> None:
    """The catalogue has it, this machine has not, and there is no network."""
    with pytest.raises(VoiceAgentError, match="'george' .* is not on this machine") as caught:
        await spoken(client, "Hello.", voice="george", language="en")
    assert caught.value.code is ErrorCode.INVALID_VOICE


@only("pocket")
async def test_voices_are_listed_with_their_languages(server: RunningServer) -> None:
    """And it says that the server clones."""
    async with httpx.AsyncClient(base_url=server.url) as http:
        listed = (await http.get("/v1/audio/voices")).json()
    voices = {voice["id"]: voice for voice in listed["voices"]}
    assert listed["voices"][0]["id"] == "alba" and listed["can_clone"]
    assert (voices["lola"]["language"], voices["lola"]["gender"]) == ("es", "female")
    assert voices["alba"]["languages"] == ["en"]
    assert voices["nova"]["kind"] == "alias"


@only("pocket")
@pytest.mark.thorough
async def test_a_recording_becomes_a_voice_over_http(
    client: TTSClient, server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is spoken, downloaded, stored again under another name, and removed."""
    monkeypatch.setenv("HF_HOME", str(server.state.settings.voices_folder.parent))  # of the cloner
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    async with httpx.AsyncClient(base_url=server.url, timeout=120) as http:
        fields = {"name": "Ann", "consent": "Ann agreed on 3 May 2026."}
        upload = {"audio_sample": ("a.wav", SOUND.read_bytes())}
        added = await http.post("/v1/audio/voices", data=fields, files=upload)
        assert added.status_code == 201, added.text
        assert pcm_of(await spoken(client, "Hi.", voice="ann", language="en"))
        content = (await http.get("/v1/audio/voices/ann")).content
        fields["name"] = "Bo"
        stored = await http.post(
            "/v1/audio/voices", data=fields, files={"voice_file": ("b", content)}
        )
        assert stored.status_code == 201, stored.text
        refused = await http.post(
            "/v1/audio/voices", data=fields | {"name": "C"}, files={"voice_file": ("b", b"x")}
        )
        assert refused.json()["error"]["code"] == "invalid_voice"
        for name in ("ann", "bo"):
            assert (await http.delete(f"/v1/audio/voices/{name}")).status_code == 204
