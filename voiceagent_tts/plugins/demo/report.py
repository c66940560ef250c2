"""The demo's report: words heard against words committed, as a table, a picture and numbers.

A word counts as heard when 20 ms of it were played. The word times are checked against the
recording: at a comma the voice pauses, and the audio must start again where the next word starts.
This module knows no Pipecat.
"""

import json
import statistics
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from rich.text import Text

from voiceagent_tts.audio.levels import onsets
from voiceagent_tts.core import SAMPLE_RATE_HZ, WordTimestamp, ms_to_samples, samples_to_ms
from voiceagent_tts.plugins.demo.fonts import WIDE_PACKAGE, Fonts, fonts_for
from voiceagent_tts.plugins.demo.realtime_file_transport import RealtimeFileTransport, Utterance
from voiceagent_tts.settings.network import DEFAULT_PORT
from voiceagent_tts.text.words import split_words

HEARD_SAMPLES = ms_to_samples(20)
MIN_EXACT = 0.9
_PAUSE_SAMPLES = ms_to_samples(200)
"""A word after a comma follows a pause if a sound begins within this distance of it."""
_MAX_WHOLE = 3
"""Answers that may end before the user interrupts: the last one, and two that were short."""


@dataclass
class DemoTurn:
    """One answer of the agent.

    Attributes:
        is_interrupted: whether the user is to interrupt it.
        context_id: its TTS context; None until it has words.
        words: word times, filled in as they arrive.
        committed: its text in the history; None until the turn has ended.
    """

    language: str
    answer: str
    is_interrupted: bool
    context_id: str | None = None
    words: list[WordTimestamp] = field(default_factory=list)
    committed: str | None = None


@dataclass(frozen=True)
class Score:
    """How well a turn's committed text matches what was heard.

    Attributes:
        heard: the answer up to the last word that was heard.
        is_exact: whether the history has exactly `heard`.
        error_words: words committed minus words heard.
        unspoken_words: committed words of which no sample was played.
        onset_errors_ms: distance between audio onset and word start of each word after a pause.
    """

    turn: DemoTurn
    utterance: Utterance
    heard: str
    is_exact: bool
    error_words: int
    unspoken_words: int
    onset_errors_ms: list[int]

    @property
    def is_interrupted(self) -> bool:
        """Whether the user interrupted before the answer had ended."""
        last = self.turn.words[-1] if self.turn.words else None
        ended = last is None or (last.end_sample or 0) <= self.utterance.played_samples
        return self.turn.is_interrupted and not ended


def report(
    turns: list[DemoTurn],
    transport: RealtimeFileTransport,
    ttfa_s: list[float],
    out: Path,
    console: Console,
    *,
    max_onset_error_ms: int | None,
) -> bool:
    """Score the turns, write `demo.wav`, `demo.png` and `demo.json`, and print what they say.

    The words that were heard follow from the server's word times. Where the engine itself reports
    these, they are compared with the audio, and may differ by `max_onset_error_ms`; an aligner's
    accuracy is `benchmarks.alignment`'s question, and that limit is None.

    Returns:
        Whether the history is as good as the demo claims.
    """
    agent, user = transport.tracks()
    played = {utterance.context_id: utterance for utterance in transport.utterances}
    scores = [
        score_turn(turn, played[turn.context_id], agent)
        for turn in turns
        if turn.context_id in played
    ]
    whole = [score for score in scores if not score.is_interrupted]
    summary = _summary(scores, len(turns), ttfa_s, transport.latest_s)
    problems = find_problems(summary, whole, len(turns), max_onset_error_ms)
    transport.write(out / "demo.wav")
    has_all_words = draw(scores, agent, user, out / "demo.png")
    details = [_detail(score) for score in scores]
    document = {"summary": summary, "problems": problems, "turns": details}
    (out / "demo.json").write_text(json.dumps(document, ensure_ascii=False, indent=2) + "\n")
    _print_results(scores, problems, out, console, has_all_words=has_all_words)
    console.print(sentence_of(scores), highlight=False)
    return not problems


