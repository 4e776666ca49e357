"""Web pages to see and steer queues: ``fdbq web``, or mounted in your own application.

Needs ``fdbqueue[web]``.
"""

from ..errors import MissingPackage

try:
    import jinja2 as _jinja2
    import starlette as _starlette
except ImportError as _error:
    raise MissingPackage(purpose="fdbqueue.web", package=_error.name or "", extra="web") from _error

from .application import application
from .users import Role, User, Users, read_users

__all__ = ["Role", "User", "Users", "application", "read_users"]

del _jinja2, _starlette
