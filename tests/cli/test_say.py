"""`voiceagent-tts say` and `voices`, as processes and in this one, against a real server."""

import asyncio
import io
import json
import re
import subprocess
import sys
import wave
from collections.abc import AsyncIterator
from ctypes.util import find_library
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import soundfile

from testbed.agent_text import agent_sentences
from testbed.command_line import (
    Command,
    CommandHere,
    FullDisk,
    check_ctrl_c,
    finished,
    start,
)
from testbed.server_process import ServerProcess
from testbed.servers import StartServer, worker_of
from voiceagent_tts.cli import say
from voiceagent_tts.server.serve import RunningServer
from voiceagent_tts.text.words import split_words

TEXT = "Hello there. How can I help you today?"
WORDS = TEXT.split()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.wav", ("WAV", "PCM_16")), ("a.flac", ("FLAC", "PCM_16")),
        ("a.OGG", ("OGG", "VORBIS")), ("a.mp3", ("MP3", "MPEG_LAYER_III")),
        ("a.opus", ("OGG", "OPUS")),
    ],
)  # fmt: skip
def test_say_writes_sound(
    name: str,
    kind: tuple[str, str],
    served: ServerProcess,
    command_here: CommandHere,
    tmp_path: Path,
) -> None:
    """A text becomes a mono file at 24 kHz in the format of its suffix; one line reports it."""
    outcome = command_here("say", TEXT, "-o", name, "--url", served.websocket_url, "--seed", "7")
    assert (outcome.status, outcome.output) == (0, "")
    assert re.fullmatch(rf"{name}: \d\.\d s of sound, {len(WORDS)} words\n", outcome.errors)
    information = soundfile.info(tmp_path / name)
    assert (information.format, information.subtype) == kind
    assert (information.samplerate, information.channels) == (24_000, 1)
    samples, _ = soundfile.read(tmp_path / name)
    assert information.duration > 1.0
    assert np.abs(samples).max() > 0.1


def test_say_prints_what_the_server_warns_of(
    served: ServerProcess, command_here: CommandHere
) -> None:
    """An instruction that has no effect is told, and the text is spoken."""
    argv = ("say", TEXT, "-o", "a.wav", "--instruct", "whisper", "--url", served.websocket_url)
    outcome = command_here(*argv)
    warning, report = outcome.errors.splitlines()
    assert outcome.status == 0
    assert warning.startswith("warning: this voice follows no instruction")
    assert report.startswith("a.wav: ")


async def test_say_starts_a_server_where_none_is_named(command: Command, tmp_path: Path) -> None:
    """Without --url, `say` starts a server of its own, whatever keys and settings files exist."""
    (tmp_path / "voiceagent-tts.toml").write_text('port = 1\napi_keys = ["a-key-of-another"]\n')
    outcome = await command(
        "say", TEXT, "-o", "a.wav", environment={"VOICEAGENT_TTS_HOST": "0.0.0.0"}
    )
    assert outcome.status == 0, outcome.errors
    assert soundfile.info(tmp_path / "a.wav").duration > 1.0


@pytest.mark.parametrize(("suffix", "mark", "header"), [("srt", ",", ""), ("vtt", ".", "WEBVTT")])
def test_say_writes_words_as_subtitles(
    suffix: str,
    mark: str,
    header: str,
    served: ServerProcess,
    command_here: CommandHere,
    tmp_path: Path,
) -> None:
    """Subtitles have one cue per sentence, without overlap, in the notation of each format."""
    name = f"a.{suffix}"
    outcome = command_here("say", TEXT, "--words", name, "--url", served.websocket_url)
    assert outcome.status == 0, outcome.errors
    content = (tmp_path / name).read_text()
    assert content.startswith(header)
    cues = re.findall(r"^(\S+) --> (\S+)\n(.*)$", content, re.MULTILINE)
    assert [text for _, _, text in cues] == ["Hello there.", "How can I help you today?"]
    times = [time for cue in cues for time in cue[:2]]
    assert all(re.fullmatch(rf"00:00:\d\d\{mark}\d{{3}}", time) for time in times)
    assert times == sorted(times)


async def test_a_file_has_the_times_that_were_found_at_the_end(
    start_server: StartServer, command: Command, tmp_path: Path
) -> None:
    """Where an aligner finds the words, the first of them leave the server by an estimate."""
    server = await start_server(throttle={"without_words": True}, aligner="online")
    argv = ("say", TEXT, "--words", "a.json", "--url", server.websocket_url)
    outcome = await command(*argv)
    assert outcome.status == 0, outcome.errors
    words = json.loads((tmp_path / "a.json").read_text())["words"]
    assert [word["word"] for word in words] == WORDS
    assert all(word["exact"] and word["end_s"] > word["start_s"] for word in words)


