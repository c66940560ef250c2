"""The request log of a server: a line for each context, without its text."""

import json
import re
from pathlib import Path

import httpx

from testbed.servers import StartServer, metric_value
from testbed.waiting import until
from testbed.wire import Wire
from voiceagent_tts.protocol.messages import DoneMessage
from voiceagent_tts.settings.access import Quota, hash_key

PAGE = Path(__file__).parents[3] / "docs" / "keys.md"
KEY = {"additional_headers": {"X-API-Key": "key"}}
SPEECH = {"input": "Hello.", "response_format": "pcm", "voice": "en"}


async def test_the_request_log_has_hashes_and_no_text(
    start_server: StartServer, tmp_path: Path
) -> None:
    """One line for each context, also where it was refused; equal texts have equal hashes."""
    path = tmp_path / "requests.jsonl"
    server = await start_server(
        api_keys=("key",), key_limits=Quota(chars_per_minute=100), request_log=path,
    )  # fmt: skip
    async with Wire.connected(server.websocket_url, **KEY) as wire:
        for text in ("Swordfish.", "Swordfish.", "Catfish."):
            await wire.say(text, language="en")
        held = await wire.open(language="en")
        await wire.text(held, "Goldfish.")
        await wire.cancel(held)
        await wire.until(DoneMessage, held)
        refused = await wire.open(language="en", voice="no such voice")
        assert (await wire.until(DoneMessage, refused)).reason == "error"
    async with httpx.AsyncClient(base_url=server.url, headers={"X-API-Key": "key"}) as http:
        spoken = await http.post("/v1/audio/speech", json=SPEECH)
        await http.post("/v1/audio/speech", json={"input": "Hello.", "voice": "x" * 128})
    await until(lambda: path.exists() and path.read_text().count("\n") == 7, "the log is written")
    text = path.read_text()
    assert "fish" not in text and "Hello" not in text and 'key"' not in text.replace("key_id", "")
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["outcome"] for line in lines] == [
        *["complete"] * 3, "cancelled", "refused", "complete", "refused",
    ]  # fmt: skip
    hashes = [line.get("input_hmac") for line in lines]
    assert hashes[0] == hashes[1] != hashes[2] and hashes[4] is None
    assert lines[0]["key_id"] == f"settings-{hash_key('key')[7:15]}"
    assert lines[0]["ttfa_s"] > 0 and lines[0]["audio_s"] > 0.2 and lines[0]["voice"] == "default"
    assert (lines[4]["code"], lines[0]["code"]) == ("invalid_voice", None)
    assert lines[6]["voice"] == "x" * 64  # a client cannot fill the disk with names
    assert lines[5]["request_id"] == spoken.headers["X-Request-Id"]
    assert lines[5]["path"] == "/v1/audio/speech" and lines[0]["path"] == "/v1/tts/ws"
    named = set(re.findall(r"`(\w+)`", PAGE.read_text().partition("## Request log")[2]))
    assert named >= {field for line in lines for field in line} | {"job_id"}


async def test_a_full_disk_stops_no_context(start_server: StartServer, tmp_path: Path) -> None:
    """The service goes on; a metric counts what was not written."""
    path = tmp_path / "requests.jsonl"
    server = await start_server(request_log=path)
    path.unlink()
    path.symlink_to("/dev/full")
    async with Wire.connected(server.websocket_url) as wire:
        for _ in range(3):
            assert (await wire.say("Hello.")).done.reason == "complete"
    await until(
        lambda: metric_value(server, "tts_log_failures_total", log="request_log") >= 3,
        "the failures are counted",
    )
