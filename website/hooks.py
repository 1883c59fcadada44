"""What MkDocs calls while it builds the site: adds pages that are not in docs/, and prepares those that are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from website import api, commands, decisions, events, layers, report, settings, training_job
from website.links import OUTSIDE, rewrite_links
from website.markdown import indent_lists, keep_flags_whole

ROOT = Path(__file__).resolve().parents[1]
STYLE = "assets/wide.css"
"""Path in the site, as in mkdocs.yml."""
DECISIONS = ROOT / "docs" / "adr"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the architecture decisions to the navigation, which lists everything else."""
    entries: list[Any] = [{title: f"adr/{name}"} for name, title in decisions.titles(DECISIONS).items()]
    _section(config.nav or [], "Decisions").extend(entries)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add README.md, CHANGELOG.md and the pages that are generated from code."""
    generated = {
        "reference/environment.md": settings.page(),
        "reference/report.md": report.page(),
        "reference/events.md": events.page(),
        "reference/api.md": api.page(),
        "reference/layers.md": layers.page(),
        "reference/trainingjob.md": training_job.page(),
        **dict(commands.pages()),
        **{page: (ROOT / source).read_text() for source, page in OUTSIDE.items()},
        STYLE: (ROOT / "website" / "wide.css").read_text(),
    }
    for path, content in generated.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Prepare a document that was written for GitHub."""
    del files
    path = page.file.src_uri
    source = next((file for file, own in OUTSIDE.items() if own == path), f"docs/{path}")
    if (ROOT / source).exists():
        markdown = rewrite_links(markdown, source, path, ROOT, config.repo_url or "")
    return indent_lists(markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Keep flags in one piece: browsers would break a line after their dashes."""
    del page, config, files
    return keep_flags_whole(html)


def _section(nav: list[Any], title: str) -> list[Any]:
    """The entries of a section of the navigation, at any depth."""
    for entry in nav:
        for name, content in entry.items() if isinstance(entry, dict) else ():
            if isinstance(content, list):
                if name == title:
                    return content
                if found := _section(content, title):
                    return found
    return []
