"""The package as it is installed: public names, files, versions, and what skips in CI."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import tomllib

import pytest
from trees import ROOT, tree

import privcausal

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", privcausal.__all__)
def test_every_public_name_resolves(name):
    assert getattr(privcausal, name) is not None
    assert name in dir(privcausal)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'cate'"):
        _ = privcausal.cate


def test_type_checkers_see_the_same_public_names():
    (block,) = (node for node in tree("__init__.py").body if isinstance(node, ast.If))
    seen = {alias.asname for node in block.body for alias in node.names}
    assert seen | {"__version__"} == set(privcausal.__all__)


def test_files_the_wheel_is_made_of_exist():
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    listed = [*wheel["packages"], *wheel["force-include"], PROJECT["project"]["readme"]]
    listed += PROJECT["project"]["license-files"]
    listed += ["privcausal/py.typed", "templates/report.html.j2", "templates/report.css"]
    listed += ["CHANGELOG.md", "CONTRIBUTING.md", "tests"]
    assert [name for name in listed if not (ROOT / name).exists()] == []


def test_the_command_of_the_wheel_exists():
    module, _, name = PROJECT["project"]["scripts"]["privcausal"].partition(":")
    assert callable(getattr(importlib.import_module(module), name))


def test_there_is_one_version():
    assert PROJECT["project"]["version"] == privcausal.__version__
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## {privcausal.__version__}" in changes


def test_the_readme_has_the_two_commands():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "\npip install -e . && privcausal demo\n" in text
    assert '\npip install -e ".[test]" && pytest\n' in text


@pytest.mark.slow
def test_the_examples_of_the_readme_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    exec("\n".join(examples), {})
    assert "Private Average Treatment Effect" in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {"report.html", "fit.json"}


def test_a_missing_program_skips_here_and_fails_in_ci(needs, monkeypatch):
    assert needs("no-such-program", "python3", "python")
    monkeypatch.delenv("PRIVCAUSAL_CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="needs the program no-such-program or nor-"):
        needs("no-such-program", "nor-this")
    monkeypatch.setenv("PRIVCAUSAL_CI", "1")
    with pytest.raises(pytest.fail.Exception, match="needs the program"):
        needs("no-such-program")


@pytest.mark.parametrize("call", [privcausal.privcate, privcausal.private])
def test_a_call_has_at_most_seventeen_parameters(call):
    many = len(inspect.signature(call).parameters)
    assert many <= 17, "move an option that most calls leave alone to pc.Control"


@pytest.mark.parametrize("name", ["split", "propensity_clip", "shares", "tails", "cov_type"])
def test_an_old_spelling_names_the_new_one(name):
    for call in (privcausal.privcate, privcausal.private, privcausal.plan):
        words = rf"Write control=pc\.Control\({name}="
        with pytest.raises(privcausal.CapabilityError, match=words):
            call("Y ~ T", None, **{name: None})
    for name, words in (("queries", "DPCATE"), ("mode", r"pc\.paper"), ("below_minimum", "paper")):
        with pytest.raises(privcausal.CapabilityError, match=words):
            privcausal.privcate("Y ~ T", None, **{name: None})


def test_a_misspelt_keyword_is_told_the_nearest():
    with pytest.raises(privcausal.CapabilityError, match=r"Write learner= instead\.$"):
        privcausal.privcate("Y ~ T", None, lerner="r")
