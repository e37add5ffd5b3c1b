"""Components out of core: refused, reduced, or joined by the same links as in memory, whatever the groups."""

from functools import cache

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist
from test_graph_stage import graph_of
from test_neighbors_stage import gathered

import pipeline.numerics.neighbors.spatial
from pipeline.errors import DisconnectedGraphError, InvalidInputError
from pipeline.numerics.datasets import swiss_roll
from pipeline.numerics.geodesics import bridges
from pipeline.numerics.geodesics.bridges import LinkSearch, links_in_memory
from pipeline.numerics.geodesics.components import POLICIES, components_in_words, disconnected_message
from pipeline.numerics.geodesics.graph import graph_from_edges
from pipeline.stages.graph.bridges import Connecting, FarLinks, NearLinks, PiecesOfCells
from pipeline.stages.graph.components import Components, component_figures, require_joinable
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
    return cache(lambda kind: made_in_memory(*case(kind)))


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    """What a case begins with, made once."""
    return cache(lambda kind, n=1000: prepared(tmp_path_factory.mktemp("run"), CASES[kind][0](), CASES[kind][1], n))


def run(outcomes, policy):
    """The stage after those that it needs."""
    cells, ordered, graph = outcomes
    with lease.acquire(graph.ledger.store) as held:
        links = None
        if require_joinable(graph, policy, "neighbors"):
            pieces = run_stage(held, PiecesOfCells(cells, ordered, graph))
            links = run_stage(held, NearLinks(cells, ordered, graph, pieces))
            if links.figures["n_pairs"]:
                links = run_stage(held, FarLinks(cells, ordered, graph, pieces, links))
        return run_stage(held, Components(ordered, graph, policy, links))


def links_of(outcome):
    return [outcome.ledger.read(name).read() for name in ("starts", "ends", "lengths")]


def labels_of(graph):
    return graph.ledger.read("components").read()


def made_in_memory(_, ordered, graph):
    """Of the same points in the order of their source rows, given as nodes."""
    n_groups = len(ordered.figures["nodes_each"])
    order = np.argsort(gathered(ordered, "first", n_groups))
    labels = labels_of(graph)
    links, exact = links_in_memory(gathered(ordered, "points", n_groups)[order], labels[order])
    assert exact
    return order[links.ends[:, 0]], order[links.ends[:, 1]], links.lengths


def as_set(links):
    return set(zip(*links, strict=True))


def n_components_with(labels, links):
    starts, ends, lengths = links
    return connected_components(graph_from_edges(labels.max() + 1, labels[starts], labels[ends], lengths))[0]


SEVERAL = [kind for kind in CASES if kind != "one"]


@pytest.mark.parametrize("kind", SEVERAL)
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
    sizes = graph.figures["largest_components"]
    assert outcome.figures == {
        "n_components": n_components,
        "largest_components": sizes,
        "largest_rows": sizes,
        "n_dropped_rows": 0,
        "edges_from": "neighbors",
        "n_bridges": n_components - 1,
        "exact": True,
        "n_kept": ordered.figures["n_nodes"],
    }


@pytest.mark.parametrize("kind", ["islands in 3-D", "islands in 20-D", "interleaved", "ties"])
@pytest.mark.parametrize("per_point", [0, bridges.FAR_PAIRS_PER_POINT])
def test_links_do_not_depend_on_the_groups(tmp_path, monkeypatch, kind, per_point):
    monkeypatch.setattr(bridges, "N_NEAR", 1)
    monkeypatch.setattr(bridges, "FAR_PAIRS_PER_POINT", per_point)
    made = [prepared(tmp_path / str(n), CASES[kind][0](), CASES[kind][1], n) for n in (300, 1000, 100_000)]
    outcomes = [run(each, "bridge") for each in made]
    assert len({len(each[1].figures["nodes_each"]) for each in made}) == 3
    for outcome in outcomes:
        assert outcome.figures["exact"] == (per_point > 0)
        for part, other in zip(links_of(outcome), links_of(outcomes[0]), strict=True):
            np.testing.assert_array_equal(part, other)


