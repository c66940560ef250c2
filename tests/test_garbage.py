"""Pauses of garbage collection."""

import gc

import pytest

from voiceagent_tts.garbage import without_collection


def test_collection_is_as_it_was_after_a_pause() -> None:
    """It is enabled again also after an error, unless an outer pause goes on."""
    with pytest.raises(KeyError), without_collection():
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()
    with without_collection():
        with without_collection():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
