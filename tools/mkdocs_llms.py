"""Writes llms.txt into the site: each page with a line, by section, as https://llmstxt.org has it.

The pages stand beside it in Markdown, as written, except those of the API reference.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page

_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_SENTENCE = re.compile(r".{40,}?\.(?=\s|$)")
_NO_TEXT = ("#", "```", "|", ":::", "**Status")
_nav = Navigation([], [])


def line(markdown: str) -> str:
    """The first sentence of a page, or two short ones, without links."""
    for paragraph in markdown.split("\n\n"):
        text = " ".join(_LINK.sub(r"\1", paragraph).split())
        if text and not text.startswith(_NO_TEXT):
            found = _SENTENCE.match(text)
            return found[0] if found else f"{text.rstrip('.:')}."
    raise ValueError(f"a page says nothing in its first lines: {markdown[:80]!r}")


def _generated(page: Page) -> bool:
    return "\n::: " in page.file.content_string


def _listed(items: list[Any], above: str = "") -> Iterator[str]:
    """The lines of a section's own pages, and then those of the sections in it."""
    for page in items:
        if isinstance(page, Page):
            target = page.url if _generated(page) else page.file.src_uri
            yield f"- [{page.title}]({target}): {line(page.file.content_string)}"
    for section in items:
        if not isinstance(section, Page):
            title = f"{above}{section.title}"
            if any(isinstance(each, Page) for each in section.children):
                yield f"\n## {title}\n"
            yield from _listed(section.children, f"{title}: ")


def on_nav(nav: Navigation, **_: Any) -> None:
    """Keep what the site lists, in its order."""
    _nav.items = nav.items


def on_post_build(config: Any, **_: Any) -> None:
    """Write the list, and the pages beside it."""
    site = Path(config.site_dir)
    head = [f"# {config.site_name}", "", f"> {config.site_description}", "", "## Start", ""]
    (site / "llms.txt").write_text("\n".join([*head, *_listed(_nav.items)]) + "\n")
    for page in _pages(_nav.items):
        if not _generated(page):
            (site / page.file.src_uri).write_text(page.file.content_string)


def _pages(items: list[Any]) -> Iterator[Page]:
    for item in items:
        if isinstance(item, Page):
            yield item
        else:
            yield from _pages(item.children)
