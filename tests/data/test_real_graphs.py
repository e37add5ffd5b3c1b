"""Road networks and points on a globe: runs on disk on graphs that are given, and over a radius."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import coo_array, save_npz
from scipy.sparse.csgraph import connected_components, dijkstra
from scipy.spatial import KDTree, procrustes

from pipeline import open_run
from pipeline.sources.graphs import open_graph

pytestmark = [pytest.mark.data, pytest.mark.timeout(600)]
COMMAND = Path(sys.executable).with_name("trigpoint")


def fitted(source, store, *options):
    command = [COMMAND, "fit", source, "--store", store, "--cluster-kind", "serial", *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)


def test_a_road_network_in_two_pieces_is_refused_or_its_largest_embedded(data_folder, tmp_path):
    source, store = data_folder / "road_minnesota.npz", tmp_path / "run"
    refused = fitted(source, store, "--input", "graph")
    assert refused.returncode == 2
    assert "2 components, of sizes 2640, 2" in refused.stderr
    result = fitted(source, store, "--input", "graph", "--component-policy", "largest")
    assert result.returncode == 0, result.stderr
    opened = open_run(store)
    embedded = opened.embedding("component") == 0
    assert np.count_nonzero(embedded) == 2640
    np.testing.assert_array_equal(np.isfinite(opened.embedding()).all(axis=1), embedded)
    assert opened.quality["residual_variance"][1] < 0.05


def test_a_town_by_the_length_of_its_roads_looks_like_its_map(data_folder, tmp_path):
    source, store = data_folder / "road_oldenburg.npz", tmp_path / "run"
    result = fitted(source, store, "--input", "graph")
    assert result.returncode == 0, result.stderr
    opened = open_run(store)
    graph = open_graph(source).load()
    expected = dijkstra(graph, indices=opened.landmark_rows[:10])
    node_at = np.concatenate(list(opened.parts("graph", "rows")))
    found = np.empty_like(expected)
    lengths = np.concatenate(list(opened.parts("rows", "rows")), axis=1)
    found[:, node_at] = lengths[:, :10].T * opened.unit
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert procrustes(np.load(source)["xy"], opened.embedding())[2] < 0.35**2


def test_new_roads_are_placed_beside_their_ends(data_folder, tmp_path):
    """Every tenth junction as if it were new, with the roads that it has."""
    source, store = data_folder / "road_oldenburg.npz", tmp_path / "run"
    assert fitted(source, store, "--input", "graph").returncode == 0
    save_npz(tmp_path / "new.npz", open_graph(source).load()[::10])
    command = [COMMAND, "extend", store, tmp_path / "new.npz", "--output", tmp_path / "out"]
    result = subprocess.run(
        [*command, "--cluster-kind", "serial"], capture_output=True, text=True, timeout=500, check=False
    )
    assert result.returncode == 0, result.stderr
    known, placed = open_run(store).embedding()[::10], open_run(tmp_path / "out").embedding()
    off = np.linalg.norm(placed - known, axis=1)
    assert np.median(off) < 1e-3 * np.linalg.norm(known, axis=1).max()


def test_cities_within_a_radius_of_each_other(data_folder, tmp_path):
    """Cities as points on the unit sphere: at a fortieth of its radius, some 160 km, only parts hang together."""
    points, store = np.load(data_folder / "world_cities15000.npz")["X"], tmp_path / "run"
    options = ("--key", "X", "--radius", 0.025 * np.linalg.norm(points[0]), "--component-policy", "largest")
    result = fitted(data_folder / "world_cities15000.npz", store, *options)
    assert result.returncode == 0, result.stderr
    assert "Neighbors are exact." in result.stdout
    opened = open_run(store)
    _, labels = connected_components(radius_graph(np.unique(points, axis=0), options[3]))
    sizes = np.sort(np.bincount(labels))[::-1]
    assert opened.stage_figures("graph")["largest_components"] == sizes[:10].tolist()
    embedded = opened.embedding("component") == 0
    np.testing.assert_array_equal(np.isfinite(opened.embedding()).all(axis=1), embedded)
    assert opened.quality["residual_variance"][1] < 0.2


def radius_graph(points, radius):
    pairs = KDTree(points).query_pairs(radius, output_type="ndarray")
    return coo_array((np.ones(len(pairs)), pairs.T), shape=(len(points), len(points)))