def _summary(
    scores: list[Score], turns: int, ttfa_s: list[float], latest_s: float
) -> dict[str, int | None]:
    """Return the demo's figures: how exact its history and its word times are, and how soon."""
    cuts = [score for score in scores if score.is_interrupted]
    onset_errors = [error for score in scores for error in score.onset_errors_ms]
    return {
        "cuts": len(cuts),
        "exact": sum(score.is_exact for score in cuts),
        "within_one": sum(abs(score.error_words) <= 1 for score in cuts),
        "dropped_turns": turns - len(scores),
        "unspoken_committed": sum(score.unspoken_words for score in scores),
        "ttfa_p50_ms": round(1000 * statistics.median(ttfa_s)) if ttfa_s else None,
        "onset_p95_ms": round(float(np.percentile(onset_errors, 95))) if onset_errors else None,
        "onsets": len(onset_errors),
        "late_max_ms": round(1000 * latest_s),
    }


def _print_results(
    scores: list[Score],
    problems: list[str],
    out: Path,
    console: Console,
    *,
    has_all_words: bool,
) -> None:
    """Print the table, what is wrong, and where the results are."""
    console.print(_table(scores))
    for problem in problems:
        console.print(f"[red]{problem}[/]")
    console.print(f"{out / 'demo.wav'} · {out / 'demo.png'} · {out / 'demo.json'}", highlight=False)
    if not has_all_words:
        console.print(
            "The picture shows words as numbers where no font here has their characters; "
            f"`apt-get install {WIDE_PACKAGE}` brings one.",
            highlight=False,
            soft_wrap=True,
        )
    console.print(
        "To try it yourself: run `voiceagent-tts serve` and open "
        f"http://127.0.0.1:{DEFAULT_PORT}/ in a browser.",
        highlight=False,
        soft_wrap=True,
    )


def score_turn(turn: DemoTurn, utterance: Utterance, agent: npt.NDArray[np.int16]) -> Score:
    """Compare the played audio of a turn with its text in the history."""
    played = utterance.played_samples
    heard = [word for word in turn.words if word.start_sample + HEARD_SAMPLES <= played]
    begun = [word for word in turn.words if word.start_sample < played]
    heard_text = turn.answer[: heard[-1].word.char_end] if heard else ""
    committed = turn.committed or ""
    is_prefix = turn.answer.startswith(committed)
    committed_words = len(split_words(committed))
    return Score(
        turn=turn,
        utterance=utterance,
        heard=heard_text,
        is_exact=committed == heard_text,
        error_words=committed_words - len(heard) if is_prefix else len(turn.words),
        unspoken_words=max(0, committed_words - len(begun)),
        onset_errors_ms=onset_errors_ms(heard, utterance, agent),
    )


def onset_errors_ms(
    words: list[WordTimestamp], utterance: Utterance, agent: npt.NDArray[np.int16]
) -> list[int]:
    """Distance between the start of each word after a comma and its audio onset.

    A natural voice does not pause at every comma; without a pause there is no onset.
    """
    start = utterance.chunks[0][0]
    end = sum(utterance.chunks[-1])
    found = [start + onset for onset in onsets(agent[start:end].tobytes())]
    errors: list[int] = []
    for previous, word in zip(words, words[1:], strict=False):
        position = utterance.position_of(word.start_sample)
        if previous.word.text.endswith((",", "，")) and position is not None and position < end:
            nearest = min(abs(onset - position) for onset in found)
            if nearest <= _PAUSE_SAMPLES:
                errors.append(samples_to_ms(nearest))
    return errors


def find_problems(
    summary: dict[str, int | None], whole: list[Score], turns: int, max_onset_error_ms: int | None
) -> list[str]:
    """One sentence for each expectation that was not met."""
    min_cuts = max(1, turns - _MAX_WHOLE)
    cuts = summary["cuts"] or 0
    exact, within_one = summary["exact"] or 0, summary["within_one"] or 0
    onset_p95_ms = summary["onset_p95_ms"]
    checks = {
        f"expected at least {min_cuts} cuts, got {cuts}": cuts >= min_cuts,
        f"expected every cut within one word, got {within_one} of {cuts}": within_one == cuts,
        f"expected 90 % of the cuts exact, got {exact} of {cuts}": exact >= MIN_EXACT * cuts,
        f"{summary['dropped_turns']} turns were dropped": not summary["dropped_turns"],
        f"{summary['unspoken_committed']} words were committed that were not played": not summary[
            "unspoken_committed"
        ],
        f"expected word times within {max_onset_error_ms} ms of the audio, got {onset_p95_ms}": (
            max_onset_error_ms is None
            or (onset_p95_ms is not None and onset_p95_ms <= max_onset_error_ms)
        ),
        "expected an answer without interruption to be committed whole": all(
            score.turn.committed == score.turn.answer for score in whole
        ),
    }
    return [sentence for sentence, is_fine in checks.items() if not is_fine]


