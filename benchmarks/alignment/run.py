"""Does an agent that is interrupted know which words were heard?

Speech with known word times (other voices of espeak, and flite with two voices and sentences that
were not used for tuning) is generated at several real-time factors and played on the product's own
clock, timeline and word policy. Every 130 ms the listener interrupts, and the number of words that
have begun by the times sent so far is compared with the true number:

- exact: as many words; within one: at most one more or fewer;
- late: words that were sent after their start had been played.

The methods are the online aligner, a simulated forced aligner of published accuracy (the truth with
Laplace noise, rounded to 80 ms, known when all audio of the sentence is generated), both together,
the product's own estimates, and three baselines: 15 characters a second, the times of a sentence
when it is complete, and time in proportion to characters once the duration is known.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.alignment.playback import FORCED_S, BargeIn, Playback, play
from benchmarks.alignment.plot import plot
from benchmarks.common.report import provenance, publish
from testbed.aligned_texts import ENGLISH, OTHERS
from testbed.flite_speech import FliteMissingError
from testbed.known_speech import (
    Spoken,
    espeak,
    flite,
    with_lead,
    with_pauses,
    with_reverb,
)
from voiceagent_tts.aligner.online.aligner import OnlineAligner
from voiceagent_tts.core import (
    BYTES_PER_SAMPLE,
    FRAME_SAMPLES,
    SAMPLE_RATE_HZ,
    WordTimestamp,
    ms_to_samples,
)
from voiceagent_tts.text.words import split_words

RTFS = (0.2, 0.5, 0.8, 0.95)
FLITE_VOICES = ("rms", "awb")
"""Held-out voices: parameters were tuned on kal16 and slt."""
ESPEAK_VOICES = (("f2", 0.8), ("m2", 1.0), ("f4", 1.1), ("m7", 1.3))
"""Held-out voices, each with a speed: parameters were tuned on f3, m5 and Annie."""

_CHARS_PER_S = 15.0
_FORCED_NOISE_MS = 25.0
"""With rounding to 80 ms this gives the published 32.4 ms of Qwen3-ForcedAligner-0.6B on human
labels.
Source: arXiv 2601.21337, table 9."""
_FORCED_STEP_SAMPLES = ms_to_samples(80)
_SESSIONS = 100


@dataclass(frozen=True, slots=True)
class Cuts:
    """Results of the barge-ins into several contexts.

    Attributes:
        exact_pct: percentage of barge-ins with exactly the words heard.
        within_one_pct: percentage of barge-ins with at most one word more or fewer.
        late_pct: percentage of words that were sent late.
        mae_ms: mean absolute error of the sent word starts; None without words.
        stamped_exact_pct: percentage of words that were sent as exact.
    """

    exact_pct: float
    within_one_pct: float
    late_pct: float
    mae_ms: float | None
    stamped_exact_pct: float


Method = Callable[[Spoken, float], Playback]
"""Plays a context at a real-time factor with one source of word times."""


def cuts_of(method: Method, contexts: Sequence[Spoken], rtf: float) -> Cuts:
    """Play every context and compare the words heard with the truth."""
    playbacks = [method(spoken, rtf) for spoken in contexts]
    misses = np.array(
        [
            barge_in.words - _words_begun(spoken.words, barge_in)
            for spoken, playback in zip(contexts, playbacks, strict=True)
            for barge_in in playback.barge_ins
        ]
    )
    words = [word for playback in playbacks for word in playback.words]
    errors = [
        errors_ms(playback.words, spoken.words)
        for spoken, playback in zip(contexts, playbacks, strict=True)
        if playback.words
    ]
    return Cuts(
        _pct(misses == 0),
        _pct(abs(misses) <= 1),
        100 * sum(playback.late for playback in playbacks) / max(1, len(words)),
        float(np.concatenate(errors).mean()) if errors else None,
        _pct(np.array([word.is_exact for word in words])) if words else 0.0,
    )


def errors_ms(
    words: Sequence[WordTimestamp], truth: Sequence[WordTimestamp]
) -> npt.NDArray[np.float64]:
    """Absolute error of each word's start in milliseconds."""
    pairs = zip(words, truth, strict=True)
    samples = [abs(ours.start_sample - true.start_sample) for ours, true in pairs]
    return np.array(samples) * 1000 / SAMPLE_RATE_HZ


