"""Pages, docstrings, comments, messages and the report are plain American English.

The index counts, per 10,000 words, phrases that hide the subject of a sentence or replace a term of
the field. Docstrings of statsmodels, scikit-learn and pandas have 18 to 31. A file may have more
only if it is short, because one phrase then counts too much.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache

import pytest
from trees import FILES, PACKAGE, ROOT, tree

MAX_OF_FILE, MAX_OF_ALL = 100, 60
"""Highest index of the texts of one kind in one file, and of all texts of one kind."""
FEW_WORDS = 200
"""Files of fewer words of a kind are only counted with all others."""
MAX_MEAN, MAX_LONG = 17, 0.03
"""Words per sentence of explanations, and the share of sentences of more than 30 words."""

PAGES = [
    *(f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY")),
    *sorted(page.relative_to(ROOT).as_posix() for page in (ROOT / "vignettes").rglob("*.md")),
]

RIDDLES = [
    r"\bwhat (?:is|was|were|are|has|had|it|they|the|an?|one|of|no|rows|cuts?|noise|lies|stands"
    r"|leaves?|follows|may|must|can|you|users|results|learns?|learned|covers|tails|nobody|all)\b",
    r"\b(?:that|those) of\b",
    r"\b(?:of|in|by|for|from|on|at|with) (?:which|whose|whom)\b",
    r"\b(?:told|tells?|tell) (?:from|by|of|apart|where|what|which|whether|how|that|noise|the"
    r"|nothing|it|on|so|before|us|much|almost)\b",
    r"\b(?:be|is|are) told\b",
    r"\b(?:bought|buys?|buying|cuts?)\b",
    r"\b(?:an?|the|first|second|no|one|two|other|this|each|such|its|own) looks?\b"
    r"|\blook(?:s|ed) at\b",
    r"(?:^|[.:] )(?-i:Of|The same|None|So|What|Who|Else) ",
    r"\bas (?:if|it is|they are|it stands|it was|they were)\b",
    r"\b(?:is|are|was|were) (?:no|none)\b",
    r"\b(?:nobody|nothing|nowhere|hardly any|hardly ever)\b",
    r"\b(?:stands?|stood|standing) (?:in|at|on|below|above|once|beside|there|for|by|where|what"
    r"|behind|under|twice|out)\b",
    r"\b(?:give or take|(?:can|may|to) be had|far from|so far)\b",
    r"\b(?:leaves?|left) (?:of|over|in|out|by|the)\b|\bwhat (?:is|was) left\b|\bthat leaves\b",
    r"\b(?:hangs?|rests?|bears?|befell|befalls|mends?|hand(?:s|ed)? (?:on|over|out))\b",
    r"\b(?:of|by|for|in|on|at|to) (?:it|them|these|those|its own|their own|one's own)[.,;:]",
    r"\b(?:neither|nor|alike|besides?|by itself|by themselves|else)\b",
]
BRITISH = (
    r"\b\w*(?:neighbour|behaviour|favour|colour|learnt|spelt|randomis|generalis|modell(?:ed|ing)"
    r"|labell(?:ed|ing)|centre[ds]?\b|whilst|programmed)\w*"
)


def prose(text: str) -> str:
    """Markdown without code, tables, link targets and pictures."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    text = re.sub(r"`[^`\n]*`", "X", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"^\|.*\|$", "", text, flags=re.MULTILINE)


def joined(text: str) -> str:
    """Lines of a paragraph on one line."""
    return re.sub(r"(?<!\n)\n(?!\n)", " ", text)


def words(text: str) -> int:
    return len(re.findall(r"[A-Za-z][A-Za-z'-]*", text))


def riddles(text: str) -> list[str]:
    found = (re.finditer(p, joined(text), re.IGNORECASE | re.MULTILINE) for p in RIDDLES)
    return [match[0] for matches in found for match in matches]


def texts(file: str, kind: str) -> Iterator[str]:
    """The docstrings, comments or messages of a module."""
    module = tree(file)
    documented = {
        id(node.value): node.value.value
        for node in ast.walk(module)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node.value.value, str)
    }
    if kind == "docstrings":
        yield from (re.sub(r"`+[^`]*`+", "X", text) for text in documented.values())
    elif kind == "comments":
        source = (PACKAGE / file).read_text(encoding="utf-8")
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                text = token.string.lstrip("# ")
                if not re.match(r"(?:fmt|noqa|type|ruff|pragma|mypy)\b", text):
                    yield text
    else:
        constants = (node for node in ast.walk(module) if isinstance(node, ast.Constant))
        yield from (
            c.value for c in constants if isinstance(c.value, str) and id(c) not in documented
        )


@cache
def names(file: str) -> set[str]:
    """Every name in the code of a module."""
    source = io.StringIO((PACKAGE / file).read_text(encoding="utf-8"))
    tokens = tokenize.generate_tokens(source.readline)
    return {token.string for token in tokens if token.type == tokenize.NAME}


@cache
def text(file: str, kind: str) -> str:
    """All text of a kind in a file. Messages have three words or more; others are names."""
    if kind == "pages":
        return prose((ROOT / file).read_text(encoding="utf-8"))
    if kind == "templates":
        source = (ROOT / file).read_text(encoding="utf-8")
        source = re.sub(r"\{[%#{].*?[%#}]\}|<[^>]+>", " ", source, flags=re.DOTALL)
        return re.sub(r"[ \t]+", " ", source)
    least = 3 if kind == "messages" else 1
    return "\n\n".join(each for each in texts(file, kind) if len(each.split()) >= least)


TEMPLATES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "templates").rglob("*.j2"))
KINDS = {
    "pages": PAGES,
    "docstrings": FILES,
    "comments": FILES,
    "messages": FILES,
    "templates": TEMPLATES,
}


