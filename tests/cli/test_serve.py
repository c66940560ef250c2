"""`voiceagent-tts serve` as a process: its ready line, its end, its error messages."""

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from websockets.asyncio.client import connect

from testbed.command_line import EMBEDDED, Command, CommandHere, finished, start
from testbed.ports import free_ports
from testbed.throttled import VARIABLE
from testbed.waiting import until
from voiceagent_tts.cli.settings import read_settings, without_effect
from voiceagent_tts.client import DEFAULT_PATH, TTSClient
from voiceagent_tts.config import Settings
from voiceagent_tts.errors import InvalidRequestError, UnauthorizedError
from voiceagent_tts.offspring import Following
from voiceagent_tts.plugins.tls.certificates import certificate_of
from voiceagent_tts.protocol.messages import DoneMessage
from voiceagent_tts.server.app import create_app
from voiceagent_tts.server.state import ServerState

ROOT = Path(__file__).parents[2]
SECRET = "the-secret-of-a-client"


async def ready_url(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    line = (await process.stdout.readline()).decode()
    found = re.fullmatch(r"ready (ws://127\.0\.0\.1:\d+/v1/tts/ws)\n", line)
    assert found, line
    return found[1]


@pytest.mark.parametrize(
    "end", [signal.SIGTERM, signal.SIGHUP, pytest.param(signal.SIGINT, marks=pytest.mark.thorough)]
)
async def test_serve_says_when_and_where_it_is_ready_and_ends_when_told(
    end: int, tmp_path: Path
) -> None:
    """The ready line appears once the server can speak; a signal ends it with status 0.

    Another line is the address of the page. A server that is killed now leaves no temporary folder.
    """
    (tmp_path / "tmp").mkdir()
    temporary = {"TMPDIR": str(tmp_path / "tmp")}
    process = await start("serve", "--port", "0", folder=tmp_path, environment=temporary)
    url = await ready_url(process)
    assert not [*(tmp_path / "tmp").iterdir()]
    assert process.stderr is not None
    line = ""
    while not line.startswith("Open "):  # lines of the log may come before it
        line = (await process.stderr.readline()).decode()
        assert line, "the server has ended"
    page = websocket_to_http(url)
    assert line == f"Open {page} in a browser.\n"
    with await asyncio.to_thread(urllib.request.urlopen, page) as response:
        assert b"voiceagent-tts" in response.read()
    async with TTSClient(url) as client:
        events = [event async for event in client.say("Hello.", language="en", max_lead_s=0)]
    assert isinstance(events[-1], DoneMessage)
    process.send_signal(end)
    outcome = await finished(process)
    assert (outcome.status, outcome.output) == (0, "")
    assert "Traceback" not in outcome.errors


@pytest.mark.thorough
async def test_a_server_that_nohup_starts_outlives_its_terminal(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *("nohup", sys.executable, "-m", "voiceagent_tts", "serve", "--port", "0"),
        cwd=tmp_path,
        env=os.environ | EMBEDDED | {"PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        preexec_fn=Following(os.getpid()),
    )
    url = await ready_url(process)
    process.send_signal(signal.SIGHUP)
    async with TTSClient(url) as client:
        await client.connect()
    process.send_signal(signal.SIGTERM)
    assert (await finished(process)).status == 0


@pytest.mark.parametrize(("host", "shown"), [("0.0.0.0", "127.0.0.1"), ("::", "[::1]")])
async def test_serve_names_an_address_that_opens(host: str, shown: str, tmp_path: Path) -> None:
    """Both addresses can be opened here, though the server listens on all interfaces."""
    anyone = {"VOICEAGENT_TTS_ALLOW_ANONYMOUS": "true"}
    process = await start(
        "serve", "--host", host, "--port", "0", folder=tmp_path, environment=anyone
    )
    assert process.stdout is not None
    address = (await process.stdout.readline()).decode().split()[1]
    assert address.startswith(f"ws://{shown}:")
    async with TTSClient(address) as client:
        assert (await client.connect()).sample_rate == 24_000
    process.send_signal(signal.SIGTERM)
    outcome = await finished(process)
    invitation = f"Open {websocket_to_http(address)} in a browser"
    assert invitation in " ".join(outcome.errors.split())
    assert "on another machine" in outcome.errors


@pytest.mark.parametrize(
    "end", [pytest.param(signal.SIGTERM, marks=pytest.mark.thorough), signal.SIGINT]
)
async def test_a_signal_ends_a_start_that_takes_long(end: int, tmp_path: Path) -> None:
    """A signal ends a server whose engine is still starting, and ends that process, too."""
    silent = {VARIABLE: '{"is_silent": true}', "PYTHONPATH": str(ROOT)}  # never ready
    program = "testbed.throttling"
    process = await start(
        "serve", "--port", "0", folder=tmp_path, environment=silent, module=program
    )
    ours = psutil.Process(process.pid)
    await until(lambda: bool(ours.children()), "the engine is being started")
    (worker,) = ours.children()
    process.send_signal(end)
    outcome = await finished(process)
    assert (outcome.status, outcome.output) == (0, "")
    assert "Traceback" not in outcome.errors
    assert not worker.is_running()


@pytest.mark.parametrize(
    "log",
    [
        ">/dev/full 2>&1",
        pytest.param("--log-json 2>/dev/full", marks=pytest.mark.thorough),
        pytest.param("2>&-", marks=pytest.mark.thorough),
    ],
)
async def test_a_log_that_takes_no_line_stops_no_server(log: str, tmp_path: Path) -> None:
    """Its disk is full, also for standard output, or it is closed: the server starts and speaks."""
    (port,) = free_ports(1)
    program = f'exec "$0" -m voiceagent_tts serve --port {port} {log}'
    process = await asyncio.create_subprocess_exec(
        *("/bin/sh", "-c", program, sys.executable),
        cwd=tmp_path,
        env=os.environ | EMBEDDED | {"PYTHONPATH": str(ROOT)},
        preexec_fn=Following(os.getpid()),
    )
    with socket.socket() as listening:
        await until(lambda: not listening.connect_ex(("127.0.0.1", port)), "the server listens")
    async with TTSClient(f"ws://127.0.0.1:{port}") as client:
        events = [event async for event in client.say("Hello.", language="en", max_lead_s=0)]
    assert isinstance(events[-1], DoneMessage)
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0


async def test_contexts_and_requests_are_logged(tmp_path: Path) -> None:
    """Start, end and refusal of a context are a line each, with the client's ids; never text.

    Requests and refusals are a line each with the id that the client gets, a refused handshake too;
    probes are not logged.
    """
    keys = {"VOICEAGENT_TTS_API_KEYS": SECRET}
    process = await start("serve", "--port", "0", "--log-json", folder=tmp_path, environment=keys)
    url = await ready_url(process)
    await send_contexts(url)
    request_ids = await send_requests(url)
    lines = await logged(process)
    check_contexts(lines)
    check_requests(lines, request_ids)
    assert SECRET not in str(lines)


async def send_contexts(url: str) -> None:
    async with TTSClient(url, SECRET) as client:
        async with await client.open(
            context_id="turn-1", metadata={"call": "c-19"}, language="en", max_lead_s=0
        ) as context:
            await context.send_text("Confidential words.")
            await context.end()
            assert [event async for event in context]
        with pytest.raises(InvalidRequestError):
            async for _ in await client.open(context_id="turn-2", voice="nobody"):
                pass


def check_contexts(lines: list[dict[str, Any]]) -> None:
    assert "Confidential" not in str(lines)
    of_contexts = {line["event"]: line for line in lines if "context_id" in line}
    opened, ended = of_contexts["context_opened"], of_contexts["context_ended"]
    assert (opened["context_id"], opened["metadata"]) == ("turn-1", {"call": "c-19"})
    assert (ended["context_id"], ended["reason"], ended["chars"]) == ("turn-1", "complete", 19)
    assert ended["audio_s"] > 0.5
    refused = of_contexts["message_refused"]
    assert (refused["context_id"], refused["code"]) == ("turn-2", "invalid_voice")
    assert {line["session_id"] for line in of_contexts.values()} == {opened["session_id"]}


async def send_requests(url: str) -> list[str]:
    """Send a handshake, a probe and three requests; return the ids of the last three."""
    with pytest.raises(UnauthorizedError):
        await TTSClient(url, "wrong").connect()
    http_url = websocket_to_http(url)
    async with httpx.AsyncClient(base_url=http_url, headers={"X-API-Key": SECRET}) as http:
        await http.get("/health/ready")
        refused = await http.post(f"/v1/audio/speech?api_key={SECRET}", json={})
        chosen = await http.get("/v1/models", headers={"X-Request-Id": "from-the-proxy"})
        escaped = await http.get("/%1b[2Jpage")
    assert chosen.headers["X-Request-Id"] == "from-the-proxy"
    handshake = {"X-Request-Id": "from-the-edge", "Authorization": f"Bearer {SECRET}"}
    async with connect(url, additional_headers=handshake) as socket:
        assert socket.response is not None
        assert socket.response.headers["X-Request-Id"] == "from-the-edge"
    return [refused.headers["X-Request-Id"], "from-the-proxy", escaped.headers["X-Request-Id"]]


def check_requests(lines: list[dict[str, Any]], request_ids: list[str]) -> None:
    facts = [
        (line["event"], line["method"], line["path"], line["status"], line["code"])
        for line in lines
        if "request_id" in line and line["event"] != "socket_opened"
    ]
    assert facts == [
        ("socket_refused", "GET", "/v1/tts/ws", 401, "unauthorized"),
        ("http_request", "POST", "/v1/audio/speech", 400, "invalid_param"),
        ("http_request", "GET", "/v1/models", 200, None),
        ("http_request", "GET", "/%1B%5B2Jpage", 404, "not_found"),
    ]
    ids = [line["request_id"] for line in lines if line["event"] == "http_request"]
    assert ids == request_ids
    (opened,) = [line for line in lines if line.get("request_id") == "from-the-edge"]
    assert opened["event"] == "socket_opened"
    of_requests = [line for line in lines if line["event"] in ("http_request", "socket_refused")]
    assert {line["ip"] for line in [opened, *of_requests]} == {"127.0.0.1"}
    key_ids = [line["key_id"] for line in of_requests]
    assert key_ids == [None, *[opened["key_id"]] * 3] and opened["key_id"]


def websocket_to_http(url: str) -> str:
    return url.replace("ws", "http", 1).removesuffix(DEFAULT_PATH)


async def logged(process: asyncio.subprocess.Process) -> list[dict[str, Any]]:
    """End the server; returns its log lines, all of which are JSON."""
    process.terminate()
    lines = (await finished(process)).errors.splitlines()
    return [json.loads(line) for line in lines]


def test_a_wrong_setting_ends_it_with_one_clear_line(command_here: CommandHere) -> None:
    outcome = command_here("serve", "--host", "0.0.0.0")
    assert (outcome.status, outcome.output) == (1, "")
    assert outcome.errors == (
        "voiceagent-tts: expected keys where others can reach the server (host 0.0.0.0); set "
        "VOICEAGENT_TTS_KEYS or VOICEAGENT_TTS_API_KEYS, or VOICEAGENT_TTS_ALLOW_ANONYMOUS=true "
        "to serve anyone\n"
    )


def test_a_clients_key_alone_starts_no_open_server(
    command_here: CommandHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`VOICEAGENT_TTS_API_KEY` is one letter away from the server's keys, which it does not set."""
    monkeypatch.setenv("VOICEAGENT_TTS_API_KEY", "a-key-of-a-client")
    outcome = command_here("serve", "--port", "0")
    assert (outcome.status, outcome.output) == (1, "")
    assert "set VOICEAGENT_TTS_API_KEYS" in outcome.errors
    assert "a-key-of-a-client" not in outcome.errors


PATHS = [
    name
    for name, field in Settings.model_fields.items()
    if name == "keys" or "Path" in str(field.annotation)
]
MADE = {"request_log", "watermark_key_file", "voices_folder", "jobs_storage"}
FOLDERS = {"voices_folder", "jobs_storage"}
PLACES = {
    "missing": "none",
    "a folder": "folder",
    "a file": "file",
    "below a file": "file/x",
    "unreadable": "closed/x",
    "too long": "a" * 300,
    "in a folder that is too long": "a" * 300 + "/x",
    "below a device": "/dev/null/x",
    "a device": "/dev/null",
    "in a missing folder": "none/x",
    "where no file can be made": "/proc/none/x",
}
"""Places that settings may name, most of them below a test's folder."""
READABLE = "/etc/hosts"
BAD = [
    (setting, kind)
    for setting in PATHS
    for kind in PLACES
    if kind != "a file" or setting in FOLDERS
]


@contextlib.contextmanager
def without_rights() -> Iterator[None]:
    """Be an ordinary user within the block, whom permissions concern."""
    user = os.geteuid()
    if not user:
        os.setresuid(65_534, 65_534, 0)
    try:
        yield
    finally:
        if not user:
            os.setresuid(0, 0, 0)


def _is_good(setting: str, kind: str) -> bool:
    if kind == "in a missing folder":  # made for files that have a default place
        return setting in MADE - {"request_log"}
    if setting in FOLDERS:
        return kind in ("missing", "a folder")
    return kind == "missing" and setting in MADE


@pytest.mark.parametrize(("setting", "kind"), BAD)
async def test_a_bad_path_is_told_by_its_setting_with_a_remedy(
    setting: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the system says of it: the setting, the path, the reason, and what to do."""
    if kind == "unreadable":  # so may the whole clone be, for an ordinary user
        monkeypatch.delenv("VOICEAGENT_TTS_WATERMARK_KEY_FILE")
    (tmp_path / "folder").mkdir()
    (tmp_path / "closed").mkdir()
    (tmp_path / "file").write_text("?")
    (tmp_path / "closed").chmod(0)
    tmp_path.chmod(0o755)
    path = str(tmp_path / PLACES[kind])
    monkeypatch.chdir(tmp_path)
    given: dict[str, Any] = {"jobs_storage": "folder", "redis": "redis://127.0.0.1:1", "port": 0}
    given |= {setting: path}
    given |= {"ssl_certfile": READABLE} if setting == "ssl_keyfile" else {}
    pair = {"c2pa_keyfile": "c2pa_certfile", "c2pa_certfile": "c2pa_keyfile"}.get(setting)
    given |= {pair: READABLE} if pair else {}

    async def check() -> None:
        with without_rights() if kind == "unreadable" else contextlib.nullcontext():
            settings = read_settings(given)
        state = ServerState(settings)
        create_app(state)
        certificate_of(settings)
        await state.access.start()

    if _is_good(setting, kind):
        return await check()
    with pytest.raises(InvalidRequestError) as caught:
        await check()
    told = caught.value.message
    assert setting in told.lower() and path in told
    assert "; " in told, "what to do"
    assert "[Errno" not in told


@pytest.mark.parametrize("kind", set(PLACES) - {"a file", "below a file"})
def test_a_bad_settings_file_is_told_by_its_variable(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable, the path, the reason, and what to do."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "closed").mkdir(mode=0)
    monkeypatch.setenv("VOICEAGENT_TTS_CONFIG", str(tmp_path / PLACES[kind]))
    with without_rights(), pytest.raises(InvalidRequestError) as caught:
        read_settings({})
    told = caught.value.message
    assert "VOICEAGENT_TTS_CONFIG" in told and str(tmp_path / PLACES[kind]) in told
    assert "name another" in told and "[Errno" not in told


@pytest.mark.parametrize(
    ("given", "lone"),
    [
        ({"jobs_storage": "~/jobs"}, {"jobs_storage": "redis"}),
        ({"without_redis": "refuse"}, {"without_redis": "redis"}),
        ({"webhook_secret": "s" * 20}, {"webhook_secret": "redis"}),
        ({"webhook_private": True}, {"webhook_private": "webhook_secret"}),
        ({"upstream": "http://host/v1"}, {"upstream": "engine=openai or overflow"}),
        ({"kernels": "plain"}, {"kernels": "engine=qwen3"}),
        ({"key_limits": "contexts=1"}, {"key_limits": "keys or api_keys"}),
        ({"without_redis": "refuse", "redis": "redis://host"}, {}),
        ({"without_redis": "local"}, {}),
        ({"engine": "openai", "upstream": "http://host/v1", "upstream_model": "other"}, {}),
        ({"engine": "kokoro", "rows": 4, "threads": 2, "device": "cpu"}, {}),
        ({"engine": "hibari", "beside": "kokoro", "device": "cpu"}, {}),
    ],
)
def test_a_setting_without_effect_is_told(given: dict[str, Any], lone: dict[str, str]) -> None:
    settings = Settings(**{"engine": "espeak"} | given)
    assert dict(without_effect(settings)) == lone


async def test_the_start_warns_of_a_setting_without_effect(tmp_path: Path) -> None:
    """One line for each, before the server is ready."""
    process = await start(
        *("serve", "--port", "0", "--engine", "espeak", "--log-json"),
        folder=tmp_path,
        environment={"VOICEAGENT_TTS_WEBHOOK_SECRET": "a-secret-of-webhooks"},
    )
    await ready_url(process)
    process.send_signal(signal.SIGTERM)
    lines = [json.loads(line) for line in (await finished(process)).errors.splitlines()]
    (line,) = [each for each in lines if each["event"] == "setting_without_effect"]
    assert (line["setting"], line["needs"], line["level"]) == ("webhook_secret", "redis", "warning")


@pytest.mark.parametrize(
    ("given", "file", "sentence"),
    [
        ({"port": 70_000}, "", "port: Input should be less than or equal to 65535"),
        ({"engine": "no-such"}, "", "engine: Input should be 'hibari', 'kokoro'"),
        ({}, 'max_contexts = "many"', "max_contexts: Input should be a valid integer"),
        ({}, 'api_key = "secret"', "api_key: unknown setting"),
        ({}, 'api_keys = ["secret"', "the settings file is not TOML"),
    ],
)
def test_a_wrong_setting_is_named_without_its_value(
    given: dict[str, Any], file: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line names the setting, whatever its source, but not the value, which may be a key."""
    (tmp_path / "settings.toml").write_text(file)
    monkeypatch.setenv("VOICEAGENT_TTS_CONFIG", str(tmp_path / "settings.toml"))
    with pytest.raises(InvalidRequestError, match=re.escape(sentence)) as caught:
        read_settings(given)
    assert "secret" not in caught.value.message
    assert "\n" not in caught.value.message


def test_a_port_that_is_taken_is_one_clear_line(command_here: CommandHere) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        outcome = command_here("serve", "--port", str(port))
    assert outcome.status == 1
    assert f"cannot bind 127.0.0.1:{port}" in outcome.errors
    assert "--port" in outcome.errors


async def test_an_address_that_is_not_here_is_one_clear_line(command: Command) -> None:
    """An address of another machine is reported as such; another port would not help."""
    allowed = {"VOICEAGENT_TTS_ALLOW_ANONYMOUS": "true"}
    outcome = await command("serve", "--host", "192.0.2.1", environment=allowed)
    assert outcome.status == 1
    assert "cannot bind 192.0.2.1:8765" in outcome.errors
    assert outcome.errors.endswith("choose another --host\n")
