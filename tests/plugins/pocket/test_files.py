"""Files of the models: what is on this machine, and what is fetched."""

from pathlib import Path

import pytest

from testbed.local_hub import Hub, serving
from testbed.pocket import SMALL_MODEL
from voiceagent_tts.plugins.pocket.files import fetch, is_stored
from voiceagent_tts.plugins.pocket.published import weights_of


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize("has_access", [True, False])
def test_missing_files_are_downloaded(
    empty: Path, hub: Path, monkeypatch: pytest.MonkeyPatch, has_access: bool
) -> None:
    """At their pinned commits; where the hub refuses the weights that clone, those for everyone."""
    weights = weights_of(SMALL_MODEL)
    assert weights.cloning is not None and weights.plain is not None
    files = [*weights.shared, weights.plain, *([weights.cloning] if has_access else [])]
    commits = {
        (file.repo, file.revision or ""): hub
        / "hub"
        / f"models--{file.repo.replace('/', '--')}"
        / "snapshots"
        / (file.revision or "")
        for file in files
    }
    with serving(Hub(commits)) as hub:
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.url)
        monkeypatch.setattr(
            "huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE",
            hub.url + "/{repo_id}/resolve/{revision}/{filename}",
        )
        fetch(SMALL_MODEL)
    assert is_stored(SMALL_MODEL)
    stored = {path.name for path in (empty / "cache").glob("models--*")}
    assert ("models--kyutai--pocket-tts" in stored) == has_access
