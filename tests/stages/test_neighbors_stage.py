"""Neighbors of nodes through cells: nearly all of the true ones, exact distances, the same whatever the groups."""

import numpy as np
import pytest

from pipeline.errors import InvalidInputError
from pipeline.numerics.datasets import swiss_roll
from pipeline.numerics.neighbors import products
from pipeline.numerics.neighbors.exact import neighbors_within
from pipeline.numerics.statistics import neighbor_recall
from pipeline.sources import open_source
from pipeline.sources.partitions import RowPartitions
from pipeline.stages.graph import neighbors
from pipeline.stages.graph import neighbors as tree_search
from pipeline.stages.graph.neighbors import Neighbors, Probes
from pipeline.stages.graph.partition import Assign, Cells, Order
from pipeline.stages.stage import run_stage
from pipeline.stages.validate import PreparedSource, Validate
from pipeline.store import lease
from pipeline.store.local import LocalBackend

DATA = {
    "roll": lambda: swiss_roll(14_000, seed=0).points,
    "wide": lambda: np.random.default_rng(0).normal(size=(6000, 5)) @ np.random.default_rng(1).normal(size=(5, 30)),
    "lattice": lambda: np.stack(np.meshgrid(*[np.arange(20.0)] * 3), axis=-1).reshape(-1, 3),
}


# Many columns, with what cells and rounding find hard.
WIDE = {
    "sheet": DATA["wide"],
    "single": lambda: DATA["wide"]().astype(np.float32),
    "lattice": lambda: np.random.default_rng(3).integers(0, 3, size=(4000, 11)).astype(float),
    "outliers": lambda: with_outliers(DATA["wide"]()[:4000]),
}


def with_outliers(data):
    rng = np.random.default_rng(4)
    rows = rng.choice(len(data), 40, replace=False)
    data[rows] *= 10.0 ** rng.uniform(1, 9, size=(40, 1))
    return data


def neighbors_of(folder, data, k, rows_each=2500, recall=0.995):
    with lease.acquire(LocalBackend(folder)) as held:
        cut, source = RowPartitions(len(data), 1), open_source(data)
        scaled = PreparedSource(source, run_stage(held, Validate(source, cut)))
        cells = run_stage(held, Cells(scaled, cut, seed=0))
        assigned = run_stage(held, Assign(scaled, cut, cells))
        ordered = run_stage(held, Order(assigned, cut.count, rows_each))
        probes = run_stage(held, Probes(cells, ordered, k, seed=0, recall=recall))
        return scaled, ordered, run_stage(held, Neighbors(cells, ordered, probes, k, seed=0))


def gathered(outcome, name, n_groups):
    return np.concatenate([outcome.ledger.part(name, p).read() for p in range(n_groups)])


def in_source_rows(scaled, ordered, found):
    """Distances at the data's scale and neighbors as source rows, in the order of the source's nodes."""
    n_groups = len(ordered.figures["nodes_each"])
    first = gathered(ordered, "first", n_groups)
    order = np.argsort(first)
    distances = np.ldexp(gathered(found, "distances", n_groups), scaled.preprocessing.exponent)[order]
    return distances, first[gathered(found, "neighbors", n_groups)][order]


@pytest.mark.parametrize("kind", DATA)
def test_recall_is_what_was_audited_and_distances_are_exact(tmp_path, kind):
    data = DATA[kind]()
    scaled, ordered, found = neighbors_of(tmp_path, data, 10)
    distances, rows = in_source_rows(scaled, ordered, found)
    exact_distances, exact = neighbors_within(data, 10)
    recall = neighbor_recall(rows, exact)
    assert recall >= 0.99
    assert found.figures["recall"] == pytest.approx(recall, abs=0.01)
    assert found.figures["audited"] == (1000 if kind == "wide" else 0)
    # In few dimensions boxes prove that nothing is missed.
    assert kind == "wide" or recall == 1.0
    true = np.linalg.norm(data[:, None] - data[rows], axis=2)
    np.testing.assert_allclose(distances, true, rtol=1e-12)
    assert (distances >= exact_distances * (1 - 1e-12)).all()
    complete = (rows == exact).all(axis=1)
    np.testing.assert_allclose(distances[complete], exact_distances[complete], rtol=1e-15)


@pytest.mark.parametrize("kind", DATA)
@pytest.mark.parametrize("rows_each", [700, 100_000])
def test_results_do_not_depend_on_the_groups(tmp_path, rows_each, kind):
    data = DATA[kind]()
    some, others = (in_source_rows(*neighbors_of(tmp_path / str(n), data, 7, n)) for n in (2500, rows_each))
    np.testing.assert_array_equal(some[0], others[0])
    np.testing.assert_array_equal(some[1], others[1])


@pytest.mark.parametrize("rows_each", [1500, 100_000])
@pytest.mark.parametrize("kind", WIDE)
def test_a_recall_of_one_is_brute_force_in_many_columns(tmp_path, kind, rows_each):
    """Cells out of reach are left out, and that leaves nothing out; ties go to the lower source row."""
    data = WIDE[kind]()
    distinct = np.unique(data, axis=0, return_index=True)[1]
    data = data[np.sort(distinct)]
    scaled, ordered, found = neighbors_of(tmp_path, data, 9, rows_each, recall=1)
    distances, rows = in_source_rows(scaled, ordered, found)
    exact_distances, exact = neighbors_within(np.ldexp(data, -scaled.preprocessing.exponent), 9)
    np.testing.assert_array_equal(rows, exact)
    np.testing.assert_array_equal(distances, np.ldexp(exact_distances, scaled.preprocessing.exponent))
    assert found.figures["recall"] == 1.0


