import pytest

from voiceagent_tts.bench.targets.addresses import TargetAddress
from voiceagent_tts.bench.targets.target import Options
from voiceagent_tts.errors import InvalidRequestError


def test_an_address_has_a_name_and_arguments() -> None:
    """`NAME=ADDRESS{JSON}`; its own voice replaces the common one."""
    options = Options(voice="common", model="m", arguments={"a": 1})
    parsed = TargetAddress.parse('our door=ws://host:1/x?a=b{"voice": "nova", "b": 2}', options)
    assert (parsed.name, parsed.address) == ("our door", "ws://host:1/x?a=b")
    assert parsed.options == Options("nova", "m", None, {"a": 1, "b": 2})
    assert TargetAddress.parse("http://host", options).name == "http://host"


@pytest.mark.parametrize(
    "text",
    ["", "host", "ws://host{", "ws://host{]}", "ftp://host", "=ws://", "x" * 100_000],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    """One sentence says which kinds of addresses there are."""
    with pytest.raises(InvalidRequestError, match="expected"):
        TargetAddress.parse(text, Options()).open()
