"""A report as one HTML page, without scripts or external resources.

Text from messages and consumers is escaped, and the page's policy forbids the browser to load or
run anything.
"""

from __future__ import annotations

from importlib import resources

import jinja2
from markupsafe import Markup

from .figures import Figures
from .plots import pictures
from .text_format import duration, moment, share, visible


def page(report: Figures, title: str = "Delivery report") -> str:
    """The page. The same report always makes the same page."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "duration": duration,
        "moment": moment,
        "number": lambda value: f"{value:,}",
        "share": share,
        "visible": visible,
    }
    text = resources.files(__package__).joinpath("report.html").read_text("utf-8")
    return environment.from_string(text).render(
        title=title,
        report=report,
        pictures=[pictures(report, queue) for queue in report.queues],
        tile=_tile,
    )


def _tile(value: str, label: str) -> Markup:
    return Markup('<div class="tile"><b>{}</b><span>{}</span></div>').format(value, label)
