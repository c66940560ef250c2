"""Every measure, over real sockets, against a server whose true times are known to the sample.

The clock is scripted: it stands still while a message is under way.
"""

import dataclasses

import numpy as np
import pytest

from testbed.scripted_server import Script, ScriptedServer, Step
from testbed.scripted_time import run_scripted
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.plugins.bench.callers import Callers, Section, Traffic
from voiceagent_tts.plugins.bench.document import flat, section_document
from voiceagent_tts.plugins.bench.loads import Load, Style
from voiceagent_tts.plugins.bench.measures import values_of
from voiceagent_tts.plugins.bench.targets.addresses import TargetAddress
from voiceagent_tts.plugins.bench.targets.target import Options
from voiceagent_tts.plugins.bench.texts import Text
from voiceagent_tts.plugins.bench.utterance import Request, Utterance

SAMPLE_MS = 1000 / SAMPLE_RATE_HZ
DOORS = ("ws", "http", "cartesia")
TEXTS = [Text("en", "short", "One two three four five.")]

GAPPY = Script(
    (
        Step(0.100, silent_samples=1_200, words_ms=(50, 90)),  # 50 ms of silence, in time
        Step(0.110, silent_samples=240, samples=960),  # its first sound after 60 ms of audio
        Step(0.400, samples=2_400, words_ms=(120,)),  # 190 ms late: an underrun
        Step(0.450, samples=4_800),
    ),
    end_s=0.5,
)
"""100 + 60 ms until the first sound; 100 ms of audio end at 200 ms, and the rest comes at 400."""

LATE_CANCEL = Script(
    tuple(Step(0.1 * (index + 1), samples=2_400) for index in range(40)), end_s=4.1, cancel_s=0.25
)
"""A second of audio each second, which goes on for 250 ms after a cancel."""


def section(load: Load, seconds: float = 0.1, **options: float) -> Section:
    """A section without a warm-up, unless `options` say so."""
    return Section(load, seconds, **options)  # type: ignore[arg-type]


def measured(
    script: Script, door: str, plan: Section, style: Style | None = None, arguments: str = ""
) -> Traffic:
    """What is measured at one of the scripted server's doors."""

    async def run() -> Traffic:
        async with ScriptedServer(script).running() as server:
            address = TargetAddress.parse(server.addresses[door] + arguments, Options())
            callers = Callers(address.open())
            try:
                return await callers.run(plan, style or Style(TEXTS))
            finally:
                await callers.aclose()

    return run_scripted(run())


def to_the_sample(value: float) -> object:
    """`value` in milliseconds, within half a sample."""
    return pytest.approx(value, abs=SAMPLE_MS / 2)


@pytest.mark.parametrize("door", DOORS)
def test_times_are_right_to_the_sample(door: str) -> None:
    """First byte, first sound, underruns, end and RTF are those of the script, at every door."""
    traffic = measured(GAPPY, door, section(Load(together=1)))
    values = values_of(traffic.utterances)
    assert len(traffic.utterances) == 1
    assert values["first_byte_ms"] == [to_the_sample(100)]
    assert values["audible_ms"] == [to_the_sample(160)]
    assert values["leading_silence_ms"] == [to_the_sample(60)]
    assert values["underrun_ms"] == [to_the_sample(200)]
    assert values["lateness_ms"] == [to_the_sample(200)]
    assert values["e2e_ms"] == [to_the_sample(500)]
    assert values["rtf"] == [pytest.approx(0.45 / 0.4)]
    assert traffic.utterances[0].playback.underruns == 1
    assert "connect_ms" not in values


def test_audio_that_is_in_time_shows_how_nearly_it_was_late() -> None:
    """The least time by which a piece came before it was needed; one piece alone has none."""
    pieces = tuple(Step(at_s, samples=2_400) for at_s in (0.1, 0.12, 0.27))
    tight = Script(pieces, end_s=0.3)
    values = values_of(measured(tight, "ws", section(Load(together=1))).utterances)
    assert values["underrun_ms"] == [0]
    assert values["lateness_ms"] == [to_the_sample(-30)]
    short = Script((Step(0.1, samples=1_200),), end_s=0.3)
    alone = measured(short, "ws", section(Load(together=1)))
    assert "lateness_ms" not in values_of(alone.utterances)


