"""Settings that every test shares."""

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg  # noqa: F401  loads the BLAS that the next line limits
from hypothesis import settings
from threadpoolctl import threadpool_limits

from flows import cli

# Nothing of the user's: Prefect keeps its record in its home.
os.environ["PREFECT_HOME"] = tempfile.mkdtemp(prefix="trigpoint-prefect-")
atexit.register(shutil.rmtree, os.environ["PREFECT_HOME"], ignore_errors=True)

# Tests run in as many processes as there are cores; BLAS threads on top of that only fight for them.
threadpool_limits(1)

settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=50, database=None)
settings.load_profile("repeatable")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20251113)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real data sets; tests that need one are skipped without it."""
    folder = os.environ.get("TRIGPOINT_DATA")
    if not folder:
        pytest.skip("set TRIGPOINT_DATA to a folder of data sets to run this test")
    return Path(folder)


@pytest.fixture
def trigpoint(capsys, monkeypatch):
    """Run the command in this process: exit code, output, errors."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["trigpoint", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        printed = capsys.readouterr()
        return end.value.code or 0, printed.out, printed.err

    return run
