"""A report as users hold it: the figures, as data or as a page."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import MissingPackage
from .figures import Figures


@dataclass(frozen=True, slots=True)
class Report(Figures):
    """A report on the history of queues; the times are None where there is no history."""

    def to_html(self, title: str = "Delivery report") -> str:
        """All of it as one page with plots, that needs nothing else.

        Raises ``MissingPackage`` without jinja2 and matplotlib.
        """
        try:
            from .page import page
        except ImportError as error:
            package = error.name or str(error)
            raise MissingPackage(purpose="the page", package=package, extra="spark") from None
        return page(self, title)
