"""A progress bar for work that reports how much of it is done."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def counted(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on standard error; it disappears at the end.

    Yields:
        A function to call with the amount done and the total.
    """
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what)
        yield lambda done, total: bar.update(task, completed=done, total=total)
