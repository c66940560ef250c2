"""Which private names of Pipecat the service uses, and why: each may change with any version."""

import inspect
import re

from pipecat.services.tts_service import TTSService
from pipecat.utils.text.simple_text_aggregator import SimpleTextAggregator
from pipecat.utils.tracing import service_decorators

from voiceagent_tts.adapters.pipecat import VoiceAgentTTSService, service, speaking

REASONS = {
    # Used as Pipecat's own services use them; there is no public name.
    "_update_settings": "overridden: a change opens another server context",
    "_register_event_handler": "the event `on_words`",
    "_call_event_handler": "events of the connection, and `on_words`",
    "_add_word_timestamps": "the words of a turn, with the times of their playback",
    # The text of the LLM stays as it was written.
    "_text_aggregator": "set to pass clauses on early",
    "_tts_texts": "removed from the span of a turn, where Pipecat joins pieces by spaces",
    # What is not interrupted, or has failed, is Pipecat's to end.
    "_tts_contexts": "what is not interrupted ends its message, as nothing else does",
    "_record_context_audio_outcome": "overridden: a failed turn has reported its own error",
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
    used = _names(inspect.getsource(service) + inspect.getsource(speaking))
    assert used & theirs == REASONS.keys()


def test_their_attributes_are_what_the_service_expects() -> None:
    """What the service reads or sets exists, with the type that the service relies on."""
    plain = SimpleTextAggregator()
    tts = VoiceAgentTTSService(text_aggregator=plain)
    assert vars(tts)["_text_aggregator"] is plain
