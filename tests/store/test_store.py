"""The store: whole or not at all, checked, and honest about what is complete."""

import json
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import LeaseHeldError, StoreError
from pipeline.store import lease, local
from pipeline.store.arrays import create_array, open_array
from pipeline.store.backend import Objects
from pipeline.store.ledger import StageLedger, stage_digest
from pipeline.store.local import LocalBackend


@pytest.fixture
def store(tmp_path):
    return LocalBackend(tmp_path / "run.zarr")


def files(store):
    return sorted(str(p.relative_to(store.root)) for p in store.root.rglob("*") if p.is_file())


class TestObjects:
    def test_what_is_written_is_read(self, store):
        objects = Objects(store)
        objects.write("a/b.json", {"x": [1, 2.5, None], "y": "ü"})
        assert objects.read("a/b.json") == {"x": [1, 2.5, None], "y": "ü"}
        assert objects.read("a/c.json") is None
        assert objects.names("a") == ["b.json"]

    def test_only_the_first_creates(self, store):
        objects = Objects(store)
        assert objects.create("x.json", {"by": 1})
        assert not objects.create("x.json", {"by": 2})
        assert objects.read("x.json") == {"by": 1}
        assert files(store) == ["x.json"]

    @pytest.mark.parametrize("key", ["../x", "/etc/passwd", "a/../../x", "", "a//b", "./a"])
    def test_keys_stay_below_the_root(self, store, key):
        with pytest.raises(StoreError, match="leaves the store's root or is malformed"):
            Objects(store).write(key, {})

    @pytest.mark.parametrize("text", ["{", "", "[1]", "\xff"])
    def test_damaged_text_is_named(self, store, text):
        Objects(store).write("x.json", {})
        (store.root / "x.json").write_text(text, encoding="latin-1")
        with pytest.raises(StoreError, match=r"x\.json is damaged"):
            Objects(store).read("x.json")


class TestDurability:
    def test_what_a_commit_vouches_for_is_synced_before_it_appears(self, store, monkeypatch):
        """A power cut at any moment then finds no commit without its data."""
        events = []
        sync, write = os.fsync, LocalBackend.write

        def recorded_sync(descriptor):
            path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            events.append(("sync", str(path.relative_to(store.root)) if path != store.root.parent else ".."))
            sync(descriptor)

        def recorded_write(self, key, data):
            write(self, key, data)
            events.append(("write", key))

        monkeypatch.setattr(os, "fsync", recorded_sync)
        monkeypatch.setattr(LocalBackend, "write", recorded_write)
        ledger = StageLedger(store, "s", "d")
        ledger.write("x", np.arange(6.0), 32)
        ledger.commit({0: ({}, ["x"])})
        commit = events.index(("write", "s/d/ledger/partition-00000000.json"))
        written = {key for kind, key in events[:commit] if kind == "write"}
        assert written == {"zarr.json", "s/zarr.json", "s/d/zarr.json", "s/d/x/zarr.json", "s/d/x/c.0", "s/d/x/c.1"}
        folders = {"..", ".", "s", "s/d", "s/d/x"}
        assert {key for kind, key in events[:commit] if kind == "sync"} == written | folders
        last_write = max(i for i, event in enumerate(events[:commit]) if event[0] == "write")
        assert min(i for i, event in enumerate(events) if event[0] == "sync") > last_write
        assert {key for _, key in events[commit + 1 :]} >= {"s/d/ledger/partition-00000000.json", "s/d/ledger"}

    def test_a_batch_of_commits_appears_after_all_of_its_data(self, store, monkeypatch):
        events = []
        flush = LocalBackend.flush
        monkeypatch.setattr(LocalBackend, "flush", lambda self: (flush(self), events.append("flush")))
        write = LocalBackend.write

        def recorded_write(self, key, data):
            write(self, key, data)
            events.append(key)

        monkeypatch.setattr(LocalBackend, "write", recorded_write)
        ledger = StageLedger(store, "s", "d")
        for partition in range(3):
            ledger.write_parts(partition, {"x": np.arange(6.0)})
        ledger.commit({partition: ({}, [f"x-{partition:08d}"]) for partition in range(3)})
        commits = [f"s/d/ledger/partition-{partition:08d}.json" for partition in range(3)]
        assert events[-5:] == ["flush", *commits, "flush"]
        assert ledger.complete() == [0, 1, 2]
        assert [ledger.is_complete(partition) for partition in (2, 3)] == [True, False]

    def test_a_store_travels_between_processes(self, store):
        Objects(store).write("a.json", {"x": 1})
        copy = pickle.loads(pickle.dumps(store))
        assert (copy.root, copy.read_only) == (store.root, False)
        assert Objects(copy).read("a.json") == {"x": 1}

    def test_interrupted_writes_are_swept(self, store):
        Objects(store).write("a/x.json", {})
        (store.root / "a" / ".y.json.1234.partial").write_bytes(b"half")
        assert store.sweep_partials() == 1
        assert files(store) == ["a/x.json"]

    def test_a_failed_write_leaves_nothing(self, tmp_path, monkeypatch):
        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(local.os, "replace", full)
        with pytest.raises(OSError, match="No space left"):
            local.write_whole(str(tmp_path / "x"), b"data", exclusive=False)
        assert list(tmp_path.iterdir()) == []