@pytest.mark.parametrize("kind", ["islands in 20-D", "interleaved", "pairs", "ties"])
def test_beyond_the_budget_the_links_still_join_everything(tmp_path, expected, monkeypatch, kind):
    expected = expected(kind)
    monkeypatch.setattr(bridges, "N_NEAR", 1)
    monkeypatch.setattr(bridges, "FAR_PAIRS_PER_POINT", 0)
    outcomes = prepared(tmp_path, CASES[kind][0](), CASES[kind][1])
    outcome = run(outcomes, "bridge")
    links = links_of(outcome)
    assert not outcome.figures["exact"]
    assert len(links[0]) == outcomes[2].figures["n_components"] - 1
    assert n_components_with(labels_of(outcomes[2]), links) == 1
    shortest = expected[2].sum()
    assert shortest * (1 - 1e-12) <= links[2].sum() <= 2 * shortest
    assert "nearly the shortest" in components_in_words(component_figures({"components": outcome.figures}))


def test_cells_out_of_reach_are_never_compared(tmp_path, monkeypatch):
    """Two islands far apart: only cells that face each other are compared."""
    compared = []
    compare = LinkSearch.compare
    monkeypatch.setattr(LinkSearch, "compare", lambda *args: (compared.append(args), compare(*args)))
    monkeypatch.setattr(bridges, "N_NEAR", 1)
    data = np.random.default_rng(0).uniform(size=(4000, 2)) * [10, 1]
    data[data[:, 0] > 6, 0] += 1
    outcome = run(prepared(tmp_path, data, 6), "bridge")
    assert outcome.figures["exact"]
    assert outcome.figures["n_bridges"] == 1
    # Each of some 16 cells of the smaller island with the nearest, and few others.
    assert 10 <= len(compared) <= 24


@pytest.mark.parametrize("kind", SEVERAL)
def test_so_many_neighbors_are_enough_to_connect_the_graph(case, tmp_path, kind):
    cells, ordered, graph = case(kind)
    outcome = run(case(kind), "bridge")
    last = {"links": FarLinks, "far_links": FarLinks}
    with lease.acquire(graph.ledger.store) as held:
        pieces = run_stage(held, PiecesOfCells(cells, ordered, graph))
        links = run_stage(held, NearLinks(cells, ordered, graph, pieces))
        if links.figures["n_pairs"]:
            links = run_stage(held, last["links"](cells, ordered, graph, pieces, links))
        enough = run_stage(held, Connecting(cells, ordered, links)).figures["enough"]
    n_groups = len(ordered.figures["nodes_each"])
    points, rows = gathered(ordered, "points", n_groups), gathered(ordered, "first", n_groups)
    starts, ends, _ = links_of(outcome)
    ranks = []
    for one, other in ((starts, ends), (ends, starts)):
        apart = cdist(points[one].astype(np.float64), points.astype(np.float64))
        order = np.lexsort((np.broadcast_to(rows, apart.shape), apart), axis=1)
        ranks.append((order == other[:, None]).argmax(axis=1))
    assert enough == max(CASES[kind][1] + 1, np.minimum(*ranks).max())
    _, _, connected = prepared(tmp_path, CASES[kind][0](), enough)
    assert connected.figures["n_components"] == 1


def test_error_says_the_same_as_in_memory(case):
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
    assert outcome.figures["n_dropped_rows"] == 1000
    assert outcome.figures["n_bridges"] == 0
    assert outcome.ledger.damaged() == []


def test_one_component_needs_nothing_and_is_the_same_whatever_the_policy(case):
    outcomes = [run(case("one"), policy) for policy in POLICIES]
    assert len({outcome.ledger.digest for outcome in outcomes}) == 1
    for outcome in outcomes:
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
