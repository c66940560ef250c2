"""The documents are true: their code runs, and their tables match the software."""

import asyncio
import json
import os
import re
import shlex
import shutil
import sys
import wave
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic_settings import BaseSettings
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from testbed.linked_models import link_with_short_runs
from testbed.listening import words_of
from testbed.livekit_conversation import count, heard
from testbed.missing import require_program
from testbed.papers import table_rows
from voiceagent_tts.config import Settings
from voiceagent_tts.server.serve import RunningServer

StartServer = Callable[..., Awaitable[RunningServer]]

ROOT = Path(__file__).parent.parent
PAPERS = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(
    (ROOT / "docs").rglob("*.md")
)
TINY = ROOT / "tests" / "reference"
TINY_MODELS = {
    "Qwen/Qwen3-TTS-12Hz-1.7B-Base": "base-0b6",
    "Qwen/Qwen3-TTS-12Hz-1.7B-VoiceDesign": "voice_design-1b7",
    "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice": "custom_voice-1b7",
}
DOCUMENTED_ADDRESS = "127.0.0.1:8765"


def blocks(paper: str, kind: str = "") -> list[str]:
    text = (ROOT / paper).read_text(encoding="utf-8")
    found = re.findall(r"^```([^\n]*)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    return [content for its_kind, content in found if its_kind == kind]


async def run(*argv: str, cwd: Path, environment: dict[str, str] | None = None) -> str:
    """Run a program that must succeed, with more variables; return its standard output."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return output.decode()


def at(server: RunningServer, code: str) -> str:
    assert DOCUMENTED_ADDRESS in code
    return code.replace(DOCUMENTED_ADDRESS, server.url.removeprefix("http://"))


async def test_the_python_client_of_the_readme_runs(server: RunningServer, tmp_path: Path) -> None:
    """The README's client speaks, and receives the time of every word before its audio."""
    (code,) = [block for block in blocks("README.md", "python") if "WordTimestamp" in block]
    lines = (await run(sys.executable, "-c", at(server, code), cwd=tmp_path)).splitlines()
    words = [line for line in lines if "will be heard" in line]
    assert [eval(line.split(" will ")[0]) for line in words] == [
        "Hello", "there.", "How", "can", "I", "help", "you?",
    ]  # fmt: skip
    assert "will be heard at" in lines[0]
    assert sum(int(line.split()[0]) for line in lines if "bytes" in line) > 24_000


async def test_the_openai_client_of_the_http_page_runs(
    server: RunningServer, tmp_path: Path
) -> None:
    """The use of OpenAI's own package in docs/http.md writes a WAV file with a right header."""
    (code,) = [block for block in blocks("docs/http.md", "python") if "OpenAI" in block]
    await run(sys.executable, "-c", at(server, code), cwd=tmp_path)
    with wave.open(str(tmp_path / "hello.wav")) as file:
        assert 12_000 < file.getnframes() == len(file.readframes(file.getnframes())) // 2


async def test_the_pipecat_example_of_the_readme_runs(
    server: RunningServer, tmp_path: Path
) -> None:
    """It prints the part of its reply that was played before the interruption."""
    code = (ROOT / "examples/pipecat_cut.py").read_text(encoding="utf-8")
    printed = await run(sys.executable, "-c", at(server, code), cwd=tmp_path)
    in_history = printed.strip().removeprefix("in the history: ")
    assert in_history.startswith("Monday, Tuesday,")
    assert "Monday, Tuesday, Wednesday, Thursday, and Friday.".startswith(in_history)
    assert not in_history.endswith("Friday.")


async def test_the_livekit_example_of_the_readme_runs(
    server: RunningServer, tmp_path: Path
) -> None:
    """It prints what was heard of its reply."""
    code = (ROOT / "examples/livekit_cut.py").read_text(encoding="utf-8")
    reply = "".join(re.findall(r'"(.*?)"', code.partition("TOKENS = ")[2].partition("]")[0]))
    printed = await run(sys.executable, "-c", at(server, code), cwd=tmp_path)
    in_history = printed.strip().removeprefix("in the history: ")
    assert reply.startswith(in_history)
    words = await words_of(server.url, reply, language="en", voice="nova")
    spoken = count(words, in_history)
    assert heard(words, 2.0) <= spoken < len(words)


async def answers(
    url: str, messages: list[str], end: dict[str, Any] | None = None, subprotocol: str | None = None
) -> list[dict[str, Any]]:
    """Send messages over a socket; return the objects of the server until `end`, or its close."""
    received = list[dict[str, Any]]()
    subprotocols = [Subprotocol(subprotocol)] if subprotocol else None
    async with connect(url, subprotocols=subprotocols, compression=None) as socket:
        for message in messages:
            await socket.send(message)
        async for data in socket:
            if isinstance(data, str):
                received.append(json.loads(data))
                if end is not None and end.items() <= received[-1].items():
                    return received
    return received


@pytest.mark.parametrize("engine", ["espeak", "hibari"])
async def test_the_messages_of_the_protocol_page_are_accepted(
    start_server: StartServer, engine: str
) -> None:
    """In the order of the page, to a server with the embedded voice: it refuses none of them."""
    server = await start_server(engine=engine)
    messages = "".join(blocks("docs/protocol.md", "json client")).splitlines()
    received = await answers(server.websocket_url, messages, subprotocol="tts.v1")
    assert [each for each in received if each["type"] == "error"] == []
    kinds = [each["type"] for each in received]
    assert kinds.count("context.opened") == 2
    assert {"cancelled", "done", "flushed", "cut", "pong"} <= set(kinds)


@pytest.mark.parametrize(
    ("dialect", "path", "end"),
    [
        ("vllm-omni", "/v1/audio/speech/stream", {"type": "session.done"}),
        ("cartesia", "/tts/websocket", {"type": "done"}),
        ("elevenlabs", "/v1/text-to-speech/nova/multi-stream-input", {"isFinal": True}),
    ],
)
async def test_the_messages_of_another_dialect_are_accepted(
    server: RunningServer, dialect: str, path: str, end: dict[str, Any]
) -> None:
    """The session of the page is spoken, and has the answers that the page shows."""
    url = server.url.replace("http:", "ws:") + path
    received = await answers(
        url, blocks("docs/protocol.md", f"{dialect} client")[0].splitlines(), end
    )
    assert not any(each.get("error") or each.get("type") == "error" for each in received)
    shown = blocks("docs/protocol.md", f"{dialect} server")[0].splitlines()
    kinds = {json.loads(line).get("type") for line in shown if not line.startswith("(")}
    assert kinds == {each.get("type") for each in received}


async def test_the_requests_of_the_http_page_are_accepted(
    start_server: StartServer, tmp_path: Path
) -> None:
    """Each `curl` line of docs/http.md has an answer of success."""
    server = await start_server(voices_folder=tmp_path)
    commands = [block for block in blocks("docs/http.md", "sh") if block.startswith("curl")]
    async with httpx.AsyncClient() as http:
        for command in commands:
            argv = shlex.split(at(server, command).replace("\\\n", ""))
            url = next(each for each in argv if each.startswith("http"))
            given = [value for option, value in pairwise(argv) if option == "-d"]
            form = dict(value.split("=") for option, value in pairwise(argv) if option == "-F")
            headers = {"Content-Type": "application/json"} if given else {}
            answer = await http.post(
                url, content=given[0] if given else None, data=form or None, headers=headers
            )
            assert answer.is_success, (command, answer.text)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # raised when Pipecat is imported
async def test_the_pipecat_service_of_its_page_speaks(server: RunningServer) -> None:
    """The pipeline of docs/pipecat.md, with real processors, speaks the LLM's reply."""
    from pipecat.frames.frames import LLMContextFrame
    from pipecat.pipeline.worker import PipelineWorker
    from pipecat.processors.aggregators.llm_context import LLMContext
    from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
    from pipecat.workers.runner import WorkerRunner

    from voiceagent_tts.plugins.demo.realtime_file_transport import RealtimeFileTransport
    from voiceagent_tts.plugins.demo.scripted import ScriptedLLM, ScriptedSTT

    (code,) = [block for block in blocks("docs/pipecat.md", "python") if "Pipeline(" in block]
    context = LLMContext([{"role": "user", "content": "Who are you?"}])
    aggregators = LLMContextAggregatorPair(context)
    names = {
        "transport": RealtimeFileTransport(),
        "stt": ScriptedSTT(),
        "user_aggregator": aggregators.user(),
        "llm": ScriptedLLM({"Who are you?": ("en", "Your agent.")}),
        "assistant_aggregator": aggregators.assistant(),
    }
    exec(at(server, code), names)
    worker = PipelineWorker(names["pipeline"], enable_rtvi=False)
    turn_ended = asyncio.Event()

    @aggregators.assistant().event_handler("on_assistant_turn_stopped")
    async def on_turn_stopped(_: object, message: object) -> None:
        turn_ended.set()

    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    running = asyncio.create_task(runner.run())
    await worker.queue_frame(LLMContextFrame(context))
    await turn_ended.wait()
    await worker.cancel()
    await running
    assert context.get_messages()[-1] == {"role": "assistant", "content": "Your agent."}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # raised when Pipecat is imported
async def test_the_stock_plugins_of_their_page_speak(server: RunningServer) -> None:
    """With the lines of docs/plugins.md, LiveKit's plugins for other services speak."""
    from livekit.agents import tts, utils

    (code,) = [block for block in blocks("docs/plugins.md", "python") if "baseten.TTS" in block]
    names: dict[str, Any] = {}
    async with utils.http_context.open():
        exec(at(server, code), names)
        voices: list[tts.TTS] = names["for_livekit"]
        for voice in voices:
            async with voice.synthesize("Hello there.") as stream:
                seconds = sum([event.frame.duration async for event in stream])
            assert seconds > 0.4, voice.label
            await voice.aclose()


async def test_the_key_that_the_keys_page_makes_opens_the_door(
    start_server: StartServer, tmp_path: Path
) -> None:
    """The documented commands make keys, which a server with that file accepts for their scopes."""
    commands = blocks("docs/keys.md", "sh")[0].splitlines()
    assert commands[0] == "export VOICEAGENT_TTS_KEYS=keys.json"
    place = {"VOICEAGENT_TTS_KEYS": str(tmp_path / "keys.json")}
    keys: list[str] = []
    for line in commands[1:-1]:
        program, *arguments = shlex.split(line)
        assert program == "voiceagent-tts"
        argv = [sys.executable, "-m", "voiceagent_tts", *arguments]
        output = await run(*argv, cwd=tmp_path, environment=place)
        keys += output.splitlines()
    speaking, scraping, *listed = keys
    assert len(listed) == 2 and "booking agent" in listed[0]
    server = await start_server(keys=place["VOICEAGENT_TTS_KEYS"])
    async with httpx.AsyncClient(base_url=server.url) as http:
        for key, status in ((speaking, (200, 403)), (scraping, (403, 200)), ("wrong", (401, 401))):
            headers = {"Authorization": f"Bearer {key}"}
            for path, expected in zip(("/v1/models", "/metrics"), status, strict=True):
                assert (await http.get(path, headers=headers)).status_code == expected


async def test_the_curl_line_of_the_readme_runs(server: RunningServer, tmp_path: Path) -> None:
    require_program("curl")
    (code,) = [block for block in blocks("README.md", "sh") if block.startswith("curl")]
    argv = shlex.split(at(server, code).replace("\\\n", ""))
    await run(*argv, "--fail", "--silent", cwd=tmp_path)
    content = (tmp_path / "hello.mp3").read_bytes()
    assert content[:3] == b"ID3" or content[0] == 0xFF


async def test_the_command_lines_of_the_readme_run(tmp_path: Path) -> None:
    """Every `voiceagent-tts` line of the README's first commands does what it says."""
    (code,) = [block for block in blocks("README.md", "sh") if block.startswith("voiceagent-tts")]
    for line in code.splitlines():
        program, *arguments = shlex.split(line)
        assert program == "voiceagent-tts"
        await run(sys.executable, "-m", "voiceagent_tts", *arguments, cwd=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"hello.wav", "hello.srt"}


@pytest.fixture
async def tiny_models(
    start_server: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> RunningServer:
    """A server of tiny models in place of the page's, with the voices that the page adds."""
    monkeypatch.setenv("VOICEAGENT_TTS_VOICES_FOLDER", str(tmp_path / "voices"))
    shutil.copy(TINY / "reference.wav", tmp_path / "anna.wav")
    (code,) = [block for block in blocks("docs/qwen3.md", "sh") if "voices design" in block]
    for published, tiny in TINY_MODELS.items():
        code = code.replace(published, str(TINY / tiny))
    *adding, serving = code.replace("\\\n", "").splitlines()[1:]
    for line in adding:
        program, *arguments = shlex.split(line)
        assert program == "voiceagent-tts"
        await run(sys.executable, "-m", "voiceagent_tts", *arguments, cwd=tmp_path)
    models = tuple(shlex.split(serving)[3::2])
    assert sorted(models) == sorted(str(TINY / tiny) for tiny in TINY_MODELS.values())
    for tiny in TINY_MODELS.values():  # random weights would run away from a short text
        link_with_short_runs(TINY / tiny, tmp_path / "models" / tiny, frames=24)
    models = tuple(str(tmp_path / "models" / tiny) for tiny in TINY_MODELS.values())
    return await start_server(
        engine="qwen3", models=models, threads=1, voices_folder=tmp_path / "voices"
    )


@pytest.mark.thorough
async def test_the_recipes_of_the_qwen3_page_speak(
    tiny_models: RunningServer, tmp_path: Path
) -> None:
    """Each of the official package's four recipes writes a file with sound, on tiny models."""
    (code,) = [block for block in blocks("docs/qwen3.md", "python") if "designed-clone" in block]
    await run(sys.executable, "-c", at(tiny_models, code), cwd=tmp_path)
    for name in ("custom", "design", "clone", "designed-clone"):
        with wave.open(str(tmp_path / f"{name}.wav")) as file:
            assert file.getframerate() == 24_000
            assert any(file.readframes(file.getnframes()))


def test_the_settings_table_is_the_settings() -> None:
    assert table_rows("docs/settings.md", "in the environment") == settings_rows()


def settings_rows() -> list[list[str]]:
    subjects = [base for base in Settings.__bases__ if base is not BaseSettings]
    names = [name for subject in subjects for name in subject.model_fields]
    assert sorted(names) == sorted(Settings.model_fields), "each setting belongs to one subject"
    meanings = dict(
        found
        for subject in subjects
        for found in re.findall(
            r"^ {8}(\w+): ((?:.|\n {12})+)", subject.__doc__ or "", re.MULTILINE
        )
    )
    return [
        [
            f"VOICEAGENT_TTS_{name.upper()}",
            _written(Settings.model_fields[name].default),
            re.sub(r"\s+", " ", meanings[name]),
        ]
        for name in names
    ]


def _written(default: Any) -> str:
    """Return a default as an environment variable has it."""
    if isinstance(default, tuple):
        return ",".join(map(str, default))
    return "" if default is None else f"{default}".lower().removesuffix(".0")


async def test_the_metrics_table_is_what_the_server_shows(start_server: StartServer) -> None:
    server = await start_server(cache_mb=1)
    async with httpx.AsyncClient() as http:
        answer = (await http.get(f"{server.url}/metrics")).text
    shown = re.findall(r"^# TYPE (\w+) (\w+)$", answer, re.MULTILINE)
    tables = (
        "metric",
        "metric of a GPU",
        "metric of an upstream",
        "metric of qwen3",
        "metric of the aligner",
    )
    documented = [
        (row[0], row[1]) for table in tables for row in table_rows("docs/monitoring.md", table)
    ]
    # creation times, which accompany counters
    created = {name for name, _ in shown if name.endswith("_created")}
    assert sorted(documented) == sorted(pair for pair in shown if pair[0] not in created)


def test_the_rooms_table_has_every_room() -> None:
    """docs/architecture.md has a row for each folder and module of the package, and no other."""
    package = ROOT / "voiceagent_tts"
    folders = {f"{each.parent.name}/" for each in package.glob("*/__init__.py")}
    modules = {each.name for each in package.glob("[!_]*.py")}
    cells = [row[1] for row in table_rows("docs/architecture.md", "side")]
    assert {
        name for cell in cells for name in re.findall(r"\w+(?:/|\.py)", cell)
    } == folders | modules


@pytest.mark.parametrize("paper", PAPERS, ids=lambda path: path.name)
def test_every_link_leads_somewhere(paper: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", paper.read_text(encoding="utf-8"), flags=re.M | re.S)
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", prose)
    assert [target for target in targets if not (paper.parent / target).exists()] == []


@pytest.mark.parametrize(
    "paper", [*PAPERS, *sorted((ROOT / "examples").glob("*.py"))], ids=lambda path: path.name
)
def test_the_package_is_installed_from_a_clone(paper: Path) -> None:
    """It is not on PyPI: no command asks an index for it, but one that adds to what is there."""
    asking = re.findall(
        r"(?:install|uvx|--from) ['\"]?voiceagent-tts\b[^'\"`\n]*", paper.read_text("utf-8")
    )
    assert [each for each in asking if each != "install 'voiceagent-tts[kokoro]"] == []
