"""Fits the pages to the site: in the repository their blocks have options, and some links lead out of docs.

MkDocs calls the functions with public names.
"""

from __future__ import annotations

import json
import posixpath
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
CHANGES = "CHANGELOG.md"
_FENCE = re.compile(r"^( *```+)(\w+)((?: [^`\n]*)?)$", re.MULTILINE)
_LINK = re.compile(r"(!?)\[((?:[^][]|\[[^]]*\])*)\]\(([^)\s]*)\)")
_INDEX = '<!doctype html><meta charset="utf-8"><title>streamkit</title><meta http-equiv="refresh" content="0; url={0}/index.html"><a href="{0}/index.html">{0}</a>\n'


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what lies outside of docs: the change log, and the site's own style and scripts."""
    files.append(File.generated(config, CHANGES, abs_src_path=str(ROOT / CHANGES)))
    for asset in sorted((Path(__file__).parent / "assets").iterdir()):
        files.append(File.generated(config, f"assets/{asset.name}", abs_src_path=str(asset)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return a page's text as MkDocs takes it."""
    uri = page.file.src_uri
    folder = "" if uri == CHANGES else posixpath.join("docs", posixpath.dirname(uri))
    if uri == "README.md":
        markdown = _first_screen() + markdown.partition("\n")[2]
        page.meta["hide"] = ["navigation"]
    example = ROOT / "topologies" / Path(uri).stem / "topology.yaml"
    if uri.startswith("examples/") and example.exists():
        markdown += f"\n## The whole topology\n\n```yaml\n{example.read_text(encoding='utf-8')}```\n"
    markdown = _FENCE.sub(_fence, markdown)
    return _LINK.sub(partial(_link, folder, posixpath.dirname(uri)), markdown)


def on_post_build(config: MkDocsConfig) -> None:
    """List the versions beside this one, for the site's menu, and lead to the newest."""
    site = Path(config.site_dir)
    found = sorted((path.parent.name for path in site.parent.glob("*/index.html")), key=_version, reverse=True)
    listed = [{"version": name, "title": name, "aliases": []} for name in found]
    (site.parent / "versions.json").write_text(json.dumps(listed) + "\n", encoding="utf-8")
    (site.parent / "index.html").write_text(_INDEX.format(found[0]), encoding="utf-8")


def _version(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in name.split(".")]


def _first_screen() -> str:
    """Return the README up to its list of commands, with links as in docs/README.md."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Commands")[0]
    return text.replace("](docs/", "](")


def _fence(match: re.Match[str]) -> str:
    """Return the first line of a block: the name of its file becomes a title, other options are for tests."""
    name = next((word[5:] for word in match[3].split() if word.startswith("file=")), None)
    return f"{match[1]}{match[2]}" + (f' title="{name}"' if name else "")


def _link(folder: str, place: str, match: re.Match[str]) -> str:
    """Return a link; one to a file that is not on the site becomes its text. folder: that of the page in the repository."""
    target, hash_, anchor = match[3].partition("#")
    if not target or ":" in target:
        return match[0]
    path = posixpath.normpath(posixpath.join(folder, target))
    if path == CHANGES:
        target = posixpath.relpath(CHANGES, place or ".")
    elif path.startswith("docs/"):
        target = posixpath.relpath(path.removeprefix("docs/"), place or ".")
    else:
        return match[2]
    return f"{match[1]}[{match[2]}]({target}{hash_}{anchor})"
