"""README and pages are plain English: few phrases that readers must decode, short sentences.

The index counts, per 10,000 words, phrases that stood for the field's terms or hid their subject.
Docstrings of statsmodels, scikit-learn and pandas have 18 to 34.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "vignettes").rglob("*.md"))]
MOST, MOST_OF_ALL = 100, 60
"""Highest index of a page, and of all together."""
FEW = 200
"""Pages of fewer words are counted with the others only."""

RIDDLES = [
    r"\bwhat (?:is|was|were|are|has|had|it|they|the|an?|one|of|no|rows|stands|leaves?|may|must|can"
    r"|you|results|follows|all)\b",
    r"\b(?:that|those) of\b",
    r"\b(?:of|in|by|for|from|on|at|with) (?:which|whose|whom)\b",
    r"\b(?:told|tells?) (?:from|by|of|apart|where|what|which|whether|how|that|noise|the|nothing)\b",
    r"\b(?:is|are|be) told\b",
    r"\b(?:bought|buys?|buying|cuts?)\b",
    r"\b(?:an?|the|first|second|no|one|two|other|this|each|its|own) looks?\b",
    r"(?:^|[.:] )(?:(?-i:Of|The same|None|So|What|Who|Else)) ",
    r"\bas (?:if|it is|they are|it stands|it was|they were)\b",
    r"\b(?:is|are|was|were) (?:no|none)\b",
    r"\b(?:nobody|nothing|nowhere|hardly any|hardly ever)\b",
    r"\b(?:stands?|stood) (?:in|at|on|below|above|beside|there|for|by|behind|under|out)\b",
    r"\b(?:give or take|can be had|may be had|to be had|far from|so far)\b",
    r"\b(?:leaves?|left) (?:of|over|in|out|by|the)\b",
    r"\b(?:hangs?|rests?|bears?|befalls|mends?|hand(?:s|ed)? (?:on|over|out))\b",
    r"\b(?:of|by|for|in|on|at|to) (?:it|them|these|those|its own|their own|one's own)[.,;:]",
    r"\b(?:neither|nor|alike|likewise|besides?|by itself|by themselves|else)\b",
]
BRITISH = r"\b\w*(?:neighbour|learnt|labell|behaviour|centre|favour|colour|programme[sd])\w*\b"


def prose(page: Path) -> str:
    """The page without code, tables, link targets and pictures."""
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    text = re.sub(r"`[^`\n]*`", "X", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"^\|.*\|$", "", text, flags=re.MULTILINE)
    return re.sub(r"(?<!\n)\n(?!\n)", " ", text)


def words(text: str) -> int:
    return len(re.findall(r"[A-Za-z][A-Za-z'-]*", text))


def riddles(text: str) -> list[str]:
    return [m[0] for p in RIDDLES for m in re.finditer(p, text, re.IGNORECASE | re.MULTILINE)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_plain(page: Path) -> None:
    text = prose(page)
    found = riddles(text)
    if words(text) >= FEW:
        assert 1e4 * len(found) / words(text) <= MOST, found
    assert not re.findall(BRITISH, text, re.IGNORECASE)


def test_the_pages_are_plain_together() -> None:
    text = "\n\n".join(map(prose, PAGES))
    assert 1e4 * len(riddles(text)) / words(text) <= MOST_OF_ALL


def test_explanations_have_short_sentences() -> None:
    text = "\n\n".join(prose(page) for page in PAGES if page.parent.name == "explanation")
    lengths = [words(s) for s in re.split(r"(?<=[.!?])\s+|\n\s*\n|(?:^|\s)[-*] ", text)]
    lengths = [length for length in lengths if length >= 3]
    assert sum(lengths) / len(lengths) <= 17
    assert sum(length > 30 for length in lengths) / len(lengths) <= 0.03


def test_a_riddle_is_found() -> None:
    assert len(riddles("What is left of it, nobody can be told.")) >= 3
    assert riddles("Bounds left out are bought.") == ["bought", "left out"]
    assert riddles("The package estimates missing bounds with part of the budget.") == []
