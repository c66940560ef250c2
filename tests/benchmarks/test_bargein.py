"""Barge-ins with this project's own server: the exact truth, and a real run."""

import json
import os
import random
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from benchmarks.alignment.speech import HELD_OUT
from benchmarks.bargein.conditions import CONDITIONS, MAIN, Condition, chosen_conditions
from benchmarks.bargein.judge_error import error_on
from benchmarks.bargein.other_work import BUSY_LOOPS, busy_loops
from benchmarks.bargein.report import Result, complaints_about, plot
from benchmarks.bargein.run import run
from benchmarks.bargein.stock import stock_services
from benchmarks.bargein.truth import Speech, heard_of, read_speeches, trace
from testbed.papers import ROOT, table_rows
from testbed.servers import StartServer
from voiceagent_tts.client import TTSClient
from voiceagent_tts.core import SAMPLE_RATE_HZ, WordTimestamp
from voiceagent_tts.plugins.bench.bargein.heard import HEARD_SAMPLES, Heard
from voiceagent_tts.plugins.bench.bargein.run import host_of
from voiceagent_tts.plugins.bench.bargein.score import Outcome
from voiceagent_tts.plugins.bench.bargein.services import own_services
from voiceagent_tts.plugins.bench.bargein.session import Host
from voiceagent_tts.protocol.client_connection import ClientAudio
from voiceagent_tts.text.words import split_words

REPLY = "One, two, three, four, five."
WORDS = split_words(REPLY)
WORD_SAMPLES = 6000
BUSY = f"beside {BUSY_LOOPS} busy loops"
HOSTS: tuple[Host, Host] = ("livekit", "pipecat")
ROWS = (
    ("embedded voice, its own word times", MAIN),
    ("the same beside two busy loops", BUSY),
    ("the same, engine at RTF 0.5", "native words, RTF 0.5"),
    ("the same, engine at RTF 0.9", "native words, RTF 0.9"),
    ("the same, engine at RTF 0.95", "native words, RTF 0.95"),
    ("the engine is killed", "the engine is killed"),
    ("hibari, its own word times", "natural voice, its own words"),
    ("words by the online aligner", "online aligner"),
    ("the same, engine at RTF 0.5", "online aligner, RTF 0.5"),
    ("the same, engine at RTF 0.9", "online aligner, RTF 0.9"),
    ("clone of a noisy recording, RTF 0.5", "clone of a noisy recording, RTF 0.5"),
    ("hibari, words by the aligner, RTF 0.5", "natural voice, words by the aligner, RTF 0.5"),
)
"""The rows of docs/numbers.md, and their conditions."""


def speech(text: str, seed: int) -> Speech:
    """Build noise in place of `text`: a quarter of a second per word, repeatable by its seed."""
    words = tuple(
        WordTimestamp(word, index * WORD_SAMPLES, (index + 1) * WORD_SAMPLES, 1.0)
        for index, word in enumerate(split_words(text))
    )
    return Speech(random.Random(seed).randbytes(2 * WORD_SAMPLES * len(words)), words)


# The truth


