"""Runs made smaller by `gc --retain`: what is kept can be read, what goes is named, and a fit makes all whole again."""

import shutil

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from small import Counting, contents, extended, fitted
from snapshots import bury_the_holder, snapshots_of

from flows.status import collected_garbage, slimming_report
from pipeline import open_run
from pipeline.errors import InvalidInputError, StoreError
from pipeline.jobs.invert import invert
from pipeline.jobs.portable import export_model
from pipeline.jobs.refit import refit
from pipeline.numerics.datasets import swiss_roll
from pipeline.numerics.geodesics.graph import graph_from_edges
from pipeline.settings import InvertSettings, RefitSettings, job_settings
from pipeline.store import run
from pipeline.store.freed import read_freed

N_FIT, N_NEW = 4200, 60
TURN = np.linalg.qr(np.random.default_rng(0).normal(size=(40, 3)))[0]
POINTS = swiss_roll(N_FIT + N_NEW, seed=0).points
OBJECTS = {"input": "objects", "method": "mds", "n_landmarks": 20}


def vectors(folder, points):
    names = np.array([f"row {i}" for i in range(N_FIT)])
    np.savez(folder / "old.npz", X=points[:N_FIT], names=names)
    np.savez(folder / "new.npz", X=points[N_FIT:], names=names[:N_NEW])
    return folder / "old.npz", folder / "new.npz"


def columns(folder):
    return vectors(folder, POINTS @ TURN.T)


def solid(folder):
    return vectors(folder, POINTS)


def objects(folder):
    np.save(folder / "old.npy", POINTS[:300])
    np.save(folder / "new.npy", POINTS[N_FIT:])
    return folder / "old.npy", folder / "new.npy"


def dissimilarities(folder):
    points = POINTS[::14]
    np.save(folder / "old.npy", cdist(points, points))
    np.save(folder / "new.npy", cdist(points, POINTS[N_FIT:]))
    return folder / "old.npy", folder / "new.npy"


def roads(folder):
    from scipy.sparse import csr_array, save_npz
    from scipy.spatial import KDTree

    apart, near = KDTree(POINTS[:N_FIT]).query(POINTS[:N_FIT], 7)
    starts = np.repeat(np.arange(N_FIT), 6)
    save_npz(folder / "old.npz", csr_array(graph_from_edges(N_FIT, starts, near[:, 1:].ravel(), apart[:, 1:].ravel())))
    apart, near = KDTree(POINTS[:N_FIT]).query(POINTS[N_FIT:], 3)
    lengths, rows = apart.ravel(), np.repeat(np.arange(N_NEW), 3)
    save_npz(folder / "new.npz", csr_array((lengths, (rows, near.ravel())), shape=(N_NEW, N_FIT)))
    return folder / "old.npz", folder / "new.npz"


IDS = {"key": "X", "id_column": "names"}
TOGETHER = {"joint": 20, "arc": 5, "arc_rows": [0, 3]}
# How each run is made, and what it can be asked for.
KINDS = {
    "isomap": (columns, {**IDS, "standardize": True}, TOGETHER, True),
    "trees": (solid, {**IDS, "pca": 3, "spread": True}, TOGETHER, True),
    "own edges": (columns, {**IDS, "new_edges": "own"}, TOGETHER, True),
    "radius": (columns, {**IDS, "radius": 1.6}, TOGETHER, False),
    "graph": (roads, {"input": "graph"}, TOGETHER, False),
    "mds": (columns, {**IDS, "method": "mds"}, TOGETHER, True),
    "spectral": (columns, {**IDS, "method": "spectral"}, {}, True),
    "objects": (objects, {**OBJECTS, "metric": "edit_distance:apart"}, {"joint": 5}, True),
    "some objects": (objects, {**OBJECTS, "metric": "edit_distance:apart", "n_evaluated": 6}, {}, True),
    "dissimilarities": (
        dissimilarities,
        {"input": "dissimilarities", "method": "mds"},
        {"arc": 5, "arc_rows": [1]},
        True,
    ),
}


