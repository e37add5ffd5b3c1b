"""The command as a user runs it."""

import re
import shlex
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import typer

from flows.terminal import resumable

COMMAND = Path(sys.executable).with_name("trigpoint")


def trigpoint(*arguments, cwd=None):
    return subprocess.run([COMMAND, *arguments], cwd=cwd, capture_output=True, text=True, timeout=200, check=False)


@pytest.mark.parametrize(
    "kind", ["serial", *(pytest.param(kind, marks=pytest.mark.cluster) for kind in ("auto", "local"))]
)
def test_demo_unrolls_the_sheet_draws_it_and_says_what_to_try(tmp_path, kind):
    result = trigpoint("demo", "--n-points", "6000", "--cluster-kind", kind, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert (tmp_path / "trigpoint-demo.png").read_bytes().startswith(b"\x89PNG")
    residual = re.search(r"Residual variance against the true sheet .*: ([0-9.e-]+)", result.stdout)
    assert float(residual.group(1)) < 2e-3
    commands = [shlex.split(line)[1:] for line in result.stdout.splitlines()[-3:]]
    assert [command[0] for command in commands] == ["status", "fit", "export"]
    for command in commands:
        again = trigpoint(*command, *(["--cluster-kind", "serial"] if command[0] == "fit" else []), cwd=tmp_path)
        assert again.returncode == 0, again.stderr
    assert np.load(tmp_path / "trigpoint-demo" / "projection.npy").shape == (6000, 3)


@pytest.mark.cluster
def test_the_demo_may_be_a_flow_on_workers_and_says_what_it_starts(tmp_path):
    result = trigpoint("demo", "--n-points", "5000", "--cluster-kind", "local", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert re.search("Starting a Prefect server and [0-9]+ Dask workers?", result.stdout)
    assert re.search(r"Ready after [0-9.]+ s\.", result.stdout)


def test_version_is_the_distributions():
    assert trigpoint("--version").stdout == f"trigpoint {version('trigpoint')}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["demo", "--n-points", "5"],
        ["demo", "--n-point", "5000"],
        ["demo", "--seed", "-1"],
        ["demo", "--picture", "nowhere/x.png"],
        ["demo", "--picture", "x.svg"],
        ["dmeo"],
    ],
)
def test_bad_usage_is_exit_code_2_in_words(arguments):
    result = trigpoint(*arguments)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert arguments[-2 if len(arguments) > 2 else -1] in result.stderr


def test_help_loads_none_of_the_heavy_libraries():
    code = (
        "import sys, flows.cli; print([m for m in ('numpy', 'scipy', 'numba', 'prefect', 'dask') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout == "[]\n"


class Closing:
    """Interrupted while it is being finalized, where Python would only print the interruption."""

    def __del__(self):
        signal.raise_signal(signal.SIGINT)


def interrupted_in_a_finalizer(went_on):
    with resumable():
        closing = Closing()
        del closing
        for _ in range(1000):
            time.sleep(0.001)
        went_on.append(True)


def test_an_interruption_that_meets_a_finalizer_is_not_lost(capsys):
    went_on = []
    with pytest.raises(typer.Exit) as end:
        interrupted_in_a_finalizer(went_on)
    assert end.value.exit_code == 130
    assert not went_on
    assert "To go on:" in capsys.readouterr().err