@given(played=st.integers(HEARD_SAMPLES, 5 * WORD_SAMPLES))
def test_words_are_counted_in_the_samples_played(played: int) -> None:
    """A word is heard when 20 ms of it were played, whichever context spoke it."""
    made = speech(REPLY, seed=1)
    heard = heard_of(REPLY, made.pcm[: 2 * played], [speech(REPLY, seed=2), made])
    assert heard.begun == frozenset(range(-(-played // WORD_SAMPLES)))
    assert (
        heard.heard == frozenset(range((played - HEARD_SAMPLES) // WORD_SAMPLES + 1)) & heard.begun
    )
    assert heard.finished == frozenset(range(played // WORD_SAMPLES))
    assert heard.unknown_s == 0


@given(cut=st.integers(HEARD_SAMPLES, 4 * WORD_SAMPLES), rest=st.integers(64, 2 * WORD_SAMPLES))
def test_a_reply_that_another_context_went_on_with_is_put_together(cut: int, rest: int) -> None:
    """The second context starts with the word that broke off; each word is counted once."""
    first = speech(REPLY, seed=1)
    broken_off = cut // WORD_SAMPLES
    second = speech(REPLY[WORDS[broken_off].char_start :], seed=2)
    rest = min(rest, len(second.pcm) // 2)
    played = first.pcm[: 2 * cut] + second.pcm[: 2 * rest]
    assert trace(played, [second, first]) == [(first, cut), (second, rest)]
    expected = broken_off + -(-rest // WORD_SAMPLES)
    begun_before = -(-cut // WORD_SAMPLES)
    heard = heard_of(REPLY, played, [second, first])
    assert heard.begun == frozenset(range(max(expected, begun_before)))


def test_silence_between_two_contexts_is_not_the_engines() -> None:
    """A transport fills its last chunk with silence; the next context is found after it."""
    first, second = speech(REPLY, seed=1), speech(REPLY[10:], seed=2)
    played = first.pcm[:20_000] + bytes(400) + second.pcm[:20_000]
    assert trace(played, [first, second]) == [(first, 10_000), (None, 200), (second, 10_000)]


def test_audio_of_no_context_is_unknown() -> None:
    """Unknown audio counts as no word."""
    heard = heard_of(REPLY, random.Random(3).randbytes(SAMPLE_RATE_HZ), [speech(REPLY, 1)])
    assert not heard.begun and heard.unknown_s == 0.5


async def test_the_engine_keeps_the_truth_that_it_withholds(
    start_server: StartServer, tmp_path: Path
) -> None:
    """The folder has the audio as clients receive it, and the words that they do not receive."""
    throttle = {"without_words": True, "truth_folder": str(tmp_path)}
    server = await start_server(throttle=throttle, aligner="off", watermark=False)
    async with TTSClient(server.websocket_url) as client:
        events = client.say(REPLY, language="en", max_lead_s=0)
        pcm = b"".join([event.pcm async for event in events if isinstance(event, ClientAudio)])
    (made,) = [speech for speech in read_speeches(tmp_path) if speech.pcm == pcm]
    assert [timestamp.word for timestamp in made.words] == WORDS


def test_quick_runs_have_the_main_condition_first() -> None:
    """A quick run has one cut per session; a name selects one condition."""
    quick = chosen_conditions(is_quick=True, only="")
    assert quick[0].name == MAIN
    assert all(condition.cuts == condition.sessions for condition in quick)
    assert [c.name for c in chosen_conditions(is_quick=False, only=MAIN)] == [MAIN]
    assert len({condition.name for condition in CONDITIONS}) == len(CONDITIONS)


# What the documents say


def stored(host: Host, condition: str) -> dict[str, Any]:
    """The figures of a condition that the last whole run has written."""
    path = ROOT / "benchmarks" / "results" / f"bargein_{host}.json"
    return json.loads(path.read_text("utf-8"))["conditions"][condition]


def cells_of(figures: dict[str, Any]) -> list[str]:
    """What the table says of one host."""
    exact, within_one = figures["exact_pct"], figures["within_one_pct"]
    wrong = [figures[name] for name in ("dropped_turns", "unspoken_committed", "spoken_lost")]
    return [f"{exact:g} / {within_one:g} %", " / ".join(map(str, wrong))]


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("load", [MAIN, BUSY])
def test_what_is_promised_was_measured_quiet_and_beside_other_work(host: Host, load: str) -> None:
    """Within one word, no turn dropped, and no word that was not heard."""
    assert load in {each.name for each in chosen_conditions(is_quick=True, only="")}
    figures = stored(host, load)
    assert figures["cuts"] == 200 and figures["within_one_pct"] >= 99.5
    assert figures["dropped_turns"] == figures["unspoken_committed"] == 0


def test_the_readme_says_under_which_load_its_figures_hold() -> None:
    """They are those of the last whole runs."""
    runs = [stored(host, load) for load in (MAIN, BUSY) for host in HOSTS]
    sentence = (
        "200 interruptions each: on a quiet machine {} and {} exact, beside two busy loops on two "
        "cores {} and {}, the others off by one word; no word in it that was not heard"
    )
    exact = [round(run["cuts"] * run["exact_pct"] / 100) for run in runs]
    assert sentence.format(*exact) in (ROOT / "README.md").read_text("utf-8")
    assert {run["within_one_pct"] for run in runs} == {100}


def test_the_table_of_interruptions_has_the_figures_of_the_last_runs() -> None:
    """Each row of docs/numbers.md, for both hosts."""
    expected = [
        [row, str(stored("livekit", name)["cuts"])]
        + [cell for host in HOSTS for cell in cells_of(stored(host, name))]
        for row, name in ROWS
    ]
    assert table_rows("docs/numbers.md", "voice and engine") == expected


# A whole run


@pytest.mark.parametrize("host", [pytest.param("livekit", marks=pytest.mark.thorough), "pipecat"])
async def test_a_real_session_is_measured(host: Host, tmp_path: Path) -> None:
    """Host and server each run in a process of their own, in real time."""
    condition = Condition(MAIN, 2, sessions=2, latest_s=0.8)
    (result,) = await run(host, [condition], 1, tmp_path, Console(file=StringIO()))
    figures = result.figures
    assert complaints_about([result]) == []
    assert figures["cuts"] == 2 and figures["verbatim_pct"] == 100.0
    assert figures["dropped_turns"] == figures["unspoken_committed"] == 0
    assert figures["discarded_s"] > 0
    assert figures["tts_contexts_active"] == 0
    assert figures["judge_within_one_pct"] == 100.0
    plot(host, [result], tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 10_000


def test_the_report_names_what_makes_a_result_doubtful() -> None:
    """Replies without audio, missing replies and broken sessions are reported."""
    facts = {
        "silent_turns": 1,
        "not_cut": 0,
        "planned": 3,
        "told": 2,
        "broken_off": ["TimeoutError"],
    }
    nothing = Heard(frozenset(), frozenset(), frozenset())
    cut = Outcome("en", REPLY, "", nothing, 1.0, 1.5, 5.0, 200.0, 0.0)
    found = complaints_about([Result("a fault", (cut,), facts)])
    assert found == [
        "a fault: 1 replies made no sound",
        "a fault: expected 3 replies, got 2",
        "a fault: a session broke off: TimeoutError",
    ]


@pytest.mark.thorough
def test_another_synthesizer_is_judged_too() -> None:
    """Flite pronounces and times words in its own way; the judge is at most one word off."""
    error = error_on("flite", HELD_OUT.few(10).spoken(), random.Random(1))
    assert error.figures["error_p95_ms"] <= 100
    assert error.figures["exact_pct"] >= 80 and error.figures["within_one_pct"] == 100


def test_busy_loops_end_with_their_block() -> None:
    """They run while the agents talk, and no longer."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before = children.read_text().split()
    with busy_loops(2):
        running = set(children.read_text().split()) - set(before)
        assert len(running) == 2
    assert not running & set(children.read_text().split())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_service_that_is_started_here_can_be_constructed() -> None:
    """Ours and the stock ones of both hosts."""
    url = "ws://127.0.0.1:1/v1/tts/ws"
    addresses = [*own_services(url), *stock_services(url)]
    assert {host_of(address) for address in addresses} == {"pipecat", "livekit"}
    assert len({address.name for address in addresses}) == len(addresses) >= 8
