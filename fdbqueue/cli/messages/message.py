"""``fdbq message …``: look at messages, and change them."""

from typer import Typer

from . import listing, release, selection

app = Typer(
    name="message",
    help="Find, show, cancel, edit, retry, move, copy, purge and release messages.",
    no_args_is_help=True,
)
app.command()(listing.find)
app.command()(listing.show)
for command in (
    selection.cancel,
    selection.edit,
    selection.retry,
    selection.move,
    selection.copy,
    selection.purge,
    release.release,
):
    app.command()(command)
