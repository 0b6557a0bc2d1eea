"""The formula ``Y ~ T | modifiers | controls``, which is read and checked but never run.

A formula may come from an untrusted source, and formulaic runs Python code that it contains, partly
while parsing. Each factor is therefore checked against an allow-list (`factors`). Formulaic's
parser, which expands the terms, receives placeholders instead of factors.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise, takewhile
from typing import Any, Literal, NamedTuple

from privcausal.errors import FormulaError
from privcausal.request import expressions
from privcausal.request.factors import LABEL_KINDS, Factor, bare_factor, call_factor
from privcausal.request.schema import NO_SUCH_FIELD

# Tokens and parts of a formula. Calls stay whole, and `factors` reads them.

MAX_CHARACTERS = 10_000
MAX_INTERACTION = 4
"""Maximum number of factors in one term, and maximum power of a bracket."""


class Token(NamedTuple):
    kind: Literal["name", "call", "number", "operator"]
    text: str


_PLUS, _MINUS, _POWER, DOT = (Token("operator", symbol) for symbol in ("+", "-", "**", "."))

_SPACE = re.compile(rf"(`[^`]*`|{expressions.STRING})|\s+")
_BRACKET = re.compile(rf"`[^`]*`|{expressions.STRING}|[()]")
_TOKEN = re.compile(
    rf"""\s*(?:
    (?P<call>{expressions.NAME_PATTERN})\s*(?=\()
  | (?P<name>{expressions.NAME_PATTERN})
  | `(?P<quoted>[^`]*)`
  | (?P<number>[0-9]+)(?![\w.])
  | (?P<operator>\*\*|%in%|[-+*/:^().~|])
    )""",
    re.VERBOSE,
)

_STRANGERS = {
    "%": "'%' is allowed only in %in%. Write a:b for an interaction.",
    "{": "Python code in braces is never run. Write arithmetic as I(x * 2).",
    "[": "Square brackets are not allowed. Write one column name, in backticks if necessary.",
    "'": "Text in quotes is allowed only as a label, as in C(x, ref='A').",
    '"': 'Text in quotes is allowed only as a label, as in C(x, ref="A").',
    "`": "A backtick is not closed. Write `my column`.",
    "=": "'=' is allowed only inside a function, as in bs(x, df=5). Write ~ after the outcome.",
}


def checked_text(text: object, columns: Sequence[str] | None) -> str:
    """The formula with normalized white space, if Python and formulaic read it identically."""
    if not isinstance(text, str):
        raise FormulaError(f"A formula must be text, not {type(text).__name__}. Write 'Y ~ T | X'.")
    if len(text) > MAX_CHARACTERS:
        raise FormulaError(f"The formula has more than {MAX_CHARACTERS:,} characters. Shorten it.")
    text = _SPACE.sub(lambda match: match[1] or " ", text).strip()
    if not is_plain(text):
        raise FormulaError(
            "The formula contains a backslash, an invisible character or an unusual form of a "
            "letter (not Unicode NFKC). Retype it, or rename the column."
        )
    # Names of two words need backticks.
    plain = re.sub(rf"`[^`]*`|{expressions.STRING}", " + ", text)
    for name in () if columns is None else columns:
        words = isinstance(name, str) and re.fullmatch(r"\w+( \w+)+", name)
        if words and re.search(rf"(?<![\w.]){name}(?![\w.])", plain):
            raise FormulaError(f"The name of column {name!r} requires backticks. Write `{name}`.")
    return text


def is_plain(text: str) -> bool:
    # Python reads a full-width x as x, but formulaic does not.
    hidden = any(unicodedata.category(c)[0] == "C" for c in text)
    return not hidden and "\\" not in text and unicodedata.is_normalized("NFKC", text)


