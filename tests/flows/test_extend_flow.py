"""extend as a command and as a flow: the same bytes on any workers, exit codes, a record and an event of drift."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from prefect.client.orchestration import get_client
from prefect.testing.utilities import prefect_test_harness

from flows import extend
from flows.events import DRIFT, store_resource
from pipeline import open_run
from pipeline.errors import DriftError, InvalidInputError
from pipeline.fanout.execution import executor
from pipeline.jobs.extend import extend as extend_here
from pipeline.jobs.fit import fit as fit_here
from pipeline.numerics.datasets import swiss_roll
from pipeline.settings import ClusterSettings, ExtendSettings, fit_settings, job_settings

COMMAND = Path(sys.executable).with_name("trigpoint")
SERIAL = ("--cluster-kind", "serial")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A fitted roll, new points on it and away from it, wide enough for several partitions."""
    folder = tmp_path_factory.mktemp("roll")
    turned = np.linalg.qr(np.random.default_rng(0).normal(size=(40, 3)))[0]
    points = swiss_roll(22_000, seed=1).points
    np.save(folder / "training.npy", points[:10_000] @ turned.T)
    np.save(folder / "new.npy", points[10_000:] @ turned.T)
    np.save(folder / "away.npy", points[10_000:12_000] @ turned.T + 0.5)
    given = {"source": str(folder / "training.npy"), "store": str(folder / "run"), "n_neighbors": 8, "n_landmarks": 100}
    fit_here(fit_settings(given))
    extend_here(settings(folder, "new.npy", folder / "serial"))
    return folder


def settings(folder, name, output, **more):
    given = {"store": str(folder / "run"), "source": str(folder / name), "output": str(output), "partition_mib": 1}
    return job_settings(ExtendSettings, {**given, **more})


def results(store):
    opened = open_run(store)
    return {name: opened.embedding(name).tobytes() for name in opened.arrays} | {"drift": opened.drift}


@pytest.mark.parametrize(("n_workers", "n_threads"), [pytest.param(1, 1, marks=pytest.mark.cluster), (2, 2)])
def test_any_workers_give_the_bytes_of_one_process(folder, tmp_path, n_workers, n_threads):
    with executor(ClusterSettings(kind="local", n_workers=n_workers, threads_per_worker=n_threads)) as execute:
        extend_here(settings(folder, "new.npy", tmp_path / "out"), execute=execute)
    assert results(tmp_path / "out") == results(folder / "serial")


@pytest.mark.cluster
def test_blocks_of_rows_have_the_same_bytes_on_workers(folder, tmp_path):
    np.save(folder / "few.npy", np.load(folder / "new.npy")[:100])
    extend_here(settings(folder, "few.npy", tmp_path / "serial", joint=10))
    with executor(ClusterSettings(kind="local", n_workers=2)) as execute:
        extend_here(settings(folder, "few.npy", tmp_path / "out", joint=10), execute=execute)
    assert results(tmp_path / "out") == results(tmp_path / "serial")


@pytest.mark.cluster
@pytest.mark.parametrize("stage", ["search", "place"])
def test_a_worker_killed_in_the_middle_changes_nothing(folder, tmp_path, stage):
    with executor(ClusterSettings(kind="local", n_workers=2)) as execute:
        killed = []

        def killing(work, partitions, computed):
            def after_the_first(partition):
                computed(partition)
                if work.stage.name == stage and not killed:
                    killed.extend(execute.client.run(os.getpid).values())
                    os.kill(killed[0], signal.SIGKILL)

            execute(work, partitions, after_the_first)

        extend_here(settings(folder, "new.npy", tmp_path / "out"), execute=killing)
    assert killed
    assert results(tmp_path / "out") == results(folder / "serial")
    assert not list((tmp_path / "out").rglob("*.partial"))


def test_the_command_says_how_new_rows_compare(trigpoint, folder, tmp_path):
    code, out, err = trigpoint("extend", folder / "run", folder / "new.npy", "--output", tmp_path / "out", *SERIAL)
    assert (code, err) == (0, "")
    assert "12,000 of 12,000 rows placed." in out
    assert "These rows are like the fitted ones (each column tested at level 0.0033)." in out
    code, out, _ = trigpoint("extend", folder / "run", folder / "new.npy", "--output", tmp_path / "out", *SERIAL)
    assert "Every stage was complete already: nothing was computed." in out
    code, _, _ = trigpoint("export", tmp_path / "out", "--array", "gap_rank", "--output", tmp_path / "ranks.npy")
    assert code == 0
    assert np.load(tmp_path / "ranks.npy").shape == (12_000,)


