"""What README shows runs and gives what it says."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from flows import cli
from flows.schedules import ScheduleSettings, read_targets
from pipeline import LandmarkIsomap
from pipeline.estimator.results import FittedResults
from pipeline.jobs.fit import fit
from pipeline.methods import EXTENSIONS, INPUTS, KERNELS, METHODS, METRICS, SELECTIONS
from pipeline.numerics.datasets import swiss_roll
from pipeline.numerics.extension.placement import TRUST
from pipeline.numerics.statistics import ranks_of
from pipeline.settings import (
    ClusterSettings,
    ExtendSettings,
    FitSettings,
    MethodSettings,
    RefitSettings,
    StudySettings,
    fit_settings,
)
from pipeline.stages.publish import PUBLISHED

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_python_blocks_of_the_readme_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 3
    points = swiss_roll(1200, seed=0).points
    np.save("points.npy", points)
    fit(fit_settings({"source": "points.npy", "store": "run.zarr"}))
    names = {"X": points[:1000], "new_points": points[1000:]}
    for block in blocks:
        exec(block, names)
    assert names["run"].embedding("projection").shape == (1200, 2)
    assert names["placed"].shape == (200, 2)
    np.testing.assert_allclose(names["project"](names["model"], [names["outlier"]]), [[0, 0]], atol=1e-10)
    answer = names["restricted_reconstruction"](names["model"], [names["outlier"]])
    np.testing.assert_allclose(np.abs(answer.coordinates), [[0, 19.18]], atol=5e-3)
    assert answer.ambiguous.all()


def test_the_page_on_python_names_what_the_estimator_has_and_its_blocks_run():
    page = (Path(__file__).parent.parent / "docs" / "python.md").read_text()
    public = [name for name in vars(FittedResults) if not name.startswith("_") and callable(vars(FittedResults)[name])]
    for name in (*LandmarkIsomap().get_params(), *public, "table_", "transform"):
        assert re.search(rf"`{name}[`(]", page), name
    points = swiss_roll(1200, seed=0).points
    names = {"X": points[:1000], "new_points": points[1000:]}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(block, names)
    assert len(names["rows"]) == 200
    assert len(names["suspicious"]) < 20
    assert len(names["placed"].residual_rank) == 200


def test_commands_of_the_readme_are_understood(tmp_path, monkeypatch, capsys):
    """Each line of the section on runs, on smaller data and in one process; the demo's tests start workers."""
    monkeypatch.chdir(tmp_path)
    np.save("points.npy", swiss_roll(3000, seed=0).points)
    block = re.search(r"## Embed a dataset on disk\n\n```sh\n(.*?)```", README, re.DOTALL).group(1)
    lines = block.strip().splitlines()
    assert len(lines) == 4
    for line in lines:
        here = ["--cluster-kind", "serial"] if line.split()[1] in ("fit", "plan", "extend") else []
        monkeypatch.setattr(sys, "argv", [*line.split(), *here])
        with pytest.raises(SystemExit) as end:
            cli.main()
        assert end.value.code == 0, capsys.readouterr().err
    assert np.load("projection.npy").shape == (3000, 10)


def test_the_page_on_clusters_names_every_setting():
    page = (Path(__file__).parent.parent / "docs" / "clusters.md").read_text()
    for name in ClusterSettings.model_fields:
        assert f"`{name}`" in page, name


def test_the_page_on_schedules_names_every_setting_and_its_example_is_understood(tmp_path):
    page = (Path(__file__).parent.parent / "docs" / "schedules.md").read_text()
    for name in ScheduleSettings.model_fields:
        assert f"`{name}`" in page, name
    file = tmp_path / "run.toml"
    file.write_text(re.search(r"```toml\n(.*?)```", page, re.DOTALL).group(1))
    schedule, targets = read_targets(file)
    assert schedule.refit_on_drift
    assert [(target.flow, target.schedule is not None) for target in targets] == [
        ("fit", False),
        ("extend", True),
        ("refit", True),
    ]


def test_the_page_on_runs_names_every_setting_and_array():
    page = (Path(__file__).parent.parent / "docs" / "runs.md").read_text()
    for name in (*(name for name in FitSettings.model_fields if name not in MethodSettings.model_fields), *PUBLISHED):
        assert f"`{name}`" in page, name


def test_the_page_on_methods_names_every_method_and_setting():
    page = (Path(__file__).parent.parent / "docs" / "methods.md").read_text()
    for name in (*MethodSettings.model_fields, *METHODS):
        assert f"`{name}`" in page, name
    for name in (*EXTENSIONS, *METRICS, *KERNELS, *SELECTIONS, *INPUTS):
        assert name in page, name


def test_the_page_on_new_points_names_every_setting_and_array():
    page = (Path(__file__).parent.parent / "docs" / "extending.md").read_text()
    for name in (*ExtendSettings.model_fields, *ranks_of(TRUST), "joint"):
        assert f"`{name}`" in page, name


def test_the_page_on_versions_names_every_setting():
    page = (Path(__file__).parent.parent / "docs" / "versions.md").read_text()
    for name in RefitSettings.model_fields:
        assert f"`{name}`" in page, name


def test_the_page_on_studies_names_every_setting_of_its_own():
    page = (Path(__file__).parent.parent / "docs" / "studies.md").read_text()
    own = set(StudySettings.model_fields) - set(FitSettings.model_fields)
    assert own == {line.split("`")[1] for line in page.splitlines() if line.startswith("| `")}


@pytest.mark.parametrize("page", ["architecture", "contributing"])
def test_files_that_pages_for_developers_name_exist(page):
    root = Path(__file__).parent.parent
    text = (root / "docs" / f"{page}.md").read_text()
    named = [name for name in re.findall(r"`([\w/]+\.(?:py|md))`", text) if "NAME" not in name]
    assert len(named) > 10
    assert [name for name in named if not ((root / name).exists() or (root / "pipeline" / name).exists())] == []