def _detail(score: Score) -> dict[str, object]:
    return {
        "language": score.turn.language,
        "answer": score.turn.answer,
        "cut_ms": samples_to_ms(score.utterance.played_samples) if score.is_interrupted else None,
        "heard": score.heard,
        "committed": score.turn.committed,
        "exact": score.is_exact,
        "error_words": score.error_words,
        "onset_errors_ms": score.onset_errors_ms,
    }


def _table(scores: list[Score]) -> Table:
    table = Table(title="What was heard, and what the history has", title_justify="left")
    for name in ("", "cut at", "heard", "in the history", "words off"):
        table.add_column(name, justify="right" if name == "cut at" else "left")
    for score in scores:
        at = f"{score.utterance.played_samples / SAMPLE_RATE_HZ:.2f} s"
        verdict = (
            Text("exact", "green") if score.is_exact else Text(f"{score.error_words:+}", "red")
        )
        table.add_row(
            score.turn.language,
            at if score.is_interrupted else "to the end",
            _tail(score.heard),
            _tail(score.turn.committed or ""),
            verdict,
        )
    return table


def _tail(text: str, length: int = 36) -> str:
    """The last whole words of `text`, at most `length` characters, or its last characters."""
    if len(text) <= length:
        return text
    tail = text[-length:]
    _, _, whole = tail.partition(" ")
    if text[-length - 1] != " " and whole:
        tail = whole
    return "…" + tail.lstrip()


def sentence_of(scores: list[Score]) -> str:
    """How many histories of interrupted answers are exact, and what the others are."""
    cuts = [score for score in scores if score.is_interrupted]
    parts = [f"{sum(score.is_exact for score in cuts)} of {len(cuts)} exact"]
    wrong = Counter(score.error_words for score in cuts if not score.is_exact)
    parts += [
        f"{'one' if count == 1 else count} {_distance(words)}"
        for words, count in sorted(wrong.items())
    ]
    return f"Interrupted answers: {', '.join(parts)}."


def _distance(words: int) -> str:
    if words == 0:
        return "with other characters"
    which = "short" if words < 0 else "long"
    return f"a word {which}" if abs(words) == 1 else f"{which} by {abs(words)} words"


# The picture.

HEARD, UNHEARD, WRONG, CUT = "#2a9d6f", "#c9ced6", "#d64550", "#d64550"
AGENT, USER = "#3b6ea8", "#8a6fd1"
_BEFORE_S, _AFTER_S = 0.15, 0.9
_MARKS = ".,;:!?，。"


def draw(
    scores: list[Score], agent: npt.NDArray[np.int16], user: npt.NDArray[np.int16], path: Path
) -> bool:
    """Draw each turn: the audio of both sides, the words, and the moment of interruption.

    Returns:
        Whether all words are shown; one without a font is shown as its number.
    """
    text = "".join(score.turn.answer for score in scores)
    fonts = fonts_for("".join(text.split()))
    with mpl.rc_context({"font.family": fonts.families}):
        _draw_turns(scores, agent, user, path, fonts)
    return fonts.can_draw("".join(text.split()))


def _draw_turns(
    scores: list[Score],
    agent: npt.NDArray[np.int16],
    user: npt.NDArray[np.int16],
    path: Path,
    fonts: Fonts,
) -> None:
    rows = (len(scores) + 1) // 2
    figure = Figure(figsize=(17, 1.8 * rows + 0.6), dpi=110, layout="constrained")
    figure.get_layout_engine().set(h_pad=0.08, w_pad=0.1)  # type: ignore[union-attr]
    grid = figure.subplots(rows, 2, squeeze=False).ravel()
    for axes, score in zip(grid, scores, strict=False):
        _draw_turn(axes, score, agent, user, fonts)
    for axes in grid[len(scores) :]:
        axes.set_visible(False)
    figure.suptitle(
        "blue: the agent · violet: the user · red line: the cut · green: heard and in the history"
        " · grey: in neither · red: in one of the two",
        fontsize=11,
        color="#333333",
    )
    figure.savefig(path)