async def test_say_speaks_standard_input_as_it_comes(
    server: RunningServer, command: Command, tmp_path: Path
) -> None:
    """Text piped slowly, even split inside a character, is spoken while it is being written."""

    async def typed() -> AsyncIterator[bytes]:
        before = audio_samples(server)
        yield b"Hello there. "
        while audio_samples(server) == before:
            await asyncio.sleep(0.02)  # the worker reports its metrics once a second
        yield b"How can I help you, Andr"
        yield "é".encode()[:1]
        yield "é".encode()[1:] + b"?"

    argv = ("say", "-o", "a.wav", "--words", "a.json", "--url", server.websocket_url)
    outcome = await command(*argv, typed=typed())
    assert outcome.status == 0, outcome.errors
    words = json.loads((tmp_path / "a.json").read_text())["words"]
    spoken = [word["word"] for word in words]
    assert spoken == ["Hello", "there.", "How", "can", "I", "help", "you,", "André?"]


def audio_samples(server: RunningServer) -> int:
    worker = worker_of(server)
    return worker.stats.audio_samples


async def test_say_reads_a_file_on_standard_input(served: ServerProcess, tmp_path: Path) -> None:
    """A regular file on standard input, which cannot be polled, is read like a pipe."""
    (tmp_path / "text.txt").write_text(TEXT)
    argv = ("say", "--words", "a.json", "--url", served.websocket_url)
    with (tmp_path / "text.txt").open("rb") as text:
        process = await start(*argv, folder=tmp_path, stdin=text)
    outcome = await finished(process)
    assert outcome.status == 0, outcome.errors
    words = json.loads((tmp_path / "a.json").read_text())["words"]
    assert [word["word"] for word in words] == WORDS


async def test_a_text_of_any_length_is_spoken(
    start_server: StartServer, command: Command, tmp_path: Path
) -> None:
    """Text beyond the server's limit is held back until there is room, not refused."""
    server = await start_server(max_text_chars=2000)
    text = " ".join(islice(agent_sentences(2), 60))
    assert len(text) > 3 * 2000

    async def typed() -> AsyncIterator[bytes]:
        yield text.encode()

    argv = ("say", "--words", "a.json", "--url", server.websocket_url)
    outcome = await command(*argv, typed=typed())
    assert outcome.status == 0, outcome.errors
    words = json.loads((tmp_path / "a.json").read_text())["words"]
    assert [word["word"] for word in words] == [word.text for word in split_words(text)]


async def test_what_a_limit_cut_off_is_kept_and_said(
    start_server: StartServer, command: Command, tmp_path: Path
) -> None:
    """Speech beyond a context's limit ends early; the error says what to do."""
    server = await start_server(max_audio_s=1, max_text_chars=1000)
    text = " ".join(islice(agent_sentences(3), 40))  # most of it is never sent
    outcome = await command("say", text, "-o", "a.wav", "--url", server.websocket_url)
    assert outcome.status == 1
    assert "`voiceagent-tts batch` speaks longer texts" in outcome.errors
    assert soundfile.info(tmp_path / "a.wav").duration >= 1


@pytest.mark.parametrize("name", ["a.wav", "a.json"])
def test_a_full_disk_is_said_and_leaves_what_was_there(
    name: str, served: ServerProcess, command_here: CommandHere, tmp_path: Path, full_disk: FullDisk
) -> None:
    (tmp_path / name).write_text("older")
    option = "--output" if name == "a.wav" else "--words"
    argv = ("say", TEXT, option, name, "--url", served.websocket_url)
    with full_disk():
        outcome = command_here(*argv)
    assert outcome.status == 1
    assert outcome.errors == f"voiceagent-tts: {name}: cannot be written; File too large\n"
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "older"


async def test_an_error_ends_say_though_its_input_stays_open(
    served: ServerProcess, tmp_path: Path
) -> None:
    argv = ("say", "-o", "a.wav", "--voice", "nobody", "--url", served.websocket_url)
    process = await start(*argv, folder=tmp_path)
    outcome = await finished(process)
    assert outcome.status == 1
    assert outcome.errors.startswith("voiceagent-tts: expected the name of a voice, got 'nobody'")
    assert outcome.errors.count("\n") == 1


async def test_ctrl_c_ends_say_though_its_input_stays_open(
    server: RunningServer, tmp_path: Path
) -> None:
    argv = ("say", "-o", "a.wav", "--url", server.websocket_url)
    process = await start(*argv, folder=tmp_path)
    await check_ctrl_c(process, server)


