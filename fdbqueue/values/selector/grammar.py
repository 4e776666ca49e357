"""The grammar of selectors, and the errors of text that does not follow it."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ...errors import InvalidSelector
from .meaning import RULES, Node, unquoted

if TYPE_CHECKING:
    from lark import Lark

GRAMMAR = r"""
    ?start: or
    ?or: and ("OR" and)*
    ?and: not ("AND" not)*
    ?not: NOT not -> negation
        | predicate
    ?predicate: sum
        | sum COMPARISON sum -> comparison
        | sum NOT? "BETWEEN" sum "AND" sum -> between
        | sum NOT? "IN" "(" member ("," member)* ")" -> membership
        | sum NOT? "LIKE" STRING ["ESCAPE" STRING] -> like
        | sum "IS" NOT? "NULL" -> null
    ?sum: product (SIGN product)*
    ?product: unary (FACTOR unary)*
    ?unary: SIGN unary -> signed
        | primary
    ?primary: literal | "(" or ")"
        | NAME -> name
        | QUOTED -> quoted
    ?literal: STRING -> string
        | EXACT -> exact
        | APPROXIMATE -> approximate
        | "TRUE" -> true
        | "FALSE" -> false
    ?member: STRING -> string
        | SIGN? EXACT -> exact
        | SIGN? APPROXIMATE -> approximate

    COMPARISON: "=" | "<>" | "<=" | ">=" | "<" | ">"
    SIGN: "+" | "-"
    FACTOR: "*" | "/"
    STRING: /'([^']|'')*'/
    QUOTED: /"([^"]|"")+"/
    APPROXIMATE.2: /([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?/
        | /[0-9]+([eE][+-]?[0-9]+[fFdD]?|[fFdD])/
    EXACT: /(0[xX][0-9a-fA-F]+|[0-9]+)[lL]?/
    NAME: /[^\W\d][\w$.]*|\$[\w$.]*/
    %ignore /[ \t\f\r\n]+/
"""
KEYWORDS = ("AND", "OR", "NOT", "BETWEEN", "IN", "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "FALSE")

_EXPECTED = {
    **{keyword: keyword for keyword in KEYWORDS},
    "COMPARISON": "a comparison",
    "SIGN": "+ or -",
    "FACTOR": "* or /",
    "STRING": "a string",
    "QUOTED": "a name",
    "NAME": "a name",
    "EXACT": "a number",
    "APPROXIMATE": "a number",
    "LPAR": "'('",
    "RPAR": "')'",
    "COMMA": "','",
    "$END": "the end",
}


@lru_cache(maxsize=1)
def _parser() -> Lark:
    # Imported and built at the first selector: programs without selectors do not wait for it.
    from lark import Lark, Transformer

    # Keywords are whole words, in any case; the basic lexer reserves them everywhere.
    keywords = "".join(rf"    {word}.3: /{word}(?![\w$.])/i" + "\n" for word in KEYWORDS)
    grammar = re.sub(r'"([A-Z]+)"', r"_\1", GRAMMAR)
    keywords = re.sub(r"^    (?!NOT)", "    _", keywords, flags=re.MULTILINE)

    class Build(Transformer[Any, Any]):
        """Calls the rules as the parser reduces: no tree, no recursion."""

        def __getattr__(self, name: str) -> Any:
            rule = RULES.get(name)
            if rule is None:
                raise AttributeError(name)
            return rule

    return Lark(grammar + keywords, parser="lalr", lexer="basic", transformer=Build())


def names(text: str, *, quoted: bool = False) -> set[str]:
    """The unquoted names of a selector: properties and headers. quoted: also the quoted ones."""
    tokens = list(_parser().lex(text))
    found = {str(token) for token in tokens if token.type == "NAME"}
    if quoted:
        found |= {unquoted(token) for token in tokens if token.type == "QUOTED"}
    return found


def parse(text: str) -> Node:
    """The meaning of a selector; raises ``InvalidSelector``."""
    from lark.exceptions import UnexpectedCharacters, UnexpectedToken, VisitError

    parser = _parser()
    try:
        return parser.parse(text)  # type: ignore[return-value]
    except UnexpectedCharacters as error:
        at = error.pos_in_stream or 0
        if text[at] in "'\"":
            raise InvalidSelector(position=at, problem="this quote is not closed") from None
        raise InvalidSelector(position=at, problem=f"unexpected character {text[at]!r}") from None
    except UnexpectedToken as error:
        end = error.token.type == "$END"
        expected = sorted({_EXPECTED[name.removeprefix("_")] for name in error.expected})
        found = "the end" if end else repr(str(error.token)[:40])
        raise InvalidSelector(
            position=len(text) if end else error.pos_in_stream,
            problem=f"found {found}, expected {', '.join(expected)}",
        ) from None
    except VisitError as error:
        raise error.orig_exc from None
