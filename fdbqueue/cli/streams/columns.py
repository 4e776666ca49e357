"""Options of commands that read payloads and headers as columns."""

from __future__ import annotations

from typing import Annotated

from typer import Option

Schema = Annotated[
    str | None,
    Option(
        metavar="COLUMNS", help="The schema of JSON payloads, such as 'carrier STRING, delay INT'."
    ),
]
HeaderColumns = Annotated[
    str | None,
    Option(metavar="COLUMNS", help="Headers as columns, such as 'region, tries BIGINT'."),
]