MISTAKES = {
    "a folder": (["-o", "folder.wav"], "--output: expected a file; got the folder folder.wav"),
    "port": (["-o", "a.wav", "--url", "ws://127.0.0.1:99999"], "expected ws://host or wss://host"),
    "no unicode": (["\udcff", "-o", "a.wav"], "text: expected valid Unicode"),
    "suffix of sound": (
        ["-o", "a.mp4"],
        "--output: expected a file name with suffix .wav, .flac, .ogg",
    ),
    "suffix of words": (
        ["--words", "a.txt"],
        "--words: expected a file name with suffix .json, .srt",
    ),
    "folder": (["-o", "no/such/a.wav"], "--output: no/such does not exist or is not writable"),
    "no suffix": (["-o", "a"], "--output: expected a file name with suffix"),
    "nobody there": (
        ["-o", "a.wav", "--url", "ws://127.0.0.1:1"],
        "no server at 127.0.0.1:1; start one with `voiceagent-tts serve`",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_clear_line(
    mistake: str, command_here: CommandHere, tmp_path: Path
) -> None:
    (tmp_path / "folder.wav").mkdir()
    options, sentence = MISTAKES[mistake]
    outcome = command_here("say", *([] if options[0].startswith("\udcff") else [TEXT]), *options)
    assert (outcome.status, outcome.output) == (1, "")
    assert outcome.errors.startswith("voiceagent-tts: ")
    assert sentence in outcome.errors
    assert outcome.errors.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["folder.wav"]


@pytest.mark.parametrize("text", ["", "...", "😀 ... 😀", "— \n"])
def test_nothing_to_speak_is_said_and_no_mistake(
    text: str, served: ServerProcess, command_here: CommandHere, tmp_path: Path
) -> None:
    """The command ends at once, and writes no file in which nothing is heard."""
    outcome = command_here("say", text, "-o", "a.mp3", "--url", served.websocket_url)
    assert (outcome.status, outcome.output) == (0, "")
    assert outcome.errors == "nothing in the text is said; not written: a.mp3\n"
    outputs = ("-o", "-", "--words", "a.json")
    outcome = command_here("say", text, *outputs, "--url", served.websocket_url)
    assert (outcome.status, outcome.output) == (0, "")
    assert outcome.errors == "nothing in the text is said; not written: - and a.json\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("silence", [" ", "-", "😀", ". "])
def test_text_without_words_keeps_no_text_waiting(
    silence: str, served: ServerProcess, command_here: CommandHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of it than may wait at the server was sent piece by piece, each after five seconds."""
    monkeypatch.setattr(say, "_ROOM_WAIT_S", 3600.0)
    text = f"Hello. {silence * 12_000} Bye. And more."
    outcome = command_here("say", text, "-o", "a.wav", "--url", served.websocket_url)
    assert outcome.status == 0
    assert "a.wav: " in outcome.errors and " 4 words" in outcome.errors


def test_letters_without_a_sound_are_a_mistake(
    served: ServerProcess, command_here: CommandHere, tmp_path: Path
) -> None:
    """Digits that the voice cannot read are no silence that was asked for."""
    argv = ("say", "९८७", "--language", "en", "-o", "a.wav", "--url", served.websocket_url)
    outcome = command_here(*argv)
    assert (outcome.status, list(tmp_path.iterdir())) == (1, [])
    assert "expected letters or digits that this voice can speak" in outcome.errors


async def test_input_that_is_no_text_is_a_mistake(served: ServerProcess, command: Command) -> None:
    async def typed() -> AsyncIterator[bytes]:
        yield b"Hello \xff"

    outcome = await command("say", "-o", "a.wav", "--url", served.websocket_url, typed=typed())
    assert outcome.status == 1
    assert outcome.errors == "voiceagent-tts: standard input is not UTF-8: invalid start byte\n"


async def test_without_a_loudspeaker_say_asks_for_a_file(command: Command, tmp_path: Path) -> None:
    missing_card = tmp_path / "asound.conf"  # for machines that have a card
    missing_card.write_text("pcm.!default { type hw card 99 }\n")
    without_devices = {"PULSE_SERVER": "none", "ALSA_CONFIG_PATH": str(missing_card)}
    outcome = await command("say", TEXT, environment=without_devices)
    missing = "libportaudio2" if find_library("portaudio") is None else "no output device"
    assert outcome.status == 1
    assert missing in outcome.errors
    assert "--output say.wav" in outcome.errors
    insisting = await command("say", TEXT, "--play", "-o", "a.wav", environment=without_devices)
    assert (insisting.status, insisting.errors) == (1, outcome.errors)


async def test_a_key_opens_the_server(start_server: StartServer, command: Command) -> None:
    """The key in the environment is sent; without it the server's refusal is printed."""
    server = await start_server(api_keys=("secret",))
    argv = ("say", TEXT, "--words", "a.json", "--url", server.websocket_url)
    for refused in (
        await command(*argv),
        await command("voices", "list", "--url", server.websocket_url),
    ):
        assert refused.status == 1
        assert "HTTP 401: expected a valid key; set VOICEAGENT_TTS_API_KEY" in refused.errors
    by_variable = await command(*argv, environment={"VOICEAGENT_TTS_API_KEY": "secret"})
    assert by_variable.status == 0


@pytest.mark.parametrize("argv", [("say", TEXT, "-o", "a.wav"), ("voices", "list")])
async def test_the_environment_names_the_server(argv: tuple[str, ...], command: Command) -> None:
    """As for adapters and agents; an option on the command line has priority."""
    place = {"VOICEAGENT_TTS_URL": "ws://127.0.0.1:1"}
    assert "no server at 127.0.0.1:1" in (await command(*argv, environment=place)).errors
    nearer = await command(*argv, "--url", "ws://127.0.0.1:2", environment=place)
    assert "no server at 127.0.0.1:2" in nearer.errors


async def test_voices_are_asked_of_a_proxy(command_here: CommandHere) -> None:
    """The prefix of the proxy's path stays, as in the address of the WebSocket."""
    asked = asyncio.get_running_loop().create_future()

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set_result(await reader.readline())
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        url = f"ws://user:secret@127.0.0.1:{port}/voice/v1/tts/ws"
        outcome = await asyncio.to_thread(command_here, "voices", "list", "--url", url)
    assert await asked == b"GET /voice/v1/audio/voices HTTP/1.1\r\n"
    assert "secret" not in outcome.errors


def test_voices_are_listed_by_what_they_are(
    served: ServerProcess, command_here: CommandHere
) -> None:
    """Each line has name, language, gender and kind, and options select lines."""
    listed = "voices", "list", "--url", served.websocket_url
    outcome = command_here(*listed, "--gender", "female", "NOV")
    assert outcome.output.split() == ["nova", "any", "female", "preset"]
    outcome = command_here(*listed, "--language", "pt", "pt")
    assert {line.split()[1] for line in outcome.output.splitlines()} == {"pt", "pt-br", "pt-pt"}
    outcome = command_here(*listed, "nobody")
    assert (outcome.status, outcome.output) == (1, "")
    assert "voices matches" in outcome.errors


async def test_voices_of_a_language_come_before_timbres(
    start_server: StartServer, command: Command
) -> None:
    """First a voice made for it, then names that leave the choice to the server, then variants."""
    server = await start_server(engine="hibari")
    argv = "voices", "list", "--language", "de", "--url", server.websocket_url
    lines = (await command(*argv)).output.splitlines()
    names = [line.split()[0] for line in lines]
    assert lines[0].split() == ["de", "de", "-", "language"]
    assert {"default", "nova"} <= set(names) and "heart" not in names
    assert "any" in lines[names.index("nova")]
    timbres = [line.endswith("variant") for line in lines]
    assert any(timbres) and timbres == sorted(timbres)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["ws://127.0.0.1:1"], "no server at 127.0.0.1:1; start one with `voiceagent-tts serve`"),
        (["ftp://127.0.0.1:1"], "url: expected ws://host or wss://host"),
    ],
)
def test_voices_of_an_absent_server_are_a_mistake(
    options: list[str], sentence: str, command_here: CommandHere
) -> None:
    outcome = command_here("voices", "list", "--url", *options)
    assert (outcome.status, outcome.output) == (1, "")
    assert outcome.errors.startswith(f"voiceagent-tts: {sentence}")
    assert outcome.errors.count("\n") == 1


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            "not that of a voiceagent-tts server",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", "not that of a voiceagent-tts server"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", "/v1/audio/voices: "),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "/v1/audio/voices: "),
        (b"", "begins with wss://"),  # so ends a server with TLS
    ],
)
async def test_voices_of_another_server_are_a_mistake(
    answer: bytes, sentence: str, command_here: CommandHere
) -> None:
    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(reply, "127.0.0.1", 0) as stranger:
        port = stranger.sockets[0].getsockname()[1]
        url = f"ws://127.0.0.1:{port}"
        outcome = await asyncio.to_thread(command_here, "voices", "list", "--url", url)
    assert outcome.status == 1
    assert sentence in outcome.errors
    assert outcome.errors.count("\n") == 1


def test_a_dash_is_standard_output(served: ServerProcess) -> None:
    """`-o -` writes a WAV file to standard output, for a pipe."""
    program = [sys.executable, "-m", "voiceagent_tts", "say", TEXT, "-o", "-"]
    result = subprocess.run([*program, "--url", served.websocket_url], capture_output=True)
    assert result.returncode == 0, result.stderr
    with wave.open(io.BytesIO(result.stdout)) as file:
        assert file.getnframes() > 12_000
