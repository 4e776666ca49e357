"""The command line: seeds, each in a process of its own, as many at once as there are cores."""

from __future__ import annotations

import argparse
import gc
import importlib
import itertools
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, fields, replace
from functools import partial
from typing import Any

from workload.history import Operation

from fdbqueue.values.selector import grammar

from . import lanes, mutants, shrink
from .run import FAULTS, PARTS, Outcome, Run, Settings

NOTHING_FAILS = (*FAULTS, "skew", "watches")

PATIENCE = 300.0
"""Seconds of the machine after which a run is given up."""
AROUND = 40
"""Operations that are shown of those that a failure names, and of those before its end."""
MOST_SHOWN = 10


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate, and tell what is wrong; the exit code says whether anything is."""
    parser = argparse.ArgumentParser(prog="tools/simulate", description=__doc__)
    parser.add_argument("--seed", type=int, help="the one seed to run, or the first of several")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds to run")
    parser.add_argument("--minutes", type=float, help="run fresh seeds for so long")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count(), help="how many seeds run at once"
    )
    parser.add_argument("--operations", type=int, default=Settings.operations)
    parser.add_argument("--no-faults", action="store_true")
    parser.add_argument("--without", default="", help="parts that are left out, as --shrink says")
    parser.add_argument(
        "--shrink",
        action="store_true",
        help="draw a small history that fails alike",
    )
    parser.add_argument("--busy", type=float, help="virtual seconds, in place of --operations")
    parser.add_argument("--think", type=float, help="virtual seconds between two operations")
    parser.add_argument(
        "--idle",
        type=float,
        default=Settings.idle,
        help="virtual seconds without messages that follow",
    )
    parser.add_argument(
        "--twice", action="store_true", help="run each seed in two processes with two hash seeds"
    )
    parser.add_argument("--mutant", choices=sorted(mutants.TABLE), help="a fault to plant")
    parser.add_argument("--until-found", action="store_true", help="end with the first failure")
    parser.add_argument("--json", action="store_true", help="one line of JSON for each seed")
    chosen = parser.parse_args(arguments)
    settings = Settings(
        seed=0,
        operations=chosen.operations,
        seconds=chosen.busy,
        think=chosen.think,
        idle=chosen.idle,
        without=frozenset(filter(None, chosen.without.split(",")))
        | frozenset(NOTHING_FAILS if chosen.no_faults else ()),
    )
    if unknown := settings.without - {*PARTS}:
        parser.error(f"no parts: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    if chosen.twice:
        return _twice(list(sys.argv[1:] if arguments is None else arguments))
    if chosen.mutant:
        mutants.TABLE[chosen.mutant]()
    _prepare()
    failed, told = 0, list[dict[str, Any]]()
    for outcome in _outcomes(settings, _seeds(chosen), chosen.jobs):
        outcome["again"] = _again(chosen, outcome["seed"])
        failed += bool(outcome["problems"])
        told.append({name: outcome.get(name, 0) for name in ("operations", "processor")})
        if chosen.json:
            print(json.dumps(outcome), flush=True)
        else:
            _tell(outcome)
        if failed and chosen.shrink:
            found = replace(settings, seed=outcome["seed"])
            _draw(chosen, *shrink.shrink(found, outcome, partial(_outcomes, jobs=chosen.jobs)))
        if failed and (chosen.until_found or chosen.shrink):
            break
    if len(told) > 1 and not chosen.json:
        _sum_up(told, min(chosen.jobs, os.cpu_count() or 1))
    return 1 if failed else 0


def _sum_up(told: list[dict[str, Any]], cores: int) -> None:
    """How fast it was."""
    operations, seconds = (sum(each[name] for each in told) for name in ("operations", "processor"))
    print(
        f"{len(told)} seeds: {operations:,} operations in {seconds:.0f} s of the processor, "
        f"{60 * cores * operations / seconds:,.0f} in a minute of {cores} cores"
    )


def _draw(chosen: argparse.Namespace, settings: Settings, outcome: dict[str, Any]) -> None:
    """Show what is left of a failure."""
    few, path = lanes.few(outcome), f"simulation-{settings.seed}.svg"
    chosen.operations, chosen.idle, chosen.no_faults = settings.operations, settings.idle, False
    chosen.without = ",".join(sorted(settings.without))
    outcome |= {"again": _again(chosen, settings.seed), "shown": lanes.text(few)}
    if chosen.json:
        print(json.dumps(outcome), flush=True)
        return
    with open(path, "w") as out:
        out.write(lanes.svg(few))
    print(f"\nagain: {outcome['again']}\ndrawn: {path}\n")
    print("\n".join([*outcome["shown"], "", *outcome["problems"][:1]]))


def _twice(arguments: list[str]) -> int:
    """The same seeds in two processes: each must have one history."""
    arguments.remove("--twice")
    runs = [
        subprocess.Popen(
            [sys.executable, "-m", "simulation", "--json", *arguments],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
        )
        for hash_seed in ("1", "2")
    ]
    lines = [[json.loads(line) for line in run.communicate()[0].splitlines()] for run in runs]
    told = [{one["seed"]: one.get("digest", "died") for one in each} for each in lines]
    differ = [
        seed for seed, digest in told[0].items() if digest == "died" or digest != told[1].get(seed)
    ]
    print(f"{len(told[0])} seeds, {len(differ)} with two histories: {differ}")
    return 1 if differ else 0


def _again(chosen: argparse.Namespace, seed: int) -> str:
    """The command that repeats the run of a seed."""
    command: str = f"tools/simulate --seed {seed} --operations {chosen.operations}"
    for name in ("busy", "think", "idle", "mutant", "without"):
        if getattr(chosen, name) not in (None, ""):
            command += f" --{name} {getattr(chosen, name)}"
    return command + " --no-faults" * bool(chosen.no_faults)


def _seeds(chosen: argparse.Namespace) -> Iterator[int]:
    first = chosen.seed
    if first is None:
        first = int.from_bytes(os.urandom(4), "big")
    if chosen.minutes is None:
        yield from range(first, first + chosen.seeds)
        return
    end = time.monotonic() + chosen.minutes * 60
    while time.monotonic() < end:
        yield first
        first += 1


def _prepare() -> None:
    """Import and build what a run needs late, once for all seeds."""
    for name in ("cronsim", "fdbqueue.queue.admin.verification"):
        importlib.import_module(name)
    grammar.parse("region = 'eu'")
    gc.collect()
    gc.freeze()


class _Apart:
    """A run in a fork: it leaves behind clients that must not end."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.text = b""
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.directory = tempfile.mkdtemp(prefix="fdbqueue-simulate-", dir=memory)
        self.reading, writing = os.pipe()
        self.child = os.fork()
        if self.child:
            os.close(writing)
            return
        signal.alarm(int(PATIENCE))
        try:
            told = _told(Run(settings, self.directory).execute())
        except BaseException as error:
            told = {"problems": [f"the run itself: {error!r}"]}
        with open(writing, "w") as out:
            json.dump(told, out)
        os._exit(0)

    def goes_on(self) -> bool:
        """Read what it says; whether it may say more."""
        said = os.read(self.reading, 1 << 20)
        self.text += said
        return bool(said)

    def end(self, *, at_once: bool = False) -> dict[str, Any]:
        """What came of it."""
        os.close(self.reading)
        if at_once:
            os.kill(self.child, signal.SIGKILL)
        used = os.wait4(self.child, 0)[2]
        shutil.rmtree(self.directory, ignore_errors=True)
        told = {"problems": ["the run died"], **json.loads(self.text or "{}")}
        seconds = used.ru_utime + used.ru_stime
        return {**told, "seed": self.settings.seed, "processor": seconds}


