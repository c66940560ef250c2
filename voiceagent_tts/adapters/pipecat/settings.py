"""Settings of the Pipecat service that may change while the pipeline runs."""

import inspect
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any

from pipecat.services.settings import TTSSettings
from pipecat.services.tts_service import TextAggregationMode
from pipecat.utils.text.base_text_aggregator import BaseTextAggregator, TextType
from pipecat.utils.types import NOT_GIVEN, NotGiven

from voiceagent_tts.adapters.options import check_kind, unknown_options
from voiceagent_tts.protocol.client_connection import VoiceOptions
from voiceagent_tts.protocol.messages import LexiconEntries


@dataclass
class VoiceAgentTTSSettings(TTSSettings):
    """Voice settings, which `TTSUpdateSettingsFrame(delta=...)` changes between two pieces of text.

    `voice` and `language` are inherited; without a language the server detects it per segment.

    Parameters:
        speed: 0.25 to 4.0 times the normal speed, pitch unchanged.
        instruct: description of how to speak, for voices that support one.
        seed: makes the audio repeatable for one voice and text, as far as the engine can.
        lexicon: how written words are said, such as `{"nginx": "engine x"}`.
        markup: whether tags in the text have an effect, such as `<break time="300ms"/>`.
    """

    speed: float | None | NotGiven = field(default_factory=lambda: NOT_GIVEN)
    instruct: str | None | NotGiven = field(default_factory=lambda: NOT_GIVEN)
    seed: int | None | NotGiven = field(default_factory=lambda: NOT_GIVEN)
    lexicon: LexiconEntries | None | NotGiven = field(default_factory=lambda: NOT_GIVEN)
    markup: bool | None | NotGiven = field(default_factory=lambda: NOT_GIVEN)


_ARGUMENTS = tuple(each.name for each in fields(VoiceAgentTTSSettings) if each.name != "extra")
"""Settings that the service's constructor accepts as arguments of their own."""

_OTHER_NAMES = {"params": "settings", "base_url": "url"}
"""Arguments of other services of Pipecat, and what they are called here."""

_PASSED_ON = {
    "aggregate_sentences",
    "append_trailing_space",
    "enable_direct_mode",
    "metrics",
    "name",
    "pause_watchdog_timeout_s",
    "sample_rate",
    "skip_aggregator_types",
    "skip_text_types",
    "task_manager",
    "text_filters",
    "text_transforms",
    "transport_destination",
}
"""Arguments of Pipecat's base classes that a user may choose. On the others, and on those that
Pipecat may add, the order of the service's frames and the ends of its turns may depend."""


def server_settings() -> VoiceAgentTTSSettings:
    """Settings with which the server chooses everything."""
    given: dict[str, Any] = dict.fromkeys(_ARGUMENTS)
    return VoiceAgentTTSSettings(**given)


def pop_settings(kwargs: dict[str, Any]) -> VoiceAgentTTSSettings:
    """Remove the settings from a constructor's arguments, and return them.

    Raises:
        ValueError: `voice` and its older name `voice_id` are both given, and differ.
    """
    given = {name: kwargs.pop(name) for name in _ARGUMENTS if name in kwargs}
    if "voice_id" in kwargs:
        voice_id = kwargs.pop("voice_id")
        if given.setdefault("voice", voice_id) != voice_id:
            raise ValueError(
                f"expected `voice` or `voice_id`, got both: {given['voice']!r} and {voice_id!r}"
            )
    return VoiceAgentTTSSettings(**given)


def pop_mode(kwargs: dict[str, Any], mode: TextAggregationMode | None) -> TextAggregationMode:
    """The `mode`, or else what its older name in a constructor's arguments says."""
    is_whole = kwargs.pop("aggregate_sentences", None) is not False
    default = TextAggregationMode.SENTENCE if is_whole else TextAggregationMode.TOKEN
    return default if mode is None else TextAggregationMode(mode)


def check_arguments(service: type, kwargs: dict[str, Any]) -> None:
    """Check that the user may choose each argument that `service` passes on to its base classes.

    Pipecat's classes pass arguments on to their base classes, and the last one drops those that no
    class has.

    Raises:
        TypeError: an argument is unknown, or the service sets it itself.
    """
    theirs = _parameters(service)
    known = {*_ARGUMENTS, *theirs}
    for name in sorted(kwargs.keys() - _PASSED_ON):
        if name in theirs:
            raise TypeError(f"{service.__name__} sets `{name}` itself; leave it out")
        near = [_OTHER_NAMES[name]] if name in _OTHER_NAMES else get_close_matches(name, known, n=3)
        hint = f"; did you mean {' or '.join(f'`{each}`' for each in near)}?" if near else ""
        raise TypeError(f"{service.__name__} has no argument `{name}`{hint}")


def _parameters(service: type) -> set[str]:
    constructors = [vars(each)["__init__"] for each in service.__mro__ if "__init__" in vars(each)]
    signatures = [inspect.signature(each).parameters.values() for each in constructors]
    return {each.name for some in signatures for each in some if each.kind is not each.VAR_KEYWORD}


def check_aggregator(aggregator: BaseTextAggregator | None) -> None:
    """Check that `aggregator` passes on texts in which words can be found.

    Raises:
        InvalidRequestError: it is none of Pipecat's aggregators.
        ValueError: it passes tokens on.
    """
    check_kind(BaseTextAggregator, "a text aggregator", text_aggregator=aggregator)
    if aggregator is not None and aggregator.aggregation_type == TextType.TOKEN:
        raise ValueError(
            "expected a text_aggregator of sentences, got one of tokens; "
            "try text_aggregation_mode=TextAggregationMode.TOKEN alone"
        )


def checked_settings(settings: TTSSettings) -> VoiceAgentTTSSettings:
    """Return the settings with each option of `extra` that has a field moved to that field.

    In `extra` it would take precedence over a later change of the field.

    Raises:
        InvalidRequestError: `settings` are none of a service.
        ValueError: a field or an option in `extra` is unknown.
    """
    check_kind(TTSSettings, "`Settings` of a service", settings=settings)
    given = settings.given_fields()
    names = {name for name, value in given.items() if value is not None}
    if unknown := sorted(names - settings.extra.keys() - {*_ARGUMENTS}):
        expected, got = ", ".join(sorted(_ARGUMENTS)), ", ".join(unknown)
        raise ValueError(f"settings: expected fields of this service ({expected}); got {got}")
    if unknown := unknown_options(settings.extra):
        expected, got = ", ".join(sorted(VoiceOptions.__annotations__)), ", ".join(unknown)
        raise ValueError(f"settings.extra: expected options of a context ({expected}); got {got}")
    chosen = {name: given[name] for name in _ARGUMENTS if name in given}
    extra = {name: value for name, value in settings.extra.items() if name not in chosen}
    return VoiceAgentTTSSettings(**chosen, extra=extra)
