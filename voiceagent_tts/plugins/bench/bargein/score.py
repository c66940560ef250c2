"""Scores of interrupted replies: the words in the history against the words that were heard.

A word counts as *heard* when 20 ms of it were played, and as *unspoken* when no sample of it was
played; the demo uses the same definitions. Each reply that the user interrupted is scored:

- exact: the history has exactly the words that were heard;
- exact either way: exact if the word at the cut may count as heard or not;
- within one: at most one word is too many or missing;
- verbatim: the history is a prefix of the reply's text, spelling and spaces included;
- dropped: a word was heard, but the history has no word of the reply;
- lost: words that were heard but are not in the history;
- unspoken: words in the history that were not played.

Words are compared without case and punctuation.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

import numpy as np

from voiceagent_tts.plugins.bench.bargein.heard import Heard
from voiceagent_tts.plugins.bench.bargein.session import Outcome
from voiceagent_tts.text.words import split_words


@dataclass(frozen=True, slots=True)
class Verdict:
    """The scores of one outcome; the module's docstring defines them."""

    is_exact: bool
    is_exact_either: bool
    is_within_one: bool
    is_verbatim: bool
    is_dropped: bool
    lost: int
    unspoken: int
    difference: int
    """Words committed minus words heard."""


def judge(text: str, committed: str, heard: Heard) -> Verdict:
    """Compare the committed part of `text` with the words that were heard."""
    reply, history = _plain_words(text), _plain_words(committed)
    found = frozenset(_places(history, reply))
    extra = len(history) - len(found)
    lost, unheard = len(heard.heard - found), len(found - heard.heard) + extra
    return Verdict(
        is_exact=not lost and not unheard,
        is_exact_either=not extra and heard.finished <= found <= heard.begun,
        is_within_one=lost + unheard <= 1,
        is_verbatim=text.startswith(committed.rstrip()),
        is_dropped=bool(heard.heard) and not history,
        lost=lost,
        unspoken=len(found - heard.begun) + extra,
        difference=len(history) - len(heard.heard),
    )


def _plain_words(text: str) -> list[str]:
    words = (word.text.casefold() for word in split_words(text))
    return ["".join(filter(str.isalnum, word)) for word in words]


def _places(history: Sequence[str], reply: Sequence[str]) -> list[int]:
    """Indices of the words of `reply` that are in `history`, in order; early matches win."""
    matcher = SequenceMatcher(None, history, reply, autojunk=False)
    blocks = matcher.get_matching_blocks()
    return [block.b + offset for block in blocks for offset in range(block.size)]


def judge_all(outcomes: Sequence[Outcome]) -> list[Verdict]:
    """A verdict for each outcome."""
    return [judge(each.reply.cut.text, each.reply.committed, each.heard) for each in outcomes]


def summarize(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The figures of all `outcomes`, by their names in the JSON output."""
    verdicts = judge_all(outcomes)
    replies = [outcome.reply for outcome in outcomes]
    count = len(verdicts)

    def percent(flags: Sequence[bool]) -> float | None:
        return round(100 * sum(flags) / count, 2) if count else None

    return {
        "cuts": count,
        "exact_pct": percent([verdict.is_exact for verdict in verdicts]),
        "exact_either_pct": percent([verdict.is_exact_either for verdict in verdicts]),
        "within_one_pct": percent([verdict.is_within_one for verdict in verdicts]),
        "verbatim_pct": percent([verdict.is_verbatim for verdict in verdicts]),
        "dropped_turns": sum(verdict.is_dropped for verdict in verdicts),
        "spoken_lost": sum(verdict.lost for verdict in verdicts),
        "unspoken_committed": sum(verdict.unspoken for verdict in verdicts),
        **_quantiles("cancel", [reply.cancel_ms for reply in replies]),
        **_quantiles("barge_in", [reply.barge_in_ms for reply in replies]),
        "discarded_s": round(sum(reply.received_s - reply.played_s for reply in replies), 2),
        "dry_s": round(sum(reply.dry_s for reply in replies), 2),
        "unknown_s": round(sum(outcome.heard.unknown_s for outcome in outcomes), 2),
        "differences": dict(sorted(Counter(verdict.difference for verdict in verdicts).items())),
    }


def _quantiles(name: str, values_ms: Sequence[float]) -> dict[str, float | None]:
    if not values_ms:
        return {f"{name}_p50_ms": None, f"{name}_p95_ms": None}
    middle, high = np.percentile(np.asarray(values_ms, np.float64), (50, 95))
    return {f"{name}_p50_ms": round(float(middle), 1), f"{name}_p95_ms": round(float(high), 1)}