def index(found: str) -> float:
    return 1e4 * len(riddles(found)) / words(found)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_each_file_is_plain(kind: str) -> None:
    """Read by the test, and not for a list of cases: every process would make that list."""
    found = {file: text(file, kind) for file in KINDS[kind]}
    found = {file: each for file, each in found.items() if words(each) >= FEW_WORDS}
    assert found
    dark = {file: riddles(each) for file, each in found.items() if index(each) > MAX_OF_FILE}
    assert dark == {}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_all_text_of_a_kind_is_plain(kind: str) -> None:
    assert index("\n\n".join(text(file, kind) for file in KINDS[kind])) <= MAX_OF_ALL


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_spelling_is_american(kind: str) -> None:
    found = []
    for file in KINDS[kind]:
        code = kind not in ("pages", "templates")
        whole = "\n\n".join(texts(file, kind)) if code else text(file, kind)
        whole = re.sub(r"\S*[_/]\S*|\S+\.py\b", "", whole)  # names of files and variables
        known = names(file) if code else set()
        found += [
            f"{file}: {match[0]}"
            for match in re.finditer(BRITISH, whole, re.IGNORECASE)
            if match[0] not in known
        ]
    assert not found, ", ".join(sorted(set(found)))


def test_explanations_have_short_sentences() -> None:
    pages = [page for page in PAGES if page.startswith("vignettes/explanation/")]
    whole = joined("\n\n".join(text(page, "pages") for page in pages))
    lengths = [words(s) for s in re.split(r"(?<=[.!?])\s+|\n\s*\n|(?:^|\s)[-*] ", whole)]
    lengths = [length for length in lengths if length >= 3]
    assert sum(lengths) / len(lengths) <= MAX_MEAN
    assert sum(length > 30 for length in lengths) / len(lengths) <= MAX_LONG


def test_tutorials_address_the_reader() -> None:
    pages = [page for page in PAGES if page.startswith("vignettes/tutorials/")]
    whole = "\n\n".join(text(page, "pages") for page in pages)
    assert 1e4 * len(re.findall(r"\b(?:you|your)\b", whole, re.IGNORECASE)) / words(whole) >= 100


def test_a_riddle_is_found() -> None:
    assert len(riddles("What is left of it, nobody can be told.")) >= 3
    assert riddles("Bounds left out are bought.") == ["bought", "left out"]
    assert riddles("The package estimates missing bounds with part of the budget.") == []
    assert re.findall(BRITISH, "The neighbours' programme was modelled.") == [
        "neighbours",
        "modelled",
    ]
