"""The pages of what a queue has beside messages: schedules, groups, keys, consumers and others."""

from __future__ import annotations

from ...messages.streams.undecided import Undecided
from ...queue.admin import finding
from ...queue.admin.backlogs import waits_for
from ...queue.internals import Internals
from ...schema.streams import SinkState
from ..site import Values, Visit, cut, number

CONSUMERS, STREAMS, SUBSCRIPTIONS, LIMITS = 500, 200, 100, 100
"""How many of each a page shows at most."""
MAX_LAG = 1_000
"""How many messages that a subscription has not seen are counted."""


def schedules(visit: Visit) -> Values:
    """When they tick, and what came of them."""
    known = visit.queue.schedules.list(visit.db, visit.limit + 1, after=visit.after)
    found, last = cut(known, visit.limit)
    return {"schedules": found, "following": last and last.name}


def groups(visit: Visit) -> Values:
    """How far each has come, and what follows it: all of them, or the one that is asked for."""
    known, wanted = visit.queue.groups, visit.query.get("group", "")
    if wanted:
        one = known.get(visit.db, wanted)
        found = [] if one is None else [one]
    else:
        found = known.list(visit.db, visit.limit + 1, after=visit.after)
    shown, last = cut(found, visit.limit)
    return {"group": wanted, "groups": shown, "following": last and last.name}


def keys(visit: Visit) -> Values:
    """The keys with messages that wait, their limits, and who holds their slots."""
    db, queue, key, most = visit.db, visit.queue, visit.query.get("key", ""), visit.limit + 1
    waiting = {each.key: each for each in queue.keys.waiting(db, most, after=visit.after)}
    own = queue.keys.limited(db, most, after=visit.after)
    names, following = cut(sorted({*waiting, *own}), visit.limit)
    # Those of several keys, in one transaction.
    states = Internals(queue).read(
        db, lambda tr: {name: queue.keys[name].state(tr) for name in names}
    )
    return {
        "options": queue.options(db),
        "names": names,
        "states": states,
        "waiting": waiting,
        "own": own,
        "following": following,
        "key": key,
        "state": queue.keys[key].state(db) if key else None,
        "waits_for": waits_for,
    }


def limits(visit: Visit) -> Values:
    """Those that the queues of the root share: all, and more of the one that is asked for."""
    known, db, query = visit.site.limits(), visit.db, visit.query
    dimension, name = query.get("dimension", ""), query.get("limit", "")
    after = query.get("after_dimension", ""), query.get("after", "")
    size = number(query, "size", LIMITS // 2, LIMITS)
    shown, last = cut(known.list(db, size + 1, after=after if all(after) else None), size)
    return {
        "queue": None,
        "state": known[dimension, name].state(db) if dimension or name else None,
        "waits_for": waits_for,
        # One by one: each may have a thousand messages that are out.
        "limits": [known[each.dimension, each.name].state(db) for each in shown],
        "first": not all(after),
        "following": last,
    }


def consumers(visit: Visit) -> Values:
    """The consumers of a queue, and the leases that they hold."""
    text = visit.query.get("after", "")
    try:
        after = bytes.fromhex(text) or None
    except ValueError:
        after = None
    leases, last = cut(visit.queue.admin.leases(visit.db, visit.limit + 1, after), visit.limit)
    everyone = visit.queue.admin.consumers(visit.db)
    return {
        "consumers": everyone[:CONSUMERS],
        "total": len(everyone),
        "works": {(f"{one.host}:{one.process}", work) for one in everyone for work in one.work},
        "leases": leases,
        "after": text if after else "",
        "following": last and last.delivery.token.hex(),
    }


def subscriptions(visit: Visit) -> Values:
    """Their cursors, and how many messages are still before them."""
    db, queue, rows = visit.db, visit.queue, []
    found = queue.subscriptions.list(db)
    for definition in found[:SUBSCRIPTIONS]:
        opened = queue.subscriptions.open(db, definition.name, create=False)
        lag = finding.lag(db, queue, definition.name, MAX_LAG)
        rows.append({"definition": definition, "positions": opened.positions(db), "lag": lag})
    return {"rows": rows, "total": len(found), "most": MAX_LAG}


def streams(visit: Visit) -> Values:
    """What streams hold, and what bulk writes have staged: the plans and the sinks of a queue."""
    of, db = visit.queue.streams, visit.db
    planned, known, staged = of.plans.list(db), of.sinks(db), of.undecided(db)
    names = sorted({*known, *staged})
    return {
        "plans": planned[:STREAMS],
        "more_plans": len(planned) - STREAMS,
        "sinks": [
            (each, known.get(each, SinkState()), staged.get(each, Undecided()))
            for each in names[:STREAMS]
        ],
        "more_sinks": len(names) - STREAMS,
    }
