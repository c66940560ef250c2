"""What engines declare: one kind for each engine that a setting may name, and nothing loaded."""

import subprocess
import sys
from typing import get_args

from voiceagent_tts.seam.engine_kind import engine_kinds
from voiceagent_tts.settings.engine import EngineSettings

_DECLARED = """
import sys
from voiceagent_tts.config import Settings
from voiceagent_tts.seam.engine_kind import engine_kinds
for name, kind in engine_kinds().items():
    settings = Settings(engine=name, models=("a",), upstream="http://127.0.0.1:1/v1")
    print(name, kind.is_installed(), list(kind.worker_specs(settings)))
heavy = {"torch", "transformers", "onnxruntime", "pocket_tts", "hibari", "zmq", "httpx"}
assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()
"""


def test_every_engine_of_the_settings_is_declared() -> None:
    (names, _) = get_args(EngineSettings.model_fields["engine"].annotation)
    assert set(engine_kinds()) == set(get_args(names))


def test_a_kind_loads_nothing_of_its_engine() -> None:
    done = subprocess.run([sys.executable, "-c", _DECLARED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(engine_kinds())


def test_a_worker_finds_the_kinds_without_the_packages_of_settings() -> None:
    """A worker's process begins without pydantic, which takes long to load."""
    code = (
        "import sys; from voiceagent_tts.seam.engine_kind import engine_kinds; engine_kinds();"
        "assert not {'pydantic', 'pydantic_settings'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
