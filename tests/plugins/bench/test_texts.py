from voiceagent_tts.plugins.bench.texts import KINDS, LANGUAGES, committed_texts


def test_every_language_has_every_kind() -> None:
    """Ten languages, six kinds, 20 to 500 characters, no text twice."""
    texts = committed_texts()
    assert {(text.language, text.kind) for text in texts} == {
        (language, kind) for language in LANGUAGES for kind in KINDS
    }
    assert all(20 <= len(text.text) <= 500 for text in texts)
    assert len({text.text for text in texts}) == len(texts)
