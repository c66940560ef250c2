"""The figures of barge-ins as a document's sections, and as tables for the terminal."""

from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table

from voiceagent_tts.plugins.bench.bargein.conditions import Happening
from voiceagent_tts.plugins.bench.bargein.pool import Conversation
from voiceagent_tts.plugins.bench.bargein.score import Verdict, judge_all, summarize
from voiceagent_tts.plugins.bench.bargein.session import Outcome
from voiceagent_tts.plugins.bench.document import measures_of
from voiceagent_tts.plugins.bench.figures import table
from voiceagent_tts.plugins.bench.statistics import percentiles, share

KINDS = ("exact", "one_off", "further", "dropped")
"""How a history can be: exact, one word off, further off, or without any word of its reply."""
COLUMNS = {
    "cuts": "cuts",
    "exact_pct": "exact %",
    "within_one_pct": "within one %",
    "dropped_turns": "dropped turns",
    "unspoken_committed": "unspoken words",
    "spoken_lost": "words lost",
    "barge_in_p95_ms": "silent p95, ms",
}
"""Figures of a section, and their headings."""
EAR_COLUMNS = {name: COLUMNS[name] for name in COLUMNS if name != "barge_in_p95_ms"}
"""Figures by a recogniser, and their headings."""
_MOST_LAG_MS = 60.0
"""Lag of the sessions' event loops from which the figures are doubtful."""


def section_of(
    target: str,
    load: str,
    planned: int,
    outcomes: Sequence[Outcome],
    conversations: Sequence[Conversation],
) -> dict[str, Any]:
    """The section of one target in one condition.

    Args:
        target: its name.
        load: title of the condition.
        planned: number of planned cuts.
        outcomes: replies with sound that were interrupted.
        conversations: all sessions.
    """
    replies = [reply for conversation in conversations for reply in conversation.replies]
    verdicts = judge_all(outcomes)
    exact = share(sum(verdict.is_exact for verdict in verdicts), len(verdicts))
    barge_ins_ms = [outcome.reply.barge_in_ms for outcome in outcomes]
    lags_ms = [1000 * lag_s for each in conversations for lag_s in each.lags_s]
    return {
        "target": target,
        "load": load,
        **summarize(outcomes),
        "exact_interval": [round(100 * exact.low, 1), round(100 * exact.high, 1)],
        "kinds": {kind: sum(kind_of(each) == kind for each in verdicts) for kind in KINDS},
        "planned": planned,
        "replies": len(replies),
        "silent_replies": sum(not reply.played for reply in replies),
        "not_interrupted": sum(not reply.was_interrupted for reply in replies),
        "broken_off": [each.error for each in conversations if each.error],
        "client_lag_p99_ms": round(percentiles(lags_ms)[99].value, 1) if lags_ms else None,
        **measures_of({"barge_in_ms": barge_ins_ms} if barge_ins_ms else {}),
    }


def kind_of(verdict: Verdict) -> str:
    """The one of `KINDS` that a history is."""
    if verdict.is_dropped:
        return "dropped"
    if verdict.is_exact:
        return "exact"
    return "one_off" if verdict.is_within_one else "further"


def table_of(sections: Sequence[dict[str, Any]]) -> Table:
    """What histories say against what was heard."""
    title = "After an interruption: the history against what was heard"
    rows = ([name_of(each), *cells(each, COLUMNS)] for each in sections)
    return table(title, ["service", *COLUMNS.values()], rows)


def ear_figures(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """What a section has besides where a recogniser judged too."""
    figures = summarize(outcomes)
    return {"by_ear": {name: figures[name] for name in EAR_COLUMNS}}


def ear_table_of(sections: Sequence[dict[str, Any]]) -> Table:
    """What histories say against what a recogniser wrote down."""
    title = "The same history against what a recogniser heard"
    rows = ([name_of(each), *cells(each["by_ear"], EAR_COLUMNS)] for each in sections)
    return table(title, ["service", *EAR_COLUMNS.values()], rows)


def name_of(section: dict[str, Any]) -> str:
    """The name of a section: its target, and its condition unless nothing happens in it."""
    target, load = section["target"], section["load"]
    return target if load == Happening.NOTHING.heading else f"{target}, {load}"


def cells(figures: dict[str, Any], columns: dict[str, str]) -> list[str]:
    """The figures of `columns` as texts; a dash where there is none."""
    return [_cell(figures[name]) for name in columns]


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else f"{round(value, 1):g}"


def warnings_of(sections: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What makes figures doubtful."""
    for section in sections:
        name = name_of(section)
        if silent := section["silent_replies"]:
            yield f"{name}: {silent} of {section['replies']} replies made no sound."
        if over := section["not_interrupted"]:
            yield f"{name}: {over} of {section['replies']} replies were over before the user spoke."
        if section["replies"] < section["planned"]:
            yield f"{name}: {section['planned']} replies were planned, {section['replies']} came."
        if (section["client_lag_p99_ms"] or 0) > _MOST_LAG_MS:
            yield (
                f"{name}: this machine was up to {section['client_lag_p99_ms']:.0f} ms late (p99). "
                "Use fewer sessions (--together) or more free cores."
            )
        for error in section["broken_off"]:
            yield f"{name}: a session broke off: {error}"
