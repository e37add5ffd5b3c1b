"""The command as a user runs it."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

COMMAND = Path(sys.executable).with_name("trigpoint")


def trigpoint(*arguments, cwd=None):
    return subprocess.run([COMMAND, *arguments], cwd=cwd, capture_output=True, text=True, timeout=200, check=False)


def test_demo_unrolls_the_sheet_and_draws_it(tmp_path):
    result = trigpoint("demo", "--n-points", "3000", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert (tmp_path / "trigpoint-demo.png").read_bytes().startswith(b"\x89PNG")
    residuals = [
        float(line.split()[1])
        for line in result.stdout.splitlines()
        if line.startswith(("  fit  ", "  transform  ")) and "e-" in line
    ]
    assert len(residuals) == 2
    assert max(residuals) < 2e-3


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