@pytest.mark.parametrize("door", [door for door in DOORS if door != "http"])
def test_a_word_s_lag_is_its_arrival_after_its_sound(door: str) -> None:
    """Words that arrive with their audio are early by their place in it; the underrun counts."""
    (utterance,) = measured(GAPPY, door, section(Load(together=1))).utterances
    lags = values_of([utterance])["word_lag_ms"]
    # Two are sent at 100 ms and heard at 150 and 190; one is sent at 400 and heard at 420.
    assert lags == [to_the_sample(-50), to_the_sample(-90), to_the_sample(-20)]


def test_words_that_never_come_are_not_made_up() -> None:
    """A server that loses words has fewer lags, and none at all without words."""
    lost = dataclasses.replace(
        GAPPY, steps=tuple(dataclasses.replace(step, words_ms=()) for step in GAPPY.steps)
    )
    assert "word_lag_ms" not in values_of(
        measured(lost, "ws", section(Load(together=1))).utterances
    )


@pytest.mark.parametrize("door", ["ws", "cartesia"])
def test_a_late_cancel_shows_in_bytes_and_seconds(door: str) -> None:
    """Audio after the interruption is counted to the byte, until the server confirms."""
    style = Style(TEXTS, barge_ins=1.0)
    (utterance,) = measured(LATE_CANCEL, door, section(Load(together=1)), style).utterances
    assert utterance.request.barge_in_s is not None
    cut_ms = 1000 * (utterance.request.barge_in_s + 0.1)
    values = values_of([utterance])
    assert utterance.cancelled is not None
    assert 1000 * (utterance.cancelled - utterance.due) == to_the_sample(cut_ms)
    assert values["confirmed_ms"] == [to_the_sample(250)]
    arrivals_ms = [100 * (index + 1) for index in range(40)]
    after = [at for at in arrivals_ms if cut_ms < at <= cut_ms + 250]
    assert values["last_frame_ms"] == [to_the_sample(after[-1] - cut_ms)]
    assert values["bytes_after_cancel"] == [2 * 2_400 * len(after)]
    received_ms = after[-1]
    assert values["wasted_s"] == [pytest.approx((received_ms - (cut_ms - 100)) / 1000, abs=1e-4)]
    assert "e2e_ms" not in values


@pytest.mark.parametrize("door", ["ws", "cartesia"])
def test_nobody_hears_an_underrun_after_the_interruption(door: str) -> None:
    """A server that has run dry by then, and sends one more piece, made its listener wait for none.

    Without the interruption the same audio has the underrun.
    """
    style = Style(TEXTS, barge_ins=1.0)
    cut_s = next(style.requests()).barge_in_s
    assert cut_s is not None
    plenty = Step(0.1, samples=round((cut_s + 0.05) * SAMPLE_RATE_HZ))
    late = Step(0.1 + cut_s + 0.5, samples=2_400)
    script = Script((plenty, late), end_s=late.at_s, cancel_s=0.8)
    (cut,) = measured(script, door, section(Load(together=1)), style).utterances
    assert cut.cancelled is not None and cut.times[-1] - cut.due == pytest.approx(late.at_s)
    assert values_of([cut])["underrun_ms"] == [0]
    assert values_of([cut])["bytes_after_cancel"] == [4_800]
    (heard,) = measured(script, door, section(Load(together=1))).utterances
    assert values_of([heard])["underrun_ms"] == [to_the_sample(450)]


def test_where_nothing_cancels_the_connection_is_closed() -> None:
    """Nothing arrives after the interruption, and what had arrived unplayed is wasted."""
    style = Style(TEXTS, barge_ins=1.0)
    (utterance,) = measured(LATE_CANCEL, "http", section(Load(together=1)), style).utterances
    values = values_of([utterance])
    assert utterance.failure is None
    assert values["last_frame_ms"] == [0]
    assert values["bytes_after_cancel"] == [0]
    assert 0 <= values["wasted_s"][0] <= 0.1


def test_a_slow_server_cannot_hide_behind_its_own_delays() -> None:
    """In an open loop utterances start on time whether or not earlier ones have ended."""
    slow = Script((Step(2.0, samples=2_400),), end_s=2.1)
    traffic = measured(slow, "ws", section(Load(per_s=10), seconds=1.0))
    assert len(traffic.utterances) > 5
    assert values_of(traffic.utterances)["audible_ms"] == [to_the_sample(2000)] * len(
        traffic.utterances
    )
    due = [each.due for each in traffic.utterances]
    assert due[-1] - due[0] < 1.0


