"""Where public modules were before they moved: the old paths work on, with a warning."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    "backoff": "values.backoff",
    "binding": "store.binding",
    "clock": "store.clocks",
    "connection": "store.connection",
    "embedded": "store.embedded",
    "embedded.faults": "store.embedded.faults",
    "importing": "queue.bulk.imports",
    "keys": "schema.keys",
    "model": "values.model",
    "options": "values.options",
    "selector": "values.selector",
    "serializers": "values.serializers",
    "sinks": "queue.bulk.sinks",
    "states": "values.states",
    "surveying": "queue.overview",
    "tracing": "worker.tracing",
    "verification": "queue.verification",
}
PACKAGE = __name__.rpartition(".")[0]


class _Finder:
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        old = fullname.removeprefix(f"{PACKAGE}.")
        if old not in MOVED or old == fullname:
            return None
        # A loader by its methods: importing importlib.abc would cost more than all else here.
        return ModuleSpec(fullname, self)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        new = f"{PACKAGE}.{MOVED[spec.name.removeprefix(f'{PACKAGE}.')]}"
        warnings.warn(f"{spec.name} is {new} now", DeprecationWarning, stacklevel=2)
        module = import_module(new)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # It has been executed at its new place, and stays the module of that place.
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


def install() -> None:
    """Let the old paths be imported."""
    sys.meta_path.insert(0, _Finder())  # before the one that reads folders
