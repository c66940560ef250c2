"""Shows a conversation in the terminal: states, words as they are heard, latency, the history."""

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from agents.conversation import Conversation, State
from agents.models import Message
from agents.stage_clock import STAGES, Percentiles, TurnLatency

_COLORS = {
    State.LISTENING: "cyan",
    State.HEARING: "magenta",
    State.THINKING: "yellow",
    State.SPEAKING: "green",
    State.PAUSED: "red",
}


class TalkView:
    """A live view of a conversation; use it as a context manager.

    Without a terminal it prints the messages of the history only.
    """

    def __init__(self, conversation: Conversation, console: Console) -> None:
        self._conversation = conversation
        self._console = console
        self._turns_shown = self._problems_shown = 0
        self._live = Live(
            console=console, get_renderable=self._render, refresh_per_second=12, transient=True
        )
        conversation.on_message = self._show_message

    def __enter__(self) -> "TalkView":
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def update(self) -> None:
        """Print what is new: latencies of turns, and problems."""
        for latency in self._conversation.clock.turns[self._turns_shown :]:
            self._console.print(_latency_line(latency), style="dim", highlight=False)
            self._turns_shown += 1
        for problem in self._conversation.problems[self._problems_shown :]:
            self._console.print(problem, style="red", highlight=False, markup=False)
            self._problems_shown += 1

    def _show_message(self, message: Message) -> None:
        line = Text()
        line.append("you    " if message.role == "user" else "agent  ", "bold")
        line.append(message.text)
        if message.is_interrupted:
            line.append(" | interrupted; the history has what you heard", "red")
        self._console.print(line)

    def _render(self) -> RenderableType:
        state = self._conversation.state
        lines: list[RenderableType] = [Text(f"● {state.value}", _COLORS[state])]
        reply = self._conversation.reply
        if reply is not None:
            heard = reply.heard_chars
            words = Text(reply.text[:heard], "bold green")
            words.append(reply.text[heard:], "bright_black")
            lines.append(words)
        return Group(*lines)


def latency_table(percentiles: dict[str, Percentiles], turns: int) -> Table:
    """A table of the latency by stage."""
    title = f"turn latency in ms, {turns} turns"
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for name in percentiles:
        table.add_column(name, justify="right")
    table.add_row("p50", *(str(each.p50_ms) for each in percentiles.values()))
    table.add_row("p95", *(str(each.p95_ms) for each in percentiles.values()))
    return table


def _latency_line(latency: TurnLatency) -> str:
    stages = " → ".join(f"{stage.value} {1000 * latency.stages[stage]:.0f}" for stage in STAGES)
    return f"end of speech → {stages} → sound; {1000 * latency.total_s:.0f} ms in all"
