"""Kernel Isomap, and other extensions of geodesic models, on disk."""

import shutil

import numpy as np
import pytest
from scipy.spatial import procrustes
from small import SETTINGS, extended, fitted, roll_file

from pipeline import open_run
from pipeline.errors import InvalidInputError, StoreError
from pipeline.fanout.execution import executor
from pipeline.jobs.fit import fit
from pipeline.jobs.portable import export_model
from pipeline.settings import ClusterSettings, fit_settings
from pipeline.stages import space

CASES = [("kernel-isomap", "auto"), ("isomap", "kernel-mapping"), ("kernel-isomap", "rbf")]


def published(store):
    opened = open_run(store)
    return {name: opened.embedding(name).tobytes() for name in opened.arrays}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return roll_file(tmp_path_factory.mktemp("roll"))


@pytest.fixture(scope="module")
def runs(source, tmp_path_factory):
    """A run of each case, and of plain Isomap, made when it is first asked for."""
    folder, made = tmp_path_factory.mktemp("runs"), {}

    def run_of(method, extension):
        store = folder / f"{method} {extension}"
        if store not in made:
            fitted(source, store, method=method, extension=extension)
            made[store] = True
        return store

    return run_of


@pytest.mark.parametrize("case", CASES)
def test_a_rows_bytes_depend_neither_on_the_chunks_nor_on_being_new(source, runs, tmp_path, case):
    store = runs(*case)
    fitted(source, tmp_path / "whole", method=case[0], extension=case[1], partition_mib=64)
    assert published(tmp_path / "whole") == published(store)
    np.save(tmp_path / "rows.npy", np.load(source)[4000:4100])
    extended(store, tmp_path / "rows.npy", tmp_path / "extension")
    for name in ("projection", "residual"):
        found = open_run(tmp_path / "extension").embedding(name)
        assert found.tobytes() == open_run(store).embedding(name)[4000:4100].tobytes(), name


@pytest.mark.cluster
def test_workers_give_the_bytes_of_the_serial_run(source, runs, tmp_path):
    with executor(ClusterSettings(kind="local", n_workers=2)) as execute:
        for method, extension in CASES:
            given = {"source": str(source), "store": str(tmp_path / f"{method} {extension}")}
            fit(fit_settings({**SETTINGS, **given, "method": method, "extension": extension}), execute=execute)
    for case in CASES:
        assert published(tmp_path / "{} {}".format(*case)) == published(runs(*case)), case


def test_the_constant_of_kernel_isomap_leaves_landmarks_where_they_are(runs):
    opened = open_run(runs("kernel-isomap", "auto"))
    assert opened.model.constant > 0
    assert opened.quality["negative_mass"] < 1e-8 < open_run(runs("isomap", "auto")).quality["negative_mass"]
    expected = opened.model.coordinates * opened.unit
    found = opened.embedding()[opened.landmark_rows]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


def test_runs_of_a_version_that_placed_points_in_another_way_are_not_extended(source, runs, tmp_path, monkeypatch):
    store = runs("kernel-isomap", "auto")
    np.save(tmp_path / "rows.npy", np.load(source)[:10])
    monkeypatch.setitem(space.METHOD_REVISIONS, "kernel-isomap", 99)
    with pytest.raises(StoreError, match="placed points in another way with method='kernel-isomap'; run the fit again"):
        extended(store, tmp_path / "rows.npy", tmp_path / "extension")
    with pytest.raises(StoreError, match="and export a model of it again"):
        export_model(str(store), str(tmp_path / "model"))
    shutil.copytree(store, tmp_path / "again")
    watch = fitted(source, tmp_path / "again", method="kernel-isomap")
    assert watch.stages == ["model", "embed", "calibrate", "pairs", "evaluate", "publish"]
    extended(tmp_path / "again", tmp_path / "rows.npy", tmp_path / "extension")


@pytest.mark.parametrize("extension", ["kernel-mapping", "rbf"])
def test_another_extension_places_points_near_the_projection(source, runs, tmp_path, extension):
    fitted(source, tmp_path / "run", extension=extension)
    opened, reference = open_run(tmp_path / "run"), open_run(runs("isomap", "auto"))
    assert opened.arrays == ("projection", "residual", "nearest", "ambiguous", "component")
    assert procrustes(reference.embedding(), opened.embedding())[2] < 0.1**2
    with pytest.raises(InvalidInputError, match="models are of projections only"):
        export_model(str(tmp_path / "run"), str(tmp_path / "model"))