def _outcomes(settings: Settings, seeds: Iterable[int], jobs: int) -> Iterator[dict[str, Any]]:
    """What comes of each seed, as each ends; so many run at once."""
    running: dict[int, _Apart] = {}
    seeds = iter(seeds)
    try:
        while True:
            for seed in itertools.islice(seeds, jobs - len(running)):
                run = _Apart(replace(settings, seed=seed))
                running[run.reading] = run
            if not running:
                return
            for each in select.select([*running], [], [])[0]:
                if not running[each].goes_on():
                    yield running.pop(each).end()
    finally:
        for run in running.values():
            run.end(at_once=True)


def _told(outcome: Outcome) -> dict[str, object]:
    told = asdict(replace(outcome, history=[]))
    if outcome.problems:
        # Those that the problems name, and the last ones.
        text = " ".join(outcome.problems)
        about = lanes.named(text)
        named = [
            each for each in outcome.history if lanes.named(f"{each.what} {each.result}") & about
        ]
        around = {id(each): each for each in (*named[-AROUND:], *outcome.history[-AROUND:])}
        told["around"] = [
            {each.name: getattr(one, each.name) for each in fields(one)} for one in around.values()
        ]
    return told


def _tell(outcome: dict[str, Any]) -> None:
    problems, seconds = outcome["problems"], outcome["processor"]
    rate = outcome.get("operations", 0) / seconds
    print(
        f"seed {outcome['seed']}: {outcome.get('operations')} operations in {seconds:.1f} s "
        f"of the processor, {rate:.0f}/s; "
        f"{outcome.get('virtual_seconds', 0):,.0f} virtual seconds; "
        f"{len(problems)} problems",
        flush=True,
    )
    if problems:
        print(f"again: {outcome['again']}\n\nthe end of the history:")
        print("\n".join(str(Operation(**each)) for each in outcome.get("around", ())))
        print("\nwhat is wrong:\n" + "\n".join(problems[:MOST_SHOWN]))
