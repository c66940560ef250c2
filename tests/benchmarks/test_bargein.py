"""Barge-ins with this project's own server: the exact truth, and a real run."""

import json
import random
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from benchmarks.bargein.__main__ import complaints_about, run
from benchmarks.bargein.conditions import (
    BUSY_LOOPS,
    MAIN,
    Condition,
    chosen_conditions,
    kill_engine,
)
from benchmarks.bargein.stock import stock_services
from benchmarks.bargein.truth import Speech, heard_of, trace
from testbed.papers import ROOT, table_rows
from testbed.segment_driving import Driver
from testbed.throttled import Throttle, Throttled
from voiceagent_tts.core import WordTimestamp, ms_to_samples
from voiceagent_tts.espeak.engine import EspeakEngine
from voiceagent_tts.plugins.bench.bargein.heard import HEARD_SAMPLES
from voiceagent_tts.plugins.bench.bargein.run import host_of
from voiceagent_tts.plugins.bench.bargein.services import own_services
from voiceagent_tts.plugins.bench.bargein.session import Host
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


@pytest.mark.parametrize("rest", [100, WORD_SAMPLES])
def test_silence_that_a_transport_adds_is_unknown_audio(rest: int) -> None:
    """Up to 40 ms between two contexts; what follows is found."""
    first, second = speech("One,", seed=1), speech("two.", seed=2)
    silence = ms_to_samples(40)
    played = first.pcm + bytes(2 * silence) + second.pcm[: 2 * rest]
    assert trace(played, [second, first]) == [
        (first, WORD_SAMPLES), (None, silence), (second, rest),
    ]  # fmt: skip
    played += bytes(2 * 2 * silence)
    assert trace(played, [second, first])[2:] == [(second, rest), (None, 2 * silence)]


def test_a_session_can_load_what_kills_an_engine() -> None:
    """Its process cannot load a program's functions, as the parent's `__main__` is not its own."""
    assert kill_engine.__module__ == "benchmarks.bargein.conditions"


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


def test_the_readme_says_under_which_load_its_figures_hold() -> None:
    """They are those of the last whole runs."""
    runs = [stored(host, load) for load in (MAIN, BUSY) for host in HOSTS]
    sentence = (
        "of 200 interruptions in each host's own pipeline, on a quiet machine {} (LiveKit) and {} "
        "(Pipecat) were exact; with two busy loops on the two cores, {} and {}. Every miss was off "
        "by one word, and no unheard word was committed"
    )
    exact = [round(run["cuts"] * run["exact_pct"] / 100) for run in runs]
    assert sentence.format(*exact) in (ROOT / "README.md").read_text("utf-8")
    assert {(run["cuts"], run["within_one_pct"]) for run in runs} == {(200, 100)}
    assert not any(run["dropped_turns"] or run["unspoken_committed"] for run in runs)
    assert {MAIN, BUSY} <= {each.name for each in chosen_conditions(is_quick=True, only="")}


def test_the_table_of_interruptions_has_the_figures_of_the_last_runs() -> None:
    """Each row of docs/numbers.md, for both hosts."""
    expected = [
        [row, str(stored("livekit", name)["cuts"])]
        + [cell for host in HOSTS for cell in cells_of(stored(host, name))]
        for row, name in ROWS
    ]
    assert table_rows("docs/numbers.md", "voice and engine") == expected


def test_each_engine_has_the_faults_of_its_condition() -> None:
    """A clone of a noisy recording has the noise that it names, in its pauses too."""
    (noisy,) = chosen_conditions(is_quick=False, only="clone of a noisy recording, RTF 0.5")
    noise_rms = noisy.throttle.noise_rms

    def quietest_rms(throttle: Throttle) -> float:
        pcm = Driver(partial(Throttled, EspeakEngine, throttle=throttle)).speak("Well. Good!")
        blocks = np.frombuffer(pcm, "<i2")[: len(pcm) // 2400 * 1200].reshape(-1, 1200)
        return float(np.sqrt(np.square(blocks.astype(np.float64)).mean(axis=1).min()))

    assert quietest_rms(Throttle()) < 10
    assert quietest_rms(Throttle(noise_rms=noise_rms)) == pytest.approx(noise_rms, rel=0.3)


# A whole run


@pytest.mark.parametrize("host", [pytest.param("livekit", marks=pytest.mark.thorough), "pipecat"])
async def test_a_real_session_is_measured(host: Host, tmp_path: Path) -> None:
    """Host and server each run in a process of their own, in real time."""
    condition = Condition(name=MAIN, cuts=2, together=2, latest_s=0.8)
    (section,) = await run(host, [condition], 1, tmp_path, Console(file=StringIO()))
    assert not [each for each in complaints_about([section]) if "late" not in each]
    assert section["cuts"] == 2 and section["verbatim_pct"] == 100.0
    assert section["dropped_turns"] == section["unspoken_committed"] == 0
    assert section["discarded_s"] > 0
    assert section["tts_contexts_active"] == 0
    assert section["judge_within_one_pct"] == 100.0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_service_that_is_started_here_can_be_constructed() -> None:
    """Ours and the stock ones of both hosts."""
    url = "ws://127.0.0.1:1/v1/tts/ws"
    addresses = [*own_services(url), *stock_services(url)]
    assert {host_of(address) for address in addresses} == {"pipecat", "livekit"}
    assert len({address.name for address in addresses}) == len(addresses) >= 8
