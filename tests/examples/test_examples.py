"""Every example runs as a user would run it, against a real server."""

import asyncio
import base64
import contextlib
import functools
import http.server
import itertools
import json
import os
import re
import sys
import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest
import soundfile
from aiohttp import web
from livekit.protocol.agent_pb.agent_session import ChatRole
from playwright.async_api import Page, expect
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidMessage

from testbed.browser import PageLog, headless, opened
from testbed.caller import calling
from testbed.http_server import answering
from testbed.openai_server import openai_server, stream_reply
from testbed.server_process import ServerProcess, serving
from testbed.waiting import PATIENCE_S
from voiceagent_tts.client import AudioFormat, ClientAudio, TTSClient

with warnings.catch_warnings():
    # Pipecat's deprecated classes warn where they are defined, in the name of `abc`.
    warnings.simplefilter("ignore")
    from testbed.webrtc_caller import calling_bot

EXAMPLES = Path(__file__).parents[2] / "examples"
REPLY = "Hello, how can I help you today?"


def environment_of(server: ServerProcess, **more: str) -> dict[str, str]:
    """The environment of an example."""
    return {
        **os.environ,
        "VOICEAGENT_TTS_URL": server.websocket_url,
        "TTS_HTTP_URL": server.url,
        **more,
    }


async def run(server: ServerProcess, example: str, *arguments: str) -> str:
    """Run an example to its end; returns its standard output."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(EXAMPLES / example), *arguments,
        env=environment_of(server), stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, _ = await process.communicate()
    assert process.returncode == 0
    return output.decode()


@contextlib.asynccontextmanager
async def running(
    server: ServerProcess, example: str, *arguments: str, **environment: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run an example within the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(EXAMPLES / example), *arguments,
        env=environment_of(server, **environment), stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.terminate()
        async with asyncio.timeout(PATIENCE_S):
            await process.communicate()


@pytest.fixture
async def openai_url() -> AsyncIterator[str]:
    """The address of an OpenAI-compatible language model with one reply."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return await stream_reply(request, REPLY)

    async with openai_server(chat_completions=answer) as url:
        yield url


@pytest.mark.parametrize(
    "path",
    sorted(path for path in EXAMPLES.iterdir() if path.is_file()),
    ids=lambda path: path.name,
)
def test_an_example_is_short(path: Path) -> None:
    """It has fewer than 60 lines."""
    assert len(path.read_text(encoding="utf-8").splitlines()) < 60


async def test_openai_client(served: ServerProcess, tmp_path: Path) -> None:
    """The file has the format that its name says, and speech in it."""
    path = tmp_path / "hello.mp3"
    await run(served, "openai_client.py", str(path), "Hello there.")
    samples, rate_hz = soundfile.read(path)
    assert 0.5 < len(samples) / rate_hz < 3
    assert abs(samples).max() > 0.1


async def test_subtitles(served: ServerProcess) -> None:
    """Every word is in a line, lines are short, and times are in order."""
    text = (
        "This is the first sentence. The second one is a good deal longer, so it takes two lines."
    )
    output = await run(served, "subtitles.py", text)
    blocks = [block.split("\n") for block in output.strip().split("\n\n")]
    assert [int(number) for number, _, _ in blocks] == [1, 2, 3]
    assert " ".join(line for _, _, line in blocks) == text
    assert all(len(line) <= 42 for _, _, line in blocks)
    times = [re.findall(r"\d\d:\d\d:\d\d,\d{3}", line) for _, line, _ in blocks]
    assert all(len(pair) == 2 for pair in times)
    starts_and_ends = [time for pair in times for time in pair]
    assert starts_and_ends == sorted(starts_and_ends)


@pytest.mark.parametrize("example", ["livekit_cut.py", "pipecat_cut.py", "subtitles.py"])
async def test_an_example_without_a_server_ends_with_an_error(example: str, free_port: int) -> None:
    """It says in a line that nothing was spoken, and does not wait for ever."""
    arguments = ["Hello."] if example == "subtitles.py" else []
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(EXAMPLES / example), *arguments,
        env={**os.environ, "VOICEAGENT_TTS_URL": f"ws://127.0.0.1:{free_port}"},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(PATIENCE_S):
        output, errors = await process.communicate()
    assert (process.returncode, output) == (1, b"")
    assert f":{free_port}" in errors.decode().strip().splitlines()[-1]


