"""Graphs of the user's own: every way in which edges are listed gives the same undirected graph, or is refused."""

import json
import os
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.csgraph import dijkstra

from pipeline.errors import InvalidInputError
from pipeline.numerics.geodesics.rows import shortest_path_rows
from pipeline.sources.graphs import digest_of_graph, open_graph

# Node 5 has no edge, and the edge between 0 and 3 no length.
LENGTHS = {(0, 1): 1.5, (1, 2): 0.25, (0, 3): 0.0, (3, 4): 2.0, (1, 4): 7.0}
N_NODES = 6


def listed(lengths=None):
    lengths = LENGTHS if lengths is None else lengths
    edges = np.array(list(lengths)).reshape(-1, 2)
    return edges, np.array(list(lengths.values()), dtype=float)


def as_lengths(graph):
    """The edges of a CSR graph by their ends, stored zeros too."""
    starts = np.repeat(np.arange(graph.shape[0]), np.diff(graph.indptr))
    return dict(zip(zip(starts.tolist(), graph.indices.tolist(), strict=True), graph.data.tolist(), strict=True))


def both_ways(lengths):
    return lengths | {(end, start): length for (start, end), length in lengths.items()}


def check_graph(source, lengths=LENGTHS, n_nodes=N_NODES):
    for reader in (source, pickle.loads(pickle.dumps(source))):
        graph = reader.load()
        assert as_lengths(graph) == both_ways(lengths)
        assert graph.nnz == 2 * len(lengths)
        assert (graph.shape, graph.dtype, reader.n_nodes) == ((n_nodes, n_nodes), np.float64, n_nodes)


def saved(path, **arrays):
    np.savez(path / "g.npz", **arrays)
    return open_graph(path / "g.npz")


def sparse(matrix_type, symmetric):
    edges, lengths = listed(both_ways(LENGTHS) if symmetric else LENGTHS)
    return matrix_type(sp.coo_array((lengths, edges.T), shape=(N_NODES, N_NODES)))


@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
@pytest.mark.parametrize("suffix", ["array", "matrix"])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("compressed", [True, False])
def test_what_scipy_saves_is_read(tmp_path, kind, suffix, symmetric, compressed):
    matrix = sparse(getattr(sp, f"{kind}_{suffix}"), symmetric)
    sp.save_npz(tmp_path / "g.npz", matrix, compressed=compressed)
    source = open_graph(str(tmp_path / "g.npz"))
    check_graph(source)
    assert source.n_edges == matrix.nnz


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("dtype", [np.int32, np.uint8, ">i8", np.uint64])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("weights_name", ["w", "weights"])
def test_pairs_are_read(tmp_path, save, dtype, order, weights_name):
    edges, lengths = listed()
    edges = np.array(edges, dtype, order=order)
    save(tmp_path / "g.npz", xy=np.zeros((N_NODES, 2)), edges=edges, **{weights_name: lengths.astype(np.float32)})
    source = open_graph(tmp_path / "g.npz")
    check_graph(source)
    assert source.n_edges == len(LENGTHS)


@pytest.mark.parametrize(
    ("notes", "n_nodes"),
    [
        ({}, 5),
        ({"n_nodes": np.array(9)}, 9),
        ({"shape": np.array([8, 8]), "xy": np.zeros((7, 2))}, 8),
        ({"xy": np.zeros((7, 2), order="F")}, 7),
        ({"labels": np.array(["a"] * 6)}, 6),
        ({"colors": np.zeros(3)}, 5),
    ],
)
def test_the_number_of_nodes_is_noted_or_that_of_the_highest(tmp_path, notes, n_nodes):
    edges, lengths = listed()
    check_graph(saved(tmp_path, edges=edges, w=lengths, **notes), n_nodes=n_nodes)


def test_edges_without_weights_have_length_1(tmp_path):
    edges, _ = listed()
    source = saved(tmp_path, edges=edges)
    check_graph(source, dict.fromkeys(LENGTHS, 1.0), 5)
    np.savez(tmp_path / "g.npz", **{"format": b"coo"}, row=edges[:, 0], col=edges[:, 1], data=np.ones(5, bool))
    check_graph(open_graph(tmp_path / "g.npz"), dict.fromkeys(LENGTHS, 1.0), 5)


