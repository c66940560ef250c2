"""Which private names of Pipecat the service uses, and why: each may change with any version."""

import inspect
import pkgutil
import re
from importlib import import_module

from pipecat.services.tts_service import TTSService
from pipecat.utils.tracing import service_decorators

from voiceagent_tts.adapters import pipecat

REASONS = {
    # Used as Pipecat's own services use them; there is no public name.
    "_update_settings": "overridden: a change opens another server context",
    "_register_event_handler": "the event `on_words`",
    "_call_event_handler": "events of the connection, and `on_words`",
    "_add_word_timestamps": "the words of a turn, with the times of their playback",
    # Pipecat's tracing has no public name for the text of a span.
    "_tts_texts": "removed from the span of a turn, where Pipecat joins pieces by spaces",
}
"""Names that the service calls, overrides, reads or sets on itself."""


def _names(source: str) -> set[str]:
    return set(
        re.findall(r"(?:self\.|super\(\)\.|def |service\.|getattr\(self, \")(_[a-z]\w*)", source)
    )


def test_the_private_names_of_pipecat_are_these() -> None:
    """The list is complete, each name is still Pipecat's, and none of ours is one by chance."""
    bases = [each for each in TTSService.__mro__ if each.__module__.startswith("pipecat.")]
    theirs = _names("".join(map(inspect.getsource, [*bases, service_decorators])))
    modules = pkgutil.iter_modules(pipecat.__path__, f"{pipecat.__name__}.")
    ours = [import_module(each.name) for each in modules]
    services = [each for each in ours if "TTSService(" in inspect.getsource(each)]
    used = _names("".join(map(inspect.getsource, services)))
    assert len(services) == 2 and used & theirs == REASONS.keys()
