"""The numbers behind the pictures of a fit, as frames: released, or computed from releases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from privcausal.inference.cells import CellEffect
from privcausal.report import Shape
from privcausal.report.tables import budget_prices

if TYPE_CHECKING:
    import pandas as pd


def effect_frame(shapes: Sequence[Shape]) -> pd.DataFrame:
    """modifier kind at estimate conf_low conf_high, a row for each point or level of a shape."""
    import pandas as pd

    columns = ["modifier", "kind", "at", "estimate", "conf_low", "conf_high"]
    rows = [
        (shape.name, shape.kind, *values)
        for shape in shapes
        for values in zip(shape.grid, shape.estimate, shape.conf_low, shape.conf_high, strict=True)
    ]
    return pd.DataFrame(rows, columns=columns)


def price_frame(budget: pd.DataFrame) -> pd.DataFrame:
    """stage query currency price share, a row for each release; shares sum to 1."""
    currency, prices = budget_prices(budget)
    total = float(prices.sum()) or 1.0
    return budget[["stage", "query"]].assign(currency=currency, price=prices, share=prices / total)


def gain_frame(effect: CellEffect, z: float) -> pd.DataFrame:
    """share gain std_error conf_low conf_high random: treating cells, largest effect first.

    What a fit by cells expects of its own ranking: the sum of its cells' effects times their
    share of the rows, with the spread of their joint law. Effects that were shrunk are posterior
    means, and their order does not flatter them; those of ``shrink=False`` look larger than they
    are, as `uplift` on other rows would show.
    """
    import pandas as pd

    order = np.argsort(-effect.value, kind="stable")
    weights = effect.share[order]
    gain = np.r_[0.0, np.cumsum(weights * effect.value[order])]
    parts = np.cumsum(weights[:, None] * effect.root[order], axis=0)
    spread = np.r_[0.0, np.linalg.norm(parts, axis=1)]
    share = np.r_[0.0, np.cumsum(weights)]
    return pd.DataFrame(
        {
            "share": share, "gain": gain, "std_error": spread, "conf_low": gain - z * spread,
            "conf_high": gain + z * spread, "random": share * gain[-1],
        }
    )  # fmt: skip
