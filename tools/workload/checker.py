"""The checker: the guarantees of docs/guarantees.md, one by one, against a history."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator

from fdbqueue.values.states import State

from . import monitor, replay, sources
from .history import Operation
from .place import BROWSERS, MAX_ATTEMPTS, MAX_DEATHS, MAX_SKEW_MS, REGIONS
from .view import UNDONE, View
from .violations import Violation, violation

MIN_LEASE_NS = 800_000_000
"""A little less than the shortest lease of a run."""
EARLY_MS = 50
UNSEEN = 3
"""Consumers of a queue that may die without a trace: a lease that a late commit has granted may be
unknown to who asked for it."""


def check(history: list[Operation], skew_ms: float = MAX_SKEW_MS) -> list[Violation]:
    """Every violation that the history shows, the first of each guarantee first.

    skew_ms: by how much a wall clock was wrong at most.
    """
    view = View(history, skew_ms)
    return [found for each in CHECKS for found in each(view)]


def conservation(view: View) -> Iterator[Violation]:
    """What was enqueued is done or dead; nothing came from nowhere, nothing was enqueued twice."""
    dead = {(q, tag) for q, final in view.finals.items() for tag, *_ in final["dead"]}
    for key, told in view.told.items():
        ended = key in view.done or key in view.perhaps or key in dead or key in view.effects
        if told.certain and not ended:
            taken = [one.operation for one in view.taken[key]]
            yield violation("lost", f"{key}: neither done nor dead", [told.operation, *taken])
        if told.certain is False and (ended or view.taken[key]):
            yield violation("phantom", f"{key}: never committed", [told.operation])
        ids = {one.id for one in view.taken[key]} | ({told.id} if told.id else set())
        if len(ids) > 1:
            operations = [told.operation, *(one.operation for one in view.taken[key])]
            yield violation("enqueued twice", f"{key}: under {sorted(ids)}", operations)
        if key in dead and any(one.name != "reject" for one in view.done.get(key, [])):
            yield violation("done and dead", f"{key}", [told.operation, *view.done[key]])
    for key in [*view.taken, *view.done, *dead, *view.effects]:
        if key not in view.told:
            operations = [one.operation for one in view.taken.get(key, [])]
            yield violation("phantom", f"{key}: nobody enqueued it", operations)


def at_most_once(view: View) -> Iterator[Violation]:
    """A message ends once and has its effect once, and is not delivered after its end."""
    for key, ends in view.done.items():
        if len(ends) > 1:
            yield violation("settled twice", f"{key}", ends)
        for one in view.taken.get(key, []):
            if ends[0].ended is not None and ends[0].ended < one.began:
                yield violation("delivered after its end", f"{key}", [ends[0], one.operation])
    for key, count in view.effects.items():
        if count != 1:
            operations = [*view.done.get(key, []), *view.perhaps.get(key, [])]
            yield violation("effect not once", f"{key}: {count} times", operations)
    for key, ends in view.done.items():
        for end in ends:
            if end.name in ("effect", "dequeue") and key not in view.effects:
                yield violation("effect lost", f"{key}", ends)


def attempts(view: View) -> Iterator[Violation]:
    """None is delivered after the maximum of attempts or deaths, and none while its lease lasts."""
    for key, taken in view.taken.items():
        for one in taken:
            if one.attempt > MAX_ATTEMPTS:
                yield violation("too many attempts", f"{key}: {one.attempt}", [one.operation])
            if one.deaths >= MAX_DEATHS:
                yield violation("too many deaths", f"{key}: {one.deaths}", [one.operation])
        if key[0] == "worked":
            continue  # a handler may run several times for one delivery
        ordered = sorted(taken, key=lambda one: one.began)
        for before, after in itertools.pairwise(ordered):
            # Where two overlap, either may have been the first.
            last = max(before.ended, after.ended)
            back = [one for one in view.given.get(key, []) if one.began < last]
            back = [one for one in back if one.ended is None or one.ended > before.began]
            both = [before.operation, *back, after.operation]
            if after.nth < before.nth and before.ended < after.began:
                yield violation("attempts went back", f"{key}", both)
            short = last - before.began < MIN_LEASE_NS
            released = any(one.name == "release" for one in back)
            if after.nth == before.nth and short and not released:
                yield violation("leased twice", f"{key}: delivery {after.nth}", both)
            drains = after.operation.what.get("drains")
            if short and not (back or drains):
                yield violation("lease cut short", f"{key}", both)
    for queue, final in view.finals.items():
        for tag, reason, made, deaths in final["dead"]:
            refused = [
                one
                for one in view.done.get((queue, tag), []) + view.perhaps.get((queue, tag), [])
                if one.name == "reject"
            ]
            if made < MAX_ATTEMPTS and deaths < MAX_DEATHS and not refused:
                operations = [one.operation for one in view.taken[queue, tag]]
                yield violation("dead too early", f"{queue} {tag}: {reason}", operations)


def delays(view: View) -> Iterator[Violation]:
    """Nothing is delivered before its delay is over, but for what clocks may differ by."""
    for key, told in view.told.items():
        due = told.operation.wall_ms + told.delay * 1000 - 2 * view.skew_ms - EARLY_MS
        for one in view.taken.get(key, []):
            ended = one.operation.ended_wall_ms
            drains = one.operation.what.get("drains")
            if told.delay and ended is not None and ended < due and not drains:
                what = f"{key}: {due - ended:.0f} ms too early"
                yield violation("early", what, [told.operation, one.operation])


def cursors(view: View) -> Iterator[Violation]:
    """A browser sees every message that it is about once, in order."""
    for browser, rows in view.seen.items():
        region = next((r for r in REGIONS if r in (BROWSERS[browser] or "")), None)
        last: dict[int, str] = {}
        known = set()
        for tag, identity, level, _, where, *_ in rows:
            if identity <= last.get(level, ""):
                kind = "seen twice" if tag in known else "seen out of order"
                yield violation(kind, f"{browser}: {tag} {identity} after {last[level]}")
            if region not in (None, where):
                yield violation("seen without a match", f"{browser}: {tag}")
            last[level] = identity
            known.add(tag)
        for (queue, tag), told in view.told.items():
            if queue != "watched":
                continue
            if told.certain and region in (None, told.region) and tag not in known:
                yield violation("not seen", f"{browser}: {tag} {told.id}", [told.operation])
            if told.certain is False and tag in known:
                yield violation("phantom", f"{browser}: {tag}", [told.operation])
        for tag in known:
            if ("watched", tag) not in view.told:
                yield violation("phantom", f"{browser}: {tag}")


def selectors(view: View) -> Iterator[Violation]:
    """A subscription is given what its selector matches."""
    for key, taken in view.taken.items():
        for one in taken:
            if one.operation.what.get("region", one.region) != one.region:
                yield violation("taken without a match", f"{key}", [one.operation])


def counters(view: View) -> Iterator[Violation]:
    """The counters are those of the history, the groups ended as their messages, and the audit is
    clean."""
    for one in view.operations:
        for wrong in one.what["found"] if one.name == "audit" else ():
            yield violation("audit", wrong)
    for queue, final in view.finals.items():
        for wrong in final["groups"]:
            yield violation("groups", f"{queue}: {wrong}")
        depth, dead = final["depth"], {tag for tag, *_ in final["dead"]}
        mine = [told for (q, _), told in view.told.items() if q == queue]
        least = sum(bool(told.certain) for told in mine)
        most = sum(told.certain is not False for told in mine)
        if not least <= depth["enqueued"] <= most:
            yield violation("counter", f"{queue}: enqueued {depth['enqueued']}, {least} to {most}")
        certain = {
            tag
            for (q, tag), ends in view.done.items()
            if q == queue and any(one.name not in UNDONE for one in ends)
        } | {tag for q, tag in view.effects if q == queue}
        perhaps = certain | {tag for q, tag in view.perhaps if q == queue}
        if not len(certain) <= depth["done"] <= len(perhaps):
            text = f"{queue}: done {depth['done']}, {len(certain)} to {len(perhaps)}"
            yield violation("counter", text)
        if depth["dead"] != len(dead):
            yield violation("counter", f"{queue}: dead {depth['dead']}, but {len(dead)} are")
        states = [state.value for state in State]
        if depth["enqueued"] != sum(depth[state] for state in states):
            yield violation("counter", f"{queue}: {depth} does not add up")


def lost_attempts(view: View) -> Iterator[Violation]:
    """Messages with more failed attempts than somebody has failed, or with more deaths than times
    that somebody may have begun with them.

    Only who takes a message alone begins with it. Whoever asked, and does not know the answer, may
    have begun with one.
    """
    failed: Counter[tuple[str, str]] = Counter()
    begun: Counter[tuple[str, str]] = Counter()
    asked: Counter[str] = Counter()
    taken = []
    for one in view.operations:
        if one.queue == "worked":
            continue  # Its workers begin out of sight.
        rows = one.result or [] if one.name == "receive" else []
        alone = one.what.get("limit", 1) == 1 or len(rows) == 1
        if one.name == "receive" and not one.ok:
            asked[one.queue] += 1
        if one.name == "receive" and alone:
            begun.update((one.queue, tag) for tag, *_ in rows)
        if one.name == "fail":
            failed.update((one.queue, tag) for tag in one.what["tags"])
        taken += [(one, alone, tag, attempt, deaths) for tag, _, _, attempt, _, _, deaths in rows]
    found: dict[str, dict[str, int]] = {}
    for one, alone, tag, attempt, deaths in taken:
        if attempt - 1 > failed[one.queue, tag]:
            yield violation("attempts lost", f"{one.queue} {tag}: {attempt - 1}", [one])
        more = deaths - (begun[one.queue, tag] - alone)
        if more > found.setdefault(one.queue, {}).get(tag, 0):
            found[one.queue][tag] = more
    for queue, of_tag in found.items():
        if sum(of_tag.values()) > asked[queue] + UNSEEN:
            yield violation("nobody died", f"{queue}: {of_tag}")


def batches(view: View) -> Iterator[Violation]:
    """The messages of one delivery are in order."""
    for one in view.operations:
        if one.name == "receive" and one.queue in monitor.QUEUES and one.result:
            told = [(row[1], view.told.get((one.queue, row[0]))) for row in one.result]
            ids = [name for name, known in told if known is not None and known.in_order]
            if ids != sorted(ids):
                yield violation("batch out of order", f"{one.queue}: {ids}", [one])


def order(view: View) -> Iterator[Violation]:
    """The history is that of priority queues, says a monitor of its own."""
    for found in monitor.judged(view.operations):
        yield violation("order", found)


def orphans(view: View) -> Iterator[Violation]:
    """Once all is quiet nothing is left of requests, leases, leaders and consumers; and every
    process came to its end."""
    for queue, final in view.finals.items():
        for kind, count in final["orphans"].items():
            yield violation("orphans", f"{queue}: {count} of {kind}")
    for one in view.operations:
        if one.name in ("died", "crashed", "stuck"):
            yield violation(one.name, f"{one.who} {one.queue} {one.what}", [one])


CHECKS: tuple[Callable[[View], Iterator[Violation]], ...] = (
    conservation,
    at_most_once,
    batches,
    cursors,
    selectors,
    delays,
    attempts,
    lost_attempts,
    order,
    replay.legal,
    counters,
    sources.checks,
    orphans,
)
