"""Components out of core: refused, reduced, or joined by the same links as in memory, whatever the groups."""

from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist
from test_graph_stage import graph_of
from test_neighbors_stage import gathered

import pipeline.numerics.neighbors.spatial
from pipeline.errors import DisconnectedGraphError, InvalidInputError
from pipeline.numerics.datasets import swiss_roll
from pipeline.numerics.geodesics.graph import (
    POLICIES,
    by_falling_size,
    disconnected_message,
    graph_from_edges,
    shortest_bridges,
)
from pipeline.stages.graph import components
from pipeline.stages.graph.components import Components, spanning_links
from pipeline.stages.graph.partition import OrderedNodes
from pipeline.stages.stage import Outcome, run_stage
from pipeline.store import lease
from pipeline.store.ledger import StageLedger
from pipeline.store.local import LocalBackend


def two_islands():
    roll = swiss_roll(4000, seed=0).points
    return np.concatenate([roll[:3000], roll[3000:] + np.array([40, 5, 0])])


def scattered(n_islands, n_features, n_rows=3000):
    """Islands of all sizes, their rows in random order."""
    rng = np.random.default_rng(n_features)
    island = np.minimum(rng.geometric(0.08, size=n_rows) - 1, n_islands - 1)
    centers = rng.normal(size=(n_islands, n_features))
    return centers[island] + 0.02 * rng.normal(size=(n_rows, n_features))


def interleaved():
    """Sheets thinner apart than a cell is wide, so that every cell holds nodes of several."""
    rng = np.random.default_rng(0)
    return np.concatenate([np.c_[rng.uniform(0, 10, size=(1000, 2)), np.full(1000, z)] for z in (0, 0.9, 1.9, 3)])


def pairs():
    centers = np.random.default_rng(0).uniform(size=(1500, 3))
    return np.concatenate([centers, centers + 1e-5])