class TestArrays:
    @pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.bool_])
    @pytest.mark.parametrize("shape", [(10,), (10, 3), (1, 1), (7, 2, 2)])
    def test_what_is_written_is_read(self, store, rng, shape, dtype):
        rows = rng.integers(0, 2, size=shape).astype(dtype)
        array = create_array(store, "s/x", shape, dtype, 4)
        for first in range(0, shape[0], 4):
            array.write(first, rows[first : first + 4])
        np.testing.assert_array_equal(open_array(store, "s/x").read(), rows)
        np.testing.assert_array_equal(open_array(store, "s/x").read(1, shape[0]), rows[1:])

    @given(st.integers(1, 30), st.integers(1, 10), st.integers(0, 40), st.integers(1, 40))
    def test_only_whole_chunks_are_written(self, n, chunk, first, size):
        with LocalBackendInTemporaryFolder() as store:
            array = create_array(store, "x", (n,), np.float64, chunk)
            stop = first + size
            aligned = first % array.chunk_rows == 0 and (stop == n or (stop < n and stop % array.chunk_rows == 0))
            if aligned:
                array.write(first, np.arange(size, dtype=np.float64))
            else:
                with pytest.raises(StoreError, match="not whole chunks"):
                    array.write(first, np.arange(size, dtype=np.float64))

    def test_another_dtype_or_width_is_refused(self, store):
        array = create_array(store, "x", (4, 2), np.float32, 4)
        for rows in (np.zeros((4, 2)), np.zeros((4, 3), np.float32)):
            with pytest.raises(StoreError, match="do not fit"):
                array.write(0, rows)

    def test_creating_again_keeps_what_is_there(self, store):
        create_array(store, "x", (8,), np.float64, 4).write(0, np.arange(4.0))
        create_array(store, "x", (8,), np.float64, 4).write(4, np.arange(4.0, 8))
        np.testing.assert_array_equal(open_array(store, "x").read(), np.arange(8.0))

    def test_chunks_of_fill_value_are_written_too(self, store):
        create_array(store, "x", (8,), np.float64, 4).write(0, np.full(4, np.nan))
        create_array(store, "x", (8,), np.float64, 4).write(4, np.full(4, np.nan))
        assert {"x/c.0", "x/c.1"} < set(files(store))


@pytest.fixture
def finished_stage(store, rng):
    """A stage of two partitions with an array of their own each and one between them."""
    ledger = StageLedger(store, "embed", "abc")
    shared = ledger.create("shared", (8, 3), np.float32, 4)
    for p in range(2):
        ledger.write(f"own-{p}", rng.normal(size=(5, 2)), 32)
        shared.write(4 * p, rng.normal(size=(4, 3)).astype(np.float32))
        ledger.commit({p: ({"rows": 5 + p}, [f"own-{p}"])})
    ledger.finish(2, {"total": 11}, ["shared"])
    return ledger


