"""Users of the web pages: who they are, and what they may do."""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import os
import stat
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from pathlib import Path

from msgspec import Struct

from ..errors import InvalidArgument

MIN_SECRET = 16
"""Characters of a secret: fewer can be guessed."""
TRIES, TRY_SECONDS = 10, 60.0
MOST_TRIED = 10_000
"""Of how many names and addresses wrong secrets are counted."""

log = logging.getLogger("fdbqueue.web")


class Role(Enum):
    """What a user may do: a viewer looks, and an operator also acts."""

    VIEWER = "viewer"
    OPERATOR = "operator"


class User(Struct, frozen=True):
    """Somebody at the web pages. An empty name is that of a person at this machine."""

    name: str
    role: Role = Role.VIEWER


class Users:
    """The users that the pages know, each with a secret: a password, or the token of a program."""

    def __init__(self, known: Iterable[tuple[User, str]]) -> None:
        self._known: dict[bytes, User] = {}
        for user, secret in known:
            if len(secret) < MIN_SECRET:
                raise InvalidArgument(
                    argument="secret",
                    value=f"of {user.name!r}",
                    problem=f"needs at least {MIN_SECRET} characters",
                )
            self._known[_digest(user.name, secret)] = user

    def of(self, authorization: str) -> User | None:
        """The user of an ``Authorization`` header, Basic or Bearer; None if it is not right."""
        given = credentials(authorization)
        if given is None:
            return None
        name, secret = given
        # A token comes without a name: it is tried with each.
        names = [user.name for user in self._known.values()] if name is None else [name]
        found = None
        # All are looked at, which takes the same time whether it is right or not.
        for digest in [_digest(each, secret) for each in names]:
            for known, user in self._known.items():
                if hmac.compare_digest(known, digest):
                    found = user
        return found


def _digest(name: str, secret: str) -> bytes:
    # With the name, so that one secret of two users has two digests; and all have one length, so
    # that comparing tells nothing of theirs.
    return hashlib.sha256(f"{name}\0{secret}".encode()).digest()


def credentials(authorization: str) -> tuple[str | None, str] | None:
    """The name and the secret in an ``Authorization`` header: without a name if it is Bearer. None
    if it has no secret."""
    scheme, _, given = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return None, given
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, secret = base64.b64decode(given, validate=True).decode().partition(":")
    except ValueError:
        return None
    return (name, secret) if colon else None


class Attempts:
    """Counts wrong secrets, by address and name: after ``TRIES`` in ``TRY_SECONDS``, no more are
    looked at until these are over. Others of the same name or address are not concerned."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._wrong: OrderedDict[tuple[str, str], tuple[float, int]] = OrderedDict()

    def over(self, whose: tuple[str, str]) -> bool:
        """Whether there were too many."""
        until, count = self._wrong.get(whose, (0.0, 0))
        return count >= TRIES and self._clock() < until

    def wrong(self, whose: tuple[str, str]) -> None:
        """Count one."""
        now = self._clock()
        until, count = self._wrong.pop(whose, (0.0, 0))
        self._wrong[whose] = (until, count + 1) if now < until else (now + TRY_SECONDS, 1)
        if len(self._wrong) > MOST_TRIED:
            # The oldest goes: whoever guesses under many names cannot fill the memory.
            self._wrong.popitem(last=False)


def read_users(path: str | os.PathLike[str]) -> Users:
    """The users of a file: in each line a name, a role and a secret. A line that begins with #, and
    what follows the secret after a space and #, is a comment.

    The file is read again when it has changed. If it cannot be, nobody is let in until it can.

    Raises ``InvalidArgument`` for a line of another form, and for a file that others may read or
    that belongs to another user.
    """
    return _UsersOfFile(Path(path))


class _UsersOfFile(Users):
    def __init__(self, file: Path) -> None:
        super().__init__(())
        self._file = file
        self._read: tuple[int, ...] = ()
        self._refresh()

    def of(self, authorization: str) -> User | None:
        try:
            self._refresh()
        except (InvalidArgument, OSError) as error:
            log.error("nobody is let in: %s", error)
            return None
        return super().of(authorization)

    def _refresh(self) -> None:
        if _version(self._file.stat()) == self._read:
            return
        # Until all of it is read: after an error the next request tries again.
        self._read = ()
        with self._file.open("rb") as opened:
            # Of what was opened: the name may mean another file by now.
            found = os.fstat(opened.fileno())
            if stat.S_IMODE(found.st_mode) & 0o077:
                raise _wrong(self._file, "other users may read it: chmod 600 it")
            if found.st_uid != os.geteuid():
                raise _wrong(self._file, "it belongs to another user: chown it")
            try:
                text = opened.read().decode()
            except UnicodeDecodeError:
                raise _wrong(self._file, "it is not UTF-8") from None
        self._known = Users(_lines(self._file, text))._known
        self._read = _version(found)


def _version(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _lines(file: Path, text: str) -> Iterable[tuple[User, str]]:
    roles: Mapping[str, Role] = {role.value: role for role in Role}
    known: dict[str, tuple[User, str]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split(maxsplit=3)
        if not words or words[0].startswith("#"):
            continue
        comment = words[3] if len(words) > 3 else "#"
        if len(words) < 3 or comment[0] != "#" or words[1] not in roles or ":" in words[0]:
            raise _wrong(file, f"line {number}: write NAME viewer SECRET, or NAME operator SECRET")
        name, role, secret = words[:3]
        if name in known:
            raise _wrong(file, f"line {number}: {name!r} is there twice")
        known[name] = User(name, roles[role]), secret
    if not known:
        raise _wrong(file, "it names no user")
    return known.values()


def _wrong(file: Path, problem: str) -> InvalidArgument:
    return InvalidArgument(argument="users", value=str(file), problem=problem)
