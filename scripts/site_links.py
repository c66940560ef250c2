"""Adapts the documents to the site: README becomes its first page, and links leave `docs/`.

A link to a file outside `docs/` leads to that file in the repository, and a picture outside `docs/`
becomes a file of the site. `mkdocs.yml` names this module as a hook.
"""

import re
from pathlib import Path
from posixpath import normpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
_LINK = re.compile(r"\]\((?!\w+:|#)([^)\s#]*)(#[^)]*)?\)")
_PICTURES = {".png", ".svg"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the README as the first page, a list of decisions, and pictures from outside `docs/`."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    files.append(File.generated(config, "index.md", content=readme))
    files.append(File.generated(config, "decisions/index.md", content=_decisions()))
    for name in _outside_pictures():
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links of one page; code in fences keeps its brackets."""
    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    place = "" if page.file.src_uri == "index.md" else f"docs/{Path(page.file.src_uri).parent}"
    parts[::2] = [
        _LINK.sub(lambda link: f"]({_target(link[1], place, page, config)}{link[2] or ''})", part)
        for part in parts[::2]
    ]
    # "json client" says who sends an example: tests read it, and Markdown knows the first word.
    return re.sub(r"^```([\w-]+) \w+$", r"```\1", "".join(parts), flags=re.MULTILINE)


def _target(link: str, place: str, page: Page, config: MkDocsConfig) -> str:
    path = normpath(f"{place}/{link}" if place else link)
    up = "../" * page.file.src_uri.count("/")
    if path == "README.md":
        return f"{up}index.md"
    if path == "docs/decisions":
        return f"{up}decisions/index.md"
    if path.startswith("docs/") and (ROOT / path).is_file():
        return up + path.removeprefix("docs/")
    if Path(path).suffix in _PICTURES:
        return up + path
    kind = "tree" if (ROOT / path).is_dir() else "blob"
    return f"{(config.repo_url or '').rstrip('/')}/{kind}/main/{path}"


def _decisions() -> str:
    """A page that lists the decisions by their headings."""
    lines = ["# Decisions", ""]
    for path in sorted((ROOT / "docs" / "decisions").glob("*.md")):
        heading = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        lines.append(f"- [{heading}]({path.name})")
    return "\n".join(lines) + "\n"


def _outside_pictures() -> set[str]:
    """Pictures outside `docs/` that documents show, as paths from the root of the repository."""
    shown: set[str] = set()
    for document in (ROOT / "docs").rglob("*.md"):
        place = document.parent.relative_to(ROOT)
        links = _LINK.findall(document.read_text(encoding="utf-8"))
        shown |= {
            normpath(f"{place}/{link}") for link, _ in links if Path(link).suffix in _PICTURES
        }
    return {path for path in shown if not path.startswith("docs/")}
