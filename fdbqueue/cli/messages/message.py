"""``fdbq message …``: look at messages, and change them."""

from ..commands import Group
from . import listing, release, selection

app = Group("message", "Find, show, cancel, edit, retry, move, copy, purge and release messages.")
for command in (
    *(listing.find, listing.show, selection.cancel, selection.edit, selection.retry),
    *(selection.move, selection.copy, selection.purge, release.release),
):
    app.command()(command)
