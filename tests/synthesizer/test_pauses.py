"""Clients that pause within a text: when it is spoken, and as what.

The clock is scripted, and the worker only notes what it is sent.
"""

import asyncio

import pytest

from testbed.scripted_context import ScriptedWorker, open_context, run_by_the_loops_clock
from testbed.scripted_time import run_scripted
from voiceagent_tts.core import Segment
from voiceagent_tts.espeak.pieces import split_pieces
from voiceagent_tts.seam.aligner_messages import AlignCommand
from voiceagent_tts.seam.commands import Append, Command, Submit
from voiceagent_tts.synthesizer.options import ContextOptions, Limits


@pytest.fixture(autouse=True)
def _scripted_clock(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    run_by_the_loops_clock(monkeypatch)


class Worker(ScriptedWorker):
    """A worker that makes no audio.

    Attributes:
        said: each text that it is to speak, as its words are said, with the seconds since it began.
    """

    def __init__(self) -> None:
        super().__init__()
        self.said: list[tuple[float, str]] = []
        self._began = asyncio.get_running_loop().time()

    def send(self, command: Command | AlignCommand) -> None:
        """Note what is to be spoken."""
        if isinstance(command, Submit | Append) and command.text.strip():
            pieces = split_pieces(Segment(command.text, command.char_base), "en")
            at_s = asyncio.get_running_loop().time() - self._began
            self.said.append((round(at_s, 2), " ".join(piece.said.text for piece in pieces)))


def said(*texts: str, pause_s: float) -> list[tuple[float, str]]:
    """What a worker is sent of texts with a pause between them, and when."""

    async def run() -> list[tuple[float, str]]:
        worker = Worker()
        context = open_context(worker, ContextOptions(language="en"), limits=Limits())
        for text in texts:
            context.push_text(text)
            await asyncio.sleep(pause_s)
        context.finish()
        context.abandon()
        return worker.said

    return run_scripted(run(), has_sockets=False)


@pytest.mark.parametrize("pause_s", [0.1, 0.6, 0.9])
def test_an_amount_goes_on_after_a_pause(pause_s: float) -> None:
    """The words before it are spoken after half a second, and the amount as a whole."""
    parts = said("It costs about $3.", "50 in all.", pause_s=pause_s)
    assert " ".join(text for _, text in parts) == "It costs about 3 dollars and 50 cents in all."
    if pause_s > 0.5:
        assert parts[0] == (0.5, "It costs about")


def test_an_amount_waits_for_its_cents_for_a_second() -> None:
    """Then it is spoken as it is, and what follows is another number."""
    first, amount, rest = said("It costs about $3.", "50 in all.", pause_s=1.1)
    assert first == (0.5, "It costs about")
    assert amount == (1.0, "3 dollars.")
    assert rest[1] == "50 in all."


@pytest.mark.parametrize(
    ("before", "after", "whole"),
    [
        ("Call +49 30", " 1234567 now.", "plus 4 9, 3 0, 1 2 3 4 5 6 7 now."),
        ("We meet at 10:", "30 sharp.", "10 30 sharp."),
        ("Write to me@example.", "com today.", "me at example dot com today."),
    ],
)
def test_other_things_of_one_word_go_on_after_a_pause(before: str, after: str, whole: str) -> None:
    """Telephone numbers, times and addresses wait as long as an amount."""
    assert said(before, after, pause_s=0.9)[-1][1] == whole
