"""The body of a request for speech, which no client makes expensive for the others."""

import asyncio
from typing import Any

import httpx
import pytest

from testbed.loop_work import loop_work
from testbed.waiting import PATIENCE_S
from voiceagent_tts.server.serve import RunningServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

MOST_CALLS = 10_000
"""Calls in one iteration of the event loop: some milliseconds. When all names of a body were
searched, they were 300,000."""
SPEECH, BATCH, JOBS = "/v1/audio/speech", "/v1/audio/speech/batch", "/v1/audio/jobs"
MANY = {"aBaBaBaB" * 2 + str(number): 1 for number in range(28_000)}
LONG = {"aB" * 400_000: 1}
NAMES = {"many": MANY, "long": LONG}
BODIES: dict[str, Any] = {
    SPEECH: lambda names: {"input": "hi", **names},
    JOBS: lambda names: {"input": "hi", **names},
    BATCH: lambda names: {"items": [{"input": "hi"}] * 9, **names},
    f"{BATCH}?of=items": lambda names: {"items": [{"input": "hi"}, {"input": "hi", **names}]},
}


@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("path", BODIES)
async def test_no_names_of_fields_make_a_long_turn_of_the_loop(
    shared_server: RunningServer, monkeypatch: pytest.MonkeyPatch, path: str, names: str
) -> None:
    """A body with many fields, or with long names, is refused before they are looked at."""
    url = f"{shared_server.url}{path}"
    await asyncio.to_thread(httpx.post, url, json={})  # FastAPI prepares routes for the first one
    with loop_work(monkeypatch) as work:
        body = BODIES[path](NAMES[names])
        answer = await asyncio.to_thread(httpx.post, url, json=body, timeout=PATIENCE_S)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_param")
    assert "at most 256 fields, with names of at most 64 characters" in answer.text
    assert work.most < MOST_CALLS


async def test_unknown_fields_are_ignored(http: httpx.AsyncClient) -> None:
    """As many as clients of other services send."""
    unknown = {f"{'a' * 58}{number}": number for number in range(250)}
    answer = await http.post(SPEECH, json={"input": "Hi.", "response_format": "pcm", **unknown})
    assert answer.status_code == 200


@pytest.mark.parametrize("field", ["voice", "model", "language"])
async def test_no_name_is_long(http: httpx.AsyncClient, field: str) -> None:
    """It would be compared with all that there are, in many ways."""
    answer = await http.post(SPEECH, json={"input": "Hi.", field: "ö-" * 200_000})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_param")
