"""The tests that every store backend must pass.

For a backend of your own, subclass `BackendSuite` in a test module and override the fixture `url` with the URL of a
new, empty store for each test; its scheme must be known to `open_backend`.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest

from pipeline.errors import LeaseHeldError, StoreError
from pipeline.store import lease, open_backend
from pipeline.store.backend import Objects
from pipeline.store.ledger import StageLedger

N_THREADS = 8
OUTSIDE = ["../x", "/etc/passwd", "a/../../x", "a//b", "./a", "a/", "."]


class BackendSuite:
    @pytest.fixture
    def url(self):
        raise NotImplementedError("override the fixture url: a new, empty store for each test")

    @pytest.fixture
    def backend(self, url):
        return open_backend(url)

    def test_what_is_written_is_read_by_everyone_who_opens_the_url(self, backend, url):
        for data in (b"one", b"", bytes(range(256)) * 1000):
            backend.write("a/b/c.bin", data)
            assert backend.read("a/b/c.bin") == open_backend(url).read("a/b/c.bin") == data
            assert backend.exists("a/b/c.bin")

    def test_views_of_arrays_are_written_as_their_bytes(self, backend):
        rows = np.arange(5, dtype=np.uint8)
        backend.write("x", rows.data)
        rows[:] = 0
        assert backend.read("x") == bytes(range(5))

    @pytest.mark.parametrize("key", ["x", "a/x", "a/b/x", "a"])
    def test_what_is_missing_is_none(self, backend, key):
        backend.write("a/b.bin", b"")
        assert backend.read(key) is None
        assert not backend.exists(key)
        assert backend.written_at("a/x") is None

    def test_replaced_objects_are_old_or_new_but_never_mixed(self, backend, url):
        wanted = {bytes([number]) * 100_000 for number in range(N_THREADS)}
        backend.write("x", min(wanted))
        with ThreadPoolExecutor(2 * N_THREADS) as threads:
            writes = [threads.submit(backend.write, "x", data) for data in sorted(wanted) * 5]
            reads = [threads.submit(open_backend(url).read, "x") for _ in range(100)]
            assert {read.result() for read in reads} <= wanted
            for write in writes:
                write.result()

    def test_of_many_threads_one_creates(self, backend, url):
        start = Barrier(N_THREADS)

        def create(number):
            own = open_backend(url)
            start.wait()
            return own.create("a/x", bytes([number]))

        with ThreadPoolExecutor(N_THREADS) as threads:
            won = list(threads.map(create, range(N_THREADS)))
        assert won.count(True) == 1
        assert backend.read("a/x") == bytes([won.index(True)])
        assert not backend.create("a/x", b"late")
        assert backend.names("a") == ["x"]

    def test_names_are_those_directly_below(self, backend):
        for key in ("x", "a/y", "a/b/z", "ab/w"):
            backend.write(key, b"")
        assert sorted(backend.names("")) == ["a", "ab", "x"]
        assert sorted(backend.names("a")) == ["b", "y"]
        assert backend.names("none") == backend.names("a/none") == backend.names("x") == []

    def test_an_unused_store_is_empty(self, backend):
        assert backend.names("") == []
        assert backend.size("") == 0
        assert backend.free_bytes() > 0

    def test_deleted_objects_are_gone_and_their_names_too(self, backend):
        for key in ("x", "a/y", "a/b/z", "ab/w"):
            backend.write(key, b"1")
        backend.delete("x")
        backend.delete("x")
        backend.delete_below("a")
        backend.delete_below("a")
        assert backend.names("") == ["ab"]
        assert backend.read("a/b/z") is None
        backend.write("a/y", b"2")
        backend.flush()
        assert backend.read("a/y") == b"2"

    def test_sizes_are_those_of_all_objects_below(self, backend):
        for key, size in {"x": 1, "a/y": 10, "a/b/z": 100, "ab/w": 1000}.items():
            backend.write(key, bytes(size))
        assert [backend.size(prefix) for prefix in ("", "a", "a/b", "ab", "none")] == [1111, 110, 100, 1000, 0]

    def test_the_time_of_a_write_is_known(self, backend):
        before = time.time()
        backend.write("x", b"")
        # Clocks of servers and file systems are a little off.
        assert before - 5 <= backend.written_at("x") <= time.time() + 5

    @pytest.mark.parametrize("key", OUTSIDE)
    def test_keys_stay_below_the_root(self, backend, key):
        for operation in ("read", "exists", "delete", "delete_below", "names", "size", "written_at"):
            with pytest.raises(StoreError, match="leaves the store's root or is malformed"):
                getattr(backend, operation)(key)

    @pytest.mark.parametrize("key", ["", *OUTSIDE])
    def test_nothing_is_written_outside_of_the_root(self, backend, key):
        for operation in (backend.write, backend.create):
            with pytest.raises(StoreError, match="leaves the store's root or is malformed"):
                operation(key, b"")

    def test_what_was_opened_for_reading_is_not_changed(self, backend, url):
        backend.write("x.json", b"{}")
        objects = Objects(open_backend(url, read_only=True))
        assert objects.read("x.json") == {}
        for change in (objects.delete, objects.delete_below, lambda key: objects.write(key, {})):
            with pytest.raises(ValueError, match="opened for reading only"):
                change("x.json")
        with pytest.raises(ValueError, match="opened for reading only"):
            objects.create("y.json", {})
        assert backend.names("") == ["x.json"]

    def test_a_stage_is_written_committed_and_verified(self, backend, url, rng):
        rows, ledger = rng.normal(size=(50, 3)), StageLedger(backend, "embed", "abc")
        ledger.commit({0: ({"n": 50}, ledger.write_parts(0, {"x": rows}, 300))})
        ledger.finish(1, {})
        opened = StageLedger(open_backend(url, read_only=True), "embed", "abc")
        np.testing.assert_array_equal(opened.part("x", 0).read(), rows)
        assert opened.damaged() == []
        key = "embed/abc/x-00000000/c.1.0"
        backend.write(key, backend.read(key)[:-1] + b"\0")
        (problem,) = opened.damaged()
        assert key in problem
        assert str(backend) in problem

    def test_one_holds_the_lease(self, backend, url):
        with lease.acquire(backend), pytest.raises(LeaseHeldError, match="is held by"):
            lease.acquire(open_backend(url))
        assert lease.acquire(open_backend(url)).epoch == 2