def tokens_of(text: str) -> list[Token]:
    tokens, position = [], 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            rest = text[position:].lstrip()
            why = _STRANGERS.get(rest[0], f"{rest[0]!r} is not allowed in a formula. Remove it.")
            if rest[0].isdigit():
                why = (
                    f"{expressions.short(rest)} starts with a digit. Write a number inside I(), as "
                    "in I(0.5 * x), and such a column name in backticks, `2x`."
                )
            raise FormulaError(why)
        position = match.end()
        kind: Any = match.lastgroup
        if kind == "call":  # up to the bracket that closes it
            depth = 0
            for bracket in _BRACKET.finditer(text, position):
                depth += {"(": 1, ")": -1}.get(bracket[0], 0)
                if depth == 0:
                    position = bracket.end()
                    break
            else:
                excerpt = expressions.short(text[position:])
                raise FormulaError(f"The parenthesis in {excerpt} is not closed.")
            tokens.append(Token("call", text[match.start("call") : position]))
        elif kind in ("name", "quoted"):
            tokens.append(Token("name", expressions.checked_name(match[kind])))
        else:
            tokens.append(Token(kind, match[kind].replace("^", "**")))
    return tokens


# From tokens to parts


def parts_of(tokens: Sequence[Token]) -> list[list[Token]]:
    """Split into outcome, treatment and at most two parts of covariates."""
    places, depth = _separators(tokens)
    separators = "".join(tokens[k].text for k in places)
    if depth:
        raise FormulaError("Parentheses do not match or are nested too deeply. Check ( and ).")
    if separators[:1] != "~":
        raise FormulaError("The formula must start with an outcome and ~. Write 'Y ~ T | X1 + X2'.")
    if separators not in ("~", "~|", "~||"):
        raise FormulaError(
            "The formula must have one ~ and at most two |. Write 'Y ~ T | X1 + X2 | W'."
        )
    return [list(tokens[a + 1 : b]) for a, b in pairwise([-1, *places, len(tokens)])]


def _separators(tokens: Sequence[Token]) -> tuple[list[int], int]:
    """Places of ~ and | outside brackets, and the final depth, which is 0 if brackets match."""
    places, depth = [], 0
    for k, (kind, text) in enumerate(tokens):
        if kind != "operator":
            continue
        if text in "~|" and depth == 0:
            places.append(k)
        depth += {"(": 1, ")": -1}.get(text, 0)
        if not 0 <= depth <= expressions.MAX_DEPTH:
            break
    return places, depth


def bare(part: Sequence[Token], role: Literal["outcome", "treatment", "instrument"]) -> str:
    if not part:
        raise FormulaError(f"The {role} is missing. Write 'Y ~ T | X1 + X2'.")
    if len(part) == 1 and part[0].kind == "name":
        return part[0].text
    if part[0].text.startswith(("C(", "factor(", "i(")) and role == "treatment":
        advice = (
            "Write the name alone, and declare its labels, the reference first: bounds={'T': "
            "['no', 'yes']}."
        )
    elif role == "treatment" and any(token.text in (":", "*") for token in part):
        advice = (
            "For a product, add a column such as D = treated * post to the data, and write "
            "'Y ~ D'. Write effect modifiers after a bar: 'Y ~ T | X1 + X2'."
        )
    elif role == "treatment":
        advice = "Write covariates after a bar: 'Y ~ T | X1 + X2'."
    elif role == "instrument":
        advice = "Join the names of several instruments by +, as in 'Y ~ T | X | T ~ Z1 + Z2'."
    else:
        advice = "Compute it in the data as a new column, and declare the bounds of that column."
    raise FormulaError(f"The {role} must be one column name. {advice}")


