"""Does an agent that is interrupted know which words were heard, by the online aligner?

Speech with known word times (other voices of espeak, and flite with voices and sentences that were
not used for tuning) is generated at several real-time factors and played on the product's own
clock, timeline and word policy. Every 130 ms the listener interrupts, and the number of words that
have begun by the times sent so far is compared with the true number:

- exact: as many words; within one: at most one more or fewer;
- late: words that were sent after their start had been played;
- off: of the words that were sent as exact, those whose start is more than 200 ms off.

The aligner is then measured under every condition of `conditions.py`, at a real-time factor of 0.5.
`--quick` measures the conditions alone, on few contexts each, and `--only NAME` those with
that in their name; `--development` uses the speech that parameters may be tuned on, in place of the
held-out one. Recordings of people are measured after `make recordings`: readings and commands by
many speakers, few words in all, and 144 telephone prompts by one professional speaker. Their truth
is a forced alignment, whose own error is measured on flite, also in telephone quality.
"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.alignment.conditions import conditions
from benchmarks.alignment.measure import Cuts, Method, accuracy, cpu_per_audio_s, cuts_of
from benchmarks.alignment.playback import play
from benchmarks.alignment.speech import (
    DEVELOPMENT,
    ESPEAK_VOICES,
    HELD_OUT,
    SpeechSet,
    espeak_variants,
)
from benchmarks.common.report import provenance, publish
from testbed.flite_speech import FliteMissingError
from testbed.known_speech import KnownSpeech, espeak
from testbed.recordings import TELEPHONE_RATE_HZ, RecordingsMissingError, own_errors_ms
from testbed.sentences import OTHERS
from voiceagent_tts.aligner.online.aligner import OnlineAligner
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.word_times.aligners import VoiceLevels

RTFS = (0.2, 0.5, 0.8, 0.95)
_CONDITIONS_RTF = 0.5
_AT_RTF = f"at RTF {_CONDITIONS_RTF}"
_QUICK_SENTENCES = 3
_COLUMNS = {
    "exact %": "exact_pct",
    "within one %": "within_one_pct",
    "late %": "late_pct",
    "MAE ms": "mae_ms",
    "sent as exact %": "stamped_exact_pct",
    "of these off %": "stamped_off_pct",
}
"""Columns of the tables of cuts, and the figures in them."""

Figures = dict[str, float]


def online() -> Method:
    """The online aligner; at first it knows no voice."""
    aligner, levels = OnlineAligner(), VoiceLevels()
    return lambda spoken, rtf: play(
        spoken, rtf, aligner.open(spoken.language, spoken.speaker), levels
    )


def under_conditions(speech: SpeechSet, only: str) -> dict[str, Figures]:
    """Measure the online aligner alone, under the conditions whose names contain `only`."""
    rows: dict[str, Figures] = {}
    for name, make in conditions(speech).items():
        if only in name:
            rows[name] = _rounded(cuts_of(online(), make(), _CONDITIONS_RTF))
    return rows


def main(
    quick: Annotated[bool, typer.Option(help="Conditions alone, on few contexts.")] = False,
    only: Annotated[str, typer.Option(help="Conditions alone, with this in their name.")] = "",
    development: Annotated[bool, typer.Option(help="Use the speech for tuning.")] = False,
    json: Annotated[Path | None, typer.Option(help="Also write the results to this file.")] = None,
) -> None:
    """Measure how exactly the words heard are known when a listener interrupts."""
    origin = provenance()
    speech = DEVELOPMENT if development else HELD_OUT
    try:
        speech.spoken()
    except FliteMissingError as missing:
        Console(stderr=True).print(f"{missing}; only espeak's variants are measured")
        speech = None
    if speech is not None and (quick or only):
        rows = under_conditions(speech.few(_QUICK_SENTENCES) if quick else speech, only)
        _print_cuts(_AT_RTF, rows)
        publish({"conditions_at_0.5": rows, **origin}, json)
        return
    contexts = espeak_variants() if speech is None else speech.spoken()
    truth = "espeak" if speech is None else "flite: " + ", ".join(speech.voices)
    cuts = {rtf: cuts_of(online(), contexts, rtf) for rtf in RTFS}
    by_rtf = {str(rtf): _rounded(each) for rtf, each in cuts.items()}
    _print_cuts("by real-time factor", by_rtf)
    rows = {
        truth: accuracy(contexts),
        "espeak variants": accuracy(espeak_variants()),
        **{language: accuracy(_others(language)) for language in OTHERS},
    }
    Console().print(_table_of_accuracy(rows))
    harder = {} if speech is None else under_conditions(speech, "")
    _print_cuts(_AT_RTF, harder)
    figures = {
        "truth": truth,
        "cuts": by_rtf,
        "accuracy": rows,
        "conditions_at_0.5": harder,
        **_recordings_error(contexts),
    }
    headline = _headline(cuts, rows[truth], cpu_per_audio_s(contexts))
    publish({**headline, **figures, **origin}, json)
    publish(headline)


def _recordings_error(contexts: Sequence[KnownSpeech]) -> Figures:
    rates_hz = {"recordings_own_mae_ms": SAMPLE_RATE_HZ, "telephone_own_mae_ms": TELEPHONE_RATE_HZ}
    try:
        errors_ms = {name: own_errors_ms(contexts, rate) for name, rate in rates_hz.items()}
    except RecordingsMissingError:
        return {}
    return {name: round(sum(errors) / len(errors), 1) for name, errors in errors_ms.items()}


def _others(language: str) -> list[KnownSpeech]:
    voices = ESPEAK_VOICES
    return [espeak(text, language, *voice) for voice in voices for text in OTHERS[language]]


def _headline(cuts: dict[float, Cuts], figures: Figures, cpu_s: float) -> dict[str, Any]:
    """Where there is one figure, it is of the worst real-time factor."""
    return {
        "exact_pct": {str(rtf): round(one.exact_pct, 1) for rtf, one in cuts.items()},
        "within_one_pct": round(min(one.within_one_pct for one in cuts.values()), 1),
        "late_pct": round(max(one.late_pct for one in cuts.values()), 2),
        "mae_ms": figures["mae_ms"],
        "cpu_per_audio_s": round(cpu_s, 4),
    }


def _rounded(cuts: Cuts) -> Figures:
    return {name: round(figure, 2) for name, figure in asdict(cuts).items()}


def _table_of_accuracy(rows: dict[str, Figures]) -> Table:
    table = Table(title="final word starts of the online aligner")
    for column in ("", "words", "MAE ms", "<= 50 ms %", "<= 100 %", "<= 200 %"):
        table.add_column(column)
    for name, figures in rows.items():
        table.add_row(name, *(f"{figure:g}" for figure in figures.values()))
    return table


def _print_cuts(title: str, rows: dict[str, Figures]) -> None:
    table = Table("", *_COLUMNS, title=f"the online aligner {title}")
    for name, figures in rows.items():
        table.add_row(name, *(f"{figures[figure]:g}" for figure in _COLUMNS.values()))
    Console(width=120).print(table)
