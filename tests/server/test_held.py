"""Memory that one caller's requests and ended contexts hold: it counts, and it is given back."""

import asyncio
import io
import tracemalloc
from collections import Counter, OrderedDict
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from testbed.servers import StartServer
from testbed.waiting import PATIENCE_S, until
from voiceagent_tts.core import Word, WordTimestamp
from voiceagent_tts.server import held
from voiceagent_tts.server.held import MAX_TEXTS_BYTES, Hold, RecentTexts
from voiceagent_tts.text.cut import TimedText

TEXT = "words of a text " * 1250


def spoken(text: str = TEXT, *, has_ends: bool = True) -> TimedText:
    """A context that said words of sixteen characters, one in a second."""
    words = [
        WordTimestamp(Word(text[at : at + 5], at, at + 5), at, at + 9 if has_ends else None, 1.0)
        for at in range(0, len(text), 16)
    ]
    return TimedText(text, words, len(text), is_final=True)


@pytest.mark.parametrize("has_ends", [True, False])
def test_a_kept_text_gives_the_same_cuts(has_ends: bool) -> None:
    """Packed or not, whatever was heard."""
    texts, said = RecentTexts(), spoken("words of a text \ud800" * 40, has_ends=has_ends)
    texts.keep("key", "session", "context", said)
    kept = texts.find("key", "session", "context")
    assert kept is not None
    assert [kept.cut(at) for at in range(0, 700, 7)] == [said.cut(at) for at in range(0, 700, 7)]
    texts.forget("key", "session")
    assert texts.find("key", "session", "context") is None


def test_a_caller_displaces_its_own_texts_only() -> None:
    """However many contexts a caller ends, they take a bounded memory, and others keep theirs."""
    texts, said = RecentTexts(), spoken()
    texts.keep("other", "session", "context", said)
    tracemalloc.start()
    try:
        for number in range(1000):
            texts.keep("key", "session", str(number), said)
        size_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert MAX_TEXTS_BYTES / 2 < size_bytes < 1.5 * MAX_TEXTS_BYTES
    assert texts.find("key", "session", "0") is None
    assert texts.find("key", "session", "999") is not None
    assert texts.find("other", "session", "context") is not None


def test_a_text_is_forgotten_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """`cut` is answered for two minutes."""
    texts = RecentTexts()
    texts.keep("key", "session", "context", spoken())
    monkeypatch.setattr(held, "MEMORY_S", -1.0)
    assert texts.find("key", "session", "context") is None


async def test_a_long_text_is_packed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end stopped the event loop for as long as all of its words took; cuts are the same."""
    monkeypatch.setattr(held, "_PACKED_AT_ONCE", 7)
    texts, said = RecentTexts(), spoken("words of a text " * 40)
    texts.keep("key", "session", "context", said)
    texts.keep("key", "session", "other", spoken("words of a text " * 3))
    for _ in range(10):
        kept = texts.find("key", "session", "context")
        assert kept is not None
        assert [kept.cut(at) for at in range(0, 700, 7)] == [
            said.cut(at) for at in range(0, 700, 7)
        ]
        await asyncio.sleep(0)
    packed = texts._of_callers["key"].get(("session", "context"))
    assert packed is not None and not packed.unpacked
    assert packed.size_bytes == 600 + 640 + 40 * 16


def test_a_cut_reads_few_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each cut of an ended context made all of its words: 200 ms for 240,000 characters."""
    made = 0

    def make(*arguments: Any) -> WordTimestamp:
        nonlocal made
        made += 1
        return WordTimestamp(*arguments)

    texts, said = RecentTexts(), spoken("words of a text " * 5000)
    texts.keep("key", "session", "context", said)
    monkeypatch.setattr(held, "WordTimestamp", make)
    kept = texts.find("key", "session", "context")
    assert kept is not None
    assert kept.cut(40_000) == said.cut(40_000)
    assert made < 20


class CountingTexts(OrderedDict[Any, Any]):
    """Counts the texts that are looked at and dropped."""

    steps = 0

    def __iter__(self) -> Iterator[Any]:
        for each in super().__iter__():
            CountingTexts.steps += 1
            yield each

    def pop(self, *arguments: Any) -> Any:
        """Count a drop."""
        CountingTexts.steps += 1
        return super().pop(*arguments)


