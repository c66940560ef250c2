"""Keys: what is made, stored and parsed."""

import json
from typing import Any

import pytest

from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.plugins.keys.keys import KeyDocument, Scope, make_key
from voiceagent_tts.settings.access import Quota, hash_key

SPEAK = frozenset({Scope.SPEAK})


def stored(**changes: Any) -> dict[str, Any]:
    """The fields of a stored key."""
    key = {
        "id": "a1b2c3d4",
        "name": "agent",
        "hash": hash_key("secret"),
        "scopes": ["speak"],
        "created_at": "2026-11-23T01:00:00Z",
    }
    return key | changes


def test_a_new_key_is_random_and_only_its_hash_is_stored() -> None:
    one, other = (make_key("agent", SPEAK, Quota(contexts=2)) for _ in range(2))
    assert one.secret != other.secret and one.key.id != other.key.id
    assert one.key.hash == hash_key(one.secret)
    text = KeyDocument().with_key(one.key).dump()
    assert one.secret.partition(f"_{one.key.id}_")[2] not in text and one.secret not in text
    assert len(one.secret.split("_", 2)[2]) == 43  # 256 bits
    assert KeyDocument.parse(text, "here").keys == (one.key,)


def test_a_key_fits_into_a_subprotocol() -> None:
    """Browsers send a key as a WebSocket subprotocol, which is a token of RFC 9110."""
    secret = make_key("page", SPEAK, Quota()).secret
    assert all(letter.isascii() and (letter.isalnum() or letter in "_-") for letter in secret)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "the document"),
        ("[1", "the document"),
        ("[]", "the document"),
        ('{"keys": 1}', "keys"),
        ('{"keyz": []}', "keyz"),
        (json.dumps({"keys": [stored(hash="secret")]}), "keys.0.hash"),
        (json.dumps({"keys": [stored(scopes=[])]}), "keys.0.scopes"),
        (json.dumps({"keys": [stored(scopes=["root"])]}), "keys.0.scopes"),
        (json.dumps({"keys": [stored(limits={"contexts": 0})]}), "keys.0.limits.contexts"),
        (json.dumps({"keys": [stored(limits={"rows": 1})]}), "keys.0.limits.rows"),
        (json.dumps({"keys": [stored(id="a b")]}), "keys.0.id"),
        (json.dumps({"keys": [stored(), stored()]}), "two keys with one id"),
    ],
)
def test_a_malformed_document_names_its_place_and_no_hash(text: str, what: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        KeyDocument.parse(text, "keys.json")
    assert refused.value.message.startswith("keys.json") and what in refused.value.message
    assert hash_key("secret") not in refused.value.message


def test_limits_of_a_key_come_before_those_of_the_server() -> None:
    """What a key leaves open is filled from `key_limits`."""
    own, general = Quota(contexts=2), Quota(contexts=9, chars_per_minute=100)
    assert own.over(general) == Quota(contexts=2, chars_per_minute=100)


@pytest.mark.parametrize(
    ("text", "quota"),
    [
        ("", Quota()),
        (" ", Quota()),
        ("contexts=2", Quota(contexts=2)),
        (" contexts = 2 , audio_s_per_day=60,", Quota(contexts=2, audio_s_per_day=60)),
        ('{"contexts_per_s": 3}', Quota(contexts_per_s=3)),
    ],
)
def test_limits_are_written_as_text(text: str, quota: Quota) -> None:
    """The form of the command line and the environment; `str` gives it back."""
    assert Quota.model_validate(text) == quota
    assert Quota.model_validate(str(quota)) == quota


@pytest.mark.parametrize("text", ["contexts", "contexts=", "contexts=-1", "rows=1", "{", "a=b=c"])
def test_wrong_limits_are_refused(text: str) -> None:
    """A typing error must not lift a limit."""
    with pytest.raises(ValueError):
        Quota.model_validate(text)
