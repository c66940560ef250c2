"""The report of barge-ins as HTML: one file without scripts, fonts or links to other sites."""

from collections.abc import Sequence
from html import escape
from typing import Any

from voiceagent_tts.bench.bargein.report import (
    COLUMNS,
    JUDGE_COLUMNS,
    KINDS,
    cells,
    name_of,
    warnings_of,
)
from voiceagent_tts.bench.html import page, provenance_list

_COLORS = {"exact": "--good", "one_off": "--c0", "further": "--warn", "dropped": "--bad"}


def render(document: dict[str, Any]) -> str:
    """The report of a run."""
    sections, judge = document["sections"], document["judge"]
    cuts = sum(section["cuts"] for section in sections)
    lead = (
        f"{cuts:,} interruptions of spoken replies in real agent sessions, judged from the sound "
        f"alone, on {document['started_at'][:10]}."
    )
    warnings = "".join(
        f'<p class="warning">{escape(warning)}</p>' for warning in warnings_of(sections)
    )
    body = "".join(
        [
            "<h2>What the history says</h2><p>A user interrupts. The agent's history should hold "
            "the words that were heard, no more and no less: a model that reads it goes on from "
            "there.</p>",
            _bars(sections),
            "<h2>All figures</h2>",
            _table(
                "service", [(name_of(each), cells(each, COLUMNS)) for each in sections], COLUMNS
            ),
            warnings,
            _DEFINITIONS,
            "<h2>The judge's own error</h2><p>Measured before everything else, on this machine: "
            "against voices that report when each word begins, cut off at random moments. What "
            "the table above says is not finer than this.</p>",
            _judge_table(judge),
            provenance_list(document),
        ]
    )
    return page("Does the history say what was heard?", lead, body)


def _bars(sections: Sequence[dict[str, Any]]) -> str:
    legend = "".join(
        f'<span style="--series:var({_COLORS[kind]})"><i></i>{escape(title)}</span>'
        for kind, title in KINDS.items()
    )
    rows = "".join(_bar(section) for section in sections)
    return (
        f'<div class="panel"><div class="legend">{legend}</div><div class="ranges">{rows}</div>'
        '<p class="small">Share of the interrupted replies. Right: exact, with its 95 % interval.'
        "</p></div>"
    )


def _bar(section: dict[str, Any]) -> str:
    count = section["cuts"]
    if not count:
        note, parts = "no sound", ""
    else:
        low, high = section["exact_interval"]
        note = f"{section['exact_pct']:.0f} % ({low:.0f} to {high:.0f})"
        parts = "".join(
            f'<i style="flex:{section["kinds"][kind]};--series:var({_COLORS[kind]})"></i>'
            for kind in KINDS
            if section["kinds"][kind]
        )
    return (
        f'<div class="range"><span class="label">{escape(name_of(section))}</span>'
        f'<div class="shares-bar">{parts}</div><span class="note">{escape(note)}</span></div>'
    )


def _table(first: str, rows: Sequence[tuple[str, list[str]]], columns: dict[str, str]) -> str:
    heads = "".join(f"<th>{escape(heading)}</th>" for heading in columns.values())
    lines = "".join(
        f"<tr><td>{escape(name)}</td>{''.join(f'<td>{escape(cell)}</td>' for cell in of)}</tr>"
        for name, of in rows
    )
    return f'<div class="scroll"><table><tr><th>{first}</th>{heads}</tr>{lines}</table></div>'


def _judge_table(judge: Sequence[dict[str, Any]]) -> str:
    columns = {name: heading for name, heading in JUDGE_COLUMNS.items() if name != "language"}
    rows = [(str(figures["language"]), cells(figures, columns)) for figures in judge]
    return _table("language", rows, columns)


_DEFINITIONS = (
    "<h2>What is measured</h2><p>Each reply is spoken in a real session of the host, in real time, "
    "with the host's own voice activity detection, and interrupted by a user's voice after 0.2 to "
    "3.4 s of playback. What was played is recorded; which words it holds is decided by energy and "
    "forced alignment of that recording with the text, without a word from the service.</p><dl>"
    "<dt>exact</dt><dd>the history has exactly the words of which at least 20 ms were played</dd>"
    "<dt>within one</dt><dd>at most one word is too many or missing</dd>"
    "<dt>dropped turn</dt><dd>words were heard, but the history has no word of the reply</dd>"
    "<dt>unspoken words</dt><dd>words in the history of which nothing was played</dd>"
    "<dt>words lost</dt><dd>words that were heard and are not in the history</dd>"
    "<dt>silent</dt><dd>from the user's first sound to the agent's last sample</dd></dl>"
)
