"""The report of barge-ins: sections and tables."""

import json
from typing import Any

from voiceagent_tts.plugins.bench.bargein.heard import Heard
from voiceagent_tts.plugins.bench.bargein.pool import Conversation
from voiceagent_tts.plugins.bench.bargein.replies import Cut
from voiceagent_tts.plugins.bench.bargein.report import (
    COLUMNS,
    cells,
    name_of,
    section_of,
    warnings_of,
)
from voiceagent_tts.plugins.bench.bargein.session import Reply
from voiceagent_tts.plugins.bench.document import flat

TEXT = "One, two, three, four."
NAME = "stock <b>service</b>"


def reply(committed: str, played_s: float = 1.0, *, was_interrupted: bool = True) -> Reply:
    """A reply of which three words were heard."""
    return Reply(
        cut=Cut("en", TEXT, 1.0),
        was_interrupted=was_interrupted,
        played=bytes(2 * int(24_000 * played_s)),
        committed=committed,
        received_s=2.0,
        dry_s=0.0,
        cancel_ms=1.0,
        barge_in_ms=140.0,
    )


def section() -> dict[str, Any]:
    """One history of each kind, a silent reply, and one that was over."""
    heard = Heard(*[frozenset(range(3))] * 3)
    committed = ["One, two, three,", "One, two,", "One, two, three, four. Five.", ""]
    cut_off = [reply(text) for text in committed]
    replies = [*cut_off, reply("", 0.0), reply(TEXT, was_interrupted=False)]
    talked = [Conversation(replies, [0.2] * 100, ""), Conversation([], [], "TimeoutError: <late>")]
    return section_of(NAME, "the LLM stalls", 8, [each.outcome(heard) for each in cut_off], talked)


def test_a_section_counts_the_kinds_of_histories() -> None:
    """Only replies with sound that were interrupted are scored: shares, sums and quantiles."""
    found = section()
    assert found["kinds"] == {"exact": 1, "one_off": 1, "further": 1, "dropped": 1}
    assert (found["cuts"], found["replies"], found["planned"]) == (4, 6, 8)
    assert (found["exact_pct"], found["within_one_pct"]) == (25.0, 50.0)
    assert (found["dropped_turns"], found["unspoken_committed"], found["spoken_lost"]) == (1, 2, 4)
    assert (found["discarded_s"], found["cancel_p95_ms"], found["barge_in_p95_ms"]) == (4, 1, 140)
    assert found["differences"] == {-3: 1, -1: 1, 0: 1, 2: 1}
    low, high = found["exact_interval"]
    assert 0 < low < 25 < high < 100
    json.dumps(flat(found))


def test_a_section_without_any_reply_has_figures() -> None:
    """A target that never speaks is reported, not an error."""
    found = section_of("mute", "steady", 4, [], [Conversation([], [], "TimeoutError")])
    assert found["cuts"] == 0 and found["exact_pct"] is None
    assert (name_of(found), *cells(found, COLUMNS)[:2]) == ("mute", "0", "–")


def test_what_makes_figures_doubtful_is_said() -> None:
    """Silent replies, replies that were over, missing ones, a late machine, a broken session."""
    text = "\n".join(warnings_of([section()]))
    for part in ("1 of 6 replies made no sound", "1 of 6 replies were over", "8 replies were",
                 "200 ms late", "broke off: TimeoutError: <late>"):  # fmt: skip
        assert part in text
