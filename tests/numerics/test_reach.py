"""Cells that may hold a near point, by planes between centers: none that does is left out, most others are."""

import numpy as np
import pytest

from pipeline.numerics.neighbors.exact import NeighborSearch
from pipeline.numerics.neighbors.spatial import within_reach

KINDS = {
    "random": lambda rng: rng.normal(size=(3000, 12)),
    "sheet": lambda rng: rng.uniform(-1, 1, (3000, 2)) @ rng.normal(size=(2, 15)) + 0.01 * rng.normal(size=(3000, 15)),
    "lattice": lambda rng: rng.integers(0, 2, size=(3000, 12)).astype(float),
    "tiny": lambda rng: 1e-60 * rng.normal(size=(3000, 12)),
    "offset": lambda rng: 1e8 + rng.normal(size=(3000, 12)),
}


def pieces(kind):
    """Points, centers, the cell of each point, and of some queries their cells in order and distances to them."""
    rng = np.random.default_rng(3)
    points = KINDS[kind](rng)
    centers = np.unique(points[rng.choice(len(points), 60, replace=False)], axis=0).astype(np.float64)
    search = NeighborSearch(centers)
    cells = search.query(points, 1)[1][:, 0]
    return points, centers, cells, search.query(points[:200], len(centers))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [2, 20])
def test_no_cell_with_a_point_within_the_limit_is_left_out(kind, k):
    points, centers, cells, (apart, probes) = pieces(kind)
    distances, found = NeighborSearch(points).query(points[:200], k)
    reached = within_reach(centers, probes, apart, distances[:, -1])
    for i in range(200):
        assert np.isin(cells[found[i]], probes[i, reached[i]]).all()


def test_points_at_the_limit_itself_are_within_reach():
    """On a lattice with centers on it, many points are midway between centers and tie."""
    points, centers, cells, (apart, probes) = pieces("lattice")
    for limit in (0.0, 1.0, np.sqrt(2.0)):
        reached = within_reach(centers, probes, apart, np.full(200, limit))
        for i in range(200):
            near = np.linalg.norm(points - points[i], axis=1) <= limit
            assert np.isin(cells[near], probes[i, reached[i]]).all()


def test_points_on_the_plane_midway_are_within_reach_however_distances_are_rounded():
    """The query is on the line from its own center to the other, the point on the plane between them: nothing spare."""
    rng = np.random.default_rng(4)
    n_there = 0
    for _ in range(300):
        home, step = rng.normal(size=(2, 12))
        centers, point = np.stack([home, home + step]), home + step / 2
        query = home + step * rng.uniform(0, 0.49)
        apart, probes = NeighborSearch(centers).query(query[None], 2)
        limit = NeighborSearch(query[None]).query(point[None], 1)[0][:, 0]
        if NeighborSearch(centers).query(point[None], 1)[1][0, 0] == 1:
            n_there += 1
            assert within_reach(centers, probes, apart, limit).all()
    assert n_there > 50


def test_most_cells_of_a_sheet_are_out_of_reach():
    points, centers, _, (apart, probes) = pieces("sheet")
    distances, _ = NeighborSearch(points).query(points[:200], 10)
    reached = within_reach(centers, probes, apart, distances[:, -1])
    assert reached.mean() < 0.2
    assert reached[:, 0].all()


def test_without_a_limit_all_cells_are_within_reach():
    _, centers, _, (apart, probes) = pieces("random")
    assert within_reach(centers, probes, apart, np.full(200, np.inf)).all()
