"""The layer contracts bite: a planted violation of each is found."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def copied_tree(tmp_path):
    for folder in ("pipeline", "flows"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def checked(tree):
    code = (
        "import sys; sys.path.insert(0, '.'); from importlinter.cli import lint_imports_command; lint_imports_command()"
    )
    return subprocess.run(
        [sys.executable, "-c", code, "--no-cache"], cwd=tree, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("pipeline/numerics/mds.py", "import pipeline.estimator.landmark_isomap", "The package.s layers"),
        ("pipeline/errors.py", "import pipeline.numerics.mds", "The package.s layers"),
        ("pipeline/loose.py", "import numpy", "The package.s layers"),
        ("pipeline/numerics/geodesics/graph.py", "import zarr", "Numerics are pure functions on arrays"),
        ("pipeline/stages/validate.py", "import zarr", "Only the store sees zarr"),
        ("pipeline/stages/stage.py", "import distributed", "Stages know no cluster"),
        ("pipeline/estimator/landmark_isomap.py", "import prefect", "Flows are the top layer"),
        ("pipeline/fanout/worker.py", "import prefect", "Flows are the top layer"),
        ("flows/runner.py", "import distributed", "Only the fan-out imports Dask"),
    ],
)
def test_planted_violation_is_found(copied_tree, module, line, contract):
    path = copied_tree / module
    path.write_text((path.read_text() if path.exists() else "") + f"\n{line}\n")
    result = checked(copied_tree)
    assert result.returncode == 1
    assert re.search(rf"^{contract}.* BROKEN$", result.stdout, re.MULTILINE)


def test_the_tree_as_it_is_passes(copied_tree):
    result = checked(copied_tree)
    assert result.returncode == 0, result.stdout + result.stderr