@pytest.mark.parametrize("kind", WIDE)
def test_portions_and_blocks_do_not_matter(tmp_path, monkeypatch, kind):
    data = WIDE[kind]()
    expected = neighbors_of(tmp_path / "large", data, 6)
    monkeypatch.setattr(neighbors, "PROBE_ENTRIES", 500)
    monkeypatch.setattr(neighbors, "MOST_WAITING", 2000)
    monkeypatch.setattr(products, "PORTION", 100)
    monkeypatch.setattr(products, "BLOCK_ENTRIES", 1000)
    found = neighbors_of(tmp_path / "small", data, 6)
    assert found[2].figures == expected[2].figures
    for some, others in zip(in_source_rows(*found), in_source_rows(*expected), strict=True):
        np.testing.assert_array_equal(some, others)


@pytest.mark.parametrize("kind", WIDE)
def test_the_audit_tells_the_recall_in_many_columns(tmp_path, kind):
    data = WIDE[kind]()
    data = data[np.sort(np.unique(data, axis=0, return_index=True)[1])]
    scaled, ordered, found = neighbors_of(tmp_path, data, 5, recall=0.9)
    _, rows = in_source_rows(scaled, ordered, found)
    _, exact = neighbors_within(np.ldexp(data, -scaled.preprocessing.exponent), 5)
    assert found.figures["recall"] == pytest.approx(neighbor_recall(rows, exact), abs=0.02)


def test_one_cell_is_searched_exactly(tmp_path):
    data = DATA["roll"]()[:900]
    scaled, ordered, found = neighbors_of(tmp_path, data, 5)
    exact_distances, exact = neighbors_within(np.ldexp(data, -scaled.preprocessing.exponent), 5)
    distances, rows = in_source_rows(scaled, ordered, found)
    np.testing.assert_array_equal(rows, exact)
    np.testing.assert_array_equal(distances, np.ldexp(exact_distances, scaled.preprocessing.exponent))


@pytest.mark.parametrize("rows_each", [1, 1200, 100_000])
@pytest.mark.parametrize("far", [1e3, 1e9])
def test_outliers_are_searched_exactly_with_any_groups(tmp_path, monkeypatch, far, rows_each):
    """Their balls reach into many cells; those are looked at a portion at a time."""
    monkeypatch.setattr(tree_search, "LEAST_PORTION", 1000)
    rng = np.random.default_rng(2)
    data = np.concatenate([DATA["roll"]()[:5000], rng.normal(size=(7, 3)) * far, rng.normal(size=(30, 3)) + far])
    scaled, ordered, found = neighbors_of(tmp_path, data, 12, rows_each)
    distances, rows = in_source_rows(scaled, ordered, found)
    exact_distances, exact = neighbors_within(np.ldexp(data, -scaled.preprocessing.exponent), 12)
    np.testing.assert_array_equal(rows, exact)
    np.testing.assert_array_equal(distances, np.ldexp(exact_distances, scaled.preprocessing.exponent))


def test_a_node_alone_in_its_cells_looks_further(tmp_path):
    """Many more neighbors than a cell has nodes."""
    data = np.concatenate([DATA["roll"]()[:4000], [[1000.0, 0, 0], [1000.0, 1, 0]]])
    scaled, ordered, found = neighbors_of(tmp_path, data, 400)
    distances, rows = in_source_rows(scaled, ordered, found)
    assert rows.min() >= 0
    assert np.isfinite(distances).all()
    assert all(len(set(row)) == 400 for row in rows[::100].tolist())


def test_nodes_of_a_small_cell_look_further_in_many_columns_too(tmp_path, monkeypatch):
    """Every node probes its own cell alone; those of one that has fewer nodes than they want neighbors look on."""
    monkeypatch.setattr(neighbors.Probes, "_enough_probes", lambda *_: 1)
    data = DATA["wide"]()[:4000]
    data[:300] += 1e3
    scaled, ordered, found = neighbors_of(tmp_path, data, 400)
    _, rows = in_source_rows(scaled, ordered, found)
    _, exact = neighbors_within(data, 400)
    assert found.figures["n_probes"] == 1
    assert found.figures["recall"] < 0.95
    assert (rows >= 0).all()
    assert all(len(set(row)) == 400 for row in rows[::100].tolist())
    np.testing.assert_array_equal(np.sort(rows[:300, :299]), np.sort(exact[:300, :299]))


def test_more_neighbors_than_distinct_rows_are_refused(tmp_path):
    data = np.repeat(np.random.default_rng(0).normal(size=(6, 2)), 50, axis=0)
    with pytest.raises(InvalidInputError, match=r"n_neighbors=6 .* from 1 to 5 \(the source has 6 distinct rows\)"):
        neighbors_of(tmp_path, data, 6)
