"""A type for columns of text that says so: pandas 2 stores text as objects of any kind."""

from __future__ import annotations

import pandas as pd

TEXT = "string" if pd.Series(["a"]).dtype == object else "str"
