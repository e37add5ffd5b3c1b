"""Versions of a run: old ones stay to the byte, readers see one or the other, and a kill leaves one or the other."""

import threading
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
from rolls import N_NEW, N_OLD, collect, copied, fitted_portions, published, refitted
from small import Counting, contents, fitted
from snapshots import SnapshotStore, bury_the_holder

from pipeline import open_run
from pipeline.errors import InvalidInputError, StoreError
from pipeline.jobs.extend import extend
from pipeline.jobs.refit import STAGES
from pipeline.settings import ExtendSettings, job_settings
from pipeline.stages import embed
from pipeline.stages.publish import COORDINATES
from pipeline.store import BACKENDS, local, run
from pipeline.store.local import LocalBackend


@pytest.fixture(scope="module", autouse=True)
def _quick():
    """A kill leaves what was written, synced or not; and a small sample is as good to compare."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "_sync", lambda _: None)
        patch.setattr(embed, "MOST_SAMPLED", 150)
        yield


@pytest.fixture(scope="module")
def roll(tmp_path_factory):
    """A roll in portions, a run on the first, and one fitted again with the second; not to be changed."""
    roll = fitted_portions(tmp_path_factory.mktemp("roll"))
    roll.twice = copied(roll.run, roll.folder / "twice")
    refitted(roll.twice, roll.new)
    roll.first, roll.second = published(roll.run), published(roll.twice)
    return roll


@pytest.fixture
def store(roll, tmp_path):
    """The run that was fitted again, to be changed."""
    return copied(roll.twice, tmp_path / "run")


def extended(store, source, output, version=None):
    given = {"store": str(store), "source": str(source), "output": str(output), "version": version}
    extend(job_settings(ExtendSettings, given))
    return {name: open_run(output).embedding(name).tobytes() for name in COORDINATES}


def test_the_first_version_stays_to_the_byte_and_can_be_extended(roll, store, tmp_path):
    before = extended(roll.run, roll.newer, tmp_path / "before")
    assert published(store, "1") == roll.first
    assert collect(store) == []
    assert published(store, "1") == roll.first
    assert extended(store, roll.newer, tmp_path / "after", "1") == before
    assert extended(store, roll.newer, tmp_path / "second", "2") != before
    assert open_run(store).damaged() == []


def test_rows_of_a_version_that_was_turned_return_to_their_places(roll, store, tmp_path):
    for source, rows in ((roll.old, slice(None, N_OLD)), (roll.new, slice(N_OLD, None))):
        found = extended(store, source, tmp_path / source.stem)
        for name in COORDINATES:
            assert found[name] == open_run(store).embedding(name)[rows].tobytes()


def test_further_data_makes_a_third_version(roll, store):
    assert refitted(store, roll.newer).version == "3"
    assert open_run(store).versions == ["1", "2", "3"]
    assert [open_run(store, name).n_rows for name in "123"] == [N_OLD, N_OLD + N_NEW, N_OLD + 2 * N_NEW]
    assert (published(store, "1"), published(store, "2")) == (roll.first, roll.second)
    before, after = open_run(store, "2").embedding(), open_run(store).embedding()
    assert np.abs(after[: len(before)] - before).max() < 0.1 * np.abs(before).max()


def test_versions_have_the_names_they_are_given(roll, tmp_path):
    store = copied(roll.run, tmp_path / "run")
    refitted(store, roll.new, name="2026-spring")
    assert refitted(store, roll.newer).version == "3"
    assert open_run(store).versions == ["1", "2026-spring", "3"]
    np.save(tmp_path / "more.npy", roll.rows[:50] + 0.01)
    with pytest.raises(InvalidInputError, match="name='2026-spring' is a version already"):
        refitted(store, tmp_path / "more.npy", name="2026-spring")
    for name in ("4", "../manifest", "2026"):
        with pytest.raises(InvalidInputError, match=r"is not in .*; versions: 1, 2026-spring, 3"):
            open_run(store, name).embedding()


def test_a_fit_into_a_run_with_versions_is_one_more(roll, store):
    fitted(roll.old, store, n_components=3)
    assert (open_run(store).version, open_run(store).embedding().shape) == ("3", (N_OLD, 3))
    collect(store)
    assert (published(store, "1"), published(store, "2")) == (roll.first, roll.second)
    assert fitted(roll.old, store).stages == []
    assert (open_run(store).version, published(store)) == ("1", roll.first), "what is as it was has its name back"
    watch = Counting()
    assert refitted(store, roll.new, watch=watch).version == "2"
    assert watch.stages == []
    assert open_run(store).versions == ["1", "2", "3"]


def test_a_run_that_is_only_fitted_keeps_its_latest_state_alone(roll, tmp_path):
    store = copied(roll.run, tmp_path / "run")
    fitted(roll.old, store, n_components=3)
    assert open_run(store).versions == ["1"]
    assert open_run(store, "1").embedding().shape == (N_OLD, 3)
    assert not (store / "versions").exists()
    assert any(path.startswith("publish/") for path in collect(store))


@pytest.mark.parametrize(("keep", "left"), [(1, ["2"]), (2, ["1", "2"]), (9, ["1", "2"])])
def test_old_versions_are_dropped_on_demand(roll, store, keep, left):
    paths = collect(store, keep)
    assert open_run(store).versions == left
    assert published(store) == roll.second
    assert bool(paths) == (left == ["2"])
    assert open_run(store).damaged() == []
    assert refitted(store, roll.new).n_computed == 0, "what was refitted is still known to be"


def test_the_published_version_is_never_dropped(roll, store):
    fitted(roll.old, store)
    collect(store, 1)
    assert open_run(store).versions == ["1", "2"]
    assert published(store) == roll.first


def test_damage_to_a_version_is_found(store):
    digest = open_run(store, "1").manifest["stages"]["publish"]["digest"]
    chunk = store / "publish" / digest / "projection" / "c.0.0"
    chunk.write_bytes(chunk.read_bytes()[:-1])
    (problem,) = open_run(store).damaged()
    assert f"{digest}/projection/c.0.0" in problem
    (store / "versions" / "1.json").write_text("{}")
    with pytest.raises(StoreError, match=r"versions/1\.json is damaged"):
        run.superseded(run.open_store(store), STAGES)


def test_a_damaged_manifest_does_not_hide_versions_and_is_written_anew(roll, store):
    before = (store / "manifest.json").read_bytes()
    (store / "manifest.json").write_text("{}")
    assert published(store, "1") == roll.first
    with pytest.raises(StoreError, match=r"manifest\.json is damaged"):
        refitted(store, roll.new)
    fitted(roll.old, store)
    assert refitted(store, roll.new).version == "2"
    assert (store / "manifest.json").read_bytes() == before


def seen_whole(store, roll):
    """Which version a reader finds; every array of it, and its number of rows."""
    opened = open_run(store)
    embedding = opened.embedding()
    assert len(embedding) == opened.n_rows == len(opened.embedding("component"))
    assert embedding.tobytes() == {"1": roll.first, "2": roll.second}[opened.version]["projection"]
    return opened.version


def test_a_reader_during_the_switch_sees_one_version_or_the_other(roll, tmp_path):
    """All is computed before, so that the reader's loop runs while the switch does, back and forth."""
    store = copied(roll.twice, tmp_path / "run")
    seen, faults, over = [], [], threading.Event()

    def read():
        try:
            while not over.is_set():
                seen.append(seen_whole(store, roll))
                assert open_run(store, "1").n_rows == N_OLD
        except BaseException as error:
            faults.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for n_switches in count(1):
            fitted(roll.old, store)
            refitted(store, roll.new)
            if faults or ({*seen} == {"1", "2"} and n_switches >= 5):
                break
    finally:
        over.set()
        reader.join()
    assert faults == []