def test_edges_go_by_the_name_in_key(tmp_path):
    edges, lengths = listed()
    np.savez(tmp_path / "g.npz", roads=edges, edges=edges[:1], w=lengths, xy=np.zeros((6, 2)))
    check_graph(open_graph(tmp_path / "g.npz", "roads"))
    with pytest.raises(InvalidInputError, match=r"key='road' is not in .*; it holds 'roads', 'edges', 'w', 'xy'"):
        open_graph(tmp_path / "g.npz", "road")


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("note", ["none", "attribute", "array"])
@pytest.mark.parametrize("deep", [True, False])
def test_a_zarr_group_of_compressed_rows_is_read(tmp_path, zarr_format, note, deep):
    matrix = sparse(sp.csr_array, True)
    group = zarr.create_group(tmp_path / "g", zarr_format=zarr_format)
    inner = group.create_group("graphs/first") if deep else group
    for name in ("indptr", "indices", "data"):
        inner.create_array(name, data=getattr(matrix, name), chunks=(3,))
    if note == "attribute":
        inner.attrs["shape"] = list(matrix.shape)
    if note == "array":
        inner.create_array("shape", data=np.array(matrix.shape))
    check_graph(open_graph(tmp_path / "g", "graphs/first" if deep else None))


def test_a_zarr_group_of_pairs_is_read(tmp_path):
    edges, lengths = listed()
    group = zarr.create_group(tmp_path / "g")
    group.create_array("edges", data=edges, chunks=(2, 1))
    group.create_array("w", data=lengths)
    group.attrs["n_nodes"] = N_NODES
    check_graph(open_graph(tmp_path / "g"))
    check_graph(open_graph(tmp_path / "g", "edges"))
    del group.attrs["n_nodes"]
    group.create_array("n_nodes", data=np.array(7))
    check_graph(open_graph(tmp_path / "g"), n_nodes=7)
    group.attrs["n_nodes"] = "many"
    with pytest.raises(InvalidInputError, match=r"n_nodes of .* is many; it must be the number of nodes"):
        open_graph(tmp_path / "g")


ENTRIES = st.lists(
    st.tuples(st.integers(0, 8), st.integers(0, 8), st.sampled_from([0.0, 0.5, 1.0, 3.0])), min_size=1, max_size=40
)


@given(entries=ENTRIES, layout=st.sampled_from(["pairs", "coordinates", "compressed"]), seed=st.integers(0, 9))
def test_loops_repetitions_and_directions(tmp_path_factory, entries, layout, seed):
    # Each pair of nodes in one direction only, or in both with the same lengths.
    one_way = [(min(a, b), max(a, b), w) for a, b, w in entries]
    both = [(b, a, w) for a, b, w in one_way if (a + b) % 2]
    rows = np.array(one_way + both)[np.random.default_rng(seed).permutation(len(one_way + both))]
    expected = {}
    for a, b, w in one_way:
        if a != b:
            expected[a, b] = min(w, expected.get((a, b), np.inf))
    edges, weights = rows[:, :2].astype(np.int32), rows[:, 2]
    arrays = {"edges": edges, "w": weights, "n_nodes": np.array(9)}
    if layout == "coordinates":
        arrays = {"row": edges[:, 0], "col": edges[:, 1], "data": weights, "shape": np.array([9, 9])}
    if layout == "compressed":
        order = np.argsort(edges[:, 0], kind="stable")
        indptr = np.concatenate([[0], np.cumsum(np.bincount(edges[:, 0], minlength=9))])
        arrays = {"indptr": indptr, "indices": edges[order, 1], "data": weights[order]}
    source = saved(tmp_path_factory.mktemp("any"), **arrays)
    if expected:
        check_graph(source, expected, 9)
    else:
        with pytest.raises(InvalidInputError, match="has no edges between different nodes"):
            source.load()


def test_directions_that_differ_by_rounding_get_the_smaller_length(tmp_path):
    lengths = {(0, 1): 1.0, (1, 0): 1 + 4e-6, (1, 2): 3.0, (2, 1): 3 - 9e-6}
    edges, weights = listed(lengths)
    check_graph(saved(tmp_path, edges=edges, w=weights), {(0, 1): 1.0, (1, 2): 3 - 9e-6}, 3)


