"""Runs on disk on a graph of the user's own: path lengths, embedding, new nodes, and what is refused."""

import json
import os
import shutil

import numpy as np
import pytest
from scipy.sparse import coo_array, csr_array, save_npz
from scipy.sparse.csgraph import dijkstra
from scipy.spatial import KDTree
from small import extended, fitted

from pipeline import open_run
from pipeline.errors import ComponentWarning, DisconnectedGraphError, InvalidInputError
from pipeline.fanout.execution import executor
from pipeline.jobs.fit import fit
from pipeline.jobs.portable import export_model
from pipeline.jobs.refit import refit
from pipeline.numerics.extension import project
from pipeline.numerics.geodesics.graph import graph_from_edges
from pipeline.numerics.geodesics.rows import farthest_nodes
from pipeline.numerics.geodesics.shortest_paths import PathGraph
from pipeline.numerics.neighbors.exact import neighbors_within
from pipeline.settings import ClusterSettings, RefitSettings, fit_settings, job_settings
from pipeline.stages.publish import PUBLISHED

ON_A_GRAPH = {"input": "graph", "n_landmarks": 40}
N_NODES = 4300


def saved(path, graph):
    save_npz(path, csr_array(graph))
    return path


def town(n_nodes=N_NODES, seed=0):
    """Places in a rectangle, joined by streets that are longer than the straight way: connected."""
    rng = np.random.default_rng(seed)
    places = rng.random((n_nodes, 2)) * [3.0, 1.0]
    tree = KDTree(places)
    apart, near = tree.query(places, 7)
    starts = np.repeat(np.arange(n_nodes), 6)
    detours = 1 + 0.3 * rng.random(len(starts))
    return graph_from_edges(n_nodes, starts, near[:, 1:].ravel(), apart[:, 1:].ravel() * detours)


@pytest.fixture(scope="module")
def roads(tmp_path_factory):
    """A graph of several groups, its file, and a run on it."""
    folder = tmp_path_factory.mktemp("roads")
    graph = town()
    fitted(saved(folder / "roads.npz", graph), folder / "run", **ON_A_GRAPH)
    return graph, folder / "roads.npz", folder / "run"


def published(store):
    opened = open_run(store)
    return {name: opened.embedding(name).tobytes() for name in PUBLISHED}


def distances_of(opened):
    """Distances (n, m) of the user's nodes to the landmarks as the run has them, in the user's units."""
    node_at = np.concatenate(list(opened.parts("graph", "rows")))
    found = np.empty((len(node_at), len(opened.landmark_rows)))
    found[node_at] = np.concatenate(list(opened.parts("rows", "rows")), axis=1)
    return found * opened.unit


def test_path_lengths_are_those_of_scipy(roads):
    graph, _, store = roads
    opened = open_run(store)
    expected = dijkstra(graph, indices=opened.landmark_rows).T
    np.testing.assert_allclose(distances_of(opened), expected, rtol=1e-6, atol=1e-6 * expected.max())


def test_results_are_in_the_order_of_the_nodes(roads):
    graph, _, store = roads
    opened = open_run(store)
    shortest = np.minimum.reduceat(graph.data, graph.indptr[:-1])
    np.testing.assert_allclose(opened.embedding("nearest"), shortest, rtol=1e-12)
    squared = dijkstra(graph, indices=opened.landmark_rows).T ** 2
    expected = project(opened.model, squared / opened.unit**2) * opened.unit
    np.testing.assert_allclose(opened.embedding(), expected, atol=1e-4 * np.abs(expected).max())
    assert not opened.embedding("component").any()


def test_there_is_no_trustworthiness_without_points(roads):
    quality = open_run(roads[2]).quality
    assert quality["trustworthiness"] is quality["continuity"] is None
    assert "recall" not in quality
    assert quality["residual_variance"][1] < 0.05


def test_the_size_of_partitions_changes_nothing(roads, tmp_path):
    _, file, store = roads
    fitted(file, tmp_path / "run", **ON_A_GRAPH, partition_mib=64)
    assert published(tmp_path / "run") == published(store)
    groups = [len(list(open_run(path).parts("graph", "rows"))) for path in (store, tmp_path / "run")]
    assert groups == [2, 1]