def check_numbers(part: Sequence[Token]) -> None:
    """Allow a number only as the intercept, alone in a sum, or as the power of a bracket."""
    for i, token in enumerate(part):
        after = part[i + 1] if i + 1 < len(part) else None
        if token == _POWER:
            repeated = part[i + 2 : i + 3] == [_POWER]
            if after is None or after.kind != "number" or repeated:
                raise FormulaError(
                    "** must be followed by a whole number. Write (a + b)**2 or I(x**2)."
                )
            if after.text not in map(str, range(1, MAX_INTERACTION + 1)):
                raise FormulaError(
                    f"The power of a sum must be from 1 to {MAX_INTERACTION}. Write (a + b)**2, or "
                    "I(x**4) for the power of a column."
                )
        elif token.kind == "number" and (not i or part[i - 1] != _POWER):
            signs = [*takewhile(lambda sign: sign in (_PLUS, _MINUS), reversed(part[:i]))]
            if token.text == "0" or (token.text == "1" and _MINUS in signs):
                raise FormulaError(
                    "The intercept cannot be removed. Without it, effects and nuisance models "
                    "would be 0 when all covariates are 0. Remove 0 or -1 from the formula."
                )
            alone = after in (None, _PLUS, _MINUS) and (signs or not i)
            if token.text != "1" or not alone:
                raise FormulaError(
                    f"The number {token.text[:9]} is not a term. Write I({token.text[:9]} * x)."
                )


MAX_TERMS = 500
MAX_PRODUCTS = 20_000
"""Maximum number of products that formulaic may form to expand `*`, `/`, `:` and `**`."""


@dataclass(frozen=True)
class Term:
    """A product of factors. One factor is a main effect. `name` is the text from formulaic."""

    name: str
    factors: tuple[Factor, ...]

    @property
    def variables(self) -> tuple[str, ...]:
        return expressions.unique(v for factor in self.factors for v in factor.variables)

    def __str__(self) -> str:
        """The term as a user would type it."""
        return ":".join(map(str, self.factors))