async def test_twilio_stream(served: ServerProcess, free_port: int) -> None:
    """A caller hears µ-law, interrupts with µ-law, and the example prints what was heard."""
    audio = AudioFormat(encoding="pcm_mulaw", sample_rate=8000)
    async with TTSClient(served.websocket_url) as client:
        events = client.say("Wait a moment please.", voice="nova", audio=audio, max_lead_s=0)
        voice = b"".join([event.pcm async for event in events if isinstance(event, ClientAudio)])
    async with running(served, "twilio_stream.py", PORT=str(free_port)) as example:
        async with await dial(f"ws://127.0.0.1:{free_port}") as phone:
            await phone.send(json.dumps({"event": "connected", "protocol": "Call"}))
            await phone.send(json.dumps({"event": "start", "streamSid": "MZ1", "start": {}}))
            heard, mark = b"", {}
            while len(heard) < 8_000:  # one second
                message = json.loads(await phone.recv())
                if message["event"] == "media":
                    heard += base64.b64decode(message["media"]["payload"])
                else:
                    mark = message
            await phone.send(json.dumps(mark))
            for start in range(0, len(voice), 160):
                payload = base64.b64encode(voice[start : start + 160]).decode()
                media = {"event": "media", "streamSid": "MZ1", "media": {"payload": payload}}
                await phone.send(json.dumps(media))
            while json.loads(await phone.recv())["event"] != "clear":
                pass
        assert example.stdout is not None
        line = (await example.stdout.readline()).decode()
        while not line.startswith("heard:"):
            line = (await example.stdout.readline()).decode()
    spoken = line.removeprefix("heard:").strip()
    assert "Hello, and thank you for calling.".startswith(spoken) and "Hello, and" in spoken


