"""The text of a formula cut into tokens and parts; calls are kept whole, for `factors` to read."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import pairwise, takewhile
from typing import Any, Literal, NamedTuple

from privcausal.errors import FormulaError
from privcausal.request.arithmetic import MAX_DEPTH
from privcausal.request.calls import NAME, STRING, checked_name, short

MAX_CHARACTERS = 10_000
MAX_INTERACTION = 4
"""Factors of one term, and the largest power of a bracket."""


class Token(NamedTuple):
    kind: Literal["name", "call", "number", "operator"]
    text: str


_PLUS, _MINUS, _POWER, DOT = (Token("operator", symbol) for symbol in ("+", "-", "**", "."))

_SPACE = re.compile(rf"(`[^`]*`|{STRING})|\s+")
_BRACKET = re.compile(rf"`[^`]*`|{STRING}|[()]")
_TOKEN = re.compile(
    rf"""\s*(?:
    (?P<call>{NAME})\s*(?=\()
  | (?P<name>{NAME})
  | `(?P<quoted>[^`]*)`
  | (?P<number>[0-9]+)(?![\w.])
  | (?P<operator>\*\*|%in%|[-+*/:^().~|])
    )""",
    re.VERBOSE,
)

_STRANGERS = {
    "%": "'%' is only read in %in%; write a:b",
    "{": "Python in braces is never run; write I(x * 2) for arithmetic",
    "[": "square brackets are not read; write one column name, in back-quotes if need be",
    "'": "text is only read in C(x, ref='A')",
    '"': 'text is only read in C(x, ref="A")',
    "`": "a back-quote is never closed; write `my column`",
    "=": "'=' is only read inside a function, as in bs(x, df=5); write ~ after the outcome",
}


def checked_text(text: object) -> str:
    """The formula with white space made even, if Python and formulaic read it alike."""
    if not isinstance(text, str):
        raise FormulaError(f"a formula is text, not {type(text).__name__}; write 'Y ~ T | X'")
    if len(text) > MAX_CHARACTERS:
        raise FormulaError(f"the formula has more than {MAX_CHARACTERS} characters; shorten it")
    text = _SPACE.sub(lambda match: match[1] or " ", text).strip()
    if not is_plain(text):
        raise FormulaError(
            "the formula holds a backslash, an invisible character or a letter in an unusual form "
            "(not Unicode NFKC); type it anew, or rename the column"
        )
    return text


def is_plain(text: str) -> bool:
    # Python reads a full-width x as x, formulaic does not
    hidden = any(unicodedata.category(c)[0] == "C" for c in text)
    return not hidden and "\\" not in text and unicodedata.is_normalized("NFKC", text)


def tokens_of(text: str) -> list[Token]:
    tokens, position = [], 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _stranger(text[position:].lstrip())
        position = match.end()
        kind: Any = match.lastgroup
        if kind == "call":
            position = _closing(text, position)
            tokens.append(Token("call", text[match.start("call") : position]))
        elif kind in ("name", "quoted"):
            tokens.append(Token("name", checked_name(match[kind])))
        else:
            tokens.append(Token(kind, match[kind].replace("^", "**")))
    return tokens


def _stranger(rest: str) -> FormulaError:
    why = _STRANGERS.get(rest[0], f"{rest[0]!r} is not read in a formula; leave it out")
    if rest[0].isdigit():
        why = (
            f"{short(rest)} starts with a digit; write a number inside I(), as in I(0.5 * x), "
            "and such a column name in back-quotes, `2x`"
        )
    return FormulaError(why)


def _closing(text: str, start: int) -> int:
    """The position after the bracket that closes the one at `start`."""
    depth = 0
    for match in _BRACKET.finditer(text, start):
        depth += {"(": 1, ")": -1}.get(match[0], 0)
        if depth == 0:
            return match.end()
    raise FormulaError(f"the bracket of {short(text[start:])} is never closed; write )")


# Tokens -> parts


