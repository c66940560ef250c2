"""Which paths need no key."""

from voiceagent_tts.server.hooks import is_below


def test_an_open_path_opens_what_is_below_it_and_the_page_opens_itself() -> None:
    """`/` is a page, and no folder: else a path with two slashes would need no key."""
    paths = ["/", "/health"]
    assert all(is_below(path, paths) for path in ("/", "/health", "/health/ready"))
    assert not any(is_below(path, paths) for path in ("//v1/audio", "/healthy", "/v1/audio/speech"))