def _words_begun(words: Iterable[WordTimestamp], barge_in: BargeIn) -> int:
    return sum(word.start_sample <= barge_in.played_samples for word in words)


def _pct(claims: npt.NDArray[np.bool_]) -> float:
    return 100 * float(claims.mean())


# Methods


def online() -> Method:
    """The online aligner; at first it knows no voice."""
    aligner = OnlineAligner()
    return lambda spoken, rtf: play(spoken, rtf, aligner.open(spoken.language, spoken.speaker))


def forced(seed: int) -> Method:
    """The forced aligner, and estimates before its answer."""
    random = Random(seed)
    return lambda spoken, rtf: play(spoken, rtf, None, forced_times(spoken, random))


def hybrid(seed: int) -> Method:
    """Both aligners."""
    random, aligner = Random(seed), OnlineAligner()

    def play_both(spoken: Spoken, rtf: float) -> Playback:
        session = aligner.open(spoken.language, spoken.speaker)
        return play(spoken, rtf, session, forced_times(spoken, random))

    return play_both


def estimates(spoken: Spoken, rtf: float) -> Playback:
    """The product without aligners."""
    return play(spoken, rtf, None)


def fixed_rate(spoken: Spoken, rtf: float) -> Playback:
    """No word times: 15 characters a second."""
    return _recounted(spoken, rtf, lambda _, barge_in: _by_chars(spoken, barge_in, _CHARS_PER_S))


def sentence_end(spoken: Spoken, rtf: float) -> Playback:
    """Exact times, known when the sentence is complete."""

    def count(playback: Playback, barge_in: BargeIn) -> int:
        is_known = barge_in.now_s >= playback.made_s + FORCED_S
        return _words_begun(spoken.words, barge_in) if is_known else 0

    return _recounted(spoken, rtf, count)


def proportional(spoken: Spoken, rtf: float) -> Playback:
    """Time in proportion to characters, once the duration is known."""
    chars_per_s = len(spoken.text) / (spoken.samples / SAMPLE_RATE_HZ)

    def count(playback: Playback, barge_in: BargeIn) -> int:
        is_known = barge_in.now_s >= playback.made_s
        return _by_chars(spoken, barge_in, chars_per_s if is_known else _CHARS_PER_S)

    return _recounted(spoken, rtf, count)


def _recounted(spoken: Spoken, rtf: float, count: Callable[[Playback, BargeIn], int]) -> Playback:
    """Barge-ins without aligners, with the words counted by `count`."""
    played = play(spoken, rtf, None)
    barge_ins = [
        BargeIn(barge_in.now_s, barge_in.played_samples, count(played, barge_in))
        for barge_in in played.barge_ins
    ]
    return Playback(barge_ins=barge_ins, made_s=played.made_s)


def _by_chars(spoken: Spoken, barge_in: BargeIn, chars_per_s: float) -> int:
    chars = barge_in.played_samples / SAMPLE_RATE_HZ * chars_per_s
    return sum(word.word.char_start <= chars for word in spoken.words)


def forced_times(spoken: Spoken, random: Random) -> list[WordTimestamp]:
    """Times of a forced aligner of published accuracy: the truth with noise, rounded."""
    times: list[WordTimestamp] = []
    last = 0
    for word in spoken.words:
        magnitude_ms = random.expovariate(1 / _FORCED_NOISE_MS)
        blurred = word.start_sample + random.choice((-1, 1)) * ms_to_samples(magnitude_ms)
        rounded = round(blurred / _FORCED_STEP_SAMPLES) * _FORCED_STEP_SAMPLES
        last = min(max(rounded, last), spoken.samples)
        times.append(WordTimestamp(word.word, last, None, is_exact=True))
    return times


