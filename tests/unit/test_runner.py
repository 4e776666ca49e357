from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fdbqueue.errors import InvalidArgument
from fdbqueue.worker.processes.runner import load

MODULE = """
import fdbqueue
import fdbqueue.aio
db = fdbqueue.open({store!r})
queue = fdbqueue.Queue.open(db, "orders")
class deep:
    app = fdbqueue.Worker(db).add(queue, print, run=fdbqueue.Run(transactional=False))
def make():
    return deep.app
def keep():
    return queue
def fails():
    return 1 / 0
class Callable:
    def __call__(self, scope, receive, send): ...
other = Callable()
later = fdbqueue.aio.Worker(fdbqueue.aio.Database(db))
number = 7
"""


@pytest.fixture
def module(tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"app_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE.format(store=store))
    (tmp_path / f"{name}_broken.py").write_text("import nothing_of_this_name")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def test_a_worker_is_found_by_module_and_name(module: str) -> None:
    assert load(f"{module}:deep.app") is load(f"{module}:make")
    assert load(f"{module}:later") is sys.modules[module].later.blocking


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("{}", "no queue in it has a job: {}:later"),
        ("{}:keep", "queue 'orders' has no job"),
        ("{}:queue", "queue 'orders' has no job"),
        ("{}:fails", r"calling it fails in .*{}.py, line \d+: ZeroDivisionError"),
        ("{}:other", "type Callable, not a Worker"),
        ("{}:Callable", "type Callable, not a Worker"),
        ("{}:deep.appp", "no 'appp' in it: did you mean 'app'"),
        ("{}s:app", "no module '{}s': did you mean '{}'"),
        ("{}.py", "no module '{}.py': did you mean '{}'"),
        ("./{}.py:app", "did you mean '{}'"),
        ("{}:", "module:name"),
        ("{}:nothing", "no 'nothing'"),
        ("{}:number", "type int"),
        ("no.such.module:app", "no module 'no'"),
        ("{}_broken:app", r"line 1: ModuleNotFoundError: .*nothing_of_this_name"),
        ("..:app", "fails"),
    ],
)
def test_what_is_no_worker_is_refused_with_the_reason(
    module: str, target: str, problem: str
) -> None:
    with pytest.raises(InvalidArgument, match=problem.replace("{}", module)):
        load(target.format(module))
