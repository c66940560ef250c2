import pytest

from testbed.sentences import SENTENCES
from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.espeak.catalogue import LANGUAGES, VoiceCatalogue


@pytest.mark.parametrize(
    ("name", "language", "identifier"),
    [
        ("default", "en", "gmw/en-US"),
        ("default", "zh", "sit/cmn"),
        ("default", "yue", "sit/yue"),
        ("default", "pt-BR", "roa/pt-BR"),
        ("default", "en_GB", "gmw/en"),
        ("default", "de-AT", "gmw/de"),
        ("default", "es-MX", "roa/es-419"),
        ("F3", "fr", "roa/fr+f3"),
        ("nova", "ru", "zle/ru+f2"),
        ("mr SERIOUS", "it", "roa/it+Mr serious"),
        ("de", "en", "gmw/de"),
        ("en-us+f3", "zh", "gmw/en-US+f3"),
        ("zh+onyx", "en", "sit/cmn+m8"),
        ("pl", "en", "zlw/pl"),
    ],
)
def test_names_resolve(
    catalogue: VoiceCatalogue, name: str, language: str, identifier: str
) -> None:
    """The language voice in the name decides, else the language of the text."""
    assert catalogue.resolve(name, language).identifier == identifier


@pytest.mark.parametrize(
    ("name", "language", "is_english"),
    [
        ("nova", "en", True),
        ("en-gb+f3", "de", True),
        ("nova", "de", False),
        ("default", "ja", False),
    ],
)
def test_english_voices_are_known(
    catalogue: VoiceCatalogue, name: str, language: str, is_english: bool
) -> None:
    """Whatever region and timbre; the voice decides, and not the language of the text."""
    assert catalogue.resolve(name, language).is_english == is_english


@pytest.mark.parametrize(
    "name", ["", "+", "+f3", "de+", "de+f3+f3", "nobody", "en-us+nobody", "f3+en-us", "../x", "si"]
)
def test_unknown_voices_are_refused(catalogue: VoiceCatalogue, name: str) -> None:
    """The error has the code of unknown voices, a few near names, and where all are listed."""
    with pytest.raises(InvalidRequestError, match="; try .*`voiceagent-tts voices list`") as caught:
        catalogue.resolve(name, "en")
    assert caught.value.code is ErrorCode.INVALID_VOICE


def test_unknown_languages_are_refused(catalogue: VoiceCatalogue) -> None:
    """The error has the code of unknown languages and lists the known ones."""
    with pytest.raises(InvalidRequestError, match="pt-br") as caught:
        catalogue.resolve("default", "tlh")
    assert caught.value.code is ErrorCode.INVALID_LANGUAGE


def test_every_listed_name_and_language_works(catalogue: VoiceCatalogue) -> None:
    assert len({name.lower() for name in catalogue.names}) == len(catalogue.names)
    identifiers = {catalogue.resolve(name, "it").identifier for name in catalogue.names}
    assert len(identifiers) > 230
    for language in catalogue.languages:
        assert catalogue.resolve("default", language).identifier
    assert set(SENTENCES) <= set(LANGUAGES)