# Speech


def held_out(pace: float = 1.0) -> list[Spoken]:
    """English that was not used for tuning, spoken by flite.

    Raises:
        FliteMissingError: flite is not installed.
    """
    spoken = (flite(text, voice, pace) for voice in FLITE_VOICES for text in ENGLISH)
    return [one for one in spoken if one is not None]


def espeak_variants() -> list[Spoken]:
    """English in other voices of espeak."""
    return [espeak(text, "en", *voice) for voice in ESPEAK_VOICES for text in ENGLISH]


def conditions(contexts: Sequence[Spoken]) -> dict[str, list[Spoken]]:
    """Harder variants of the speech."""
    random = Random(1)
    return {
        "inserted pauses": [_with_three_pauses(spoken, random) for spoken in contexts],
        "500 ms of lead silence": [with_lead(spoken, 500) for spoken in contexts],
        "reverb": [with_reverb(spoken) for spoken in contexts],
        "30 % faster": held_out(1.3),
        "30 % slower": held_out(0.7),
    }


def _with_three_pauses(spoken: Spoken, random: Random) -> Spoken:
    places = random.sample(range(1, len(spoken.words)), 3)
    return with_pauses(spoken, list(zip(places, (2_000, 700, 350), strict=True)))


# Measurements


def accuracy(contexts: Iterable[Spoken]) -> dict[str, float]:
    """Errors of the online aligner's final word starts."""
    aligner = OnlineAligner()
    errors = np.concatenate(
        [errors_ms(_aligned(aligner, spoken), spoken.words) for spoken in contexts]
    )
    figures = {"words": len(errors), "mae_ms": float(errors.mean())}
    figures |= {f"within_{ms}_ms_pct": _pct(errors <= ms) for ms in (50, 100, 200)}
    return {name: round(figure, 1) for name, figure in figures.items()}


def _aligned(aligner: OnlineAligner, spoken: Spoken) -> list[WordTimestamp]:
    session = aligner.open(spoken.language, spoken.speaker)
    session.append(split_words(spoken.text))
    words: list[WordTimestamp] = []
    for pcm in _frames(spoken):
        words += session.push(pcm)
    return words + list(session.finish())


def _frames(spoken: Spoken) -> Iterable[bytes]:
    size = FRAME_SAMPLES * BYTES_PER_SAMPLE
    return (spoken.pcm[start : start + size] for start in range(0, len(spoken.pcm), size))


def cpu_per_audio_s(contexts: Sequence[Spoken]) -> float:
    """CPU seconds per second of audio with 100 contexts, interleaved frame by frame.

    Includes the references, and the tentative words after every frame, as in a worker.
    """
    aligner = OnlineAligner()
    chosen = [contexts[index % len(contexts)] for index in range(_SESSIONS)]
    for spoken in {spoken.speaker: spoken for spoken in chosen}.values():
        _aligned(aligner, spoken)
    before_s = time.process_time()
    followed = [_followed(aligner, spoken) for spoken in chosen]
    while followed:
        followed = [session for session in followed if next(session, None) is not None]
    audio_s = sum(spoken.samples for spoken in chosen) / SAMPLE_RATE_HZ
    return (time.process_time() - before_s) / audio_s


def _followed(aligner: OnlineAligner, spoken: Spoken) -> Iterator[bytes]:
    """Align one context; each step handles one frame."""
    session = aligner.open(spoken.language, spoken.speaker)
    session.append(split_words(spoken.text))
    for pcm in _frames(spoken):
        session.push(pcm)
        session.tentative()
        yield pcm
    session.finish()


def compare(contexts: Sequence[Spoken]) -> dict[str, dict[float, Cuts]]:
    """Results of every method at every real-time factor."""
    ways: dict[str, Callable[[], Method]] = {
        "online": online,
        "forced (simulated)": lambda: forced(1),
        "online + forced": lambda: hybrid(1),
        "own estimates": lambda: estimates,
        "sentence end": lambda: sentence_end,
        "proportional": lambda: proportional,
        "15 characters/s": lambda: fixed_rate,
    }
    return {
        name: {rtf: cuts_of(make(), contexts, rtf) for rtf in RTFS} for name, make in ways.items()
    }


