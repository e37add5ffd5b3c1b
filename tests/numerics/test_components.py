"""Components: numbered by size, refused, reduced or joined by a minimum spanning tree."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree
from scipy.spatial.distance import cdist

from pipeline.errors import DisconnectedGraphError, InvalidInputError
from pipeline.numerics.geodesics.graph import (
    MAX_SHARED_NEIGHBORS,
    POLICIES,
    UnionFind,
    apply_component_policy,
    component_labels,
    graph_from_edges,
    shortest_bridges,
)


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
    assert result.n_bridges == 0


def test_largest_keeps_the_largest_and_every_row(rng):
    groups = np.repeat([0, 1, 2], [3, 8, 4])
    points = rng.normal(size=(15, 2))
    graph = grouped(groups, points)
    result = apply_component_policy(points, graph, "largest")
    np.testing.assert_array_equal(result.kept, groups == 1)
    np.testing.assert_array_equal(result.labels, renumbered(groups))
    assert result.graph.shape == graph.shape
    assert (result.graph != graph).nnz == 0
    assert result.n_bridges == 0


def test_bridge_joins_everything_and_keeps_the_old_edges(rng):
    groups = rng.integers(0, 4, size=30)
    points = rng.normal(size=(30, 2)) + 10 * groups[:, None]
    graph = grouped(groups, points)
    result = apply_component_policy(points, graph, "bridge")
    assert connected_components(result.graph)[0] == 1
    assert result.kept.all()
    assert result.n_bridges == 3
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
        (
            MAX_SHARED_NEIGHBORS + 40,
            MAX_SHARED_NEIGHBORS + 20,
            MAX_SHARED_NEIGHBORS + 1,
            MAX_SHARED_NEIGHBORS,
            5,
            2,
            1,
            1,
            1,
        ),
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
    assert np.bincount(groups).min() < MAX_SHARED_NEIGHBORS < np.sort(np.bincount(groups))[-2]
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
