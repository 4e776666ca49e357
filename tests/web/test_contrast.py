"""The colours of the style sheet reach the contrast that WCAG 2.1 asks for at level AA."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fdbqueue.web

CSS = (Path(fdbqueue.web.__file__).parent / "static" / "style.css").read_text()
TEXT, GRAPHIC = 4.5, 3.0
PAGE = ("--back", "--raised")
"""What text without a background of its own is on."""
Colours = dict[str, str]


def palettes() -> dict[str, Colours]:
    """The colours of the light and of the dark theme, by their names."""
    light, dark = (
        dict(re.findall(r"(--[\w-]+): (#[0-9a-f]{6});", block))
        for block in re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)
    )
    assert light.keys() == dark.keys()
    return {"light": light, "dark": dark}


def rules() -> list[tuple[str, dict[str, str]]]:
    """The rules with their declarations, those of ``:root`` excepted."""
    found = [
        (selector.strip(), dict(re.findall(r"([\w-]+):\s*([^;]+)(?:;|$)", body.strip())))
        for selector, body in re.findall(r"([^{}]+)\{([^{}]*)\}", CSS)
    ]
    return [each for each in found if not each[0].endswith(":root")]


def named(declared: dict[str, str], *properties: str) -> str | None:
    """The colour that a rule gives to the first of these properties that it has."""
    for each in properties:
        if each in declared and (match := re.search(r"var\((--[\w-]+)\)", declared[each])):
            return match[1]
    return None


def pairs() -> set[tuple[str, str, float]]:
    """What is drawn on what, and how much they must differ."""
    found: set[tuple[str, str, float]] = set()
    for _, declared in rules():
        back = named(declared, "background", "background-color")
        text = named(declared, "color")
        if declared.get("content") == '""' and back:  # a dot, without text
            found |= {(back, behind, GRAPHIC) for behind in PAGE}
            continue
        for behind in [back] if back else PAGE if text else ():
            found.add((text or "--text", behind, TEXT))
        edge = named(declared, "outline", "stroke", "accent-color")
        found |= {(edge, behind, GRAPHIC) for behind in PAGE if edge}
    return {each for each in found if each[0] != each[1]}


def luminance(colour: str) -> float:
    """Relative luminance, as WCAG 2.1 defines it."""
    parts = (int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5))
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_and_graphics_are_readable(theme: str) -> None:
    colours = palettes()[theme]
    found = pairs()
    assert {("--on-accent", "--accent", TEXT), ("--dim", "--raised", TEXT)} <= found
    weak = {
        f"{front} on {behind}": round(contrast(colours[front], colours[behind]), 2)
        for front, behind, least in found
        if contrast(colours[front], colours[behind]) < least
    }
    assert weak == {}


def test_colours_are_named() -> None:
    """So that no colour escapes the test above."""
    for selector, declared in rules():
        for name in ("color", "background", "background-color", "stroke", "outline"):
            value = declared.get(name, "none")
            assert "var(" in value or value in ("none", "inherit"), (selector, name, value)