def main(
    json: Annotated[Path | None, typer.Option(help="Also write the results to this file.")] = None,
    png: Annotated[Path, typer.Option(help="File for the plot.")] = Path("out/alignment.png"),
) -> None:
    """Measure how exactly the words heard are known when a listener interrupts."""
    origin = provenance()
    variants = espeak_variants()
    try:
        contexts, truth = held_out(), "flite: " + ", ".join(FLITE_VOICES)
        harder = conditions(contexts)
    except FliteMissingError as missing:
        Console(stderr=True).print(f"{missing}; only espeak's variants are measured")
        contexts, truth, harder = variants, "espeak", {}
    ways = compare(contexts)
    rows = {
        truth: accuracy(contexts),
        "espeak variants": accuracy(variants),
        **{name: accuracy(spoken) for name, spoken in harder.items()},
        **{language: accuracy(_others(language)) for language in OTHERS},
    }
    harder_cuts = {name: cuts_of(online(), spoken, 0.5) for name, spoken in harder.items()}
    Console().print(_table_of_ways(ways))
    Console().print(_table_of_accuracy(rows, harder_cuts))
    plot(
        {name: {rtf: cuts.exact_pct for rtf, cuts in by.items()} for name, by in ways.items()}, png
    )
    figures = {
        "truth": truth,
        "ways": {
            name: {str(rtf): _rounded(cuts) for rtf, cuts in by.items()}
            for name, by in ways.items()
        },
        "accuracy": rows,
        "harder_at_0.5": {name: _rounded(cuts) for name, cuts in harder_cuts.items()},
    }
    headline = _headline(ways["online"], rows[truth], cpu_per_audio_s(contexts))
    publish({**headline, **figures, **origin}, json)
    publish(headline)


def _others(language: str) -> list[Spoken]:
    voices = ESPEAK_VOICES
    return [espeak(text, language, *voice) for voice in voices for text in OTHERS[language]]


def _headline(cuts: dict[float, Cuts], figures: dict[str, float], cpu_s: float) -> dict[str, Any]:
    """The online aligner alone; where there is one figure, it is of the worst real-time factor."""
    return {
        "exact_pct": {str(rtf): round(one.exact_pct, 1) for rtf, one in cuts.items()},
        "within_one_pct": round(min(one.within_one_pct for one in cuts.values()), 1),
        "late_pct": round(max(one.late_pct for one in cuts.values()), 2),
        "mae_ms": figures["mae_ms"],
        "cpu_per_audio_s": round(cpu_s, 4),
    }


def _rounded(cuts: Cuts) -> dict[str, float]:
    return {name: round(figure, 2) for name, figure in asdict(cuts).items() if figure is not None}


def _table_of_ways(ways: dict[str, dict[float, Cuts]]) -> Table:
    table = Table(title="exact % (within one %, late %, words sent as exact %) by real-time factor")
    for column in ("", *map(str, RTFS)):
        table.add_column(column)
    for name, by in ways.items():
        table.add_row(name, *map(_cell, by.values()))
    return table


def _cell(cuts: Cuts) -> str:
    others = f"{cuts.within_one_pct:.1f}, {cuts.late_pct:.1f}, {cuts.stamped_exact_pct:.0f}"
    return f"{cuts.exact_pct:.1f} ({others})"


def _table_of_accuracy(rows: dict[str, dict[str, float]], harder: dict[str, Cuts]) -> Table:
    table = Table(title="word starts of the online aligner")
    for column in ("", "words", "MAE ms", "<= 50 ms %", "<= 100 %", "<= 200 %", "exact % at 0.5"):
        table.add_column(column)
    for name, figures in rows.items():
        exact = f"{harder[name].exact_pct:.1f}" if name in harder else ""
        table.add_row(name, *(f"{figure:g}" for figure in figures.values()), exact)
    return table