class Made:
    """A run and what was made with it while it was whole."""

    def __init__(self, folder, kind):
        write, self.settings, self.asked, self.has_model = KINDS[kind]
        self.folder = folder
        self.source, self.new = write(folder)
        self.store = folder / "run"
        self.fit(self.store)
        self.placed = self.extend(self.store, folder / "placed")
        self.model = self.export(self.store, folder / "model")

    def fit(self, store, **more):
        return fitted(self.source, store, **self.settings, **more)

    def extend(self, store, output):
        extended(store, self.new, output, **self.asked)
        opened = open_run(output)
        arcs = [array.tobytes() for array in opened.arcs()] if "arc" in self.asked else []
        return {name: opened.embedding(name).tobytes() for name in opened.arrays}, arcs, opened.drift

    def export(self, store, model):
        if self.has_model:
            export_model(str(store), str(model))
            return contents(model)
        return {}


@pytest.fixture(scope="module", params=KINDS)
def made(request, tmp_path_factory):
    return Made(tmp_path_factory.mktemp("made"), request.param)


@pytest.fixture(scope="module")
def isomap(tmp_path_factory):
    return Made(tmp_path_factory.mktemp("isomap"), "isomap")


def copied(made, place):
    return shutil.copytree(made.store, place)


def slimmed(made, place, retain):
    """A copy that keeps so much, and the bytes that were freed."""
    store = copied(made, place)
    return store, collected_garbage(str(store), retain=retain)[0]["bytes"]


def size(store):
    return sum(map(len, contents(store).values()))


def seen(store):
    """All that a reader can see of a run."""
    opened = open_run(store)
    arrays = {name: opened.embedding(name).tobytes() for name in opened.arrays}
    ids = opened.ids()
    figures = [opened.quality, opened.trust, opened.calibration, opened.verdict, opened.components, opened.unit]
    values = [value.tobytes() for value in (*opened.sample, *opened.calibration_values.values(), opened.landmark_rows)]
    model = [np.asarray(value).tobytes() for value in vars(opened.model).values() if isinstance(value, np.ndarray)]
    return arrays, None if ids is None else ids.tolist(), figures, values, model


def test_what_extending_needs_stays_and_a_fit_makes_the_run_whole(made, tmp_path):
    store, n_freed = slimmed(made, tmp_path / "run", "extendable")
    assert n_freed > 0
    assert size(made.store) - size(store) == pytest.approx(n_freed, rel=0.05)
    assert open_run(store).retained == "extendable"
    assert open_run(store).damaged() == []
    assert seen(store) == seen(made.store)
    assert made.extend(store, tmp_path / "placed") == made.placed
    assert made.export(store, tmp_path / "model") == made.model
    made.fit(store)
    assert contents(store) == contents(made.store)


def test_results_stay_and_a_fit_makes_the_run_whole(made, tmp_path):
    store, n_freed = slimmed(made, tmp_path / "run", "results")
    assert n_freed > slimmed(made, tmp_path / "more", "extendable")[1]
    assert open_run(store).retained == "results"
    assert open_run(store).damaged() == []
    assert seen(store) == seen(made.store)
    with pytest.raises(
        InvalidInputError, match=r"was freed by `trigpoint gc --retain results`\. Run the same fit again"
    ):
        made.extend(store, tmp_path / "placed")
    with pytest.raises(
        InvalidInputError, match=r"was freed by `trigpoint gc --retain results`\. Run the same fit again"
    ):
        export_model(str(store), str(tmp_path / "model"))
    made.fit(store)
    assert open_run(store).retained is None
    assert contents(store) == contents(made.store)
    assert made.extend(store, tmp_path / "placed") == made.placed


def test_what_a_level_frees_of_a_level_before_is_the_rest(isomap, tmp_path):
    at_once, n_at_once = slimmed(isomap, tmp_path / "at once", "results")
    store, n_first = slimmed(isomap, tmp_path / "run", "extendable")
    n_then = collected_garbage(str(store), retain="results")[0]["bytes"]
    assert n_first + n_then == n_at_once
    assert open_run(store).retained == "results"
    assert collected_garbage(str(store), retain="extendable")[0]["bytes"] == 0
    assert open_run(store).retained == "results"
    files = contents(store)
    assert {name for name in files if name != "freed.json"} == {n for n in contents(at_once) if n != "freed.json"}


def test_most_of_a_run_is_freed(isomap, tmp_path):
    whole = size(isomap.store)
    sizes = [size(slimmed(isomap, tmp_path / level, level)[0]) for level in ("extendable", "results")]
    assert sizes[0] < 0.6 * whole
    assert sizes[1] < 0.12 * whole


