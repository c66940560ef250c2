"""Two servers with one Redis, which dies and comes back while they speak."""

import json
from pathlib import Path

import httpx
import pytest

from testbed.redis_process import RedisProcess
from testbed.servers import StartServer, metric_value
from testbed.waiting import until
from testbed.wire import Wire
from voiceagent_tts.plugins.usage.book import UsageBook
from voiceagent_tts.protocol.messages import ContextOpened, DoneMessage, ErrorMessage
from voiceagent_tts.settings.access import Quota

pytestmark = pytest.mark.services

KEY = {"additional_headers": {"X-API-Key": "key"}}


async def test_two_servers_are_one_service_until_redis_dies(
    start_server: StartServer, free_port: int
) -> None:
    """Limits and usage are shared; without Redis both go on speaking, each with its own limits."""
    with RedisProcess(free_port) as redis:
        one, other = [
            await start_server(api_keys=("key",), key_limits=Quota(contexts=1), redis=redis.url)
            for _ in range(2)
        ]
        async with (
            Wire.connected(one.websocket_url, **KEY) as first,
            Wire.connected(other.websocket_url, **KEY) as second,
        ):
            held = await first.open(language="en")
            await first.until(ContextOpened, held)
            refused = await second.open(language="en")
            assert (await second.until(ErrorMessage, refused)).code == "rate_limited"
            await second.until(DoneMessage, refused)

            redis.stop()
            await first.text(held, "Still speaking. ")  # the context that is open notices nothing
            assert (await second.say("And so is the other server.")).done.reason == "complete"
            assert metric_value(other, "tts_limits_shared") == 0
            await first.end(held)
            assert (await first.until(DoneMessage, held)).reason == "complete"

            redis.start()
            for server in (one, other):
                await until(lambda s=server: s.state.access.limiter.is_shared, "Redis is back")
            assert metric_value(other, "tts_limits_shared") == 1
        for server in (one, other):
            (book,) = server.state.opener.observers
            assert isinstance(book, UsageBook)
            await book.flush()
        async with httpx.AsyncClient(headers={"X-API-Key": "key"}) as http:
            answers = [(await http.get(f"{server.url}/v1/usage")).json() for server in (one, other)]
        assert answers[0] == answers[1] and not answers[0]["since_start"]
        assert answers[0]["data"][0]["contexts"] == 2


async def test_a_server_that_must_not_exceed_limits_refuses_without_redis(
    start_server: StartServer, free_port: int, tmp_path: Path
) -> None:
    """With `refuse`, HTTP answers 503 with `Retry-After`; the request log has the code."""
    path = tmp_path / "requests.jsonl"
    with RedisProcess(free_port) as redis:
        server = await start_server(
            api_keys=("key",), key_limits=Quota(contexts=1), redis=redis.url,
            without_redis="refuse", request_log=path,
        )  # fmt: skip
        redis.stop()
        async with httpx.AsyncClient(base_url=server.url, headers={"X-API-Key": "key"}) as http:
            response = await http.post("/v1/audio/speech", json={"input": "Hello."})
            assert (response.status_code, response.headers["Retry-After"]) == (503, "1")
            assert response.json()["error"]["code"] == "overloaded"
            await until(lambda: path.exists() and path.stat().st_size > 0, "the log is written")
            assert json.loads(path.read_text())["code"] == "overloaded"
            redis.start()
            await until(lambda: server.state.access.limiter.is_shared, "Redis is back")
            response = await http.post("/v1/audio/speech", json={"input": "Hello."})
            assert response.status_code == 200