def test_directions_that_differ_by_more_are_refused_with_the_largest_difference(tmp_path):
    edges, weights = listed({(0, 1): 1.0, (1, 0): 1.5, (2, 1): 3.0, (1, 2): 5.0, (2, 3): 9.0})
    message = (
        r"g\.npz is not symmetric: 5 from node 1 to 2 against 3 from 2 to 1, the largest difference \(2\) of 2 edges; "
        "an undirected graph is needed"
    )
    with pytest.raises(InvalidInputError, match=message):
        saved(tmp_path, edges=edges, w=weights).load()


def test_of_two_parallel_edges_the_shorter_counts_against_the_other_direction(tmp_path):
    edges = np.array([[0, 1], [0, 1], [1, 0]])
    check_graph(saved(tmp_path, edges=edges, w=np.array([9.0, 2.0, 2.0])), {(0, 1): 2.0}, 2)
    with pytest.raises(InvalidInputError, match="2 from node 0 to 1 against 9 from 1 to 0"):
        saved(tmp_path, edges=edges, w=np.array([9.0, 2.0, 9.0])).load()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, -0.5])
def test_weights_that_are_no_lengths_are_counted_and_placed(tmp_path, bad):
    edges, weights = listed()
    weights[[1, 3]] = bad
    with pytest.raises(InvalidInputError, match=rf"has 2 weights .* first {bad:g} from node 1 to 2 \(entry 1\)"):
        saved(tmp_path, edges=edges, w=weights).load()


EDGES, WEIGHTS = listed()
SPARSE = {"indptr": np.array([0, 1, 2]), "indices": np.array([1, 0]), "data": np.ones(2)}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.ones(3)}, "holds 'x', which is no graph; use what scipy"),
        ({"edges": EDGES.T}, r"edges\] has shape \(2, 5\); edges must have shape \(e, 2\)"),
        ({"edges": EDGES[:, 0]}, r"has shape \(5,\); edges must have shape"),
        ({"edges": EDGES.astype(float)}, "has dtype float64; it must hold whole numbers"),
        ({"edges": EDGES, "w": WEIGHTS[:3]}, r"\[w\] has 3 entries and the list of edges of .* has 5"),
        ({"edges": EDGES, "w": WEIGHTS[:, None]}, r"\[w\] has shape \(5, 1\); it must have 1 dimension"),
        ({"edges": EDGES, "w": WEIGHTS, "weights": WEIGHTS}, "holds both w and weights"),
        ({"edges": EDGES, "w": WEIGHTS + 0j}, "has dtype complex128; it must hold real numbers"),
        ({"edges": EDGES, "w": WEIGHTS > 0}, "has 1 entries False, the first in place 2"),
        ({"edges": EDGES + 1, "xy": np.ones((5, 2))}, r"\[edges\] has 5 in place 3; nodes are numbered from 0 to 4"),
        ({"edges": EDGES - 1}, r"\[edges\] has -1 in place 0; nodes are numbered from 0"),
        (
            {"edges": EDGES, "n_nodes": np.array([2, 3, 4])},
            r"n_nodes of .* is \[2, 3, 4\]; it must be the number of nodes",
        ),
        ({"edges": EDGES[:0]}, "has 0 nodes; there must be from 1"),
        ({"edges": EDGES[:0], "xy": np.ones((5, 2))}, "has no edges between different nodes"),
        ({"edges": EDGES * 0}, "has no edges between different nodes"),
        ({"edges": EDGES + 2**40}, "has 1099511627781 nodes; there must be from 1 to 3037000499"),
        ({**SPARSE, "shape": np.array([2, 3])}, r"shape of .* is \[2, 3\]; .* the shape of a square matrix"),
        ({**SPARSE, "shape": np.array([3, 3])}, "notes 3 nodes, but its indptr is for 2"),
        ({**SPARSE, "indices": np.array([1, 2])}, r"\[indices\] has 2 in place 1; nodes are numbered from 0 to 1"),
        ({**SPARSE, "indptr": np.array([0, 2, 1])}, r"\[indptr\] is damaged: it must rise from 0 to 2"),
        ({**SPARSE, "indptr": np.array([0, 3, 2], np.uint8)}, r"\[indptr\] is damaged: it must rise from 0 to 2"),
        ({**SPARSE, "data": np.ones(3)}, r"\[data\] has 3 entries"),
        ({**SPARSE, "format": np.array(b"bsr")}, "is a sparse matrix in format 'bsr'; csr, csc, coo are read"),
        ({"row": np.zeros(2, int), "col": np.ones(3, int)}, r"\[col\] has 3 entries and .*\[row\] has 2"),
    ],
)
def test_what_is_no_graph_is_refused(tmp_path, arrays, message):
    with pytest.raises(InvalidInputError, match=message):
        saved(tmp_path, **arrays).load()


