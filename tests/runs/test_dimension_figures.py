"""The intrinsic dimension among the figures of a run: of what, and what the commands show of it."""

import numpy as np
import pytest
from scipy.spatial import cKDTree
from small import fitted, roll_file

from flows.status import status_report
from pipeline import open_run
from pipeline.errors import ComponentWarning
from pipeline.numerics.datasets import swiss_roll
from pipeline.numerics.dimension import described_dimension, dimension_of_points, intrinsic_dimension
from pipeline.numerics.landmarks.sampling import drawn

ESTIMATES = ("two_nearest", "maximum_likelihood")


def figures(store):
    return open_run(store).quality["intrinsic_dimension"]


def require_same(found, expected):
    assert found["n_points"] == expected["n_points"]
    for name in ESTIMATES:
        assert found[name] == pytest.approx(expected[name], rel=1e-6)


def test_along_a_graph_it_is_that_of_the_stored_neighbors(tmp_path, monkeypatch):
    source = roll_file(tmp_path, 5000)
    fitted(source, tmp_path / "run", recall=1.0)
    points = np.load(source)
    nearest = cKDTree(points).query(points, 9)[0][:, 1:]
    require_same(figures(tmp_path / "run"), described_dimension(intrinsic_dimension(nearest)))
    assert figures(tmp_path / "run")["two_nearest"]["value"] == pytest.approx(2, rel=0.05)
    monkeypatch.setattr("pipeline.stages.evaluate.MOST_IN_DIMENSION", 1000)
    fitted(source, tmp_path / "sampled", recall=1.0)
    sampled = drawn(np.arange(5000), 5000, 0, 1000)
    require_same(figures(tmp_path / "sampled"), described_dimension(intrinsic_dimension(nearest[sampled])))


def test_rows_that_repeat_count_once_and_rows_that_are_dropped_do_not(tmp_path):
    points = swiss_roll(1500, seed=0).points
    far = points[:200] + 1000
    np.save(tmp_path / "plain.npy", points)
    np.save(tmp_path / "more.npy", np.concatenate([points, points[::2], far]))
    fitted(tmp_path / "plain.npy", tmp_path / "plain")
    with pytest.warns(ComponentWarning, match="the other 200 rows become NaN"):
        fitted(tmp_path / "more.npy", tmp_path / "more", component_policy="largest")
    require_same(figures(tmp_path / "more"), figures(tmp_path / "plain"))


@pytest.mark.filterwarnings("ignore::pipeline.errors.ComponentWarning")
@pytest.mark.parametrize(
    "settings", [{"method": "mds"}, {"radius": 4.0}, {"n_neighbors": 1, "component_policy": "bridge"}], ids=str
)
def test_without_lists_of_neighbors_it_is_that_of_the_sample(tmp_path, settings):
    points = swiss_roll(900, seed=0).points
    np.save(tmp_path / "roll.npy", points)
    fitted(tmp_path / "roll.npy", tmp_path / "run", **settings)
    expected = dimension_of_points(points, settings.get("n_neighbors", 8))
    require_same(figures(tmp_path / "run"), described_dimension(expected))


def test_where_there_are_no_points_there_is_none(tmp_path):
    np.save(tmp_path / "roll.npy", swiss_roll(300, seed=0).points)
    fitted(tmp_path / "roll.npy", tmp_path / "run", method="mds", metric="cityblock")
    assert figures(tmp_path / "run") is None
    value, lines = status_report(str(tmp_path / "run"))
    assert value["intrinsic_dimension"] is None
    assert not any("dimension" in line for line in lines)


def test_status_shows_it(tmp_path):
    np.save(tmp_path / "roll.npy", swiss_roll(900, seed=0).points)
    fitted(tmp_path / "roll.npy", tmp_path / "run")
    value, lines = status_report(str(tmp_path / "run"))
    two, likelihood = (value["intrinsic_dimension"][name]["value"] for name in ESTIMATES)
    (line,) = (line for line in lines if line.startswith("Intrinsic dimension "))
    assert f"dimension {two:.2f} (95%:" in line
    assert f"{likelihood:.2f} (95%:" in line
