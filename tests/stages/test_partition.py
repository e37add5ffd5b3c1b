"""Points in the order of their cells: every row once, duplicates together, the same whatever the partitions."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from pipeline.numerics.datasets import swiss_roll
from pipeline.sources import open_source
from pipeline.sources.partitions import GRAIN_ROWS, RowPartitions
from pipeline.stages.graph.partition import Assign, Cells, Order
from pipeline.stages.stage import run_stage
from pipeline.stages.validate import PreparedSource, Validate
from pipeline.store import lease
from pipeline.store.local import LocalBackend


def partitioned(store, data, grains_each=1, rows_each=3000):
    """Outcomes of cells, assign and order; the lease is left behind if a crash interrupts them."""
    store.sweep_partials()
    held = lease.acquire(store)
    cut = RowPartitions(len(data), grains_each)
    source = open_source(data)
    scaled = PreparedSource(source, run_stage(held, Validate(source, cut)))
    cells = run_stage(held, Cells(scaled, cut, seed=0))
    assigned = run_stage(held, Assign(scaled, cut, cells))
    ordered = run_stage(held, Order(assigned, cut.count, rows_each))
    held.release()
    return cells, assigned, ordered


def gathered(ordered, name):
    groups = range(len(ordered.figures["nodes_each"]))
    return np.concatenate([ordered.ledger.part(name, p).read() for p in groups])


@pytest.fixture(scope="module")
def data():
    return swiss_roll(3 * GRAIN_ROWS + 77, seed=0).points


@pytest.fixture(scope="module")
def outcome(tmp_path_factory, data):
    return partitioned(LocalBackend(tmp_path_factory.mktemp("run")), data)


def test_every_row_is_there_once_with_its_point(outcome, data):
    ordered = outcome[2]
    rows = gathered(ordered, "rows")
    np.testing.assert_array_equal(np.sort(rows), np.arange(len(data)))
    assert ordered.figures["n_rows"] == ordered.figures["n_nodes"] == len(data)
    first = gathered(ordered, "first")
    scale = 2.0 ** np.frexp(np.abs(data).max())[1]
    np.testing.assert_array_equal(gathered(ordered, "points") * scale, data[first])


def test_every_row_is_in_the_cell_of_its_nearest_center_and_cells_are_in_order(outcome, data):
    cells, _, ordered = outcome
    centers = cells.ledger.read("centers").read()
    sizes, points = ordered.ledger.read("cell_sizes").read(), gathered(ordered, "points")
    found = np.repeat(np.arange(len(sizes)), sizes)
    assert len(centers) == 12
    np.testing.assert_array_equal(found, cdist(points, centers).argmin(axis=1))


def test_groups_of_cells_keep_to_their_size(outcome):
    sizes = outcome[2].figures["nodes_each"]
    assert len(sizes) > 3
    assert max(sizes) <= 3000


@pytest.mark.parametrize(("grains_each", "rows_each"), [(2, 3000), (9, 100_000), (1, 500)])
def test_results_do_not_depend_on_the_partitions(tmp_path, outcome, data, grains_each, rows_each):
    _, _, other = partitioned(LocalBackend(tmp_path), data, grains_each, rows_each)
    for name in ("points", "rows", "first", "sizes"):
        np.testing.assert_array_equal(gathered(other, name), gathered(outcome[2], name))


def test_identical_rows_become_one_node_named_by_the_first(tmp_path, data):
    rng = np.random.default_rng(0)
    chosen = rng.integers(0, 300, size=9000)
    _, _, ordered = partitioned(LocalBackend(tmp_path), data[chosen])
    assert ordered.figures["n_nodes"] == len(np.unique(chosen))
    first, rows = gathered(ordered, "first"), gathered(ordered, "rows")
    bases = np.concatenate([[0], np.cumsum(ordered.figures["nodes_each"])])
    groups = range(len(ordered.figures["nodes_each"]))
    node_of = np.concatenate([bases[p] + ordered.ledger.part("node_of", p).read() for p in groups])
    np.testing.assert_array_equal(chosen[first][node_of], chosen[rows])
    earliest = {value: row for row, value in reversed(list(enumerate(chosen.tolist())))}
    assert all(earliest[chosen[row]] == row for row in first.tolist())


@pytest.mark.parametrize(("dtype", "stored"), [("f4", np.float32), ("u1", np.float32), ("i8", np.float64)])
def test_points_are_kept_exactly_in_the_narrowest_type_that_holds_them(tmp_path, dtype, stored):
    table = np.random.default_rng(0).integers(0, 200, size=(5000, 20)).astype(dtype)
    _, _, ordered = partitioned(LocalBackend(tmp_path), table)
    points = gathered(ordered, "points")
    assert points.dtype == stored
    scale = 2.0 ** np.frexp(np.abs(table.astype(float)).max())[1]
    np.testing.assert_array_equal(points * scale, table[gathered(ordered, "first")])