def test_a_warm_up_is_spoken_but_not_measured() -> None:
    """Utterances that are due in the warm-up are left out, and every caller has one after it."""
    plan = section(Load(together=3), seconds=0.2, warm_up_s=0.8)
    traffic = measured(GAPPY, "ws", plan)
    # Each takes 500 ms: those of 0.0 and 0.5 s are warm-up, that of 1.0 s would be too late.
    assert len(traffic.utterances) == 3
    assert {round(each.due - traffic.utterances[0].due, 3) for each in traffic.utterances} == {0.0}


def test_new_sockets_are_part_of_the_latency() -> None:
    """A socket for each utterance is timed, and its time is in the utterance's latency."""
    plan = Section(Load(together=1), 0.1, has_new_sockets=True)
    (utterance,) = measured(GAPPY, "ws", plan).utterances
    assert utterance.connect_s is not None
    assert values_of([utterance])["first_byte_ms"] == [
        to_the_sample(100 + 1000 * utterance.connect_s)
    ]


def test_tokens_are_sent_when_they_are_written() -> None:
    """The script starts with the first token; a request over HTTP waits for the last one."""
    style = Style(TEXTS, has_tokens=True)
    (socket,) = measured(GAPPY, "ws", section(Load(together=1)), style).utterances
    (request,) = measured(GAPPY, "http", section(Load(together=1)), style).utterances
    last_s = request.request.pieces[-1][0]
    assert last_s > 0
    assert values_of([socket])["first_byte_ms"] == [to_the_sample(100)]
    assert values_of([request])["first_byte_ms"] == [to_the_sample(100 + 1000 * last_s)]


def test_callers_who_talk_listen_before_they_think() -> None:
    """The next utterance is due after the audio has been played, not when it has arrived."""
    plan = section(Load(together=1, think_s=0.0), seconds=1.0)
    first, second, *_ = measured(GAPPY, "ws", plan).utterances
    # Audio from 100 ms, 400 ms long, with an underrun of 200 ms.
    assert 1000 * (second.due - first.due) == to_the_sample(700)


def test_a_section_s_rates_follow_from_its_utterances() -> None:
    """Audio and characters count over the time from the first start to the last end."""
    plan = section(Load(together=2))
    traffic = measured(GAPPY, "ws", plan)
    figures = flat(section_document("t", plan, traffic, 1))
    assert figures["audio_s_per_s"] == pytest.approx(2 * 0.4 / 0.5, abs=1e-3)
    chars_per_s = 2 * len(TEXTS[0].text) / 0.5
    assert figures["chars_per_s"] == pytest.approx(chars_per_s, abs=1e-3)
    assert (figures["utterances"], figures["with_underruns"], figures["failed"]) == (2, 2, 0)
    assert figures["good_percent"] == 0  # 200 ms of underruns are too much
    assert figures["audible_p99_ms"] == to_the_sample(160)


@pytest.mark.parametrize("rate_hz", [8_000, 22_050, 44_100, 48_000])
def test_pieces_add_up_at_every_rate(rate_hz: int) -> None:
    """A piece of 1,024 samples has no whole number of samples at 24 kHz; 500 of them have."""
    utterance = Utterance(Request("Hello."))
    silence, sound = bytes(2_048), np.full(1_024, 9_000, "<i2").tobytes()
    for number in range(500):
        utterance.hear(silence if number < 100 else sound, number / 10, rate_hz)
    assert sum(utterance.sizes) == round(500 * 1_024 * SAMPLE_RATE_HZ / rate_hz)
    assert utterance.silent_samples == round(100 * 1_024 * SAMPLE_RATE_HZ / rate_hz)


def test_callers_who_talk_also_interrupt_what_has_arrived() -> None:
    """Where all audio came at once there is nothing to cancel, but the user speaks all the same."""
    at_once = Script((Step(0.1, samples=4 * SAMPLE_RATE_HZ),), end_s=0.1)
    plan = section(Load(together=1, think_s=0.0), seconds=0.2)
    style = Style(TEXTS, barge_ins=1.0)
    (first, *_) = measured(at_once, "http", plan, style).utterances
    cut_s = first.request.barge_in_s
    assert cut_s is not None and first.cancelled is None
    assert values_of([first])["wasted_s"] == [pytest.approx(4 - cut_s)]
    two = measured(at_once, "http", section(plan.load, seconds=cut_s + 0.2), style).utterances
    assert two[1].due - two[0].due == pytest.approx(0.1 + cut_s, abs=1e-4)
