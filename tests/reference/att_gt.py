"""Writes `att_gt.csv`: effects by cohort and period of `mpdta.csv`, and the numbers printed by did.

`mpdta.csv` holds the columns year, countyreal, lemp, and first.treat of the data set mpdta of the R
package did (Callaway and Sant'Anna; data/mpdta.rda of github.com/bcallaway11/did): log teen
employment in 500 counties. `printed` are the numbers in the README of version 2.5.1, for
`att_gt(yname="lemp", gname="first.treat", idname="countyreal", tname="year", xformla=~1)` and its
aggregates. The other columns are differences of means, by pandas.

python tests/reference/att_gt.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

HERE = Path(__file__).parent
YEARS, GROUPS = range(2003, 2008), (2004, 2006, 2007)
PRINTED = {
    (2004, 2004): -0.0105, (2004, 2005): -0.0704, (2004, 2006): -0.1373, (2004, 2007): -0.1008,
    (2006, 2004): 0.0065, (2006, 2005): -0.0028, (2006, 2006): -0.0046, (2006, 2007): -0.0412,
    (2007, 2004): 0.0305, (2007, 2005): -0.0027, (2007, 2006): -0.0311, (2007, 2007): -0.0261,
}  # fmt: skip
AVERAGES = {
    "event[-3]": 0.0305, "event[-2]": -0.0006, "event[-1]": -0.0245, "event[0]": -0.0199,
    "event[1]": -0.0510, "event[2]": -0.1373, "event[3]": -0.1008, "event[average]": -0.0772,
    "cohort[2004]": -0.0797, "cohort[2006]": -0.0229, "cohort[2007]": -0.0261,
    "cohort[average]": -0.0310,
}  # fmt: skip


def effects(data: pd.DataFrame, later: bool) -> dict[tuple[int, int], float]:
    """ATT(g, t) with never-treated controls, or also with those treated `later`."""
    y = data.pivot(index="countyreal", columns="year", values="lemp")
    first = data.groupby("countyreal")["first.treat"].first()
    found = {}
    for g in GROUPS:
        for t in YEARS[1:]:
            base = g - 1 if t >= g else t - 1
            change = y[t] - y[base]
            controls = first.eq(0) | (later & (first > max(t, base)) & first.ne(g))
            found[g, t] = float(change[first == g].mean() - change[controls].mean())
    return found


def main() -> None:
    data = pd.read_csv(HERE / "mpdta.csv")
    never, later = effects(data, False), effects(data, True)
    lines = [
        {"term": f"ATT({g}, {t})", "never": never[g, t], "later": later[g, t],
         "printed": PRINTED[g, t]} for g, t in never
    ]  # fmt: skip
    size = data.groupby("countyreal")["first.treat"].first().value_counts()
    for name, printed in AVERAGES.items():
        kind, place = name[:-1].split("[")
        if place == "average":
            continue
        of = [(g, t) for g, t in never if place == str(g if kind == "cohort" else t - g)]
        of = [(g, t) for g, t in of if kind == "event" or t >= g]
        weights = [size[g] for g, _ in of]
        means = {k: np.average([v[p] for p in of], weights=weights)
                 for k, v in (("never", never), ("later", later))}  # fmt: skip
        lines.append({"term": name, **means, "printed": printed})
    frame = pd.DataFrame(lines).set_index("term")
    for kind, weights in (("event", None), ("cohort", [size[g] for g in GROUPS])):
        own = frame[frame.index.str.startswith(f"{kind}[") & ~frame.index.str.contains("-")]
        means = {k: np.average(own[k], weights=weights) for k in ("never", "later")}
        frame.loc[f"{kind}[average]"] = {**means, "printed": AVERAGES[f"{kind}[average]"]}
    frame.to_csv(HERE / "att_gt.csv", float_format="%.10f")


if __name__ == "__main__":
    main()