def test_a_session_that_ends_searches_no_texts_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sockets that closed together each searched all texts of their key: 1,900 of them for 4 s."""
    monkeypatch.setattr(held, "OrderedDict", CountingTexts)
    texts = RecentTexts()
    for number in range(500):
        texts.keep("key", "busy", str(number), TimedText(""))
    texts.keep("key", "other", "a", TimedText(""))
    CountingTexts.steps = 0
    for number in range(100):
        texts.forget("key", f"idle {number}")
    texts.forget("key", "other")
    assert CountingTexts.steps <= 2
    assert texts.find("key", "other", "a") is None
    assert texts.find("key", "busy", "499") is not None


@pytest.fixture
def counted_texts(monkeypatch: pytest.MonkeyPatch) -> RecentTexts:
    """500 texts of one session; what is done with them is counted from now on."""
    monkeypatch.setattr(held, "OrderedDict", CountingTexts)
    texts = RecentTexts()
    for number in range(500):
        texts.keep("key", "session", str(number), TimedText(""))
    CountingTexts.steps = 0
    return texts


async def test_the_texts_of_a_session_that_ends_are_dropped_in_several_turns(
    counted_texts: RecentTexts,
) -> None:
    """A socket that had said 27,000 of them took 30 ms of the event loop when it closed."""
    counted_texts.forget("key", "session")
    assert 0 < CountingTexts.steps < 100
    await until(lambda: not counted_texts._of_callers, "all of them are dropped")
    assert not counted_texts._of_sessions and not counted_texts._bytes


def test_texts_that_are_too_old_are_dropped_a_few_at_a_time(
    counted_texts: RecentTexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a pause, one end of a context dropped 27,000 of them."""
    monkeypatch.setattr(held, "MEMORY_S", -1.0)
    steps: list[int] = []
    for number in range(500, 510):
        CountingTexts.steps = 0
        counted_texts.keep("key", "session", str(number), TimedText(""))
        steps.append(CountingTexts.steps)
    assert max(steps) < 200
    assert len(counted_texts._of_callers.get("key", ())) <= 1


def test_a_request_that_is_over_holds_nothing() -> None:
    """Whatever its last tasks take or give back; the caller's other requests still count."""
    counts = Counter[str]()
    with Hold(counts, "key") as other:
        other.take(1000)
        with Hold(counts, "key") as hold:
            hold.take(100)
        hold.take(10)
        hold.give_back(110)
        assert counts == {"key": 1000}
    assert not counts


async def test_headers_count_for_their_caller(start_server: StartServer) -> None:
    """As long as their request is unfinished."""
    server = await start_server(api_keys=("one",))
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url[-5:].strip(":")))
    head = b"POST /v1/audio/speech HTTP/1.1\r\nHost: a\r\nX-API-Key: one\r\nX: " + b"a" * 10_000
    writer.write(head + b"\r\nContent-Length: 9\r\n\r\n{")
    counts = server.state.held
    await until(lambda: counts.total() > 10_000, "the headers are counted")
    writer.close()
    await until(lambda: not counts, "the request has ended")
    assert await reader.read() == b""


async def test_bodies_and_files_count_for_their_caller(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over its limit a caller is refused with 429, another is served, and the memory comes back."""
    monkeypatch.setattr(held, "MAX_CALLER_BYTES", 300_000)
    server = await start_server(api_keys=("one", "two"), watermark=True)
    is_sent = asyncio.Event()

    async def slow_body() -> Any:
        yield b"x" * 280_000
        await is_sent.wait()

    def upload(http: httpx.AsyncClient) -> Any:
        files = {"file": ("a.wav", io.BytesIO(b"x" * 100_000))}
        return http.post("/v1/provenance/detect", files=files)

    async with (
        httpx.AsyncClient(
            base_url=server.url, headers={"X-API-Key": "one"}, timeout=PATIENCE_S
        ) as one,
        httpx.AsyncClient(
            base_url=server.url, headers={"X-API-Key": "two"}, timeout=PATIENCE_S
        ) as two,
    ):
        slow = asyncio.create_task(one.post("/v1/audio/speech", content=slow_body()))
        counts = server.state.held
        await until(lambda: counts.total() >= 280_000, "a part of the body has arrived")
        refused = await upload(one)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "rate_limited")
        assert (await upload(two)).json()["error"]["code"] == "invalid_param"  # no audio
        body = {"input": "word " * 10, "response_format": "wav", "stream": False}
        refused = await one.post("/v1/audio/speech", json=body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "rate_limited")
        files = (await one.post("/v1/audio/speech/batch", json={"items": [body]})).json()
        assert files["results"][0]["error"]["code"] == "rate_limited"
        is_sent.set()
        await slow
        assert (await one.post("/v1/audio/speech", json=body)).status_code == 200
        body["input"] = "word " * 40
        refused = await one.post("/v1/audio/speech", json=body)  # there will never be room for it
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "text_too_long")
        body["stream"] = True
        assert len((await one.post("/v1/audio/speech", json=body)).content) > 300_000
    await until(lambda: not counts, "everything was given back")