def lattice_pieces():
    """Exact ties everywhere: bars of a lattice, one step longer apart than within."""
    x, y = (axis.ravel() for axis in np.meshgrid(np.arange(120.0), np.arange(30.0)))
    points = np.stack([x + x // 6, y + y // 10], axis=1)
    return points[np.random.default_rng(0).permutation(len(points))]


# Data, neighbors, and how many components the graph has at least.
CASES = {
    "one": (lambda: swiss_roll(2000, seed=0).points, 8, 1),
    "two islands": (two_islands, 6, 2),
    "islands in 3-D": (lambda: scattered(30, 3), 6, 20),
    "islands in 20-D": (lambda: scattered(30, 20), 6, 25),
    "single precision": (lambda: scattered(30, 20).astype(np.float32), 6, 25),
    "interleaved": (interleaved, 5, 4),
    "pairs": (pairs, 1, 1000),
    "ties": (lattice_pieces, 3, 30),
}


def cells_of(folder):
    ledger = StageLedger(LocalBackend(folder), "cells", next(p.name for p in (folder / "cells").glob("*/")))
    return Outcome(ledger, ledger.finished(), 0)


def prepared(folder, data, k, rows_each=1000):
    """Cells, ordered nodes and graph, with many small cells."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline.numerics.neighbors.spatial, "ROWS_PER_CELL", 100)
        ordered, _, graph = graph_of(folder, data, k, rows_each)
    return cells_of(folder), ordered, graph


@pytest.fixture(scope="module")
def expected(case):
    """The links of a case made in memory, computed once."""
    return cache(lambda kind: links_in_memory(*case(kind)))


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    """What a case begins with, made once."""
    return cache(lambda kind, n=1000: prepared(tmp_path_factory.mktemp("run"), CASES[kind][0](), CASES[kind][1], n))


def run(outcomes, policy):
    with lease.acquire(outcomes[2].ledger.store) as held:
        return run_stage(held, Components(*outcomes, policy))


def links_of(outcome):
    return [outcome.ledger.read(name).read() for name in ("starts", "ends", "lengths")]


def labels_of(graph):
    return graph.ledger.read("components").read()


def links_found(cells, ordered, graph):
    """What the stage would write, computed anew, and whether it is exact."""
    links, exact = spanning_links(OrderedNodes(cells, ordered), labels_of(graph))
    return [links.ends[:, 2], links.ends[:, 3], links.lengths], exact


def links_in_memory(_, ordered, graph):
    """Of the same points in the order of their source rows, given as nodes."""
    n_groups = len(ordered.figures["nodes_each"])
    order = np.argsort(gathered(ordered, "first", n_groups))
    labels = labels_of(graph)
    starts, ends, lengths = shortest_bridges(gathered(ordered, "points", n_groups)[order], labels[order])
    return order[starts], order[ends], lengths


def as_set(links):
    return set(zip(*links, strict=True))


def n_components_with(labels, links):
    starts, ends, lengths = links
    return connected_components(graph_from_edges(labels.max() + 1, labels[starts], labels[ends], lengths))[0]


@pytest.mark.parametrize("kind", [kind for kind in CASES if kind != "one"])
def test_links_are_those_made_in_memory(case, expected, kind):
    _, ordered, graph = case(kind)
    outcome = run(case(kind), "bridge")
    links = links_of(outcome)
    assert [part.dtype for part in links] == [np.int64, np.int64, np.float64]
    assert as_set(links) == as_set(expected(kind))
    assert (np.diff(links[2]) >= 0).all()
    n_components = graph.figures["n_components"]
    assert n_components >= CASES[kind][2]
    assert n_components_with(labels_of(graph), links) == 1
    assert outcome.figures == {
        "n_components": n_components,
        "largest_components": graph.figures["largest_components"],
        "n_bridges": n_components - 1,
        "exact": True,
        "n_kept": ordered.figures["n_nodes"],
    }


@pytest.mark.parametrize("kind", [kind for kind in CASES if kind != "one"])
def test_links_are_as_short_after_a_single_probe(case, expected, monkeypatch, kind):
    monkeypatch.setattr(components, "N_PROBES", 1)
    links, exact = links_found(*case(kind))
    assert exact
    assert as_set(links) == as_set(expected(kind))


@pytest.mark.parametrize("kind", ["islands in 3-D", "interleaved", "ties"])
@pytest.mark.parametrize("budget", [0.0, np.inf])
def test_links_do_not_depend_on_the_groups(case, monkeypatch, kind, budget):
    monkeypatch.setattr(components, "N_PROBES", 1)
    monkeypatch.setattr(components, "WORK_BUDGET", budget)
    expected, exact = links_found(*case(kind))
    for rows_each in (300, 100_000):
        links, also_exact = links_found(*case(kind, rows_each))
        assert also_exact == exact == (budget > 0)
        for part, other in zip(links, expected, strict=True):
            np.testing.assert_array_equal(part, other)


@pytest.mark.parametrize("kind", ["islands in 20-D", "interleaved", "pairs", "ties"])
def test_beyond_the_budget_the_links_still_join_everything(case, expected, monkeypatch, kind):
    monkeypatch.setattr(components, "N_PROBES", 1)
    monkeypatch.setattr(components, "WORK_BUDGET", 0.0)
    graph = case(kind)[2]
    links, exact = links_found(*case(kind))
    assert not exact
    assert len(links[0]) == graph.figures["n_components"] - 1
    assert n_components_with(labels_of(graph), links) == 1
    shortest = expected(kind)[2].sum()
    assert shortest * (1 - 1e-12) <= links[2].sum() <= 2 * shortest


class NodesInMemory:
    """Nodes in any cells, around any centers, in groups of two cells."""

    def __init__(self, points, cells, centers):
        self.order = np.argsort(cells, kind="stable")
        self.center_search = SimpleNamespace(points=centers)
        self.offsets = np.searchsorted(cells[self.order], np.arange(len(centers) + 1))
        self.groups = np.arange(0, len(centers) + 2, 2)
        self._points = points

    def cell(self, cell):
        rows = self.order[self.offsets[cell] : self.offsets[cell + 1]]
        return self._points[rows], rows


@st.composite
def nodes_and_labels(draw):
    """Points with exact ties, some far from the others, in cells and components that need not be near to anything."""
    n, n_cells, seed = draw(st.integers(2, 50)), draw(st.integers(1, 12)), draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    points = rng.integers(0, draw(st.integers(1, 40)), size=(n, draw(st.integers(1, 3)))).astype(np.float64)
    points += 100 * rng.integers(0, draw(st.integers(1, 4)), size=(n, 1))
    centers = points[rng.integers(0, n, size=n_cells)] + rng.normal(size=(n_cells, points.shape[1]))
    cells = cdist(points, centers).argmin(axis=1) if draw(st.booleans()) else rng.integers(0, n_cells, size=n)
    labels = by_falling_size(np.unique(rng.integers(0, draw(st.integers(2, 12)), size=n), return_inverse=True)[1])
    return points, NodesInMemory(points, cells, centers), labels


@given(nodes_and_labels(), st.integers(1, 3))
@settings(max_examples=300)
def test_components_may_lie_in_any_way(drawn, n_probes):
    points, nodes, labels = drawn
    assume(labels.any())
    shortest = shortest_bridges(points, labels)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(components, "N_PROBES", n_probes)
        links, exact = spanning_links(nodes, labels[nodes.order])
        patch.setattr(components, "WORK_BUDGET", 0.0)
        found, _ = spanning_links(nodes, labels[nodes.order])
    assert exact
    assert as_set((*links.ends[:, :2].T, links.lengths)) == as_set(shortest)
    np.testing.assert_array_equal(nodes.order[links.ends[:, 2:]], links.ends[:, :2])
    assert len(found.lengths) == labels.max()
    assert n_components_with(labels, (*found.ends[:, :2].T, found.lengths)) == 1
    assert found.lengths.sum() >= shortest[2].sum() * (1 - 1e-12)


def test_the_stage_says_when_links_may_not_be_the_shortest(tmp_path, monkeypatch):
    monkeypatch.setattr(components, "N_PROBES", 1)
    monkeypatch.setattr(components, "WORK_BUDGET", 0.0)
    outcome = run(prepared(tmp_path, pairs(), 1), "bridge")
    assert outcome.figures["exact"] is False
    assert outcome.figures["n_bridges"] == outcome.figures["n_components"] - 1


def test_cells_out_of_reach_are_never_compared(tmp_path, monkeypatch):
    """Two islands far apart: only cells that face each other are compared."""
    compared = []
    improve = components.ShortestLinks.improve
    monkeypatch.setattr(components.ShortestLinks, "improve", lambda *args: (compared.append(args), improve(*args)))
    data = np.random.default_rng(0).uniform(size=(4000, 2)) * [10, 1]
    data[data[:, 0] > 6, 0] += 1
    links, exact = links_found(*prepared(tmp_path, data, 6))
    assert exact
    assert len(links[0]) == 1
    assert 1 <= len(compared) <= 4


def test_error_says_the_same_as_in_memory_and_reads_no_node(case, monkeypatch):
    monkeypatch.setattr(components, "OrderedNodes", None)
    outcomes = case("islands in 20-D")
    sizes = np.bincount(labels_of(outcomes[2]))
    with pytest.raises(DisconnectedGraphError) as caught:
        run(outcomes, "error")
    assert str(caught.value) == disconnected_message(sizes.tolist())
    assert f"{len(sizes)} components, of sizes {sizes[0]}, {sizes[1]}, " in str(caught.value)
    assert ", ...;" in str(caught.value)


def test_largest_adds_nothing_and_keeps_the_largest(case):
    outcome = run(case("two islands"), "largest")
    assert [len(part) for part in links_of(outcome)] == [0, 0, 0]
    assert outcome.figures["n_components"] == 2
    assert outcome.figures["n_kept"] == outcome.figures["largest_components"][0] == 3000
    assert outcome.figures["n_bridges"] == 0
    assert outcome.ledger.damaged() == []


@pytest.mark.parametrize("policy", POLICIES)
def test_one_component_needs_nothing(case, monkeypatch, policy):
    monkeypatch.setattr(components, "OrderedNodes", None)
    outcome = run(case("one"), policy)
    assert [len(part) for part in links_of(outcome)] == [0, 0, 0]
    assert outcome.figures == {
        "n_components": 1,
        "largest_components": [2000],
        "n_bridges": 0,
        "exact": True,
        "n_kept": 2000,
    }


def test_unknown_policy_is_refused(case):
    with pytest.raises(InvalidInputError, match="policy"):
        run(case("one"), "join")