@dataclass(frozen=True)
class CausalFormula:
    """``outcome ~ treatment | effect modifiers | extra controls``, read and checked.

    Use `parse` to create it. Both parts of covariates have an intercept, which cannot be removed.
    Terms are in formulaic's order, main effects before interactions. Controls that are also
    modifiers are not repeated.
    """

    text: str  # The formula as typed, with normalized white space
    # `outcome`, `treatment`: column names. A regression has no treatment (an empty name).
    outcome: str
    treatment: str
    # `modifiers`, `controls`: terms of the second and the third part. Each may be empty.
    modifiers: tuple[Term, ...] = ()
    controls: tuple[Term, ...] = ()
    # The function of the outcome, such as log(Y) in ``log(Y) ~ T``; None for a bare column
    response: Factor | None = None
    # The columns of a last part ``| T ~ Z1 + Z2``, if there is one
    instruments: tuple[str, ...] = ()
    # The second column of an outcome ``Surv(time, event)``; otherwise an empty name
    event: str = ""
    # `terms`, `factors`: of the modifiers, then of the controls
    terms: tuple[Term, ...] = field(init=False, repr=False, compare=False)
    factors: tuple[Factor, ...] = field(init=False, repr=False, compare=False)
    # `causes`, `coded`: treatment and instruments; and columns that are 0/1 unless they are
    # declared, which are these and the event
    causes: tuple[str, ...] = field(init=False, repr=False, compare=False)
    coded: tuple[str, ...] = field(init=False, repr=False, compare=False)
    # All columns of the formula: outcome, treatment, then others in order of first use
    variables: tuple[str, ...] = field(init=False, repr=False, compare=False)
    # `effect_variables`, `categorical`: columns that may modify the effect, and columns inside C()
    effect_variables: tuple[str, ...] = field(init=False, repr=False, compare=False)
    categorical: tuple[str, ...] = field(init=False, repr=False, compare=False)
    # The variable compared given the covariates: the instrument if any, or the treatment. A
    # regression has none.
    assigned: str = field(init=False, repr=False, compare=False)
    # Reference labels named in the formula, and labels listed in it, by column
    references: dict[str, str] = field(init=False, repr=False, compare=False)
    levels: dict[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)
    # The outcome's name, or its function as a user would type it
    effect_on: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        outcome, treatment = self.outcome, self.treatment
        terms, causes = self.modifiers + self.controls, [treatment, *self.instruments]
        right = [name for term in terms for name in term.variables]
        factors, coded = [f for term in terms for f in term.factors], [*causes, self.event]
        labels = (f.variables[0] for f in factors if f.kind in LABEL_KINDS)
        typed = outcome if self.response is None else str(self.response)
        vars(self).update(
            terms=terms,
            factors=tuple(factors),
            causes=tuple(filter(None, causes)),
            coded=tuple(filter(None, coded)),
            variables=expressions.unique((outcome, *filter(None, coded), *right)),
            effect_variables=expressions.unique(v for t in self.modifiers for v in t.variables),
            categorical=expressions.unique(labels),
            assigned=self.instruments[0] if self.instruments else treatment,
            references={f.variables[0]: f.ref for f in factors if f.ref is not None},
            levels={f.variables[0]: f.levels for f in factors if f.levels},
            effect_on=f"Surv({outcome}, {self.event})" if self.event else typed,
        )
        if outcome == treatment:
            raise FormulaError(
                f"{outcome!r} is both outcome and treatment. Write 'Y ~ T | X1 + X2'."
            )
        if outcome in right:
            raise FormulaError(
                f"The outcome {outcome!r} is also on the right side. Remove it there."
            )
        if self.event and self.event in (outcome, treatment, *self.instruments, *right):
            raise FormulaError(
                f"The event column {self.event!r} also has another role. Write 'Surv(days, died) ~ "
                "T | X1'."
            )
        for instrument in self.instruments:
            if self.instruments.count(instrument) > 1:
                raise FormulaError(
                    f"The instrument {instrument!r} is written twice. Write it once."
                )
            if instrument in (outcome, treatment, *right):
                raise FormulaError(
                    f"The instrument {instrument!r} also has another role. Write 'Y ~ T | X | T ~ "
                    "Z'."
                )
        if treatment and treatment in right:
            raise FormulaError(
                f"The treatment {treatment!r} is also among the covariates. Remove it there. The "
                "effect already varies with every modifier."
            )
        check_terms(self)

    @classmethod
    def parse(
        cls,
        text: str,
        columns: Sequence[str] | None = None,
        *,
        quote: bool = True,
        advice: Mapping[str, str] = {},  # not modified
    ) -> CausalFormula:
        """Read a formula such as ``"visit ~ mailed | age + C(region) | income"``.

        Parameters
        ----------
        text
            Names and calls of `expressions.FUNCTIONS`, joined by ``+ - : * / %in% **`` and
            brackets. Put a name that is not an identifier in back-quotes.
        columns
            The public column names of the data. ``.`` means the columns that the formula does not
            use elsewhere, in this order. Names outside this list are refused.
        quote
            Whether that error may show columns that the formula does not name.
        advice
            What that error says of some names that are not columns.

        Raises
        ------
        FormulaError
            For any other text. The message says what to write instead.
        """
        text = checked_text(text, columns if quote else None)
        tokens = tokens_of(text)
        left, right = list[Token](), list[Token]()  # of a last part ``| T ~ Z``
        places, _ = _separators(tokens)
        separators = "".join(tokens[k].text for k in places)
        if len(separators) >= 3 and separators.endswith("|~"):
            bar, tilde = places[-2:]
            tokens, left, right = tokens[:bar], tokens[bar + 1 : tilde], tokens[tilde + 1 :]
        outcome, treatment, *covariates = parts_of(tokens)
        event, response = "", None
        if len(outcome) == 1 and re.match(r"Surv\s*\(", outcome[0].text):
            inside, sides = outcome[0].text.partition("(")[2][:-1], list[list[Token]]()
            with suppress(FormulaError):  # for example, of `died == 2`
                sides = [
                    tokens_of(side) for side in re.split(r",(?=(?:[^`]*`[^`]*`)*[^`]*$)", inside)
                ]
            if [[token.kind for token in side] for side in sides] != [["name"], ["name"]]:
                raise FormulaError(
                    "Surv() takes two columns: the time of follow-up, and whether the event "
                    "occurred at that time. Write 'Surv(days, died) ~ T | X1 + X2'. If the event "
                    "is coded 1 and 2, declare the censored label first: bounds={'died': [1, 2]}."
                )
            y, event = sides[0][0].text, sides[1][0].text
        else:
            y, response = _outcome(outcome)
        t, z = bare(treatment, "treatment"), tuple[str, ...]()
        if left or right:
            if left != treatment:
                raise FormulaError(
                    "The part after the last bar must have the same treatment on its left side. "
                    "Write 'Y ~ T | X | T ~ Z'."
                )
            ends = [k for k, token in enumerate(right) if token == _PLUS]
            pieces = [right[a + 1 : b] for a, b in pairwise([-1, *ends, len(right)])]
            if len(pieces) > MAX_INSTRUMENTS:
                raise FormulaError(
                    f"A formula has at most {MAX_INSTRUMENTS} instruments. Keep the best."
                )
            z = tuple(bare(piece, "instrument") for piece in pieces)
        roles = tuple(filter(None, (y, t, *z, event)))
        factors, texts = _placeholders(covariates, roles, columns, quote=quote, advice=advice)
        modifiers, controls = (_terms(part, factors, texts) for part in [*covariates, [], []][:2])
        repeated = {frozenset(term.factors) for term in modifiers}
        controls = tuple(term for term in controls if frozenset(term.factors) not in repeated)
        return cls(
            text,
            outcome=y,
            treatment=t,
            modifiers=modifiers,
            controls=controls,
            response=response,
            instruments=z,
            event=event,
        )

    @classmethod
    def regression(
        cls,
        text: str,
        columns: Sequence[str] | None = None,
        *,
        quote: bool = True,
        advice: Mapping[str, str] = {},  # not modified
    ) -> CausalFormula:
        """Read ``"Y ~ X1 + C(g)"``, whose right side has only terms; otherwise like `parse`."""
        text = checked_text(text, columns if quote else None)
        outcome, *parts = parts_of(tokens_of(text))
        if len(parts) != 1:
            raise FormulaError("A regression formula has no bar. Write 'Y ~ X1 + X2'.")
        if not parts[0]:
            raise FormulaError(
                "The right side is missing. Write 'Y ~ X1 + X2', or 'Y ~ 1' for a mean."
            )
        y, response = _outcome(outcome)
        factors, texts = _placeholders(parts, (y,), columns, quote=quote, advice=advice)
        return cls(text, y, "", _terms(parts[0], factors, texts), (), response)

    @property
    def rest(self) -> tuple[str, ...]:
        """The columns that ``.`` denotes."""
        tokens = tokens_of(self.text)
        if DOT not in tokens:
            return ()
        read = {"name": bare_factor, "call": call_factor}
        used = {v for t in tokens if t.kind in read for v in read[t.kind](t.text).variables}
        return tuple(name for name in self.variables if name not in used)

    def __str__(self) -> str:
        return self.text