def test_another_fit_computes_again_what_it_shares(isomap, tmp_path):
    expected, store = copied(isomap, tmp_path / "whole"), slimmed(isomap, tmp_path / "run", "results")[0]
    for place in (expected, store):
        isomap.fit(place, n_components=3)
        collected_garbage(str(place))
    assert open_run(store).retained is None
    assert contents(store) == contents(expected)


def test_refits_and_inversions_need_only_results(isomap, tmp_path):
    np.savez(tmp_path / "more.npz", X=(swiss_roll(300, seed=5).points @ TURN.T), names=np.array(["x"] * 300))
    expected, store = copied(isomap, tmp_path / "whole"), slimmed(isomap, tmp_path / "run", "results")[0]
    found = []
    for place in (expected, store):
        output = tmp_path / f"{place.name} inverted"
        invert(job_settings(InvertSettings, {"store": str(place), "output": str(output), "path": [0, 9], "steps": 5}))
        refit(job_settings(RefitSettings, {"store": str(place), "new": [str(tmp_path / "more.npz")]}))
        found.append((contents(output), seen(place)))
    assert found[0] == found[1]
    assert (open_run(store).retained, open_run(store, "1").retained) == (None, "results")
    assert open_run(store).damaged() == []
    extended(store, isomap.new, tmp_path / "placed")
    with pytest.raises(InvalidInputError, match="was freed by"):
        extended(store, isomap.new, tmp_path / "placed before", version="1")
    # Versions are slimmed together, and forgotten with what they say of that.
    collected_garbage(str(store), retain="results")
    assert seen(store) == seen(expected)
    collected_garbage(str(store), keep_versions=1)
    assert open_run(store).damaged() == []
    assert set(read_freed(run.open_store(store))) <= set(run.published_paths(run.open_store(store)))


def test_what_was_freed_is_named_when_it_is_read(isomap, tmp_path):
    store, _ = slimmed(isomap, tmp_path / "run", "results")
    with pytest.raises(
        StoreError, match=r"rows/.*/rows-00000000 of .* was freed by `trigpoint gc --retain results`; run"
    ):
        list(open_run(store).parts("rows", "rows"))


def test_damage_to_what_is_kept_is_still_found(isomap, tmp_path):
    store, _ = slimmed(isomap, tmp_path / "run", "extendable")
    chunk = next((store / "rows").glob("*/rows-00000000/c.0.0"))
    chunk.write_bytes(chunk.read_bytes()[:-1])
    next((store / "publish").glob("*/gap/c.0")).unlink()
    assert len(open_run(store).damaged()) == 2


def test_only_published_runs_are_slimmed(isomap, tmp_path):
    with pytest.raises(InvalidInputError, match="holds new points in the space of a run; name the run itself"):
        slimming_report(str(isomap.folder / "placed"), "results")
    with pytest.raises(InvalidInputError, match="retain='all' is not known; use extendable or results"):
        slimming_report(str(isomap.store), "all")


def test_slimming_killed_at_any_operation_is_ended_by_gc(isomap, tmp_path):
    store = copied(isomap, tmp_path / "run")
    operations = snapshots_of(tmp_path / "snapshots", lambda: collected_garbage(str(store), retain="results"))
    expected, results, first = contents(store), seen(isomap.store), operations.index("freed.json")
    assert len(operations) > 60
    for number in range(first, len(operations), 7):
        root = tmp_path / "snapshots" / str(number)
        bury_the_holder(root)
        assert open_run(root).damaged() == []
        assert seen(root) == results
        collected_garbage(str(root), **({"retain": "results"} if number == first else {}))
        assert contents(root) == expected, operations[number]


def test_a_fit_that_makes_a_run_whole_and_is_killed_at_any_operation_ends_the_same(isomap, tmp_path):
    store, _ = slimmed(isomap, tmp_path / "run", "results")
    operations = snapshots_of(tmp_path / "snapshots", lambda: isomap.fit(store))
    expected, results, whole = contents(isomap.store), seen(isomap.store), Counting()
    isomap.fit(slimmed(isomap, tmp_path / "again", "results")[0], watch=whole)
    for number in range(2, len(operations), len(operations) // 12):
        root, again = tmp_path / "snapshots" / str(number), Counting()
        bury_the_holder(root)
        where = f"killed at operation {number}, {operations[number]}"
        assert open_run(root).damaged() == [], where
        assert seen(root) == results, where
        isomap.fit(root, watch=again)
        assert contents(root) == expected, where
        assert len(again.computed_partitions) < len(whole.computed_partitions) or number < 100, where
