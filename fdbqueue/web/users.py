"""Users of the web pages: who they are, and what they may do."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path

from ..errors import InvalidArgument
from ..values.records import record

MIN_SECRET = 16
"""Characters of a secret: fewer can be guessed."""


class Role(Enum):
    """What a user may do: a viewer looks, and an operator also acts."""

    VIEWER = "viewer"
    OPERATOR = "operator"


@record
class User:
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
        scheme, _, given = authorization.partition(" ")
        if scheme.lower() == "bearer":
            return self._find([_digest(user.name, given) for user in self._known.values()])
        if scheme.lower() != "basic":
            return None
        try:
            name, colon, secret = base64.b64decode(given, validate=True).decode().partition(":")
        except ValueError:
            return None
        return self._find([_digest(name, secret)]) if colon else None

    def _find(self, digests: Sequence[bytes]) -> User | None:
        """The user with one of these digests, in the same time whether there is one or not."""
        found = None
        for digest in digests:
            for known, user in self._known.items():
                if hmac.compare_digest(known, digest):
                    found = user
        return found


def _digest(name: str, secret: str) -> bytes:
    return hashlib.sha256(f"{name}\0{secret}".encode()).digest()


def read_users(path: str | os.PathLike[str]) -> Users:
    """The users of a file: in each line a name, a role and a secret; # begins a comment.

    Raises ``InvalidArgument`` for a line of another form, and for a file that others may read.
    """
    file = Path(path)
    if stat.S_IMODE(file.stat().st_mode) & 0o077:
        raise _wrong(file, "other users may read it: chmod 600 it")
    known: dict[str, tuple[User, str]] = {}
    for number, line in enumerate(file.read_text().splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        roles: Mapping[str, Role] = {role.value: role for role in Role}
        if len(words) != 3 or words[1] not in roles or ":" in words[0]:
            raise _wrong(file, f"line {number}: write NAME viewer SECRET, or NAME operator SECRET")
        name, role, secret = words
        if name in known:
            raise _wrong(file, f"line {number}: {name!r} is there twice")
        known[name] = User(name, roles[role]), secret
    if not known:
        raise _wrong(file, "it names no user")
    return Users(known.values())


def _wrong(file: Path, problem: str) -> InvalidArgument:
    return InvalidArgument(argument="users", value=str(file), problem=problem)
