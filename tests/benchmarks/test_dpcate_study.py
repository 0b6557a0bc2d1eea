"""The DP-CATE study uses rows of today's code only."""

from __future__ import annotations

from pathlib import Path

import dpcate_lines
import dpcate_study as study
import numpy as np
import pandas as pd
import pytest

LINE = {"figure": "dataset 1", "method": "gam", "eps": 1.0, "run": 0, "seconds": 0.1}


def test_a_row_of_other_code_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = study.Store(tmp_path)
    case = study.Case("", pd.DataFrame(), {}, pd.DataFrame({"X1": [0.0, 1.0]}), np.zeros(2))
    for digest, pehe in (("old", 9.0), ("new", 1.0)):
        monkeypatch.setattr(study, "code", lambda *_, d=digest: d)
        store.add(LINE | {"pehe": pehe})
        store.add_curve("dataset 1", "X1", case, "gam", pehe, np.full(2, pehe))
    assert store.read()["pehe"].tolist() == [1.0]
    curves = store.curves("dataset 1")
    assert curves is not None
    assert list(curves) == ["X1", "tau", "gam|1"]
    text = study.tables(store)
    assert "1 rows by other code than today's are left out" in text
    assert "9.000" not in text
    store.drop()
    assert len(store.all()) == 1


def test_the_excess_risk_is_that_of_draws() -> None:
    """Eqs. 24 to 27: by draws of the noise, not by quadrature."""
    r, _ = dpcate_lines.noise_scales(200, 1.0, 1e-5, gamma=2.0)
    u = np.random.default_rng(0).standard_normal(400_000)
    drawn = (0.7 + r * u) ** 2 - 0.7**2
    error = drawn.std() / np.sqrt(len(u))
    assert dpcate_lines.excess_risk(0.7, r) == pytest.approx(r**2)
    assert abs(drawn.mean() - r**2) < 5 * error
    assert drawn.mean() - 5 * error > r**2 / 2, "Eq. 27 with gamma in place of its square"


def test_the_lines_of_the_supplements() -> None:
    found = [*dpcate_lines._supplement_d(), *dpcate_lines._supplement_f()]
    words = [line.verdict for line in found]
    assert words == ["reproduced", "differs", *["reproduced"] * 4, "differs", "missing",
                     "differs", "differs"]  # fmt: skip


@pytest.mark.slow
def test_the_digest_tells_methods_apart_and_knows_no_others() -> None:
    assert study.code("dataset 1", "functional") != study.code("dataset 1", "gam")
    assert study.code("dataset 1", "functional") == study.code("dataset 2", "functional")
    assert study.code("dataset 1", "no such method") == ""
