"""A driver of the sessions of an aligner: a test's commands go in, all answers come out."""

from collections.abc import Callable
from typing import Any

from voiceagent_tts.aligner.sessions import AlignerSessions
from voiceagent_tts.core import WordTimestamp
from voiceagent_tts.seam.aligner_messages import (
    AlignCommand,
    Aligned,
    AlignEvent,
    AlignInbox,
    AlignOutbox,
)


class AlignDriver:
    """Sessions with an inbox that a test fills and a list of all their answers."""

    def __init__(self, make: Callable[[AlignInbox, AlignOutbox], AlignerSessions[Any]]) -> None:
        self.answers: list[AlignEvent] = []
        self._commands: list[AlignCommand] = []
        self.sessions = make(self._pop_commands, self.answers.append)

    def _pop_commands(self) -> list[AlignCommand]:
        commands, self._commands = self._commands, []
        return commands

    def step(self, *commands: AlignCommand) -> list[AlignEvent]:
        """Handle `commands`, step until no work is due, and return the answers."""
        before = len(self.answers)
        self._commands = list(commands)
        while self.sessions.step() is not None:
            pass
        return self.answers[before:]

    def words(self, context: int) -> list[WordTimestamp]:
        aligned = [e for e in self.answers if isinstance(e, Aligned) and e.context == context]
        return [word for event in aligned for word in event.words]