@pytest.mark.cluster
def test_workers_give_the_bytes_of_the_serial_run(roads, tmp_path):
    _, file, store = roads
    given = {**ON_A_GRAPH, "partition_mib": 1, "source": str(file), "store": str(tmp_path / "run")}
    with executor(ClusterSettings(kind="local", n_workers=2)) as execute:
        fit(fit_settings(given), execute=execute)
    assert published(tmp_path / "run") == published(store)


def test_a_graph_whose_file_was_only_touched_is_read_and_nothing_else(roads, tmp_path):
    copy = tmp_path / "copy.npz"
    copy.write_bytes(roads[1].read_bytes())
    fitted(copy, tmp_path / "run", **ON_A_GRAPH)
    os.utime(copy, (1, 1))
    assert fitted(copy, tmp_path / "run", **ON_A_GRAPH).stages == ["validate"]


@pytest.mark.parametrize("selection", ["random", "maxmin"])
def test_a_neighbor_graph_from_outside_gives_the_embedding_of_the_ordinary_run(tmp_path, selection):
    points = np.random.default_rng(3).random((700, 3)) * [4.0, 2.0, 0.1]
    np.save(tmp_path / "x.npy", points)
    distances, indices = neighbors_within(points, 8)
    starts = np.repeat(np.arange(700), 8)
    graph = graph_from_edges(700, starts, indices.ravel(), distances.ravel())
    settings = {"n_landmarks": 700 if selection == "maxmin" else 90, "landmark_selection": selection}
    fitted(tmp_path / "x.npy", tmp_path / "points", **settings)
    fitted(saved(tmp_path / "g.npz", graph), tmp_path / "graph", **settings, input="graph")
    expected, found = (open_run(tmp_path / name).embedding() for name in ("points", "graph"))
    turned = found * np.sign((found * expected).sum(axis=0))
    np.testing.assert_allclose(turned, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_farthest_nodes_are_farthest_along_the_graph():
    graph = town(300)
    lengths = dijkstra(graph)
    candidates = np.arange(0, 300, 2)[::-1]
    paths = PathGraph(graph.indptr.astype(np.int64), graph.indices.astype(np.int32), graph.data)
    chosen = candidates[farthest_nodes(paths, candidates, 5, 30)]
    assert chosen[0] == candidates[5]
    for i in range(1, 30):
        nearest = lengths[chosen[:i]][:, candidates].min(axis=0)
        assert nearest[candidates == chosen[i]] == pytest.approx(nearest.max(), rel=1e-12)


def test_farthest_nodes_are_different_even_at_no_distance():
    graph = graph_from_edges(4, np.array([0, 1, 2]), np.array([1, 2, 3]), np.zeros(3))
    paths = PathGraph(graph.indptr.astype(np.int64), graph.indices.astype(np.int32), graph.data)
    assert sorted(farthest_nodes(paths, np.arange(4), 2, 4)) == [0, 1, 2, 3]


@pytest.mark.parametrize("scale", [2.0**100, 2.0**-100])
def test_long_and_short_edges_give_the_same_picture(tmp_path, scale):
    graph = town(300)
    fitted(saved(tmp_path / "g.npz", graph), tmp_path / "run", **ON_A_GRAPH)
    fitted(saved(tmp_path / "scaled.npz", graph * scale), tmp_path / "scaled", **ON_A_GRAPH)
    ordinary, scaled = (open_run(tmp_path / name).embedding() for name in ("run", "scaled"))
    np.testing.assert_array_equal(scaled, ordinary * scale)


def in_pieces():
    """Towns of 300 and 40 nodes and a node by itself, numbered in turn."""
    large, small = town(300), town(40, seed=1)
    edges = [large.tocoo(), small.tocoo()]
    starts = np.concatenate([edges[0].row, edges[1].row + 300])
    ends = np.concatenate([edges[0].col, edges[1].col + 300])
    number = np.random.default_rng(0).permutation(341)
    graph = graph_from_edges(341, number[starts], number[ends], np.concatenate([edge.data for edge in edges]))
    return graph, number[:300], number[300:340], number[340]


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """A graph in three components, and a run on its largest."""
    folder = tmp_path_factory.mktemp("pieces")
    graph, large, small, alone = in_pieces()
    with pytest.warns(ComponentWarning, match=r"rows: 300, 40, 1\); only the largest .* other 41 rows become NaN\.$"):
        fitted(saved(folder / "g.npz", graph), folder / "run", **ON_A_GRAPH, component_policy="largest")
    return graph, (large, small, alone), folder


@pytest.mark.parametrize("policy", [{}, {"component_policy": "bridge"}, {"component_policy": "error"}], ids=str)
def test_a_graph_in_pieces_is_refused_with_what_to_do(pieces, tmp_path, policy):
    with pytest.raises(DisconnectedGraphError, match=r"3 components, of sizes 300, 40, 1; .*Add the edges.*'largest'"):
        fitted(pieces[2] / "g.npz", tmp_path / "run", **ON_A_GRAPH, **policy)


def test_only_the_largest_piece_is_embedded_if_that_is_wanted(pieces):
    _, (large, small, alone), folder = pieces
    opened = open_run(folder / "run")
    component = opened.embedding("component")
    assert (set(component[large]), set(component[small]), component[alone]) == ({0}, {1}, 2)
    for name in ("projection", "nearest"):
        values = opened.embedding(name)
        assert np.isfinite(values[large]).all()
        assert np.isnan(np.delete(values, large, axis=0)).all()


@pytest.mark.parametrize("policy", ["error", "bridge", "largest"])
def test_of_a_graph_in_one_piece_the_policy_says_nothing(roads, tmp_path, policy):
    store = shutil.copytree(roads[2], tmp_path / "run")
    assert fitted(roads[1], store, **ON_A_GRAPH, component_policy=policy).stages == []
    assert published(store) == published(roads[2])


def test_edges_of_no_length_are_edges_and_a_graph_of_nothing_else_is_refused(tmp_path):
    graph = town(200)
    edges = graph.tocoo()
    joined = graph_from_edges(201, np.append(edges.row, 7), np.append(edges.col, 200), np.append(edges.data, 0.0))
    fitted(saved(tmp_path / "g.npz", joined), tmp_path / "run", **ON_A_GRAPH)
    coordinates = open_run(tmp_path / "run").embedding()
    np.testing.assert_array_equal(coordinates[200], coordinates[7])
    graph.data[:] = 0
    with pytest.raises(InvalidInputError, match=r"all edges of .* have length 0"):
        fitted(saved(tmp_path / "nothing.npz", graph), tmp_path / "other", **ON_A_GRAPH)


def new_nodes(n_new, n_nodes, rng):
    """Edges of new nodes: three each, to nodes anywhere."""
    rows, targets = np.repeat(np.arange(n_new), 3), rng.integers(0, n_nodes, 3 * n_new)
    return coo_array((0.1 + rng.random(3 * n_new), (rows, targets)), shape=(n_new, n_nodes))


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_new_nodes_are_placed_over_their_edges(roads, tmp_path, rng, form):
    graph, _, store = roads
    edges = new_nodes(50, N_NODES, rng)
    save_npz(tmp_path / "new.npz", edges.asformat(form))
    extended(store, tmp_path / "new.npz", tmp_path / "out")
    opened = open_run(store)
    paths = dijkstra(graph, indices=opened.landmark_rows).T
    ways = np.full((50, paths.shape[1]), np.inf)
    for row, node, length in zip(edges.row, edges.col, edges.data, strict=True):
        ways[row] = np.minimum(ways[row], length + paths[node])
    expected = project(opened.model, (ways / opened.unit) ** 2) * opened.unit
    placed = open_run(tmp_path / "out")
    np.testing.assert_allclose(placed.embedding(), expected, rtol=0, atol=1e-4 * np.abs(expected).max())
    np.testing.assert_allclose(placed.embedding("nearest"), [edges.data[edges.row == row].min() for row in range(50)])


def test_a_new_node_at_no_distance_from_a_fitted_one_is_that_one(roads, tmp_path):
    _, _, store = roads
    same = csr_array((np.zeros(3), ([0, 1, 2], [11, 4000, 0])), shape=(3, N_NODES))
    extended(store, saved(tmp_path / "new.npz", same), tmp_path / "out")
    found, fitted_ones = (open_run(path).embedding() for path in (tmp_path / "out", store))
    np.testing.assert_array_equal(found, fitted_ones[[11, 4000, 0]])


def test_nodes_like_the_fitted_ones_do_not_drift(roads, tmp_path):
    """Every fitted node as if it were new, over its own edges."""
    graph, _, store = roads
    done = extended(store, saved(tmp_path / "same.npz", graph), tmp_path / "out")
    assert not done.drift["drifts"]
    far = csr_array((np.full(200, 50.0), (np.arange(200), np.arange(200))), shape=(200, N_NODES))
    assert extended(store, saved(tmp_path / "far.npz", far), tmp_path / "far").drift["drifts"]


def test_new_nodes_beside_pieces_that_were_dropped_are_not_embedded(pieces, tmp_path):
    _, (large, small, _), folder = pieces
    rows = [0, 0, 1]
    edges = csr_array((np.array([0.1, 5.0, 0.1]), (rows, [small[0], large[0], small[1]])), shape=(3, 341))
    source = saved(tmp_path / "new.npz", edges)
    with pytest.raises(InvalidInputError, match=r"has 1 new nodes without an edge, first in rows 2; .*missing='drop'"):
        extended(folder / "run", source, tmp_path / "out")
    extended(folder / "run", source, tmp_path / "out", missing="drop")
    placed = open_run(tmp_path / "out")
    assert placed.embedding("component").tolist() == [0, 1, -1]
    assert np.isfinite(placed.embedding()).all(axis=1).tolist() == [True, False, False]
    assert placed.embedding("nearest")[0] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        (csr_array(np.ones((2, 5))), r"shape \(2, 5\); it must have .* a column for each of the 4300 nodes"),
        (csr_array(([-1.0], ([0], [3])), shape=(1, N_NODES)), "1 lengths that are negative, NaN or infinite"),
    ],
)
def test_edges_that_cannot_be_are_refused(roads, tmp_path, edges, message):
    with pytest.raises(InvalidInputError, match=message):
        extended(roads[2], saved(tmp_path / "new.npz", edges), tmp_path / "out")