async def dial(url: str) -> ClientConnection:
    """Connect as soon as the example accepts connections."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await connect(url)
            except (OSError, InvalidMessage):
                await asyncio.sleep(0.05)


async def test_pipecat_minimal(served: ServerProcess, openai_url: str, free_port: int) -> None:
    """A visitor hears the language model's reply over WebRTC."""
    models = {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": openai_url}
    options = ("-t", "webrtc", "--host", "127.0.0.1", "--port", str(free_port))
    url = f"http://127.0.0.1:{free_port}"
    async with running(served, "pipecat_minimal.py", *options, **models):
        async with aiohttp.ClientSession() as http, asyncio.timeout(60):
            while True:
                with contextlib.suppress(aiohttp.ClientConnectorError):
                    async with http.get(f"{url}/status"):
                        break
                await asyncio.sleep(0.1)
        async with calling_bot(url) as caller:
            began_at = await caller.wait_until_audible(0.0)
            await caller.until(lambda: caller.blocks[-1][0] > began_at + 1.0)
            assert caller.silent_from(began_at, began_at + 1.0) > began_at + 0.5


async def test_livekit_minimal(served: ServerProcess, openai_url: str) -> None:
    """A caller hears the language model's reply, and the history has it."""
    models = {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": openai_url}
    command = (sys.executable, "-m", "livekit.agents", "console", "examples/livekit_minimal.py")
    environment = environment_of(served, **models)
    async with calling(*command, cwd=str(EXAMPLES.parent), env=environment) as caller:
        await caller.until(lambda: len(caller.said(ChatRole.ASSISTANT)) == 1)
        assert caller.said(ChatRole.ASSISTANT)[0].content[0].text == REPLY
        assert caller.played_s[0] > 1.0


@pytest.fixture
def folder_url() -> Iterator[str]:
    """A web server for the folder of the examples."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(EXAMPLES))
    with answering(http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)) as server:
        yield f"http://127.0.0.1:{server.server_port}"


BROWSER_CLOCK = """
const start = AudioBufferSourceNode.prototype.start;
window.starts = []; // of sounds: when, how long, and the time of the clock
window.audios = [];
AudioBufferSourceNode.prototype.start = function (when) {
  if (!audios.includes(this.context)) audios.push(this.context);
  starts.push({ when, seconds: this.buffer.duration, now: this.context.currentTime });
  return start.call(this, when);
};
"""
"""Records when examples/browser.html lets its sounds begin."""


@contextlib.asynccontextmanager
async def browser_example(
    server: ServerProcess, folder_url: str
) -> AsyncIterator[tuple[Page, PageLog]]:
    """Open examples/browser.html, and check afterwards that it threw no error."""
    url = f"{folder_url}/browser.html?url={server.url.replace('http', 'ws', 1)}"
    async with headless() as browser, opened(browser, url) as (page, log):
        await page.add_script_tag(content=BROWSER_CLOCK)
        yield page, log
        assert [each for each in log.errors if "favicon" not in each and "404" not in each] == []


@pytest.fixture
def server_for_folder(folder_url: str) -> Iterator[ServerProcess]:
    """A server that lets the pages of the folder connect."""
    with serving(allowed_origins=folder_url) as server:
        yield server


@pytest.mark.browser
async def test_browser(server_for_folder: ServerProcess, folder_url: str) -> None:
    """Words light as they sound, and Interrupt shows what was heard."""
    async with browser_example(server_for_folder, folder_url) as (page, _):
        await page.get_by_role("button", name="Speak").click()
        await expect(page.locator("#words span").nth(2)).to_have_attribute("style", "color: green;")
        await page.get_by_role("button", name="Interrupt").click()
        await expect(page.locator("#cut")).to_have_text(re.compile("^heard: Words light up"))
        heard = await page.locator("#cut").inner_text()
        assert "Words light up when they sound. Interrupt me.".startswith(heard[7:])


@pytest.mark.browser
async def test_browser_after_underruns(folder_url: str) -> None:
    """No sound begins before the one before it has ended, and gaps do not count as played."""
    throttle = '{"rtf": 1.5}'
    async with contextlib.AsyncExitStack() as stack:
        server = stack.enter_context(serving(allowed_origins=folder_url, throttle=throttle))
        page, log = await stack.enter_async_context(browser_example(server, folder_url))
        await page.locator("#text").fill("Words come later than they sound. " * 4)
        await page.get_by_role("button", name="Speak").click()
        await page.wait_for_function("starts.reduce((sum, each) => sum + each.seconds, 0) > 4")
        await page.get_by_role("button", name="Interrupt").click()
        await expect(page.locator("#cut")).to_have_text(re.compile("^heard: Words"))
        starts = await page.evaluate("starts")
        for before, after in itertools.pairwise(starts):
            assert after["when"] > before["when"] + before["seconds"] - 1e-6
        assert all(each["when"] >= each["now"] for each in starts)
        sent = [json.loads(line) for line in log.sent]
        (played_ms,) = {each["played_ms"] for each in sent if each["type"] in ("cancel", "cut")}
        received_ms = 1000 * sum(each["seconds"] for each in starts)
        assert received_ms - 1000 < played_ms <= received_ms


@pytest.mark.browser
async def test_browser_speaks_again(server_for_folder: ServerProcess, folder_url: str) -> None:
    """The second click on Speak ends the sound of the first."""
    async with browser_example(server_for_folder, folder_url) as (page, _):
        for count in (1, 2):
            await page.get_by_role("button", name="Speak").click()
            await page.wait_for_function("(count) => audios.length === count", arg=count)
        assert await page.evaluate("audios.map(({ state }) => state)") == ["closed", "running"]


@pytest.mark.browser
async def test_browser_interrupted_before_it_sounds(
    server_for_folder: ServerProcess, folder_url: str
) -> None:
    """While it connects, nothing is sent; when all is sent, nothing was heard."""
    async with browser_example(server_for_folder, folder_url) as (page, log):
        await page.get_by_role("button", name="Interrupt").click()
        await page.evaluate(
            "for (const id of ['speak', 'interrupt']) document.getElementById(id).click()"
        )
        await page.evaluate(
            """() => {
                const { parse } = JSON;
                JSON.parse = (text) => {
                    const message = parse(text);
                    const interrupt = document.getElementById("interrupt");
                    if (message.type === "context.opened") interrupt.click();
                    return message;
                };
            }"""
        )
        await page.get_by_role("button", name="Speak").click()
        await expect(page.locator("#cut")).to_have_text("heard: ")
        sent = [json.loads(line) for line in log.sent]
        assert [each["type"] for each in sent] == ["context.open", "text", "end", "cut", "cancel"]
        assert sent[-1]["played_ms"] == 0


@pytest.mark.browser
async def test_browser_shows_errors(server_for_folder: ServerProcess, folder_url: str) -> None:
    """What the server refuses is shown to who typed it."""
    async with browser_example(server_for_folder, folder_url) as (page, _):
        await page.locator("#text").fill("Word. " * 4000)
        await page.get_by_role("button", name="Speak").click()
        await expect(page.locator("#cut")).to_contain_text("at most 20000 characters")


def test_agents_listen_on_this_machine_alone() -> None:
    """LiveKit's server of an agent listens on all addresses unless it is told one."""
    files = [
        *EXAMPLES.parent.glob("examples/*.py"),
        *EXAMPLES.parent.glob("agents/*.py"),
        *EXAMPLES.parent.glob("docs/*.md"),
    ]
    servers = [
        options
        for file in (*files, EXAMPLES.parent / "README.md")
        for options in re.findall(r"AgentServer\((.*?)\)", file.read_text())
    ]
    assert servers == ['host="127.0.0.1"'] * 2