def _draw_turn(
    axes: Axes,
    score: Score,
    agent: npt.NDArray[np.int16],
    user: npt.NDArray[np.int16],
    fonts: Fonts,
) -> None:
    start, end_s = score.utterance.chunks[0][0], score.utterance.played_samples / SAMPLE_RATE_HZ
    last_s = end_s + (_AFTER_S if score.is_interrupted else _BEFORE_S)
    for track, color in ((agent, AGENT), (user, USER)):
        _draw_wave(axes, track, start, last_s, color)
    committed = len(split_words(score.turn.committed or ""))
    for index, timestamp in enumerate(score.turn.words):
        if timestamp.start_sample < last_s * SAMPLE_RATE_HZ:
            word = timestamp.word.text.rstrip(_MARKS)
            label = word if fonts.can_draw(word) else str(index + 1)
            _draw_word(axes, label, timestamp, end_s, is_committed=index < committed)
    if score.is_interrupted:
        axes.axvline(end_s, color=CUT, linewidth=1.6, zorder=5)
    _label(axes, score, end_s, fonts)
    axes.set_xlim(-_BEFORE_S, last_s)


def _label(axes: Axes, score: Score, end_s: float, fonts: Fonts) -> None:
    verdict = "exact" if score.is_exact else f"{score.error_words:+} words"
    place = f"cut at {end_s:.2f} s" if score.is_interrupted else "to the end"
    committed = _tail(score.turn.committed or "", 60)
    history = f" · “{committed}”" if fonts.can_draw(committed) else ""
    title = f"{score.turn.language} · {place} · {verdict}{history}"
    axes.set_title(title, loc="left", fontsize=9, color="#333333", pad=3)
    axes.set_ylim(-1.75, 1.05)
    axes.set_yticks([])
    axes.tick_params(axis="x", labelsize=7, length=2, colors="#777777")
    for side in ("top", "left", "right"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#bbbbbb")


def _draw_wave(
    axes: Axes, track: npt.NDArray[np.int16], start: int, last_s: float, color: str
) -> None:
    first = max(0, start - round(_BEFORE_S * SAMPLE_RATE_HZ))
    piece = track[first : start + round(last_s * SAMPLE_RATE_HZ)].astype(np.float64)
    hop = ms_to_samples(5)
    piece = np.pad(piece, (0, -len(piece) % hop)).reshape(-1, hop)
    peak = max(1.0, float(np.abs(track).max()))
    times = (first - start + hop * np.arange(len(piece))) / SAMPLE_RATE_HZ
    high, low = piece.max(axis=1) / peak, piece.min(axis=1) / peak
    axes.fill_between(times, low, high, color=color, linewidth=0.4, alpha=0.85)


def _draw_word(
    axes: Axes, label: str, timestamp: WordTimestamp, end_s: float, *, is_committed: bool
) -> None:
    start_s = timestamp.start_sample / SAMPLE_RATE_HZ
    stop_s = (timestamp.end_sample or timestamp.start_sample) / SAMPLE_RATE_HZ
    is_heard = start_s + HEARD_SAMPLES / SAMPLE_RATE_HZ <= end_s
    color = WRONG if is_heard != is_committed else HEARD if is_heard else UNHEARD
    width = max(0.04, stop_s - start_s) - 0.015
    # The box of a word that was cut off fades after the cut.
    axes.barh(-1.38, width, left=start_s, height=0.56, color=color, alpha=0.4, zorder=2)
    played = min(width, end_s - start_s) if is_heard else width
    axes.barh(-1.38, played, left=start_s, height=0.56, color=color, zorder=3)
    axes.text(
        start_s + width / 2,
        -1.39,
        label,
        ha="center",
        va="center",
        fontsize=7.5 if width > 0.03 * len(label) else 5.5,
        color="#555555" if color == UNHEARD else "white",
        clip_on=True,
        zorder=4,
    )