def test_a_model_is_refused(roads, tmp_path):
    with pytest.raises(InvalidInputError, match="was fitted by a radius or on a graph"):
        export_model(str(roads[2]), str(tmp_path / "model"))


def test_a_refit_is_refused_with_what_to_do(roads, tmp_path):
    source = saved(tmp_path / "new.npz", csr_array(([1.0], ([0], [3])), shape=(1, N_NODES)))
    settings = job_settings(RefitSettings, {"store": str(roads[2]), "new": [str(source)]})
    with pytest.raises(InvalidInputError, match=r"was fitted with input='graph'.*fit old and new data together"):
        refit(settings)


def test_the_commands_take_a_graph(trigpoint, roads, tmp_path):
    options = ("--input", "graph", "--n-landmarks", 40, "--cluster-kind", "serial")
    code, out, err = trigpoint("plan", roads[1], "--store", tmp_path / "run", *options)
    assert (code, err) == (0, "")
    stages = [
        "validate",
        "graph",
        "shortcuts",
        "components",
        "landmarks",
        "rows",
        "model",
        "embed",
        "calibrate",
        "pairs",
        "evaluate",
    ]
    assert [line.split()[0] for line in out.splitlines()[2:-1]] == [*stages, "publish"]
    code, out, err = trigpoint("fit", roads[1], "--store", tmp_path / "run", *options)
    assert (code, err) == (0, "")
    assert "4,300 of 4,300 rows embedded." in out
    assert "rustworthiness" not in out
    code, out, _ = trigpoint("status", tmp_path / "run", "--json")
    assert [stage["stage"] for stage in json.loads(out)["stages"]] == [*stages, "publish"]
    trigpoint("export", tmp_path / "run", "--array", "projection", "--output", tmp_path / "y.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), open_run(roads[2]).embedding())
