"""What all tests share."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

import pytest


def needed(*names: str) -> str:
    """The path of the first of these programs that is installed.

    Without any the test is skipped; with PRIVCAUSAL_CI=1 in the environment it fails, so that a
    continuous integration which lost a program is not green for that reason.
    """
    for name in names:
        path = shutil.which(name)
        if path:
            return path
    reason = f"needs the program {' or '.join(names)}"
    if os.environ.get("PRIVCAUSAL_CI") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def needs() -> Callable[..., str]:
    """`needs("chromium", "chromium-browser")`: see `needed`.

    A fixture and not an import: folders below have a conftest.py of their own, and the name
    `conftest` means whichever was loaded last.
    """
    return needed
