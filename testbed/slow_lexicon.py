"""A voice whose lexicon takes as long to read as a test wants."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from voiceagent_tts.synthesizer import synthesizer as module
from voiceagent_tts.text.entries import EntryMatcher
from voiceagent_tts.voices import LEXICON_SUFFIX

SLOW_VOICE = "en-gb"


@contextlib.contextmanager
def slow_lexicon(folder: Path) -> Iterator[None]:
    """Within the block, a context with `SLOW_VOICE` waits to be opened.

    Args:
        folder: the server's folder of voices; no context had this voice before.
    """
    (folder / f"{SLOW_VOICE}{LEXICON_SUFFIX}").write_text('nginx = "engine x"')
    may_end = threading.Event()
    read = module.read_matcher

    def read_slowly(path: Path) -> EntryMatcher:
        matcher = read(path)
        may_end.wait()
        return matcher

    with mock.patch.object(module, "read_matcher", read_slowly):
        try:
            yield
        finally:
            may_end.set()
