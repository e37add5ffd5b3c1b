"""The graph: every edge in both directions, zero lengths among them, and duplicates collapsed without loss.

Components: numbered by size, refused, reduced or joined by a minimum spanning tree.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy.sparse import coo_array, csc_array, csr_array, csr_matrix, dok_array
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree
from scipy.spatial.distance import cdist

from pipeline.errors import DisconnectedGraphError, InvalidInputError
from pipeline.numerics.geodesics import bridges
from pipeline.numerics.geodesics.components import POLICIES, apply_component_policy
from pipeline.numerics.geodesics.graph import (
    UnionFind,
    checked_graph,
    collapse_duplicates,
    component_labels,
    graph_from_edges,
    neighbor_graph,
    symmetric_csr,
    with_edges,
)
from pipeline.numerics.geodesics.rows import shortest_path_rows
from pipeline.numerics.neighbors.exact import neighbors_within

INTEGERS = np.array([], dtype=np.int64)


def edges_of(graph):
    """Every stored entry, zeros too, with its place."""
    coo = graph.tocoo()
    places = list(zip(coo.row.tolist(), coo.col.tolist(), strict=True))
    assert len(set(places)) == graph.nnz
    return dict(zip(places, coo.data.tolist(), strict=True))


def shortest_of(edges):
    """Both directions of each (start, end, weight), the least weight of those given for a place."""
    shortest = {}
    for i, j, w in edges:
        for place in ((i, j), (j, i)):
            shortest[place] = min(w, shortest.get(place, np.inf))
    return shortest


def columns(edges):
    starts, ends, weights = zip(*edges, strict=True)
    return np.array(starts), np.array(ends), np.array(weights)


node = st.integers(0, 7)
edge_lists = st.lists(st.tuples(node, node, st.sampled_from([0.0, 1e-300, 0.5, 1.0, 1e300])), min_size=1, max_size=40)


@given(edge_lists)
def test_edges_go_both_ways_and_the_shortest_of_several_is_kept(edges):
    graph = graph_from_edges(8, *columns(edges))
    assert edges_of(graph) == shortest_of(edges)
    assert graph.has_canonical_format
    assert graph.shape == (8, 8)


@given(edge_lists, edge_lists)
def test_more_edges_are_as_good_as_edges_from_the_start(edges, more):
    grown = with_edges(graph_from_edges(8, *columns(edges)), *columns(more))
    assert edges_of(grown) == shortest_of(edges + more)


@pytest.mark.parametrize("points", ["random", "lattice", "duplicates"])
def test_neighbor_graph_has_an_edge_where_either_end_lists_the_other(rng, points):
    data = {
        "random": rng.normal(size=(60, 3)),
        "lattice": np.stack(np.meshgrid(np.arange(8.0), np.arange(8.0)), axis=-1).reshape(-1, 2),
        "duplicates": rng.integers(0, 3, size=(60, 2)).astype(float),
    }[points]
    distances, indices = neighbors_within(data, 4)
    listed = [
        (i, int(j), float(w))
        for i, (row, lengths) in enumerate(zip(indices, distances, strict=True))
        for j, w in zip(row, lengths, strict=True)
    ]
    graph = neighbor_graph(distances, indices)
    assert edges_of(graph) == shortest_of(listed)
    assert edges_of(graph) == edges_of(graph.T)


def test_zero_lengths_are_stored_and_walked_over():
    graph = graph_from_edges(4, np.array([0, 1, 2]), np.array([1, 2, 3]), np.array([0.0, 0.0, 5.0]))
    assert graph.nnz == 6
    assert connected_components(graph)[0] == 1
    np.testing.assert_array_equal(shortest_path_rows(graph, [0, 3]), [[0, 0, 0, 5], [5, 5, 5, 0]])
    grown = with_edges(graph, np.array([0]), np.array([3]), np.array([0.0]))
    assert grown.nnz == 8
    np.testing.assert_array_equal(shortest_path_rows(grown, [2]), [[0, 0, 0, 0]])


def test_neighbors_at_distance_zero_are_reachable():
    """Groups of equal points as large as the graph's degree hang together by zero lengths alone."""
    distances, indices = neighbors_within(np.repeat(np.eye(3), 3, axis=0), 2)
    graph = neighbor_graph(distances, indices)
    assert graph.nnz == 18
    rows = shortest_path_rows(graph, np.arange(9))
    np.testing.assert_array_equal(rows == 0, np.kron(np.eye(3), np.ones((3, 3))) == 1)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_offsets_are_wide_enough_for_any_number_of_edges(dtype):
    graph = graph_from_edges(3, np.array([0], dtype=dtype), np.array([2], dtype=dtype), np.array([1.0]))
    assert graph.indptr.dtype == np.int64
    np.testing.assert_array_equal(graph.indptr, [0, 1, 1, 2])


