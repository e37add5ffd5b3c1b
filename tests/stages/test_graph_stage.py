"""The graph in groups equals the graph in memory, and its components too."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from test_neighbors_stage import gathered, neighbors_of

from pipeline.numerics.datasets import swiss_roll
from pipeline.numerics.geodesics.graph import component_labels, neighbor_graph
from pipeline.stages.graph.graph import Graph
from pipeline.stages.stage import run_stage
from pipeline.store import lease
from pipeline.store.local import LocalBackend


def graph_of(folder, data, k, rows_each):
    _, ordered, found = neighbors_of(folder, data, k, rows_each)
    with lease.acquire(LocalBackend(folder)) as held:
        return ordered, found, run_stage(held, Graph(ordered, found))


def islands():
    roll = swiss_roll(6000, seed=0).points
    return np.concatenate([roll, roll[:400] + 1000, roll[:400] - 1000, roll[:90] * 0.5 + 3000])


@pytest.mark.parametrize("rows_each", [900, 100_000])
def test_equals_the_graph_made_in_memory(tmp_path, rows_each):
    ordered, found, graph = graph_of(tmp_path, islands(), 8, rows_each)
    n_groups = len(ordered.figures["nodes_each"])
    expected = neighbor_graph(gathered(found, "distances", n_groups), gathered(found, "neighbors", n_groups))
    bases = [graph.ledger.part("offsets", p).read() for p in range(n_groups)]
    degrees = np.concatenate([np.diff(base) for base in bases])
    joined = csr_array(
        (
            gathered(graph, "weights", n_groups),
            gathered(graph, "targets", n_groups),
            np.concatenate([[0], np.cumsum(degrees)]),
        ),
        shape=expected.shape,
    )
    np.testing.assert_array_equal(joined.indptr, expected.indptr)
    np.testing.assert_array_equal(joined.indices, expected.indices)
    np.testing.assert_array_equal(joined.data, expected.data.astype(np.float32))
    labels = graph.ledger.read("components").read()
    np.testing.assert_array_equal(labels, component_labels(expected))
    assert graph.figures["n_components"] == 4
    assert graph.figures["largest_components"] == [6000, 400, 400, 90]
    assert graph.figures["n_edges"] == expected.nnz