def test_objects_are_never_loaded(tmp_path):
    with pytest.raises(InvalidInputError, match=r"edges\] has dtype object; it must hold whole numbers"):
        saved(tmp_path, edges=np.full((3, 2), {}, object))
    with pytest.raises(InvalidInputError, match=r"w\] has dtype object; it must hold real numbers"):
        saved(tmp_path, edges=EDGES, w=np.full(5, {}, object))
    for name in ("n_nodes", "shape"):
        with pytest.raises(InvalidInputError, match=rf"{name}\] has dtype object; it must hold whole numbers"):
            saved(tmp_path, edges=EDGES, **{name: np.full(1, {}, object)})


def test_a_single_array_is_no_graph(tmp_path):
    np.save(tmp_path / "g.npy", EDGES)
    zarr.create_array(tmp_path / "g.zarr", data=EDGES)
    for name in ("g.npy", "g.zarr"):
        with pytest.raises(InvalidInputError, match=r"holds no graph; use what scipy\.sparse\.save_npz writes"):
            open_graph(tmp_path / name)


def test_a_graph_with_its_nodes_noted_is_opened_without_reading_it(tmp_path, monkeypatch):
    np.savez(tmp_path / "g.npz", edges=EDGES, w=WEIGHTS, xy=np.ones((6, 2)))
    monkeypatch.setattr("pipeline.sources.numpy_files.NumpyMatrix.pick", None)
    source = open_graph(tmp_path / "g.npz")
    assert (source.n_nodes, source.n_edges) == (6, 5)


def test_many_pairs_are_not_read_one_by_one(tmp_path, rng, monkeypatch):
    edges = rng.integers(0, 1000, size=(50_000, 2))
    source = saved(tmp_path, edges=edges, n_nodes=np.array(1000))
    spans = []
    read_each = type(source._layout._edges._data).read_each
    recorded = lambda self, wanted: read_each(self, (spans.append(span) or span for span in wanted))  # noqa: E731
    monkeypatch.setattr("pipeline.sources.numpy_files.FileRange.read_each", recorded)
    graph = source.load()
    assert len(spans) == 1
    assert graph.nnz == 2 * len(np.unique(np.sort(edges[edges[:, 0] != edges[:, 1]], axis=1), axis=0))


def test_shortest_paths_run_over_it(tmp_path, rng):
    edges = np.concatenate([np.arange(99)[:, None] + [0, 1], rng.integers(0, 100, size=(100, 2))])
    edges = np.sort(edges[edges[:, 0] != edges[:, 1]], axis=1)
    weights = rng.uniform(1, 2, size=len(edges))
    graph = saved(tmp_path, edges=edges, w=weights).load()
    dense = np.full((100, 100), np.inf)
    np.minimum.at(dense, tuple(edges.T), weights)
    expected = dijkstra(sp.csr_array(np.where(np.isinf(dense), 0, dense)), directed=False, indices=[3, 50])
    np.testing.assert_allclose(shortest_path_rows(graph, np.array([3, 50])), expected, rtol=1e-12)


def test_the_fingerprint_and_the_digest(tmp_path):
    source = saved(tmp_path, edges=EDGES, w=WEIGHTS, xy=np.ones((6, 2)))
    before, digest = source.fingerprint(), digest_of_graph(source.load())
    json.dumps(before)
    assert pickle.loads(pickle.dumps(source)).fingerprint() == before
    assert len(pickle.dumps(source)) < 3000
    os.utime(tmp_path / "g.npz", ns=(1, 1))
    assert source.fingerprint() != before
    with pytest.raises(InvalidInputError, match="has changed since it was opened"):
        source.load()
    shuffled = saved(tmp_path, edges=EDGES[::-1, ::-1], w=WEIGHTS[::-1], xy=np.ones((6, 2)))
    assert digest_of_graph(shuffled.load()) == digest
    assert digest_of_graph(saved(tmp_path, edges=EDGES, w=WEIGHTS, xy=np.ones((7, 2))).load()) != digest
    assert digest_of_graph(saved(tmp_path, edges=EDGES, w=WEIGHTS * 2, xy=np.ones((6, 2))).load()) != digest
