"""Refits: the rows of old and new data in the coordinates that were published, in whatever way they are computed."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow
import pyarrow.csv
import pytest
from rolls import N_NEW, N_OLD, copied, fitted_portions, published, refitted, saved
from small import SETTINGS, Counting, contents, fitted

from pipeline import open_run
from pipeline.errors import ComponentWarning, InvalidInputError, StoreError
from pipeline.fanout.execution import executor
from pipeline.jobs.fit import fit
from pipeline.jobs.refit import prepare_refit
from pipeline.numerics.datasets import swiss_roll
from pipeline.numerics.mds import classical_mds
from pipeline.numerics.models import catalog as configurations
from pipeline.numerics.registration import rigid_motion
from pipeline.settings import ClusterSettings, RefitSettings, fit_settings, job_settings
from pipeline.stages.publish import COORDINATES
from pipeline.store import local, run

# Of the distances between where old rows were and where they are, relative to the spread of the roll. New points
# shorten the paths between old ones and bring other landmarks, which no rigid motion makes up for.
LARGEST_RMS = 0.02


def relative_rms(some, others):
    spread = np.sqrt(((others - others.mean(axis=0)) ** 2).sum(axis=1).mean())
    return np.sqrt(((some - others) ** 2).sum(axis=1).mean()) / spread


@pytest.fixture(scope="module")
def roll(tmp_path_factory):
    """A roll in portions and a run on the first, not to be changed."""
    return fitted_portions(tmp_path_factory.mktemp("roll"))


@pytest.fixture(scope="module")
def twice(roll):
    """The run fitted again with new rows, not to be changed."""
    store = copied(roll.run, roll.folder / "twice")
    refitted(store, roll.new)
    return store


@pytest.fixture
def store(roll, tmp_path):
    """The run, to be changed."""
    return copied(roll.run, tmp_path / "run")


@pytest.mark.parametrize("name", COORDINATES)
def test_all_rows_are_embedded_and_the_old_ones_where_they_were(twice, name):
    before, after = open_run(twice, "1").embedding(name), open_run(twice).embedding(name)
    assert after.shape == (N_OLD + N_NEW, 2)
    assert np.isfinite(after).all()
    assert relative_rms(after[:N_OLD], before) < LARGEST_RMS
    best = rigid_motion(after[:N_OLD], before).apply(after[:N_OLD])
    assert relative_rms(after[:N_OLD], before) < 1.1 * relative_rms(best, before), "the landmarks stand for all rows"


def test_it_is_the_fit_of_all_rows_but_turned(roll, twice, tmp_path):
    fitted(saved(tmp_path / "all.npy", roll.rows[: N_OLD + N_NEW]), tmp_path / "run")
    whole, turned = open_run(tmp_path / "run"), open_run(twice)
    assert whole.quality == turned.quality
    motion = rigid_motion(whole.embedding(), turned.embedding())
    found = [motion.apply(whole.embedding(name)) - turned.embedding(name) for name in COORDINATES]
    np.testing.assert_allclose(found, 0, atol=1e-9 * np.abs(whole.embedding()).max())
    np.testing.assert_allclose([motion.apply(part) for part in whole.sample], turned.sample, rtol=1e-9, atol=1e-9)


def mirrored(*given, **others):
    """The same configuration in a mirror, which is as good a solution of classical scaling."""
    found = classical_mds(*given, **others)
    return replace(
        found, coordinates=found.coordinates * np.where(np.arange(found.coordinates.shape[1]) == 1, -1.0, 1.0)
    )


def test_a_fit_that_comes_out_mirrored_is_turned_back(roll, store, monkeypatch):
    monkeypatch.setattr(configurations, "classical_mds", mirrored)
    refitted(store, roll.new)
    registration = open_run(store).registration
    assert registration["rms_before"] > 20 * registration["rms_after"]
    assert registration["relative_rms"] < LARGEST_RMS
    for name in COORDINATES:
        before, after = open_run(store, "1").embedding(name), open_run(store).embedding(name)
        assert relative_rms(after[:N_OLD], before) < LARGEST_RMS


@pytest.mark.cluster
def test_workers_give_the_bytes_of_the_serial_refit(roll, twice, store):
    with executor(ClusterSettings(kind="local", n_workers=2)) as execute:
        refitted(store, roll.new, execute=execute)
    assert published(store) == published(twice)
    assert open_run(store).registration == open_run(twice).registration


def test_the_size_of_partitions_changes_nothing(roll, twice, store):
    refitted(store, roll.new, partition_mib=64)
    assert published(store) == published(twice)


class Stopped(Exception):  # noqa: N818  it is no error
    """The run is left here."""


class StopAfter(Counting):
    """Stops once a stage is complete."""

    def __init__(self, stage):
        super().__init__()
        self._stage = stage

    def finished(self, outcome):
        if outcome.ledger.stage == self._stage:
            raise Stopped


def test_the_disk_that_old_versions_take_is_not_counted_on(roll, twice, store, monkeypatch):
    """Of what the latest command has left only what a refit will take up: not what stays as the version before."""
    monkeypatch.setattr(local.shutil, "disk_usage", lambda _: SimpleNamespace(free=10**12))
    given = job_settings(RefitSettings, {"store": str(store), "new": str(roll.new)})
    assert prepare_refit(given).plan.free_disk == 10**12
    with pytest.raises(Stopped):
        refitted(store, roll.new, watch=StopAfter("order"))
    left = prepare_refit(given).plan.free_disk - 10**12
    assert left > 0
    done = job_settings(RefitSettings, {"store": str(twice), "new": str(roll.new)})
    assert prepare_refit(done).plan.free_disk > 10**12 + left


def test_the_same_refit_again_computes_nothing_and_writes_nothing(roll, twice, tmp_path):
    store, watch = copied(twice, tmp_path / "run"), Counting()
    before = contents(store)
    for name in (None, "2"):
        assert refitted(store, roll.new, watch=watch, name=name).version == "2"
    assert watch.stages == []
    assert contents(store) == before


def test_every_batch_of_a_folder_that_is_not_in_yet_is_new(roll, twice, store, tmp_path):
    folder = tmp_path / "incoming"
    folder.mkdir()
    np.save(folder / "1.npy", np.load(roll.new))
    np.save(folder / "_2.npy", np.load(roll.newer))
    (folder / "2.npy.tmp").touch()
    np.save(folder / "0.npy", np.empty((0, 64)))
    assert refitted(store, incoming=str(folder)).version == "2"
    assert published(store) == published(twice)
    assert refitted(store, incoming=str(folder)).n_computed == 0
    (folder / "_2.npy").rename(folder / "2.npy")
    assert refitted(store, incoming=str(folder)).version == "3"
    assert open_run(store).n_rows == N_OLD + 2 * N_NEW


def test_data_that_was_moved_is_told_of(roll, twice, tmp_path):
    source = saved(tmp_path / "old.npy", np.load(roll.old))
    fitted(source, tmp_path / "run")
    moved = source.rename(tmp_path / "moved.npy")
    with pytest.raises(InvalidInputError, match=r"old\.npy does not exist"):
        refitted(tmp_path / "run", roll.new)
    refitted(tmp_path / "run", roll.new, source=str(moved))
    assert published(tmp_path / "run") == published(twice)
    assert refitted(tmp_path / "run", roll.new).n_computed == 0


def test_tables_are_joined_by_names_with_their_ids(tmp_path):
    points = swiss_roll(900, seed=0).points
    for name, rows, columns in (
        ("old", range(600), ["id", "x", "y", "z"]),
        ("new", range(600, 900), ["z", "id", "y", "x"]),
    ):
        values = {"id": [f"row {row}" for row in rows], **dict(zip("xyz", points[rows].T, strict=True))}
        pyarrow.csv.write_csv(pyarrow.table({column: values[column] for column in columns}), tmp_path / f"{name}.csv")
    fitted(tmp_path / "old.csv", tmp_path / "run", id_column="id", n_landmarks=60)
    refitted(tmp_path / "run", tmp_path / "new.csv")
    opened = open_run(tmp_path / "run")
    assert opened.ids().tolist() == [f"row {row}" for row in range(900)]
    fitted(saved(tmp_path / "all.npy", points), tmp_path / "whole", n_landmarks=60)
    assert opened.quality == open_run(tmp_path / "whole").quality
    (tmp_path / "nameless.csv").write_text("x,y,z\n1,2,3\n")
    with pytest.raises(InvalidInputError, match="id_column='id' of the fit is not in all of the new data"):
        refitted(tmp_path / "run", tmp_path / "nameless.csv")


@pytest.fixture
def small(tmp_path):
    """A small run of one grain and a bit."""
    points = swiss_roll(4300, seed=0).points
    source = saved(tmp_path / "old.npy", points)
    fitted(source, tmp_path / "run", n_landmarks=40)
    return source, tmp_path / "run", saved(tmp_path / "new.npy", swiss_roll(300, seed=1).points)


@pytest.mark.parametrize(("row", "rows"), [(17, "0 to 4096"), (4299, "4096 to 4300")])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
def test_changed_rows_are_refused_before_anything_else_is_computed(small, row, rows, dtype):
    """Also where new rows of another dtype make all be read as another."""
    source, _, _ = small
    data = np.load(source).astype(dtype)
    store = source.with_name(f"of {np.dtype(dtype).name} and {row}")
    fitted(saved(source, data), store, n_landmarks=40)
    before, watch = published(store), Counting()
    data[row, 1] += 1
    with pytest.raises(InvalidInputError, match=f"version '1' has changed: rows {rows} of .*old.npy are not those"):
        refitted(
            store,
            saved(source.with_name("other.npy"), np.ones((9, 3), np.float64)),
            watch=watch,
            source=str(saved(source, data)),
        )
    assert watch.stages == ["validate"]
    assert published(store) == before


def test_rows_that_are_gone_or_came_are_refused_at_once(small):
    source, store, new = small
    watch = Counting()
    for n_rows in (4299, 4301):
        np.save(source, np.resize(np.load(source), (n_rows, 3)))
        with pytest.raises(
            InvalidInputError, match=rf"it had 4300 rows and 3 columns, now .*old\.npy have {n_rows} and 3"
        ):
            refitted(store, new, watch=watch)
    assert watch.stages == []


def test_what_cannot_be_done_is_said_before_computing(small, tmp_path):
    source, store, new = small
    before = contents(store)
    narrow = saved(tmp_path / "narrow.npy", np.ones((5, 2)))
    empty = saved(tmp_path / "empty.npy", np.ones((0, 3)))
    for given, settings, message in (
        ([], {}, r"there is no new data: none is given; name with new or incoming"),
        ([source], {}, r"there is no new data: .*old\.npy; .*not in version '1' yet"),
        ([empty], {}, r"there is no new data: .*empty\.npy"),
        ([new], {"name": "1"}, r"name='1' is a version already; choose another than 1\."),
        ([new], {"name": "../x"}, r"name='\.\./x': .*letters, digits"),
        ([narrow], {}, r"narrow\.npy has 2 columns \(0, 1\), .*old\.npy has 3 \(0, 1, 2\)"),
        ([tmp_path / "nothing.npy"], {}, r"nothing\.npy does not exist"),
        ([], {"incoming": str(new)}, r"incoming='.*new\.npy' is not a folder"),
        ([store.parent], {}, "is inside the source"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            refitted(store, *given, **settings)
    with pytest.raises(InvalidInputError, match="does not exist or is empty; run `trigpoint fit`"):
        refitted(tmp_path / "nowhere", new)
    assert contents(store) == before


def test_a_run_on_an_array_needs_a_file_with_its_rows(small, tmp_path):
    source, store, new = small
    settings = fit_settings({**SETTINGS, "source": "an array", "store": str(tmp_path / "lazy"), "n_landmarks": 40})
    fit(settings, data=np.load(source))
    with pytest.raises(InvalidInputError, match=r"fitted from an array .*run the fit again from a file, or name one"):
        refitted(tmp_path / "lazy", new)
    refitted(tmp_path / "lazy", new, source=str(source))
    refitted(store, new)
    assert published(tmp_path / "lazy") == published(store)


def test_a_run_that_is_not_published_yet_is_named(tmp_path):
    run.create_run(tmp_path / "run")
    with pytest.raises(StoreError, match="has nothing published yet"):
        refitted(tmp_path / "run", tmp_path / "new.npy")


def test_landmarks_that_are_not_embedded_again_are_too_few(tmp_path):
    """The new rows are far away and more than the old: they are the largest component now."""
    points = swiss_roll(1500, seed=0).points
    fitted(saved(tmp_path / "old.npy", points[:500]), tmp_path / "run", component_policy="largest", n_landmarks=40)
    with (
        pytest.warns(ComponentWarning, match=r"rows: 1000, 500\); only the largest is embedded, the other 500 rows"),
        pytest.raises(InvalidInputError, match=r"only 0 of the 40 landmarks .* 3 are needed"),
    ):
        refitted(tmp_path / "run", saved(tmp_path / "new.npy", points[500:] + 1000))
    assert open_run(tmp_path / "run").version == "1"
