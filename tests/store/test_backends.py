"""Every backend passes the same suite; a run in memory has the bytes of a run on disk; plugins add schemes."""

import pickle
import uuid

import numpy as np
import pytest
from backend_suite import BackendSuite

from flows.status import collected_garbage
from pipeline import open_run
from pipeline.errors import InvalidInputError
from pipeline.jobs.batches import batches_with_results, done_batches
from pipeline.jobs.extend import extend
from pipeline.jobs.fit import fit
from pipeline.jobs.plan import free_disk
from pipeline.numerics.datasets import swiss_roll
from pipeline.plugins import LOADED
from pipeline.settings import ExtendSettings, fit_settings, job_settings
from pipeline.store import is_within, open_backend, run
from pipeline.store.backend import MemoryBackend
from pipeline.store.local import LocalBackend


class TestLocal(BackendSuite):
    @pytest.fixture
    def url(self, tmp_path):
        return str(tmp_path / "run.zarr")


class TestMemory(BackendSuite):
    @pytest.fixture
    def url(self):
        return f"memory://{uuid.uuid4().hex}"


class TestPlugin(BackendSuite):
    """A backend from outside of the package."""

    @pytest.fixture
    def url(self, tmp_path, monkeypatch):
        class Elsewhere(LocalBackend):
            def __init__(self, url):
                super().__init__(tmp_path / url.removeprefix("elsewhere://"))

        monkeypatch.setitem(LOADED.backends, "elsewhere", Elsewhere)
        return "elsewhere://run"


def test_a_path_and_its_url_are_the_same_store(tmp_path):
    open_backend(tmp_path / "run").write("x", b"1")
    assert open_backend(f"file://{tmp_path}/run").read("x") == b"1"


def test_an_unknown_scheme_is_refused_with_those_that_are_known():
    with pytest.raises(InvalidInputError, match=r"store='ftp://x' .*use a local path or one of file://, memory://"):
        open_backend("ftp://x")


def test_a_local_backend_is_pickled_as_its_path(tmp_path):
    backend = open_backend(tmp_path / "run", read_only=True)
    backend.adopt("x")
    copy = pickle.loads(pickle.dumps(backend))
    assert (type(copy), copy.url, copy.read_only) == (LocalBackend, str(tmp_path / "run"), True)
    assert len(pickle.dumps(backend)) < 200 + len(str(tmp_path))


def test_a_backend_in_memory_is_not_pickled():
    with pytest.raises(InvalidInputError, match=r"memory://x is in the memory of one process .*'serial'"):
        pickle.dumps(MemoryBackend("memory://x"))


def test_a_file_is_no_store(tmp_path):
    (tmp_path / "x").write_bytes(b"")
    with pytest.raises(InvalidInputError, match="is a file"):
        open_backend(tmp_path / "x")


@pytest.mark.parametrize(
    ("url", "outer", "within"),
    [
        ("a/b", "a", True),
        ("file://a/b", "a", True),
        ("a", "a", True),
        ("ab", "a", False),
        ("a", "a/b", False),
        ("memory://a", "memory://a", True),
        ("memory://a", "a", False),
        ("memory://a/b", "memory://a", False),
    ],
)
def test_what_is_within(tmp_path, monkeypatch, url, outer, within):
    monkeypatch.chdir(tmp_path)
    assert is_within(url, outer) is within


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The same fit and extension on disk and in memory: URLs of each."""
    folder, name = tmp_path_factory.mktemp("runs"), f"memory://{uuid.uuid4().hex}"
    points = swiss_roll(1400, seed=0).points
    np.save(folder / "old.npy", points[:1200])
    np.save(folder / "new.npy", points[1200:])
    places = {"disk": (str(folder / "run"), str(folder / "out")), "memory": (f"{name}/run", f"{name}/out")}
    for store, output in places.values():
        given = {"source": str(folder / "old.npy"), "store": store, "n_neighbors": 8, "n_landmarks": 60}
        fit(fit_settings(given))
        extend(job_settings(ExtendSettings, {"store": store, "source": str(folder / "new.npy"), "output": output}))
    return places


@pytest.mark.parametrize("which", [0, 1], ids=["fit", "extension"])
def test_a_run_in_memory_has_the_same_bytes(runs, which):
    disk, memory = (open_run(runs[kind][which]) for kind in ("disk", "memory"))
    assert disk.arrays == memory.arrays
    for name in disk.arrays:
        assert disk.embedding(name).tobytes() == memory.embedding(name).tobytes()
    assert disk.manifest["stages"] == memory.manifest["stages"]
    assert [stage.complete for stage in memory.status] == [stage.complete for stage in disk.status]
    assert run.open_store(runs["disk"][which]).size("") == pytest.approx(run.open_store(memory.url).size(""), rel=1e-3)


def test_a_run_in_memory_is_verified_and_collected(runs):
    store, _ = runs["memory"]
    backend = open_backend(store)
    assert open_run(store).damaged() == []
    digest = open_run(store).manifest["stages"]["embed"]["digest"]
    (key,) = [f"embed/{digest}/{name}/c.0.0" for name in backend.names(f"embed/{digest}") if "projection" in name][:1]
    whole = backend.read(key)
    backend.write(key, whole[:-1])
    assert any(key in problem for problem in open_run(store).damaged())
    backend.write(key, whole)
    backend.write(f"embed/{'0' * 20}/x", b"1234")
    value, _ = collected_garbage(store)
    assert value["removed"] == [f"embed/{'0' * 20}"]
    assert value["bytes"] == 4
    assert open_run(store).damaged() == []


def test_the_space_of_a_run_in_memory_is_that_of_the_machine(runs):
    assert free_disk(runs["memory"][0]) > 0


def test_results_of_several_batches_need_a_folder(tmp_path):
    with pytest.raises(InvalidInputError, match="is not a local folder"):
        batches_with_results(tmp_path, "memory://x")
    assert done_batches("memory://x") == []
