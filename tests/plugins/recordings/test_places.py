"""Places for uploads, of which each key has a share."""

from contextlib import ExitStack

import pytest

from voiceagent_tts.errors import OverloadedError
from voiceagent_tts.plugins.recordings.places import MAX_PLACES, Places


def test_a_key_leaves_places_to_others() -> None:
    """A key that uploads much waits for itself; others are served meanwhile."""
    places = Places("voices are being made")
    with ExitStack() as stack:
        for _ in range(MAX_PLACES // 4):
            stack.enter_context(places.take("one"))
        with pytest.raises(OverloadedError, match="4 voices are being made"), places.take("one"):
            pass
        with places.take("two"):
            pass
    with places.take("one"):
        pass


def test_without_keys_there_is_a_place_for_so_many_alone() -> None:
    """All requests are of one owner, who has all places."""
    places = Places("files are being examined")
    with ExitStack() as stack:
        for _ in range(MAX_PLACES):
            stack.enter_context(places.take(None))
        with pytest.raises(OverloadedError), places.take(None):
            pass
