import itertools

from testbed.agent_text import MAX_WORDS, MIN_WORDS, agent_monologue, agent_sentences


def test_sentences_are_as_long_as_those_of_an_agent():
    """Every sentence has 10 to 25 words, and most differ."""
    sentences = list(itertools.islice(agent_sentences(1), 500))
    assert all(MIN_WORDS <= len(sentence.split()) <= MAX_WORDS for sentence in sentences)
    assert len(set(sentences)) > 250


def test_one_seed_is_one_text():
    """Equal seeds give equal sentences, so that runs can be compared; other seeds give others."""
    first, again, other = (list(itertools.islice(agent_sentences(s), 20)) for s in (7, 7, 8))
    assert first == again != other


def test_a_monologue_is_long_enough_and_no_longer():
    """A monologue ends with the sentence that reaches the requested number of words."""
    text = agent_monologue(3, 60)
    assert 60 <= len(text.split()) < 60 + MAX_WORDS
    assert text.endswith((".", "?"))
