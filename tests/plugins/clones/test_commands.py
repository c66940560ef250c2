"""`voiceagent-tts voices`: voices are added, kept, and spoken by a running server."""

import asyncio
import re
import sys
from functools import partial
from pathlib import Path

import httpx
import numpy as np
import pytest
import soundfile

from testbed.command_line import Command, CommandHere, Outcome
from testbed.known_speech import espeak
from testbed.servers import StartServer
from voiceagent_tts.client import TTSClient
from voiceagent_tts.clones import VoiceFolder
from voiceagent_tts.errors import InvalidRequestError, VoiceAgentError
from voiceagent_tts.model.prompt import Cloned
from voiceagent_tts.plugins.clones import commands as voices
from voiceagent_tts.plugins.clones.clone_files import changing
from voiceagent_tts.plugins.clones.stored_voices import add_voice as store_voice
from voiceagent_tts.plugins.clones.voice_records import VoiceRecord, VoiceRecords
from voiceagent_tts.protocol.client_connection import ClientAudio
from voiceagent_tts.server.serve import RunningServer

REFERENCE = Path(__file__).parents[2] / "reference"
SOUND = REFERENCE / "reference.wav"
BASE = str(REFERENCE / "base-0b6")
DESIGN = str(REFERENCE / "voice_design-1b7")
CONSENT = ("--consent", "Anna agreed.")
add_voice = partial(voices.add, consent="Anna agreed.")


@pytest.fixture
def folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command_here: CommandHere
) -> VoiceFolder:
    """The folder of voices, also for commands that these tests run."""
    monkeypatch.setenv("VOICEAGENT_TTS_VOICES_FOLDER", str(tmp_path / "voices"))
    return VoiceFolder(tmp_path / "voices")


@pytest.fixture
def run(command: Command, folder: VoiceFolder) -> Command:
    """Run `voiceagent-tts voices *argv` with that folder."""

    async def run_voices(*argv: str) -> Outcome:
        environment = {"VOICEAGENT_TTS_VOICES_FOLDER": str(folder.path)}
        return await command("voices", *argv, environment=environment)

    return run_voices


async def test_a_voice_is_added_exported_and_removed(
    run: Command, command_here: CommandHere, folder: VoiceFolder, tmp_path: Path
) -> None:
    """One line says what was kept; the exported file makes an equal voice on another machine."""
    added = await run(
        "add", "Anna", str(SOUND), "--model", BASE, "--text", "quick brown fox", *CONSENT
    )
    assert (added.status, added.output) == (0, ""), added.errors
    assert added.errors.splitlines()[-1].startswith("saved the voice anna (timbre and 24 frames")
    assert command_here("voices", "export", "anna", "a.safetensors").status == 0
    add_voice("bert", tmp_path / "a.safetensors")
    assert folder.read("bert") == folder.read("anna")
    assert command_here("voices", "remove", "anna").status == 0
    assert folder.names() == ["bert"]
    again = command_here("voices", "remove", "anna")
    assert (again.status, again.errors) == (
        1,
        "voiceagent-tts: expected the name of a cloned voice, got 'anna'; known are bert\n",
    )
    assert command_here("voices", "remove", "bert").status == 0
    assert "voices add" in command_here("voices", "remove", "bert").errors


def test_a_voice_of_a_key_has_the_name_of_its_file(
    command_here: CommandHere, folder: VoiceFolder, tmp_path: Path
) -> None:
    """Who has the folder exports and removes it; keys may have voices of one name."""
    records = VoiceRecords(folder)
    for key_id in ("one", "two"):
        store_voice(records, VoiceRecord(name="anna", key_id=key_id), key_id.encode())
    unknown = command_here("voices", "remove", "anna")
    assert unknown.status == 1 and unknown.errors.endswith("known are anna@one, anna@two\n")
    assert command_here("voices", "export", "anna@one", "a.safetensors").status == 0
    assert (tmp_path / "a.safetensors").read_bytes() == b"one"
    assert command_here("voices", "remove", "Anna@one").status == 0
    assert folder.names() == list(records.voices()) == ["anna@two"]