MAX_INSTRUMENTS = 10
"""Maximum number of instruments: each needs budget for its own nuisance model."""


def _outcome(part: Sequence[Token]) -> tuple[str, Factor | None]:
    """The outcome's column, and its function if there is one."""
    if len(part) != 1 or part[0].kind != "call":
        return bare(part, "outcome"), None
    factor = call_factor(part[0].text)
    if factor.kind != "function" or len(factor.variables) != 1:
        raise FormulaError(
            f"{expressions.short(factor.expr)} cannot be the outcome. Write one column, or a "
            "function of one column such as log(Y) or I(Y > 3)."
        )
    return factor.variables[0], factor


# Checks of the whole formula


def check_terms(formula: CausalFormula) -> None:
    """Refuse too many terms or factors, and names that formulaic would confuse in a function."""
    if len(formula.terms) > MAX_TERMS:
        raise FormulaError(f"The formula has more than {MAX_TERMS} terms. Shorten it.")
    for term in formula.terms:
        if len(term.factors) > MAX_INTERACTION:
            raise FormulaError(
                f"{expressions.short(term.name)} is an interaction of more than "
                f"{MAX_INTERACTION} factors. Write (a + b + c + d + e)**{MAX_INTERACTION} instead "
                "of a*b*c*d*e."
            )
        if len(term.factors) > 1 and any(f.kind == "smooth" for f in term.factors):
            raise FormulaError(
                f"{expressions.short(term.name)}: s() cannot be part of an interaction. Write "
                "bs(x, df=5):C(g)."
            )
        if len(term.factors) > 1 and any(f.sums_to_one for f in term.factors):
            raise FormulaError(
                f"{expressions.short(term.name)}: The functions of cr, cs and cc sum to 1, so "
                "their products with a factor repeat that factor. Write cr(x, df=5, "
                "constraints='center')."
            )
    functions = [f for f in formula.factors if f.kind != "numeric"]
    functions += [formula.response] if formula.response is not None else []
    called = {name for f in functions for names in _CALLED.findall(f.expr) for name in names}
    for name in formula.variables:
        if name in called:
            raise FormulaError(f"{name!r} is both a column and a function here. Rename the column.")
    aliases = {name: name for name in formula.variables}
    for name in (v for f in functions for v in f.variables):
        # If two names share an alias, formulaic makes a random one and finds no state saved
        # under it. It would then learn that state from the rows.
        if aliases.setdefault(expressions.alias(name), name) != name:
            raise FormulaError(
                f"The column names {name!r} and {aliases[expressions.alias(name)]!r} are too "
                "similar to be used in functions. Rename one."
            )


