"""Does an agent that is interrupted know which words were heard, by the online aligner?

Speech with known word times (flite with voices and sentences that were not used for tuning, and
other voices of espeak in all languages) is generated at a real-time factor and played on the
product's own clock, timeline and word policy. Every 130 ms the listener interrupts, and the number
of words that have begun by the times sent so far is compared with the true number:

- exact: as many words; within one: at most one more or fewer;
- late: words that were sent after their start had been played;
- off: of the words that were sent as exact, those whose start is more than 200 ms off.

This is measured under every condition of `conditions.py` at a real-time factor of 0.5, and under
the first one at several. `--quick` measures the conditions alone, on few contexts each, and
`--only NAME` those with that in their name; `--development` uses the speech that parameters may be
tuned on, in place of the held-out one. Recordings of people are measured after `make recordings`:
readings and commands by many speakers, few words in all, and 144 telephone prompts by one
professional speaker. Their truth is a forced alignment, whose own error is measured on speech with
known times, also in telephone quality.
"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.alignment.conditions import Condition, conditions, espeak_conditions
from benchmarks.alignment.measure import Method, cpu_per_audio_s, cuts_of
from benchmarks.alignment.playback import play
from benchmarks.alignment.speech import DEVELOPMENT, HELD_OUT
from benchmarks.common.report import provenance, publish
from testbed.flite_speech import FliteMissingError
from testbed.known_speech import KnownSpeech
from testbed.recordings import TELEPHONE_RATE_HZ, RecordingsMissingError, own_errors_ms
from voiceagent_tts.aligner.online.aligner import OnlineAligner
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.word_times.aligners import VoiceLevels

RTFS = (0.2, 0.5, 0.8, 0.95)
_CONDITIONS_RTF = 0.5
_QUICK_SENTENCES = 3
_COLUMNS = {
    "exact %": "exact_pct",
    "within one %": "within_one_pct",
    "late %": "late_pct",
    "MAE ms": "mae_ms",
    "sent as exact %": "stamped_exact_pct",
    "of these off %": "stamped_off_pct",
}
"""Columns of the tables, and the figures in them."""

Figures = dict[str, float]


def online() -> Method:
    """The online aligner; at first it knows no voice."""
    aligner, levels = OnlineAligner(), VoiceLevels()
    return lambda spoken, rtf: play(
        spoken, rtf, aligner.open(spoken.language, spoken.speaker), levels
    )


def main(
    quick: Annotated[bool, typer.Option(help="Conditions alone, on few contexts.")] = False,
    only: Annotated[str, typer.Option(help="Conditions alone, with this in their name.")] = "",
    development: Annotated[bool, typer.Option(help="Use the speech for tuning.")] = False,
    json: Annotated[Path | None, typer.Option(help="Also write the results to this file.")] = None,
) -> None:
    """Measure how exactly the words heard are known when a listener interrupts."""
    origin = provenance()
    named = _conditions(development, quick)
    of_all = {} if quick or only else _at_every_rtf(next(iter(named.values()))())
    rows = {
        name: _measured(contexts_of(), _CONDITIONS_RTF)
        for name, contexts_of in named.items()
        if only in name
    }
    _print_cuts(f"at RTF {_CONDITIONS_RTF}", rows)
    publish({**of_all, "conditions_at_0.5": rows, **origin}, json)


def _conditions(development: bool, quick: bool) -> dict[str, Condition]:
    speech = DEVELOPMENT if development else HELD_OUT
    try:
        named = conditions(speech.few(_QUICK_SENTENCES) if quick else speech)
    except FliteMissingError as missing:
        Console(stderr=True).print(f"{missing}; only espeak's voices are measured")
        named = {}
    return named | espeak_conditions()


def _at_every_rtf(contexts: Sequence[KnownSpeech]) -> dict[str, Any]:
    """The figures of whole runs; where there is one, it is of the worst real-time factor."""
    cuts = {str(rtf): _measured(contexts, rtf) for rtf in RTFS}
    _print_cuts("by real-time factor", cuts)
    return {
        "exact_pct": {rtf: round(row["exact_pct"], 1) for rtf, row in cuts.items()},
        "within_one_pct": min(row["within_one_pct"] for row in cuts.values()),
        "late_pct": max(row["late_pct"] for row in cuts.values()),
        "mae_ms": max(row["mae_ms"] for row in cuts.values()),
        "cpu_per_audio_s": round(cpu_per_audio_s(contexts), 4),
        "cuts": cuts,
        **_recordings_error(contexts),
    }


def _recordings_error(contexts: Sequence[KnownSpeech]) -> Figures:
    rates_hz = {"recordings_own_mae_ms": SAMPLE_RATE_HZ, "telephone_own_mae_ms": TELEPHONE_RATE_HZ}
    try:
        errors_ms = {name: own_errors_ms(contexts, rate) for name, rate in rates_hz.items()}
    except RecordingsMissingError:
        return {}
    return {name: round(sum(errors) / len(errors), 1) for name, errors in errors_ms.items()}


def _measured(contexts: Sequence[KnownSpeech], rtf: float) -> Figures:
    figures = asdict(cuts_of(online(), contexts, rtf))
    return {name: round(figure, 2) for name, figure in figures.items()}


def _print_cuts(title: str, rows: dict[str, Figures]) -> None:
    table = Table("", *_COLUMNS, title=f"the online aligner {title}")
    for name, figures in rows.items():
        table.add_row(name, *(f"{figures[figure]:g}" for figure in _COLUMNS.values()))
    Console(width=120).print(table)
