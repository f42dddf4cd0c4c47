"""Tests run against a real daemon and real sandboxes of a home of their own.

CARREL_BINARY names the program; the state directory is made here and removed, with the daemon and
whatever it started, by tests/sdk/run_python.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from carrel import Sandbox


@pytest.fixture(scope="session", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    given = os.environ.get("CARREL_HOME")
    if given:
        return Path(given)
    path = tmp_path_factory.mktemp("home")
    path.chmod(0o700)
    os.environ["CARREL_HOME"] = str(path)
    return path


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    """One sandbox for the tests of a file that leave it as they found it."""
    with Sandbox() as made:
        yield made