_CALLED = re.compile(rf"\b({'|'.join(expressions.FUNCTIONS)})\(|\b(contr)\.")


# From parts to terms


def _placeholders(
    parts: Sequence[Sequence[Token]],
    roles: Sequence[str],
    columns: Sequence[str] | None,
    *,
    quote: bool,
    advice: Mapping[str, str],
) -> tuple[dict[str, Factor], dict[Token, str]]:
    """The factor of each placeholder in formulaic's parser, and the placeholders of each token."""
    factors: dict[str, Factor] = {}
    names: dict[str, str] = {}  # expr to placeholder
    texts: dict[Token, str] = {}

    def add(factor: Factor) -> str:
        name = names.setdefault(factor.expr, f"f{len(names)}")
        previous = factors.get(name, factor)
        excerpt = expressions.short(factor.expr)
        if previous.kind != factor.kind:
            raise FormulaError(f"{excerpt} is both a column and a function. Rename the column.")
        if previous.ref and factor.ref and previous.ref != factor.ref:
            raise FormulaError(f"{excerpt} has two reference labels. Write only one ref=.")
        if previous.levels and factor.levels and previous.levels != factor.levels:
            raise FormulaError(f"{excerpt} has two lists of levels. Write only one levels=.")
        factors[name] = replace(
            previous,
            ref=previous.ref or factor.ref,
            levels=previous.levels or factor.levels,
            typed=previous.typed or factor.typed,
        )
        if len(factors) > MAX_TERMS:
            raise FormulaError(f"The formula has more than {MAX_TERMS} terms. Shorten it.")
        return name

    for part in parts:
        check_numbers(part)
        for token in part:
            if token.kind in ("name", "call") and token not in texts:
                read = bare_factor if token.kind == "name" else call_factor
                texts[token] = add(read(token.text))
    used = expressions.unique((*roles, *(v for f in factors.values() for v in f.variables)))
    for name in used:
        if columns is not None and name not in columns:
            if name in advice:
                raise FormulaError(f"{name!r} is not a column. {advice[name]}")
            raise _unknown(name, columns, quote=quote)
    if not any(DOT in part for part in parts):
        return factors, texts
    # the columns that `.` denotes
    if columns is None:
        raise FormulaError(
            "'.' requires the column names of the data. Name the covariates instead."
        )
    unused = expressions.unique(name for name in columns if name not in used)
    if not unused:
        raise FormulaError("'.' adds the unused columns, but all columns are used. Remove it.")
    if not all(isinstance(name, str) and is_plain(name) for name in unused):
        raise FormulaError(
            "'.' requires plain column names. Rename columns, or name the covariates."
        )
    texts[DOT] = f"({' + '.join([add(bare_factor(name)) for name in unused])})"
    return factors, texts


