"""docs/pipecat.md has every option of the service, with its default."""

import inspect
import re
from dataclasses import fields

import pytest
from pipecat.services.cartesia.tts import CartesiaTTSService

from testbed.papers import table_rows
from voiceagent_tts.adapters.pipecat import VoiceAgentTTSService

PAGE = "docs/pipecat.md"


def test_every_option_is_documented() -> None:
    """The table has the constructor's named arguments in order; numbers are their defaults."""
    parameters = inspect.signature(VoiceAgentTTSService.__init__).parameters.values()
    named = [each for each in parameters if each.kind is each.KEYWORD_ONLY]
    rows = table_rows(PAGE, "argument")
    assert [row[0] for row in rows] == [each.name for each in named]
    defaults = {row[0]: row[1] for row in rows}
    for each in named:
        if each.default is not None:
            assert defaults[each.name] == f"{each.default}".removesuffix(".0")


def test_every_setting_is_documented() -> None:
    """The table has the fields of `Settings`, except `extra`, which the page explains."""
    documented = {row[0] for row in table_rows(PAGE, "field of `Settings`")}
    assert documented | {"extra"} == {field.name for field in fields(VoiceAgentTTSService.Settings)}


def test_every_event_is_one_of_the_service() -> None:
    """The service accepts a handler for each event of the table."""
    service = VoiceAgentTTSService()
    events = [name.strip("` ") for row in table_rows(PAGE, "event") for name in row[0].split(",")]
    assert "on_words" in events
    assert set(events) <= service._event_handlers.keys()


def test_the_table_for_users_of_cartesias_service_is_complete() -> None:
    """What it has not is accepted here; what it has is no argument, but for the voice."""
    theirs = [*inspect.signature(CartesiaTTSService.__init__).parameters.values()][1:]
    names = {each.name for each in theirs if each.kind is each.KEYWORD_ONLY}
    names |= {each.name for each in fields(CartesiaTTSService.Settings)} - {"extra"}
    rows = table_rows(PAGE, "of Cartesia's service")
    told = {name for row in rows for name in re.findall(r"\w+", row[0])} & names
    assert told > {"voice", "encoding"}
    VoiceAgentTTSService(**dict.fromkeys(names - told))
    for name in told - {"voice"}:
        with pytest.raises(TypeError, match=f"no argument `{name}`"):
            VoiceAgentTTSService(**{name: "x"})
