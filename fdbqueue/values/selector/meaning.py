"""The meaning of each rule of the grammar: a function of a message and the clock."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec import Struct
from msgspec.structs import replace

from ...errors import InvalidSelector
from ..model import HeaderValue, Message

if TYPE_CHECKING:
    from lark import Token

MAX_DEPTH = 100
"""How deep expressions may nest; a chain of AND, OR, + or * is one level."""

PROPERTIES: dict[str, Callable[[Message, int], HeaderValue]] = {
    "priority": lambda message, _: message.priority,
    "JMSPriority": lambda message, _: message.priority,
    "attempts": lambda message, _: message.attempts,
    "deaths": lambda message, _: message.deaths,
    "JMSDeliveryCount": lambda message, _: message.attempts + message.deaths,
    "JMSRedelivered": lambda message, _: message.attempts + message.deaths > 0,
    "id": lambda message, _: message.id,
    "JMSMessageID": lambda message, _: message.id,
    "JMSTimestamp": lambda message, _: message.enqueued_at_ms,
    "age": lambda message, now_ms: (now_ms - message.enqueued_at_ms) / 1000,
}
"""The reserved names. ``age`` is in seconds since the enqueue, ``JMSTimestamp`` its wall clock in
milliseconds; ``attempts`` counts those that failed, ``deaths`` consumers that died."""

Test = Callable[[Message, int], HeaderValue]
Equality = tuple[str, type, HeaderValue]
"""A header, and the type and the value of a constant that it equals."""


class Node(Struct, frozen=True):
    """A part of a selector: its type if known, its depth, where it is, and its meaning.

    header: the header that it names. constant: whether it is a literal. equal: headers, each with
    the constant that it has wherever the node is true.
    """

    kind: str
    depth: int
    at: int
    test: Test
    header: str | None = None
    constant: bool = False
    equal: tuple[Equality, ...] = ()


ANY, CONDITION, NUMBER, STRING = "any", "condition", "number", "string"


def _node(kind: str, parts: Sequence[Node], at: int, test: Test) -> Node:
    depth = 1 + max((part.depth for part in parts), default=0)
    if depth > MAX_DEPTH:
        raise InvalidSelector(position=at, problem=f"it nests deeper than {MAX_DEPTH} levels")
    return Node(kind, depth, at, test)


def condition(node: Node) -> Node:
    """The node, if it can be a condition; raises ``InvalidSelector``."""
    return node if node.kind in (ANY, CONDITION) else _fail(node, "a condition")


def _number(node: Node) -> Node:
    return node if node.kind in (ANY, NUMBER) else _fail(node, "a number")


def _fail(node: Node, expected: str) -> NoReturn:
    raise InvalidSelector(position=node.at, problem=f"found a {node.kind}, expected {expected}")


def _literal(kind: str, token: Token, value: HeaderValue) -> Node:
    node = _node(kind, (), token.start_pos or 0, lambda message, now_ms: value)
    return replace(node, constant=True)


def _truth(value: HeaderValue) -> bool | None:
    return value if isinstance(value, bool) else None


def _junction(parts: list[Node], decisive: bool) -> Node:
    """OR if True decides, AND if False does; NULL if none decides and one is NULL."""
    tests = [condition(part).test for part in parts]

    def test(message: Message, now_ms: int) -> HeaderValue:
        result: bool | None = not decisive
        for each in tests:
            value = _truth(each(message, now_ms))
            if value is decisive:
                return value
            if value is None:
                result = None
        return result

    node = _node(CONDITION, parts, parts[0].at, test)
    # Each part of an AND must be true, so what any of them demands, the whole demands. Of an OR
    # nothing is known.
    return node if decisive else replace(node, equal=sum([part.equal for part in parts], ()))


def _inverted(value: HeaderValue) -> bool | None:
    return not value if isinstance(value, bool) else None


def _negation(parts: list[Any]) -> Node:
    token, node = parts
    test = condition(node).test
    return _node(
        CONDITION, [node], token.start_pos, lambda message, now_ms: _inverted(test(message, now_ms))
    )


def type_of(value: HeaderValue) -> type:
    """The type by which values are compared: numbers have one in common."""
    if isinstance(value, bool):
        return bool
    return str if isinstance(value, str) else float


_ORDERS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def _compare(sign: str, left: HeaderValue, right: HeaderValue) -> bool | None:
    if left is None or right is None:
        return None
    kind = type_of(left)
    if kind is not type_of(right):
        return False
    if sign == "=":
        return left == right
    if sign == "<>":
        return left != right
    return kind is float and bool(_ORDERS[sign](left, right))


def _comparison(parts: list[Any]) -> Node:
    left, token, right = parts
    sign = str(token)
    if sign in _ORDERS:
        _number(left), _number(right)
    elif ANY not in (left.kind, right.kind) and left.kind != right.kind:
        _fail(right, f"a {left.kind}")
    one, other = left.test, right.test

    def test(message: Message, now_ms: int) -> HeaderValue:
        return _compare(sign, one(message, now_ms), other(message, now_ms))

    node = _node(CONDITION, [left, right], left.at, test)
    return replace(node, equal=_equality(left, right)) if sign == "=" else node


def _equality(left: Node, right: Node) -> tuple[Equality, ...]:
    named, literal = (right, left) if left.constant else (left, right)
    if named.header is None or not literal.constant:
        return ()
    # No message, no clock: it is a literal.
    value = literal.test(None, 0)  # type: ignore[arg-type]
    return ((named.header, type_of(value), value),)


def _negatable(parts: list[Any]) -> tuple[bool, list[Any]]:
    """Whether there is a NOT among the parts, and the others."""
    rest = [part for part in parts if getattr(part, "type", None) != "NOT"]
    return len(rest) < len(parts), rest


def _between(parts: list[Any]) -> Node:
    negated, bounds = _negatable(parts)
    value, low, high = (_number(part).test for part in bounds)

    def test(message: Message, now_ms: int) -> HeaderValue:
        it, least, most = value(message, now_ms), low(message, now_ms), high(message, now_ms)
        # Each side may be NULL: NOT BETWEEN is true if one side alone is, whatever the other.
        if negated:
            either = (_compare("<", it, least), _compare(">", it, most))
            return True if True in either else None if None in either else False
        both = (_compare(">=", it, least), _compare("<=", it, most))
        return False if False in both else None if None in both else True

    return _node(CONDITION, bounds, bounds[0].at, test)


def _membership(parts: list[Any]) -> Node:
    negated, (name, *members) = _negatable(parts)
    test = _named(name, "IN").test
    # No message, no clock: the members are literals.
    values = [member.test(None, 0) for member in members]
    # With the type, as `'1'`, 1 and TRUE are not each other; True and 1 are one element to Python.
    known = {(type_of(value), value) for value in values}

    def contains(message: Message, now_ms: int) -> HeaderValue:
        value = test(message, now_ms)
        return None if value is None else ((type_of(value), value) in known) is not negated

    return _node(CONDITION, [name], name.at, contains)


def _like(parts: list[Any]) -> Node:
    negated, (name, pattern, escape) = _negatable(parts)
    test = _named(name, "LIKE").test
    matching = _pattern(pattern, escape).match

    def like(message: Message, now_ms: int) -> HeaderValue:
        value = test(message, now_ms)
        if value is None:
            return None
        return (isinstance(value, str) and matching(value) is not None) is not negated

    return _node(CONDITION, [name], name.at, like)


def _null(parts: list[Any]) -> Node:
    negated, (name,) = _negatable(parts)
    test = _named(name, "IS NULL").test
    return _node(
        CONDITION,
        [name],
        name.at,
        lambda message, now_ms: (test(message, now_ms) is None) is not negated,
    )


def _named(node: Node, what: str) -> Node:
    if node.kind != ANY:
        _fail(node, f"a name before {what}")
    return node


def _pattern(pattern: Token, escape: Token | None) -> re.Pattern[str]:
    """A LIKE pattern as a regular expression that never backtracks into an earlier ``%``.

    The first match of the text between two ``%`` is as good as any later one, so each is an atomic
    group: matching takes at most the length of the pattern times that of the text.
    """
    sign = unquoted(escape) if escape is not None else None
    if escape is not None and len(sign or "") != 1:
        raise InvalidSelector(
            position=escape.start_pos, problem="an escape must be a single character"
        )
    pieces = [""]
    characters = iter(unquoted(pattern))
    for character in characters:
        if character == sign:
            following = next(characters, None)
            if following not in ("%", "_", sign):
                raise InvalidSelector(
                    position=pattern.start_pos,
                    problem=f"in the pattern, the escape {sign!r} must precede %, _ or itself",
                )
            pieces[-1] += re.escape(following)
        elif character == "%":
            pieces.append("")
        else:
            pieces[-1] += "." if character == "_" else re.escape(character)
    begin, *middle = pieces
    if middle:
        *between, end = middle
        begin += "".join(f"(?>.*?{piece})" for piece in between if piece) + f".*{end}"
    return re.compile(begin + r"\Z", re.DOTALL)


_EXACT_RANGE = range(-(2**63), 2**63)


def _add(left: HeaderValue, right: HeaderValue, apply: Callable[[Any, Any], Any]) -> HeaderValue:
    """Arithmetic of two values; None if an operand or the result is not a number."""
    for value in (left, right):
        # To Python a bool is a number; here arithmetic on it is NULL.
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
    try:
        result: int | float = apply(left, right)
    except (ArithmeticError, ValueError):
        return None
    return None if isinstance(result, int) and result not in _EXACT_RANGE else result


def _divide(left: int | float, right: int | float) -> int | float:
    """As in Java and SQL, the quotient of exact numbers is exact, rounded towards zero."""
    if isinstance(left, int) and isinstance(right, int):
        quotient = abs(left) // abs(right)
        return quotient if (left < 0) == (right < 0) else -quotient
    return left / right


_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
}


def _arithmetic(parts: list[Any]) -> Node:
    first, *rest = parts
    operands = [_number(first), *(_number(part) for part in rest[1::2])]
    start = first.test
    steps = [
        (_OPERATORS[sign], operand.test)
        for sign, operand in zip(rest[::2], operands[1:], strict=True)
    ]

    def test(message: Message, now_ms: int) -> HeaderValue:
        value: HeaderValue = start(message, now_ms)
        for apply, operand in steps:
            value = _add(value, operand(message, now_ms), apply)
        return value

    return _node(NUMBER, operands, first.at, test)


def _signed(parts: list[Any]) -> Node:
    sign, node = parts
    test, apply = _number(node).test, _OPERATORS[sign]
    return _node(
        NUMBER,
        [node],
        sign.start_pos,
        lambda message, now_ms: _add(0, test(message, now_ms), apply),
    )


def unquoted(token: Token) -> str:
    """What stands between the quotes of a token."""
    quote = token[0]
    return str(token[1:-1].replace(quote * 2, quote))


def _exact(parts: list[Any]) -> Node:
    *sign, token = parts
    digits = token.rstrip("lL")
    try:
        # A leading 0 is octal, as in Java: 010 is eight.
        value = int(digits, 16 if digits[:2] in ("0x", "0X") else 8 if digits[0] == "0" else 10)
    except ValueError:
        value = -1
    # 2**63 is allowed for the sake of its negative.
    if not 0 <= value <= 2**63:
        raise InvalidSelector(
            position=token.start_pos, problem=f"{digits[:40]!r} is not an exact number of 64 bits"
        )
    return _literal(NUMBER, token, -value if sign == ["-"] else value)


def _approximate(parts: list[Any]) -> Node:
    *sign, token = parts
    value = float(token.rstrip("fFdD"))
    if math.isinf(value):
        raise InvalidSelector(position=token.start_pos, problem="the number is too large")
    return _literal(NUMBER, token, -value if sign == ["-"] else value)


def _name(parts: list[Any]) -> Node:
    (token,) = parts
    name = str(token)
    known = PROPERTIES.get(name)
    return _node(ANY, (), token.start_pos, known) if known else _header(name, token)


def _header(name: str, token: Token) -> Node:
    node = _node(ANY, (), token.start_pos or 0, lambda message, _: message.headers.get(name))
    return replace(node, header=name)


def _truth_value(value: bool) -> Node:
    return replace(_node(CONDITION, (), 0, lambda message, now_ms: value), constant=True)


RULES: dict[str, Callable[[list[Any]], Node]] = {
    "or": lambda parts: _junction(parts, True),
    "and": lambda parts: _junction(parts, False),
    "negation": _negation,
    "comparison": _comparison,
    "between": _between,
    "membership": _membership,
    "like": _like,
    "null": _null,
    "sum": _arithmetic,
    "product": _arithmetic,
    "signed": _signed,
    "name": _name,
    "quoted": lambda parts: _header(unquoted(parts[0]), parts[0]),
    "string": lambda parts: _literal(STRING, parts[0], unquoted(parts[0])),
    "exact": _exact,
    "approximate": _approximate,
    "true": lambda parts: _truth_value(True),
    "false": lambda parts: _truth_value(False),
}