def _terms(
    part: Sequence[Token], factors: Mapping[str, Factor], texts: Mapping[Token, str]
) -> tuple[Term, ...]:
    """The terms of a part, main effects first."""
    if not part:
        return ()
    products = _expand(" ".join(texts.get(token, token.text) for token in part))
    terms = [tuple(factors[name] for name in product if name != "1") for product in products]
    ordered = []
    for term in sorted(filter(None, terms), key=len):
        names = (f"`{f.expr}`" if f.kind == "numeric" and ":" in f.expr else f.expr for f in term)
        ordered.append(Term(":".join(names), term))
    return tuple(ordered)


def _unknown(name: str, columns: Sequence[str], *, quote: bool) -> FormulaError:
    if not quote:
        return FormulaError(f"Column {expressions.short(name)} {NO_SUCH_FIELD}")
    names = [c for c in columns if isinstance(c, str)]
    parts = [c for c in names if c != name and name in re.findall(expressions.NAME_PATTERN, c)]
    close = parts[:3] or difflib.get_close_matches(name, names[:MAX_TERMS], n=3)
    listed = close or names[:10]
    # A name is in backticks if a formula needs them.
    typed = ", ".join(
        expressions.short(n) if expressions.quoted(n) == n else f"`{n[:60]}`" for n in listed
    )
    end = ", ..." if not close and len(names) > len(listed) else "."
    kind = "Similar columns" if close else "Columns of the data"
    return FormulaError(
        f"Column {expressions.short(name)} is not in the data. {kind}: {typed or 'none'}{end}"
    )


def _expand(text: str) -> list[tuple[str, ...]]:
    """Expand placeholders with formulaic; returns the factors of each term."""
    from formulaic.parser import DefaultFormulaParser

    parser = DefaultFormulaParser(include_intercept=False)
    products, terms = 0, None
    try:
        tree = parser.get_ast(text)
        # Maximum number of terms of each node, and of products formed to get them. Not recursive,
        # because a + b + ... is deep.
        sizes: dict[int, int] = {}
        stack = [tree]
        while stack and products <= MAX_PRODUCTS:
            node = stack.pop()
            arguments = getattr(node, "args", ())
            if not all(id(a) in sizes for a in arguments):
                stack += [node, *arguments]
                continue
            inner = [sizes[id(a)] for a in arguments]
            symbol = node.operator.symbol if inner else ""
            if symbol == "**":
                made = size = inner[0] ** int(node.args[1].token)  # 1 to 4
            elif symbol in ("/", "in", "%in%"):
                size, made = sum(inner), max(inner)
            elif symbol in (":", "*"):
                made = inner[0] * inner[1]
                size = made if symbol == ":" else made + sum(inner)
            else:
                size, made = max(1, sum(inner)), 0
            sizes[id(node)] = size
            products += made
        if products <= MAX_PRODUCTS:
            terms = list(parser.get_terms_from_ast(tree, context={}).root)
    except Exception:  # whatever the cause, the formula is wrong, and we raise our own message
        pass
    # Raise outside the handler, so that the original exception is not attached.
    if products > MAX_PRODUCTS:
        raise FormulaError(f"The formula expands to more than {MAX_TERMS} terms. Shorten it.")
    if terms is None:
        raise FormulaError(
            "The formula cannot be read. Check its parentheses, and put + - * or : between terms."
        )
    return [tuple(factor.expr for factor in term.factors) for term in terms]
