import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.service.calls import Call, Callers, Plan, Traffic, plan_calls
from benchmarks.service.load import Metrics, Result, Section, knee_of, own_model, summarize, total
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.model.checkpoint import load_checkpoint
from voiceagent_tts.model.codec import load_codec
from voiceagent_tts.server.serve import RunningServer

MODEL = Path(__file__).parents[1] / "reference" / "custom_voice-1b7"
LOUD = b"\x00\x40" * (SAMPLE_RATE_HZ // 10)
QUIET = b"\x00\x00" * (SAMPLE_RATE_HZ // 10)


def test_the_program_ends_with_one_json_object(tmp_path: Path) -> None:
    """As a program, the benchmark puts a load on a model; no context fails."""
    argv = ["--rates", "3", "--together", "2", "--seconds", "1", "--rows", "8", "--frames", "6"]
    argv += ["--model", str(MODEL), "--barge-ins", "0.3", "--png", str(tmp_path / "load.png")]
    argv += ["--json", str(tmp_path / "load.json")]
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.service.load", *argv],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "VOICEAGENT_TTS_THREADS": "1",
            "VOICEAGENT_TTS_ALIGNER": "off",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    result = json.loads(run.stdout.splitlines()[-1])
    assert result == json.loads((tmp_path / "load.json").read_text())
    assert (tmp_path / "load.png").read_bytes().startswith(b"\x89PNG")
    assert (result["failed"], result["silent"]) == (0, 0)
    assert {"machine", "commit", "command", "underruns", "knee"} <= result.keys()
    assert result["sections"].keys() == {"3/s", "2 together"}
    assert result["contexts"] == sum(of["contexts"] for of in result["sections"].values()) >= 4
    for section in result["sections"].values():
        assert 0 < section["audible_ttfa_p50_ms"] <= section["audible_ttfa_p95_ms"]
        assert section["audio_seconds_per_s"] > 0
        assert section["talker_ms"] > 0


def test_a_tiny_model_is_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --model a tiny one is written, with sequences of the requested length."""
    monkeypatch.chdir(tmp_path)
    model = own_model(None, 6)
    assert load_checkpoint(model).generation.max_new_tokens == 6
    assert load_codec(model).codebooks == 16


def heard(*messages: tuple[float, bytes], plan: Plan | None = None) -> Call:
    """Build a call that began at 10 and received these messages at these times."""
    call = Call(plan or Plan("Hello there.", None, 1), began=10.0, ended=13.0)
    for at, pcm in messages:
        call.take(pcm)
        call.times[-1] = at
    return call


def test_a_call_is_audible_when_its_first_sound_is_played() -> None:
    """Silence before the first sound counts; only the messages up to it are kept."""
    call = heard((10.5, QUIET), (10.55, LOUD), (10.6, LOUD))
    assert call.audible_s == pytest.approx(0.6)
    assert len(call.opening) == 2
    assert call.audio_s == pytest.approx(0.3)
    assert heard((10.5, QUIET)).audible_s is None


def test_what_is_played_leaves_out_what_has_not_come() -> None:
    """A listener without audio waits, and continues with the next message."""
    call = heard((10.0, LOUD), (10.5, LOUD))
    assert call.played_s(10.05) == pytest.approx(0.05)
    assert call.played_s(10.4) == pytest.approx(0.1)
    assert call.played_s(11.0) == pytest.approx(0.2)
    assert call.playback.underruns == 1


def test_a_section_s_figures_are_those_of_its_calls() -> None:
    """Rates refer to the section's time; interrupted calls do not count as complete."""
    cut = heard((10.1, LOUD), plan=Plan("Longer than that one.", 0.05, 2))
    cut.cancel_s = 0.003
    refused = Call(Plan("No.", None, 3), began=10.0, ended=10.1, failure="overloaded")
    late = heard((10.2, LOUD), (10.4, LOUD), plan=Plan("Late.", 0.15, 4))
    calls = (heard((10.1, LOUD), (10.2, LOUD)), cut, refused, late)
    counters = {"tts_audio_discarded_seconds_total": 0.5}
    figures = summarize(
        Result(Section(rate=1), Traffic(calls, 10.0, (0.001,)), counters), price=3.6
    )
    assert (figures["contexts"], figures["failed"], figures["refused"]) == (4, 1, 1)
    assert (figures["barge_ins"], figures["cancels"], figures["cancel_p50_ms"]) == (2, 1, 3.0)
    assert figures["discarded_audio_s"] == pytest.approx(0.5 + 0.05, abs=0.06)
    assert figures["underruns"] == 1
    assert figures["audio_seconds_per_s"] == pytest.approx(0.05)
    assert figures["chars_per_s"] == pytest.approx(1.7)
    assert figures["usd_per_million_chars"] == pytest.approx(1e6 * 3.6 / 3600 / 1.7, rel=1e-3)
    assert figures["rtf_p50"] == pytest.approx(3.0 / 0.2)


def test_the_knee_is_the_heaviest_section_without_problems() -> None:
    """A section with a failure, an underrun or a late answer lies beyond the knee."""
    good = {"failed": 0, "refused": 0, "silent": 0, "underruns": 0, "contexts": 9}
    good |= {"audio_seconds_per_s": 1.0, "usd_per_million_chars": 1.0}
    sections = {
        "1/s": {**good, "audible_ttfa_p95_ms": 20, "chars_per_s": 50},
        "2/s": {**good, "audible_ttfa_p95_ms": 40, "chars_per_s": 100},
        "4/s": {**good, "audible_ttfa_p95_ms": 40, "chars_per_s": 200, "underruns": 1},
        "8/s": {**good, "audible_ttfa_p95_ms": 140, "chars_per_s": 400},
    }
    assert knee_of(sections, 100) == "2/s"
    assert knee_of(sections, 10) is None
    whole = total(sections, 100)
    assert (whole["knee"], whole["contexts"], whole["underruns"]) == ("2/s", 36, 1)
    assert whole["chars_per_s"] == 100


def test_a_share_of_the_calls_is_cut_into() -> None:
    """Interrupted calls have long replies, so that something is left to interrupt."""
    plans = plan_calls(0.15, seed=3)
    some = [next(plans) for _ in range(400)]
    cut = [plan for plan in some if plan.barge_in_s is not None]
    assert 30 < len(cut) < 90
    assert min(len(plan.text) for plan in cut) > max(
        len(plan.text) for plan in some if plan.barge_in_s is None
    )


async def test_loops_call_a_real_server(server: RunningServer) -> None:
    """In both kinds of loop every call receives audio, and the server counts all of them."""
    callers, metrics = Callers(server.websocket_url), Metrics(server.websocket_url, None)
    try:
        opened = await callers.open_loop(plan_calls(0.5, seed=1), 20.0, 0.3, seed=1)
        closed = await callers.closed_loop(plan_calls(0.0, seed=2), 3, 0.2)
    finally:
        await callers.close()
    for traffic in (opened, closed):
        assert traffic.calls
        assert all(call.failure is None and call.audible_s is not None for call in traffic.calls)
    assert len(closed.calls) >= 3
    counters = await metrics.read()
    assert counters["tts_contexts_total"] == len(opened.calls) + len(closed.calls)
