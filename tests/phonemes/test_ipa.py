import pytest

from voiceagent_tts.phonemes.ipa import phonemes_of
from voiceagent_tts.phonemes.reading import LoadedVoice


@pytest.mark.parametrize(
    ("ipa", "american", "british"),
    [
        ("ʃɪˈvɔːn", "ʃɪvˈɔn", "ʃɪvˈɔːn"),
        ("ˈhɛloʊ", "hˈɛlO", "hˈɛlQ"),
        ("t͡ʃeɪs", "ʧAs", "ʧAs"),
        ("dʒɔɪ", "ʤY", "ʤY"),
        ("gɜːl", "ɡɜl", "ɡɜːl"),
        ("ˈtɒ.mə.təʊ", "tˈɑmətO", "tˈɒmətQ"),
        ("ˌæptɪˈtjuːd", "ˌæptɪtjˈud", "ˌæptɪtjˈuːd"),
        ("ɲoɲo", "njOnjO", "njQnjQ"),
        ("ˈviːɐ̯", "vˈiə", "vˈiːə"),
        ("ˈbɒn ʒʊə", "bˈɑn ʒʊə", "bˈɒn ʒʊə"),
        ("pʰɪn", "pɪn", "pɪn"),  # what modifies a sound is left out
        ("a1", "ɑ", "a"),  # and so is a tone
        ("日本", None, None),
        ("ˈ", None, None),
    ],
)
def test_ipa_becomes_the_phonemes_of_english(
    ipa: str, american: str | None, british: str | None, voice: LoadedVoice
) -> None:
    assert phonemes_of(ipa, is_british=False) == american
    assert phonemes_of(ipa, is_british=True) == british
    for phonemes in filter(None, (american, british)):
        assert all(voice.network.knows(phoneme) for phoneme in phonemes)