def parts_of(tokens: Sequence[Token]) -> list[list[Token]]:
    """Outcome, treatment and at most two parts of covariates."""
    places, depth = _separators(tokens)
    separators = "".join(tokens[k].text for k in places)
    if depth:
        raise FormulaError("brackets do not match or are nested too deep; count ( and )")
    if separators[:1] != "~":
        raise FormulaError("the outcome and ~ are missing; write Y ~ T | X1 + X2")
    if separators not in ("~", "~|", "~||"):
        raise FormulaError("there is more than one ~ or two |; write Y ~ T | X1 + X2 | W")
    return [list(tokens[a + 1 : b]) for a, b in pairwise([-1, *places, len(tokens)])]


def with_instrument(tokens: Sequence[Token]) -> tuple[list[Token], list[Token], list[Token]]:
    """A formula, and both sides of a last part ``| T ~ Z``; these are empty where there is none."""
    places, _ = _separators(tokens)
    texts = "".join(tokens[k].text for k in places)
    if len(texts) < 3 or not texts.endswith("|~"):
        return list(tokens), [], []
    bar, tilde = places[-2:]
    return list(tokens[:bar]), list(tokens[bar + 1 : tilde]), list(tokens[tilde + 1 :])


def _separators(tokens: Sequence[Token]) -> tuple[list[int], int]:
    """Places of ~ and | outside of brackets, and the depth at the end: 0 where brackets match."""
    places, depth = [], 0
    for k, (kind, text) in enumerate(tokens):
        if kind != "operator":
            continue
        if text in "~|" and depth == 0:
            places.append(k)
        depth += {"(": 1, ")": -1}.get(text, 0)
        if not 0 <= depth <= MAX_DEPTH:
            break
    return places, depth


def bare(part: Sequence[Token], role: Literal["outcome", "treatment", "instrument"]) -> str:
    if not part:
        raise FormulaError(f"the {role} is missing; write Y ~ T | X1 + X2")
    if len(part) == 1 and part[0].kind == "name":
        return part[0].text
    if part[0].text.startswith(("C(", "factor(", "i(")) and role == "treatment":
        advice = "write its name and declare its labels, bounds={'T': pc.Binary(['no', 'yes'])}"
    elif role == "treatment":
        advice = "write covariates after a bar, Y ~ T | X1 + X2"
    elif role == "instrument":
        advice = "of several, take one, or an index of them that is fixed beforehand"
    else:
        advice = "transform it beforehand, as a column with bounds of its own"
    raise FormulaError(f"the {role} must be one column name; {advice}")


def check_numbers(part: Sequence[Token]) -> None:
    """A number is the intercept, alone in a sum, or the power of a bracket."""
    for i, token in enumerate(part):
        after = part[i + 1] if i + 1 < len(part) else None
        if token == _POWER:
            _check_power(after, part[i + 2] if i + 2 < len(part) else None)
        elif token.kind == "number" and (not i or part[i - 1] != _POWER):
            _check_intercept(token, part[:i], after)


def _check_power(token: Token | None, after: Token | None) -> None:
    if token is None or token.kind != "number" or after == _POWER:
        raise FormulaError("** needs a whole number after it; write (a + b)**2 or I(x**2)")
    if token.text not in map(str, range(1, MAX_INTERACTION + 1)):
        raise FormulaError(
            f"the power of a bracket goes from 1 to {MAX_INTERACTION}; write (a + b)**2, or "
            "I(x**4) for the power of a number"
        )


def _check_intercept(token: Token, before: Sequence[Token], after: Token | None) -> None:
    signs = [*takewhile(lambda sign: sign in (_PLUS, _MINUS), reversed(before))]
    if token.text == "0" or (token.text == "1" and _MINUS in signs):
        raise FormulaError(
            "the intercept cannot be removed: without it effects and nuisances would be held at 0 "
            "where covariates are; leave out 0 and -1"
        )
    alone = after in (None, _PLUS, _MINUS) and (signs or not before)
    if token.text != "1" or not alone:
        raise FormulaError(f"the number {token.text[:9]} is no term; write I({token.text[:9]} * x)")