def test_weights_keep_their_dtype():
    graph = graph_from_edges(2, np.array([0]), np.array([1]), np.array([0.1], dtype=np.float32))
    assert graph.dtype == np.float32


def test_no_edges_leave_every_node_alone():
    graph = graph_from_edges(5, INTEGERS, INTEGERS, np.array([]))
    assert graph.nnz == 0
    assert connected_components(graph)[0] == 5
    np.testing.assert_array_equal(graph.indptr, np.zeros(6))


@pytest.mark.parametrize("bad", [-1.0, -1e-300, np.nan, np.inf, -np.inf])
def test_lengths_without_shortest_paths_are_refused(bad):
    weights = np.array([1.0, bad])
    with pytest.raises(InvalidInputError, match=f"weights has 1 weights that are negative, NaN or .*{bad:g};"):
        graph_from_edges(3, np.array([0, 1]), np.array([1, 2]), weights)
    matrix = csr_array((weights, (np.array([0, 1]), np.array([1, 0]))), shape=(2, 2))
    with pytest.raises(InvalidInputError, match=f"graph has 1 weights that are negative, NaN or .*{bad:g};"):
        checked_graph(matrix)


@pytest.mark.parametrize(
    ("starts", "ends", "message"),
    [
        ([0, 3], [1, 2], r"starts has 3; row numbers run from 0 to 2"),
        ([0, 1], [-1, 2], r"ends has -1; row numbers run from 0 to 2"),
        ([0.0, 1.0], [1, 2], r"starts has shape \(2,\) and dtype float64"),
    ],
)
def test_ends_that_are_no_nodes_are_refused(starts, ends, message):
    with pytest.raises(InvalidInputError, match=message):
        graph_from_edges(3, np.array(starts), np.array(ends), np.ones(2))


@pytest.mark.parametrize("form", [csr_array, csr_matrix, coo_array, csc_array])
def test_any_sparse_format_is_a_graph_and_keeps_its_zeros(form):
    graph = checked_graph(form(coo_array(([0.0, 2.0], ([0, 1], [1, 0])), shape=(2, 2))))
    assert isinstance(graph, csr_array)
    assert edges_of(graph) == {(0, 1): 0.0, (1, 0): 2.0}


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (np.ones((2, 2)), r"graph is a ndarray; it must be a scipy\.sparse matrix"),
        ([[0, 1], [1, 0]], r"graph is a list"),
        (csr_array((2, 3)), r"graph has shape \(2, 3\); it must be square"),
        (coo_array(np.ones(3)), r"graph has shape \(3,\); it must be square"),
        (csr_array(np.eye(2) * 1j), r"graph has weights of dtype complex128"),
        (csr_array(np.eye(2, dtype=bool)), r"graph has weights of dtype bool"),
        (dok_array(-np.eye(2)), r"graph has 2 weights that are negative"),
    ],
)
def test_what_is_no_graph_is_refused(graph, message):
    with pytest.raises(InvalidInputError, match=message):
        checked_graph(graph)


few_values = st.sampled_from([-0.0, 0.0, 1.0, -1.5])


@given(
    st.sampled_from([np.float64, np.float32, np.int64]).flatmap(
        lambda dtype: arrays(
            dtype,
            array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=12),
            elements=few_values if dtype != np.int64 else st.integers(0, 1),
        )
    )
)
def test_collapsing_loses_nothing_and_leaves_no_two_equal(points):
    first_rows, node_of, counts = collapse_duplicates(points)
    np.testing.assert_array_equal(points[first_rows][node_of], points)
    assert len({tuple(row) for row in points.tolist()}) == len(first_rows)
    assert (np.diff(first_rows) > 0).all()
    np.testing.assert_array_equal(node_of[first_rows], np.arange(len(first_rows)))
    np.testing.assert_array_equal(first_rows, [np.flatnonzero(node_of == i)[0] for i in range(len(first_rows))])
    np.testing.assert_array_equal(counts, np.bincount(node_of))
    assert counts.sum() == len(points)


