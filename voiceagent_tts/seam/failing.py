"""Ends the contexts in which an engine or an aligner fails; the others continue."""

import logging
import traceback
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager

from voiceagent_tts.errors import EngineError, VoiceAgentError

_logger = logging.getLogger(__name__)


@contextmanager
def failing(
    component: str,
    contexts: Iterable[int],
    fail: Callable[[int, VoiceAgentError], None],
    *,
    unless: tuple[type[Exception], ...] = (),
) -> Generator[None]:
    """Turn any error in the block into the failure of the contexts that the block works for.

    Args:
        component: what fails, for people.
        contexts: the contexts.
        fail: ends one of them with an error.
        unless: errors after which no context would succeed; they leave the block.
    """
    try:
        yield
    except unless:
        raise
    except VoiceAgentError as error:
        for context in contexts:
            fail(context, error)
    except Exception as error:  # by type and calls: its message may quote the spoken text
        failure, failed = EngineError.of(component, error), tuple(contexts)
        calls = "".join(traceback.format_tb(error.__traceback__))
        _logger.error("contexts %s: %s\n%s", ", ".join(map(str, failed)), failure, calls)
        for context in failed:
            fail(context, failure)
