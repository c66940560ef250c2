"""What a session is given: a service by import path, for a language, through a proxy."""

import pytest

from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.plugins.bench.bargein.session import Call
from voiceagent_tts.plugins.bench.targets.classes import ServiceClass

OURS = "voiceagent_tts.adapters.pipecat.VoiceAgentTTSService"
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def call(**arguments: object) -> Call:
    """Our service with these arguments."""
    return Call(ServiceClass(OURS, arguments), b"")


def test_the_language_of_a_session_goes_into_the_arguments() -> None:
    """Also into those of `settings`."""
    service = call(url="ws://127.0.0.1:1", settings={"voice": "nova", "language": "{language}"})
    made = service.make_service("it")
    assert made._settings.language == "it" and made._settings.voice == "nova"


def test_a_connection_goes_through_a_proxy() -> None:
    """Every argument with the server's address, and no other one."""
    arguments = {"name": "ws", "url": "ws://127.0.0.1:1/a?b=c", "more": {"x": "http://127.0.0.1:1"}}
    changed = call(**arguments).through("ws://127.0.0.1:2").service.arguments
    assert changed == {
        "name": "ws",
        "url": "ws://127.0.0.1:2/a?b=c",
        "more": {"x": "http://127.0.0.1:2"},
    }


def test_a_connection_that_cannot_be_cut_is_refused() -> None:
    """TLS names its server, and a service without an address has nothing to cut."""
    for arguments in ({"url": "wss://example.org"}, {"voice": "nova"}):
        with pytest.raises(InvalidRequestError, match="ws://"):
            _ = call(**arguments).server_url