def test_zeros_of_either_sign_are_the_same_point():
    collapsed = collapse_duplicates([[1.0, 2.0], [0.0, -0.0], [-0.0, 0.0], [0.0, 0.0]])
    np.testing.assert_array_equal(collapsed.first_rows, [0, 1])
    np.testing.assert_array_equal(collapsed.node_of, [0, 1, 1, 1])
    np.testing.assert_array_equal(collapsed.counts, [1, 3])


def test_numbers_that_differ_in_the_last_bit_are_different_points():
    points = np.array([[1.0], [np.nextafter(1.0, 2.0)], [5e-324], [0.0]])
    assert len(collapse_duplicates(points).first_rows) == 4


def test_groups_far_larger_than_the_number_of_neighbors_become_single_nodes(rng):
    points = np.repeat(rng.normal(size=(12, 3)), 300, axis=0)[rng.permutation(3600)]
    first_rows, node_of, counts = collapse_duplicates(points)
    np.testing.assert_array_equal(counts, np.full(12, 300))
    distances, indices = neighbors_within(points[first_rows], 6)
    assert (distances > 0).all()
    graph = neighbor_graph(distances, indices)
    assert connected_components(graph)[0] == 1
    expanded = shortest_path_rows(graph, node_of[:1])[0][node_of]
    np.testing.assert_array_equal(expanded == 0, (points == points[0]).all(axis=1))


def test_rows_are_read_in_any_memory_order(rng):
    points = rng.integers(0, 2, size=(40, 4)).astype(float)
    for again in (np.asfortranarray(points), np.repeat(points, 2, axis=0)[::2]):
        for found, expected in zip(collapse_duplicates(again), collapse_duplicates(points), strict=True):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([1.0, 2.0], r"points has shape \(2,\)"),
        ([["a", "b"]], r"points has dtype <U1"),
    ],
)
def test_what_is_no_table_of_points_is_refused(points, message):
    with pytest.raises(InvalidInputError, match=message):
        collapse_duplicates(points)


def test_no_points_make_no_nodes():
    assert [len(part) for part in collapse_duplicates(np.empty((0, 3)))] == [0, 0, 0]


@pytest.mark.parametrize(("n_edges", "dtype"), [(40, np.int32), (3000, np.int64)])
def test_a_range_of_nodes_has_the_rows_of_the_whole(rng, n_edges, dtype):
    """With many edges a node has more than a few are sorted one by one."""
    n = 20
    starts, ends = rng.integers(0, n, size=(2, n_edges)).astype(dtype)
    weights = rng.integers(0, 3, size=n_edges).astype(np.float32)
    whole = graph_from_edges(n, starts, ends, weights)
    for first, last in ((0, n), (0, 7), (7, 16), (16, 20), (4, 4)):
        touching = ((starts >= first) & (starts < last)) | ((ends >= first) & (ends < last))
        offsets, targets, lengths = symmetric_csr(first, last, starts[touching], ends[touching], weights[touching])
        rows = slice(whole.indptr[first], whole.indptr[last])
        np.testing.assert_array_equal(offsets, whole.indptr[first : last + 1] - whole.indptr[first])
        np.testing.assert_array_equal(targets, whole.indices[rows])
        np.testing.assert_array_equal(lengths, whole.data[rows])
        assert (targets.dtype, lengths.dtype) == (dtype, np.float32)


def grouped(groups, points=None):
    """A graph that joins the nodes of each group in a chain."""
    groups = np.asarray(groups)
    pairs = [pair for g in np.unique(groups) for pair in zip(*chain(np.flatnonzero(groups == g)), strict=True)]
    starts, ends = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    weights = np.zeros(len(starts)) if points is None else np.linalg.norm(points[starts] - points[ends], axis=1)
    return graph_from_edges(len(groups), starts, ends, weights)


def chain(rows):
    return rows[:-1], rows[1:]