class TestLedger:
    def test_figures_come_back(self, finished_stage):
        assert finished_stage.committed() == {0: {"rows": 5}, 1: {"rows": 6}}
        assert finished_stage.finished() == {"total": 11}
        assert finished_stage.read("shared").shape == (8, 3)
        assert finished_stage.read("own-1", partition=1).shape == (5, 2)
        assert finished_stage.damaged() == []

    def test_what_is_not_complete_is_not_read(self, store):
        ledger = StageLedger(store, "embed", "abc")
        ledger.write("x", np.zeros(3), 16)
        with pytest.raises(StoreError, match="not complete"):
            ledger.read("x", partition=0)
        with pytest.raises(StoreError, match="not complete"):
            ledger.read("x")
        ledger.commit({0: ({}, [])})
        with pytest.raises(StoreError, match="does not vouch for array x"):
            ledger.read("x", partition=0)
        assert ledger.finished() is None

    def test_a_stage_with_missing_partitions_is_not_finished(self, store):
        ledger = StageLedger(store, "embed", "abc")
        ledger.commit({1: ({}, [])})
        with pytest.raises(StoreError, match="partitions 0, 2, 3 are not complete"):
            ledger.finish(4, {})

    @pytest.mark.parametrize("place", ["embed/abc/shared/c.1.0", "embed/abc/own-0/c.2.0"])
    @pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "delete"])
    def test_a_damaged_chunk_is_named_and_never_read(self, finished_stage, place, damage):
        path = finished_stage.store.root / place
        data = bytearray(path.read_bytes())
        if damage == "delete":
            path.unlink()
        else:
            data[len(data) // 2] ^= 16
            path.write_bytes({"flip": bytes(data), "truncate": bytes(data[:-3]), "empty": b""}[damage])
        (problem,) = finished_stage.damaged()
        assert place in problem
        name = place.split("/")[2]
        with pytest.raises(StoreError, match=place):
            finished_stage.read(name, partition=None if name == "shared" else 0).read()

    @pytest.mark.parametrize("damage", ["truncate", "edit", "delete"])
    def test_a_damaged_description_is_named(self, finished_stage, damage):
        path = finished_stage.store.root / "embed/abc/shared/zarr.json"
        text = path.read_text()
        if damage == "delete":
            path.unlink()
        else:
            path.write_text({"truncate": text[:50], "edit": text.replace('"NaN"', "0")}[damage])
        (problem,) = finished_stage.damaged()
        assert "embed/abc/shared/zarr.json" in problem
        with pytest.raises(StoreError, match=r"shared/zarr\.json"):
            finished_stage.read("shared")

    def test_digest_names_the_work_and_nothing_else(self):
        base = stage_digest("graph", 1, {"k": 5, "policy": "bridge"}, ["aa"])
        assert base == stage_digest("graph", 1, {"policy": "bridge", "k": 5}, ["aa"])
        others = [
            stage_digest("graph", 1, {"k": 6, "policy": "bridge"}, ["aa"]),
            stage_digest("graph", 1, {"k": 5, "policy": "bridge"}, ["ab"]),
            stage_digest("rows", 1, {"k": 5, "policy": "bridge"}, ["aa"]),
            stage_digest("graph", 2, {"k": 5, "policy": "bridge"}, ["aa"]),
        ]
        assert len({base, *others}) == 5


class LocalBackendInTemporaryFolder:
    """A store for a test that hypothesis repeats."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        return LocalBackend(self.folder.name)

    def __exit__(self, *_):
        self.folder.cleanup()


# Waits for a first line of input, tries, answers, and lives until its input ends: a winner that ends counts as dead.
CONTENDER = """
import sys
from pipeline.errors import LeaseHeldError
from pipeline.store import lease
from pipeline.store.local import LocalBackend
store = LocalBackend(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
try:
    lease.acquire(store)
    print("won", flush=True)
except LeaseHeldError as error:
    print(error, flush=True)
sys.stdin.read()
"""


class TestLease:
    def test_of_eight_at_once_one_wins_and_the_others_name_it(self, tmp_path):
        command = [sys.executable, "-c", CONTENDER, tmp_path]
        contenders = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(8)
        ]
        for process in contenders:
            assert process.stdout.readline() == "ready\n"
        for process in contenders:
            process.stdin.write("go\n")
            process.stdin.flush()
        answers = [process.stdout.readline() for process in contenders]
        for process in contenders:
            process.communicate(timeout=60)
        assert answers.count("won\n") == 1
        winner = contenders[answers.index("won\n")].pid
        assert all(f"process {winner} on" in answer for answer in answers if answer != "won\n")

    def test_a_released_lease_is_taken_without_asking(self, store):
        with lease.acquire(store) as first:
            pass
        assert lease.acquire(store).epoch == first.epoch + 1

    def test_a_living_holder_is_respected(self, store):
        lease.acquire(store)
        with pytest.raises(LeaseHeldError, match=rf"held by process {os.getpid()} on .*--take-over"):
            lease.acquire(store)

    def test_a_dead_holder_is_recognized(self, store):
        code = (
            "import sys; from pipeline.store.local import LocalBackend; from pipeline.store import lease;"
            "lease.acquire(LocalBackend(sys.argv[1]))"
        )
        subprocess.run([sys.executable, "-c", code, store.root], check=True, timeout=60)
        assert lease.acquire(store).epoch == 2

    def test_a_holder_elsewhere_must_be_taken_over_explicitly_and_is_fenced_off(self, store):
        first = lease.acquire(store)
        path = store.root / "lease" / "00000001.json"
        path.write_text(json.dumps({**first.holder, "host": "elsewhere", "pid": 1}))
        with pytest.raises(LeaseHeldError, match="process 1 on elsewhere"):
            lease.acquire(store)
        second = lease.acquire(store, take_over=True)
        second.ensure_held()
        with pytest.raises(LeaseHeldError, match="this run lost"):
            first.ensure_held()
        first.release()
        second.ensure_held()


class TestPowerCuts:
    """What is vouched for is synced, whoever wrote it; what is complete survives a torn description."""

    def synced(self, monkeypatch):
        paths = []
        monkeypatch.setattr(local, "_sync", lambda path: paths.append(Path(path)))
        return paths

    def test_an_array_taken_over_from_another_attempt_is_synced(self, store, monkeypatch):
        StageLedger(store, "s", "d").write("x", np.arange(6.0))
        again = LocalBackend(store.root)
        paths = self.synced(monkeypatch)
        StageLedger(again, "s", "d").create("x", (6,), np.float64, 6)
        again.flush()
        assert store.root / "s/d/x/zarr.json" in paths

    @pytest.mark.parametrize("torn", [b"", b'{"zarr_fo'])
    def test_a_torn_description_is_written_anew_and_chunks_stay(self, store, torn):
        ledger = StageLedger(store, "s", "d")
        ledger.create("x", (6,), np.float64, 6).write(0, np.arange(6.0))
        (store.root / "s/d/x/zarr.json").write_bytes(torn)
        np.testing.assert_array_equal(ledger.create("x", (6,), np.float64, 6).read(), np.arange(6.0))

    def test_what_could_not_be_synced_is_not_forgotten(self, store, monkeypatch):
        Objects(store).write("x.json", {})

        def fails(_):
            raise OSError(5, "Input/output error")

        with monkeypatch.context() as patch:
            patch.setattr(local, "_sync", fails)
            with pytest.raises(OSError, match="Input/output"):
                store.flush()
        paths = self.synced(monkeypatch)
        store.flush()
        assert store.root / "x.json" in paths

    def test_a_folder_made_later_is_named_durably(self, store, monkeypatch):
        Objects(store).write("a/x.json", {})
        store.flush()
        paths = self.synced(monkeypatch)
        Objects(store).write("a/b/c/y.json", {})
        store.flush()
        assert {store.root / name for name in ("a/b/c/y.json", "a/b/c", "a/b", "a")} <= set(paths)
