"""The documents build as a site without a broken link."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as the workflow does, where every warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", folder]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return folder


def test_every_document_is_a_page(site: Path) -> None:
    """Each document in `docs/` has a page; the README is the first."""
    for document in (ROOT / "docs").rglob("*.md"):
        page = site / document.relative_to(ROOT / "docs").with_suffix("") / "index.html"
        assert page.exists(), document
    assert "which words your user heard" in (site / "index.html").read_text(encoding="utf-8")


def test_every_picture_is_in_the_site(site: Path) -> None:
    """Pages show pictures of the site only, and these exist."""
    shown = 0
    for page in site.rglob("*.html"):
        for source in re.findall(r'<img[^>]* src="([^"]+)"', page.read_text(encoding="utf-8")):
            if source.startswith("data:"):
                continue
            assert (page.parent / source).resolve().is_file(), f"{page}: {source}"
            shown += 1
    assert shown >= 2


def test_links_to_code_lead_to_the_repository(site: Path) -> None:
    """A link to a file outside `docs/` has the repository's address, and the file exists."""
    text = (site / "pipecat" / "index.html").read_text(encoding="utf-8")
    paths = re.findall(
        r'href="https://github.com/voiceagent-tts/voiceagent-tts/(?:blob|tree)/main/([^"#]+)"', text
    )
    assert "agents/pipecat_voice.py" in paths
    assert [path for path in paths if not (ROOT / path).exists()] == []