def renumbered(groups):
    """Groups numbered by falling size, then by first row, in plain Python."""
    groups = np.asarray(groups).tolist()
    order = sorted(set(groups), key=lambda g: (-groups.count(g), groups.index(g)))
    return np.array([order.index(g) for g in groups])


def spanning_tree_length(points, labels):
    """Length of the minimum spanning tree of the matrix of distances between components.

    One is added to every entry, since a zero would be no edge; a tree of c - 1 edges is longer by just that.
    """
    n_components = labels.max() + 1
    apart = cdist(points, points)
    between = np.array(
        [[apart[np.ix_(labels == a, labels == b)].min() for b in range(n_components)] for a in range(n_components)]
    )
    return minimum_spanning_tree(between + 1).sum() - (n_components - 1)


def shortest_bridges(points, labels, per_piece=7):
    """Links of points that make more pieces than usual."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bridges, "POINTS_PER_PIECE", per_piece)
        links, exact = bridges.links_in_memory(points, labels)
    assert exact
    return links.ends[:, 0], links.ends[:, 1], links.lengths


def assert_minimum_spanning_tree(points, labels):
    starts, ends, lengths = shortest_bridges(points, labels)
    n_components = labels.max() + 1
    assert len(starts) == len(ends) == len(lengths) == n_components - 1
    assert (labels[starts] != labels[ends]).all()
    tree = graph_from_edges(n_components, labels[starts], labels[ends], np.ones(len(starts)))
    assert connected_components(tree)[0] == 1
    np.testing.assert_allclose(lengths, np.linalg.norm(points[starts] - points[ends], axis=1), rtol=1e-14)
    np.testing.assert_allclose(lengths.sum(), spanning_tree_length(points, labels), rtol=1e-12, atol=1e-12)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=25))
def test_labels_go_by_falling_size_then_first_node(groups):
    labels = component_labels(grouped(groups))
    assert labels.dtype == np.int64
    np.testing.assert_array_equal(labels, renumbered(groups))


@given(st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=14))
def test_labels_are_those_of_a_plain_flood_fill(pairs):
    groups = list(range(12))
    for i, j in pairs:
        groups = [groups[i] if g == groups[j] else g for g in groups]
    starts, ends = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    graph = graph_from_edges(12, starts, ends, np.zeros(len(pairs)))
    np.testing.assert_array_equal(component_labels(graph), renumbered(groups))


@pytest.mark.parametrize("policy", POLICIES)
def test_a_connected_graph_passes_unchanged(rng, policy):
    points = rng.normal(size=(9, 2))
    graph = grouped(np.zeros(9), points)
    result = apply_component_policy(points, graph, policy)
    assert result.graph is graph
    assert result.kept.all()
    assert not result.labels.any()
    assert len(result.links[2]) == 0


def test_largest_keeps_the_largest_and_every_row(rng):
    groups = np.repeat([0, 1, 2], [3, 8, 4])
    points = rng.normal(size=(15, 2))
    graph = grouped(groups, points)
    result = apply_component_policy(points, graph, "largest")
    np.testing.assert_array_equal(result.kept, groups == 1)
    np.testing.assert_array_equal(result.labels, renumbered(groups))
    assert result.graph.shape == graph.shape
    assert (result.graph != graph).nnz == 0
    assert len(result.links[2]) == 0


def test_bridge_joins_everything_and_keeps_the_old_edges(rng):
    groups = rng.integers(0, 4, size=30)
    points = rng.normal(size=(30, 2)) + 10 * groups[:, None]
    graph = grouped(groups, points)
    result = apply_component_policy(points, graph, "bridge")
    assert connected_components(result.graph)[0] == 1
    assert result.kept.all()
    assert len(result.links[2]) == 3
    np.testing.assert_array_equal(result.labels, renumbered(groups))
    assert result.graph.nnz == graph.nnz + 2 * 3
    old = graph.tocoo()
    np.testing.assert_array_equal(result.graph.tocsr()[old.row, old.col], old.data)
    assert result.graph.sum() / 2 == pytest.approx(graph.sum() / 2 + spanning_tree_length(points, result.labels))


def test_bridges_of_no_length_are_edges():
    points = np.array([[0.0], [1.0], [1.0], [3.0]])
    result = apply_component_policy(points, grouped([0, 0, 1, 1], points), "bridge")
    assert result.graph.nnz == 6
    assert connected_components(result.graph)[0] == 1


def test_error_lists_the_sizes_and_the_remedies(rng):
    points = rng.normal(size=(12, 2))
    with pytest.raises(DisconnectedGraphError) as caught:
        apply_component_policy(points, grouped(np.repeat([0, 1, 2], [3, 7, 2]), points), "error")
    message = str(caught.value)
    assert "3 components, of sizes 7, 3, 2;" in message
    for remedy in ("n_neighbors", "component_policy='bridge'", "'largest'"):
        assert remedy in message
    assert isinstance(caught.value, InvalidInputError)


def test_error_lists_only_the_ten_largest_of_many(rng):
    points = rng.normal(size=(33, 2))
    with pytest.raises(DisconnectedGraphError, match=r"11 components, of sizes (3, ){10}\.\.\.;"):
        apply_component_policy(points, grouped(np.repeat(np.arange(11), 3), points), "error")


@pytest.mark.parametrize("n_features", [2, 12])
@pytest.mark.parametrize(
    "sizes",
    [
        (105, 85, 66, 65, 5, 2, 1, 1, 1),
        (1,) * 40,
        (150, 1),
        (20, 20, 20, 20),
    ],
)
def test_bridges_are_a_minimum_spanning_tree(rng, sizes, n_features):
    groups = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    centers = rng.normal(size=(len(sizes), n_features))
    for spread in (0.01, 1.0):
        points = centers[groups] + spread * rng.normal(size=(len(groups), n_features))
        assert_minimum_spanning_tree(points, renumbered(groups))


@given(st.data())
def test_bridges_are_a_minimum_spanning_tree_with_exact_ties(data):
    n, side = data.draw(st.integers(2, 25)), data.draw(st.integers(1, 4))
    coordinate = st.integers(0, side).map(float)
    points = np.array(data.draw(st.lists(st.tuples(coordinate, coordinate), min_size=n, max_size=n)))
    groups = data.draw(st.lists(st.integers(0, 7), min_size=n, max_size=n).filter(lambda drawn: len(set(drawn)) > 1))
    assert_minimum_spanning_tree(points, renumbered(groups))


def test_bridges_are_a_minimum_spanning_tree_on_a_lattice_of_large_and_small_components(rng):
    points = np.stack(np.meshgrid(np.arange(18.0), np.arange(18.0)), axis=-1).reshape(-1, 2)
    groups = np.where(points[:, 0] < 5, 0, np.where(points[:, 0] < 10, 1, 2 + rng.integers(0, 30, size=len(points))))
    assert_minimum_spanning_tree(points, renumbered(groups))


def test_bridges_are_a_tree_when_lengths_tie_only_after_the_root():
    """Three squared lengths differ by one and two units in the last place, and have one and the same root."""
    s, t, z = 1.305419921875, 0.0625, 2.0**-26
    square = [[0, 0, 0, -z / 2], [s, 0, t, 0], [0, s, t, z], [s, s, 0, 0]]
    points = np.array([*square, [100, 0, 0, 0], [101, 0, 0, 0], [102, 0, 0, 0]])
    assert_minimum_spanning_tree(points, np.array([1, 1, 2, 3, 0, 0, 0]))


def test_bridges_depend_on_the_components_alone_not_on_their_numbers(rng):
    points = rng.integers(0, 6, size=(40, 2)).astype(float)
    labels = renumbered(rng.integers(0, 6, size=40))
    links = {tuple(link) for link in zip(*shortest_bridges(points, labels), strict=True)}
    for _ in range(4):
        numbers = rng.permutation(labels.max() + 1)
        assert {tuple(link) for link in zip(*shortest_bridges(points, numbers[labels]), strict=True)} == links


@given(st.integers(1, 60), st.integers(0, 80), st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_sets_joined_in_portions_are_the_components(n, n_edges, n_portions, seed):
    ends = np.random.default_rng(seed).integers(0, n, size=(2, n_edges))
    sets = UnionFind(n)
    for starts, stops in zip(*(np.array_split(part, n_portions) for part in ends), strict=True):
        sets.join(starts, stops)
    graph = graph_from_edges(n, ends[0], ends[1], np.zeros(n_edges))
    np.testing.assert_array_equal(sets.labels(), component_labels(graph))