@pytest.mark.parametrize("is_removed", [True, False], ids=["removed", "replaced"])
def test_a_voice_of_the_same_name_has_another_consent(
    folder: VoiceFolder, command_here: CommandHere, *, is_removed: bool
) -> None:
    """Whoever withdraws the consent to an earlier voice takes no later one with it."""
    records = VoiceRecords(folder)
    consent_id = f"cons_{0:032x}"
    add_voice("anna", SOUND, BASE, "quick brown fox")
    with changing(folder):
        record = VoiceRecord(name="anna", consent_id=consent_id)
        store_voice(records, record, folder.read("anna"))
    if is_removed:
        assert command_here("voices", "remove", "Anna").status == 0
        assert records.voices() == {}
    add_voice("Anna", SOUND, BASE, replace=not is_removed)
    assert records.voices()["anna"].consent_ids == set()
    assert folder.names() == ["anna"]


def test_a_taken_name_is_refused_unless_the_voice_is_to_be_replaced(
    folder: VoiceFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name is taken by stored, embedded and configured models' voices, in any letter case."""
    add_voice("anna", SOUND, BASE, "quick brown fox")
    first = folder.read("anna")
    with pytest.raises(InvalidRequestError, match="a voice 'anna' exists; .* --replace"):
        add_voice("Anna", SOUND, BASE)
    with pytest.raises(InvalidRequestError, match="a voice 'anna' exists"):
        voices.design("anna", "An old sailor", "Ahoy!", DESIGN, BASE)
    assert folder.read("anna") == first
    add_voice("Anna", SOUND, BASE, replace=True)
    assert folder.read("anna") != first
    monkeypatch.setenv("VOICEAGENT_TTS_MODELS", str(REFERENCE / "custom_voice-1b7"))
    for name in ("nova", "de", "designed", "Vivian"):
        with pytest.raises(InvalidRequestError, match=f"'{name.lower()}' is a built-in voice"):
            add_voice(name, SOUND, BASE)
    add_voice("nova", SOUND, BASE, replace=True)
    assert folder.names() == ["anna", "nova"]


def test_a_recording_is_measured_and_trimmed(
    folder: VoiceFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line gives the measurements, bad ones are warnings, and silence is trimmed."""
    speech = np.frombuffer(espeak("Hello there, I am Anna.", "en", "f2").pcm, "<i2")
    silence = np.zeros(48_000, np.int16)
    soundfile.write(tmp_path / "anna.wav", np.concatenate([silence, speech, silence]), 24_000)
    add_voice("anna", tmp_path / "anna.wav", BASE, "Hello there, I am Anna.")
    printed = capsys.readouterr().err.splitlines()
    assert re.fullmatch(
        r"recording: [12]\.\d s, \d+% speech, \d+ dB above the noise, 0\.0% clipped, "
        r"[34]\.\d s of silence trimmed",
        printed[0],
    )
    assert printed[1].startswith("warning: expected at least 3 s of speech, got ")
    codes = Cloned.from_bytes(folder.read("anna")).reference_codes
    assert codes is not None and len(codes) < 12.5 * (len(speech) / 24_000 + 1.5)


def test_without_a_speech_detector_a_voice_is_added_and_the_command_says_so(
    folder: VoiceFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without silero-vad, duration and clipping are still measured."""
    monkeypatch.setitem(sys.modules, "silero_vad", None)
    add_voice("anna", SOUND, BASE)
    printed = capsys.readouterr().err.splitlines()
    assert "the package 'silero-vad' is missing; try pip install" in printed[0]
    assert printed[1] == "recording: 1.4 s, 0.0% clipped"
    assert printed[2].startswith("warning: expected at least 3 s of speech, got 1.4 s")
    assert folder.names() == ["anna"]


def test_a_voice_is_designed_and_cloned(folder: VoiceFolder) -> None:
    """One call makes a Base model's voice from a description; no consent is asked for."""
    voices.design("sailor", "An old sailor", "Ahoy!", DESIGN, BASE)
    voice = Cloned.from_bytes(folder.read("sailor"))
    assert voice.reference_text == "Ahoy!" and voice.reference_codes is not None


@pytest.mark.parametrize(
    ("name", "file", "model", "sentence"),
    [
        ("anna", "missing.wav", BASE, "missing.wav: cannot be read"),
        ("../anna", SOUND, BASE, "expected a voice's name"),
        (
            "anna",
            SOUND,
            None,
            "--model: expected the Base model .*, such as Qwen/.*-Base; for Pocket",
        ),
        ("anna", "text.wav", BASE, "expected a WAV, FLAC, MP3 or Ogg file"),
        ("anna", "text.safetensors", None, "expected a voice file"),
        ("anna", SOUND, DESIGN, "expected a Base model to clone a voice"),
        ("anna", SOUND, "no such", "expected the folder of a model, or an id"),
    ],
)
def test_what_cannot_be_a_voice_is_refused(
    folder: VoiceFolder,
    tmp_path: Path,
    name: str,
    file: Path | str,
    model: str | None,
    sentence: str,
) -> None:
    """The error says what was expected; nothing is kept."""
    (tmp_path / "text.wav").write_text("This is no sound.")
    (tmp_path / "text.safetensors").write_text("This is no voice.")
    with pytest.raises(VoiceAgentError, match=sentence):
        add_voice(name, tmp_path / file, model)
    assert folder.names() == []


@pytest.mark.parametrize("consent", [(), ("--consent", " "), ("--consent", "A\nB")])
async def test_a_clone_needs_a_consent(
    run: Command, folder: VoiceFolder, consent: tuple[str, ...]
) -> None:
    """Without one nothing is stored; with one, the record of the voice has it."""
    refused = await run("add", "anna", str(SOUND), "--model", BASE, *consent)
    assert refused.status == 1 and folder.names() == []
    assert refused.errors.startswith("voiceagent-tts: --consent: expected who agreed")
    add_voice("anna", SOUND, BASE)
    assert VoiceRecords(folder).voices()["anna"].consent == "Anna agreed."


@pytest.fixture
async def base_server(start_server: StartServer, folder: VoiceFolder) -> RunningServer:
    """A server of the tiny Base model with that folder of voices."""
    return await start_server(
        engine="qwen3",
        models=(BASE,),
        threads=1,
        deterministic=True,  # a probe that speaks meanwhile changes no bit
        voices_folder=folder.path,
    )


async def first_audio(client: TTSClient, voice: str | None) -> bytes:
    """Return the first samples of a short text; how many come at once depends on the machine."""
    async with await client.open(voice=voice, language="en", seed=1) as context:
        await context.send_text("Hello there, somebody. ")
        await context.end()
        async for event in context:
            if isinstance(event, ClientAudio):
                return event.pcm[:1920]
    raise AssertionError("there was no sound")


async def test_a_running_server_speaks_with_a_new_voice(
    base_server: RunningServer, folder: VoiceFolder
) -> None:
    """A new voice can be used as soon as it is added, and a replaced one by the next context."""
    await asyncio.to_thread(add_voice, "anna", SOUND, BASE, "quick brown fox")
    async with TTSClient(base_server.websocket_url) as client:
        first = await first_audio(client, "Anna")
        assert await first_audio(client, "anna") == first
        assert await first_audio(client, None) == first
        await asyncio.to_thread(add_voice, "anna", SOUND, BASE, replace=True)
        assert await first_audio(client, "anna") != first
        with pytest.raises(InvalidRequestError, match="'nobody'; GET /v1/audio/voices"):
            await first_audio(client, "nobody")
    async with httpx.AsyncClient(base_url=base_server.url) as http:
        listed = (await http.get("/v1/audio/voices")).json()["voices"]
        assert [each["id"] for each in listed if each["alias_of"] is None] == ["anna"]
        voices.remove("anna")
        assert (await http.get("/v1/audio/voices")).json()["voices"] == []