def test_drift_is_exit_code_3_where_it_is_asked_for(trigpoint, folder, tmp_path):
    command = ("extend", folder / "run", folder / "away.npy", "--output", tmp_path / "out", *SERIAL)
    code, out, err = trigpoint(*command)
    assert (code, err) == (0, "")
    assert "These rows are not like the fitted ones, by their" in out
    code, out, err = trigpoint(*command, "--fail-on-drift", "--json")
    assert code == 3
    assert "not like the rows that were fitted" in err
    assert json.loads(out)["batches"][0]["drift"]["columns"]["nearest"]["drifts"]
    code, _, _ = trigpoint("extend", folder / "run", folder / "new.npy", "--output", tmp_path / "on", *SERIAL, "--json")
    assert code == 0


def test_bad_input_is_exit_code_2(trigpoint, folder, tmp_path):
    np.save(tmp_path / "narrow.npy", np.zeros((5, 3)))
    code, _, err = trigpoint("extend", folder / "run", tmp_path / "narrow.npy", "--output", tmp_path / "out", *SERIAL)
    assert code == 2
    assert "has 3 columns; the run was fitted on 40" in err
    assert not (tmp_path / "out").exists()
    code, _, err = trigpoint("extend", folder / "run", folder / "new.npy", *SERIAL)
    assert code == 2
    assert "Missing argument OUTPUT" in err


def test_batches_of_a_folder_are_shown_over_time(trigpoint, folder, tmp_path):
    incoming = tmp_path / "incoming"
    incoming.mkdir()
    (incoming / "2026-01-01.npy").symlink_to(folder / "new.npy")
    (incoming / "2026-01-02.npy").symlink_to(folder / "away.npy")
    command = ("extend", folder / "run", incoming, "--incoming", "--output", tmp_path / "batches", *SERIAL)
    assert trigpoint(*command, "--fail-on-drift")[0] == 3
    code, out, _ = trigpoint(*command, "--fail-on-drift")
    assert (code, "No new batch: nothing to do." in out) == (0, True)
    code, out, _ = trigpoint("status", tmp_path / "batches")
    assert code == 0
    first, second = out.splitlines()[1:3]
    assert first.startswith("  2026-01-01.npy.zarr")
    assert "drifts" not in first
    assert second.endswith("drifts")
    assert out.splitlines()[-1].endswith("2 batches, 1 not like the fitted rows.")
    value = json.loads(trigpoint("status", tmp_path / "batches", "--json")[1])
    assert (len(value["batches"]), value["n_drifting"]) == (2, 1)
    code, out, _ = trigpoint("export", tmp_path / "batches", "--output", tmp_path / "y.npy")
    assert (code, out) == (0, f"14,000 rows of projection of 2 batches are in {tmp_path / 'y.npy'}.\n")
    assert np.load(tmp_path / "y.npy")[:12_000].tobytes() == open_run(folder / "serial").embedding().tobytes()
    code, _, err = trigpoint("export", tmp_path / "batches", "--version", "1", "--output", tmp_path / "y.npy")
    assert (code, "holds batches, which have no versions; leave it out" in err) == (2, True)


@pytest.fixture(scope="module")
def server():
    with prefect_test_harness(server_startup_timeout=120):
        yield


@pytest.mark.usefixtures("server")
@pytest.mark.cluster
class TestFlow:
    def test_it_returns_figures_and_keeps_a_record(self, folder, tmp_path):
        report = extend(settings(folder, "new.npy", tmp_path / "out", cluster={"kind": "local", "n_workers": 2}))
        assert report["batches"][0]["n_placed"] == 12_000
        assert results(tmp_path / "out") == results(folder / "serial")
        found = asked("/artifacts/filter", {"artifacts": {"type": {"any_": ["table"]}}})
        assert any(artifact["key"].startswith("drift-run-") for artifact in found)

    def test_drift_is_an_event_of_the_store_and_fails_where_it_should(self, folder, tmp_path):
        serial = {"kind": "serial"}
        with pytest.raises(DriftError, match="not like the rows that were fitted"):
            extend(settings(folder, "away.npy", tmp_path / "out", cluster=serial), fail_on_drift=True)
        assert open_run(tmp_path / "out").n_rows == 2000
        resource = store_resource(str(folder / "run"))
        wanted = {"filter": {"event": {"name": [DRIFT]}, "resource": {"id": [resource]}}}
        deadline = time.monotonic() + 60
        while not (events := asked("/events/filter", wanted)["events"]):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert events[0]["payload"]["n_rows"] == 2000

    def test_settings_and_keywords_do_not_mix(self, folder, tmp_path):
        with pytest.raises(InvalidInputError, match="settings are given, and level besides"):
            extend(settings(folder, "new.npy", tmp_path / "out"), level=0.1)


def asked(path, question):
    with get_client(sync_client=True) as client:
        return client.request("POST", path, json=question).json()