def test_at_every_write_of_the_switch_each_version_is_whole(roll, tmp_path, monkeypatch):
    """What a reader would find before and after each write, in whatever moment it comes."""
    store, found = copied(roll.run, tmp_path / "run"), []

    class Watched(LocalBackend):
        def write(self, key, data):
            super().write(key, data)
            found.append((key, seen_whole(store, roll)))
            assert published(store, "1") == roll.first

    early = open_run(store)
    assert early.n_rows == N_OLD
    monkeypatch.setitem(BACKENDS, "file", Watched)
    refitted(store, roll.new)
    switch = [key for key, _ in found].index("manifest.json")
    assert found[switch - 1][0] == "versions/1.json"
    assert {version for _, version in found[:switch]} == {"1"}
    assert {version for _, version in found[switch:]} == {"2"}
    assert early.embedding().tobytes() == roll.first["projection"], "who opened the run before goes on with what it was"


@pytest.fixture(scope="module")
def killed(roll):
    """The undisturbed refit, and a snapshot for every operation from its registration on."""
    folder = roll.folder / "killed"
    folder.mkdir()
    whole = copied(roll.run, folder / "whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BACKENDS, "file", SnapshotStore.start(folder / "snapshots", "register/"))
        refitted(whole, roll.new)
    return SimpleNamespace(folder=folder / "snapshots", expected=contents(whole), operations=SnapshotStore.taken)


def test_killed_at_any_operation_of_the_last_phase_it_shows_one_version_and_ends_the_same(roll, killed):
    assert {"versions/1.json", "manifest.json"} < set(killed.operations)
    for number, operation in enumerate(killed.operations):
        root, where = killed.folder / str(number), f"killed at operation {number}, {operation}"
        bury_the_holder(root)
        is_after = number > killed.operations.index("manifest.json")
        assert seen_whole(root, roll) == ("2" if is_after else "1"), where
        assert published(root, "1") == roll.first, where
        refitted(root, roll.new)
        assert contents(root) == killed.expected, where
        assert len(open_run(root).versions) == 2, where
