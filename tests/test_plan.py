"""What a fit will take, before anything runs: sums, shares, refusals; and the commands that say so."""

import json
import re
import shutil
from collections import namedtuple
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import InvalidInputError
from pipeline.jobs import plan as planning
from pipeline.jobs.fit import STAGES, fit_costs, plan_fit
from pipeline.jobs.plan import free_disk, memory_of_worker, workers_of
from pipeline.numerics.datasets import swiss_roll
from pipeline.results.run import in_words, open_run
from pipeline.settings import ClusterSettings, fit_settings
from pipeline.sources.numpy_files import NumpyRows
from pipeline.stages.stage import BASE, MIB
from pipeline.store import run
from pipeline.store.local import LocalBackend

SERIAL = ("--cluster-kind", "serial")
GIB = 1 << 30
Usage = namedtuple("Usage", ["total", "used", "free"])
ADDRESS = {"kind": "address", "address": "tcp://127.0.0.1:8786"}


def shaped(n_rows, n_columns, dtype=np.float64):
    """All of a source that may be asked for."""
    return SimpleNamespace(shape=(n_rows, n_columns), dtype=np.dtype(dtype))


def settings_of(store="nowhere/run", cluster=None, **given):
    return fit_settings({"source": "x.npy", "store": str(store), "cluster": cluster or {"kind": "serial"}, **given})


def planned(n_rows=1_000_000, n_columns=3, **given):
    return plan_fit(settings_of(**given), shaped(n_rows, n_columns))


def workers(n_workers, threads=1, memory_mib=None):
    return {"kind": "local", "n_workers": n_workers, "threads_per_worker": threads, "memory_mib": memory_mib}


SIZES = {"n_rows": st.integers(100, 10**9), "n_columns": st.integers(2, 2000)}
SETTINGS = {"pca": st.sampled_from([None, 1]), "n_components": st.integers(1, 20), "partition_mib": st.integers(1, 64)}


@given(st.fixed_dictionaries({**SIZES, **SETTINGS}))
def test_one_worker_takes_what_the_stages_cost_in_their_order(sizes):
    costs = fit_costs(
        settings_of(**{name: sizes[name] for name in SETTINGS}), shaped(sizes["n_rows"], sizes["n_columns"])
    )
    plan = planned(**sizes)
    tasks = {stage: cost.tasks for stage, cost in costs.items()}
    seconds = {stage: cost.seconds for stage, cost in costs.items()}
    assert [stage.stage for stage in plan.stages] == [stage for stage in STAGES if stage in tasks]
    assert {stage.stage: stage.n_tasks for stage in plan.stages} == tasks
    assert plan.seconds == pytest.approx(seconds)
    assert sum(plan.seconds.values()) == pytest.approx(sum(seconds.values()))
    assert plan.disk == sum(stage.disk for stage in plan.stages) == sum(cost.disk for cost in costs.values())
    assert plan.memory == {stage.stage: stage.memory for stage in plan.stages}


@given(st.fixed_dictionaries(SIZES), st.integers(1, 64), st.integers(1, 64), st.integers(1, 8))
def test_more_workers_never_take_longer_and_none_does_anothers_work(sizes, n_workers, more, threads):
    alone = planned(**sizes).seconds
    few = planned(**sizes, cluster=workers(n_workers, threads))
    many = planned(**sizes, cluster=workers(n_workers + more, threads))
    assert few.disk == many.disk
    assert few.memory == many.memory
    for stage in few.stages:
        name = stage.stage
        assert many.seconds[name] <= few.seconds[name] <= alone[name] * (1 + 1e-9)
        assert few.seconds[name] * n_workers * threads >= alone[name] * (1 - 1e-9)
        assert stage.n_tasks > 1 or few.seconds[name] == pytest.approx(alone[name])


@given(st.fixed_dictionaries(SIZES), st.integers(1, 16), st.integers(1, 64), st.integers(1, 64))
def test_memory_grows_with_threads_by_all_but_the_libraries(sizes, n_workers, threads, more):
    one, few, many = (
        planned(**sizes, cluster=workers(n_workers, count)).memory for count in (1, threads, threads + more)
    )
    assert all(many[stage] > few[stage] for stage in few)
    assert few == {stage: BASE + threads * (memory - BASE) for stage, memory in one.items()}


def test_threads_share_every_stage_but_shortest_paths():
    one, four = (planned(cluster=workers(2, threads)).seconds for threads in (1, 4))
    assert one["rows"] == four["rows"]
    assert four["neighbors"] < one["neighbors"]


@given(st.floats(0.1, 10), st.floats(0.1, 10))
def test_what_does_not_fit_is_refused_and_nothing_else(memory_share, disk_share):
    plan = planned()
    needed = max(plan.memory.values())
    plan = replace(plan, worker_memory=int(memory_share * needed), free_disk=int(disk_share * plan.disk))
    problems = plan.problems()
    assert len(problems) == (plan.worker_memory < needed) + (plan.free_disk < plan.disk)
    if problems:
        with pytest.raises(InvalidInputError) as refusal:
            plan.require_feasible()
        assert str(refusal.value) == " ".join(problems)
    else:
        plan.require_feasible()


def test_what_fits_exactly_fits():
    plan = planned()
    exact = replace(plan, worker_memory=max(plan.memory.values()), free_disk=plan.disk)
    assert exact.problems() == []
    assert len(replace(exact, worker_memory=exact.worker_memory - 1).problems()) == 1
    assert len(replace(exact, free_disk=exact.free_disk - 1).problems()) == 1


@pytest.fixture
def disk(monkeypatch):
    """Say how much of every disk is free; where that was asked."""
    asked = []

    def set_free(free):
        def usage(path):
            asked.append(str(path))
            return Usage(2 * free, free, free)

        monkeypatch.setattr(shutil, "disk_usage", usage)
        return asked

    return set_free


def test_too_little_memory_is_refused_with_the_stage_both_figures_and_what_to_do(disk):
    disk(10**18)
    plan = planned(100_000_000, 3, cluster=workers(4, memory_mib=256))
    worst = max(plan.stages, key=lambda stage: stage.memory)
    assert worst.stage == "rows"
    with pytest.raises(InvalidInputError) as refusal:
        plan.require_feasible()
    message = str(refusal.value)
    assert message.startswith(f"stage rows needs {worst.memory / MIB:,.0f} MiB of memory in a worker, which has 256: ")
    for remedy in ("cluster.n_workers", "cluster.memory_mib", "partition_mib", "fewer rows"):
        assert remedy in message
    assert "disk" not in message


def test_too_little_disk_is_refused_with_both_figures_and_what_to_do(disk):
    disk(3 * MIB)
    plan = planned(cluster=workers(1, memory_mib=10**6))
    (problem,) = plan.problems()
    assert f"the store needs {plan.disk / MIB:,.0f} MiB of disk, where 3 are free: choose another place" in problem
    assert "fewer landmarks" in problem
    disk(plan.disk)
    assert planned(cluster=workers(1, memory_mib=10**6)).problems() == []


def test_what_the_latest_command_left_counts_as_free(tmp_path, disk):
    asked = disk(1000)
    store = tmp_path / "run"
    assert free_disk(str(store)) == 1000
    for digest, size in (("a" * 20, 123), ("b" * 20, 4567)):
        (store / "rows" / digest / "c").mkdir(parents=True)
        (store / "rows" / digest / "c" / "0").write_bytes(b"x" * size)
    assert free_disk(str(store)) == 1000
    run.write_journal(LocalBackend(store), [{"stage": "rows", "digest": "a" * 20, "n_partitions": 1}])
    assert free_disk(str(store)) == free_disk(f"file://{store}") == 1123
    assert asked == [str(tmp_path), *[str(store)] * 3]
    (store / "journal.json").write_bytes(b"damaged")
    assert free_disk(str(store)) == 1000


def test_free_disk_is_that_of_the_nearest_folder_that_is_there(tmp_path, disk, monkeypatch):
    asked = disk(1000)
    monkeypatch.chdir(tmp_path)
    assert free_disk(str(tmp_path / "a" / "b" / "run")) == free_disk("run") == 1000
    assert asked == [str(tmp_path)] * 2


def test_memory_of_workers_elsewhere_is_not_known(disk):
    disk(10**18)
    plan = planned(10**9, 3, cluster={**ADDRESS, "n_workers": 7})
    assert (plan.n_workers, plan.worker_memory, plan.problems()) == (7, None, [])
    (problem,) = replace(plan, free_disk=0).problems()
    assert "MiB of disk" in problem


@pytest.mark.parametrize(
    ("cluster", "n_workers", "memory"),
    [
        ({"kind": "serial"}, 1, 12 * GIB),
        ({}, 3, 4 * GIB),
        ({"kind": "auto", "n_workers": 2}, 2, 6 * GIB),
        ({"kind": "local"}, 3, 4 * GIB),
        ({"kind": "local", "n_workers": 2}, 2, 6 * GIB),
        ({"kind": "local", "memory_mib": 512}, 3, GIB // 2),
        (ADDRESS, 1, None),
        ({**ADDRESS, "n_workers": 5}, 5, None),
    ],
)
def test_workers_share_the_cores_and_the_memory_of_the_machine(monkeypatch, cluster, n_workers, memory):
    monkeypatch.setattr(planning, "cores", lambda: 3)
    monkeypatch.setattr(planning, "machine_memory", lambda: 12 * GIB)
    settings = ClusterSettings(**cluster)
    assert (workers_of(settings), memory_of_worker(settings)) == (n_workers, memory)


def test_the_machine_has_cores_and_memory():
    assert planning.cores() >= 1
    assert planning.machine_memory() > 256 * MIB


@pytest.fixture
def machine(monkeypatch, disk):
    """A machine of 2 cores, 16 GiB and 100 GiB of free disk."""
    disk(100 * GIB)
    monkeypatch.setattr(planning, "cores", lambda: 2)
    monkeypatch.setattr(planning, "machine_memory", lambda: 16 * GIB)


@pytest.fixture
def unread(monkeypatch):
    """Files of arrays whose rows must not be read."""

    def read(self, *_):
        raise AssertionError(f"rows of {self.name} are read")

    monkeypatch.setattr(NumpyRows, "read", read)


@pytest.fixture
def huge(tmp_path, unread):
    """A file of 100,000,000 x 3 numbers that takes no disk."""
    path = tmp_path / "huge.npy"
    with path.open("wb") as file:
        header = {"descr": "<f8", "fortran_order": False, "shape": (100_000_000, 3)}
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + 100_000_000 * 3 * 8)
    assert path.stat().st_blocks * 512 < MIB
    return path


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "roll.npy"
    np.save(path, swiss_roll(1500, seed=0).points)
    return path


def test_plan_says_a_line_for_each_stage_and_the_totals(trigpoint, machine, small, unread, tmp_path):
    arguments = ("plan", small, "--store", tmp_path / "run", "--cluster-threads-per-worker", 3, "--pca", 2)
    code, out, err = trigpoint(*arguments)
    assert (code, err) == (0, "")
    data, header, *lines, total, assumed = out.splitlines()
    assert re.fullmatch(rf"{re.escape(str(small))} \([\d,]+ rows x \d+ columns\)", data)
    assert header.split() == ["stage", "tasks", "MiB", "a", "worker", "MiB", "on", "disk", "time"]
    assert [line.split()[0] for line in lines] == list(STAGES)
    code, out, err = trigpoint(*arguments, "--json")
    assert (code, err) == (0, "")
    value = json.loads(out)
    for line, stage in zip(lines, value["stages"], strict=True):
        figures = [stage["stage"], f"{stage['n_tasks']:,}", f"{stage['memory'] / MIB:,.0f}"]
        figures += [f"{stage['disk'] / MIB:,.1f}", *in_words(stage["seconds"]).split()]
        assert line.split() == figures
    assert value["disk"] == sum(stage["disk"] for stage in value["stages"])
    assert value["seconds"] == pytest.approx(sum(stage["seconds"] for stage in value["stages"]))
    assert (value["n_workers"], value["threads_per_worker"]) == (2, 3)
    assert (value["worker_memory"], value["free_disk"], value["problems"]) == (8 * GIB, 100 * GIB, [])
    peak = max(stage["memory"] for stage in value["stages"])
    assert total == (
        f"2 workers of 3 threads: at most {peak / MIB:,.0f} of 8,192 MiB each, {value['disk'] / MIB:,.0f} of 102,400 "
        f"MiB on disk, about {in_words(value['seconds'])}."
    )
    (in_one_piece,) = value["assumptions"]
    assert assumed == f"Assumed: {in_one_piece}."
    assert re.fullmatch(r"the graph is in one piece; to join one in pieces takes up to \d+ s more", in_one_piece)
    assert not (tmp_path / "run").exists()


def test_plan_knows_no_memory_at_an_address(trigpoint, machine, small, tmp_path):
    arguments = ("--cluster-kind", "address", "--cluster-address", ADDRESS["address"])
    code, out, _ = trigpoint("plan", small, "--store", tmp_path / "run", *arguments)
    assert code == 0
    assert out.splitlines()[-2].startswith("1 worker of 1 thread: at most ")
    assert " of 16,384" not in out
    value = json.loads(trigpoint("plan", small, "--store", tmp_path / "run", *arguments, "--json")[1])
    assert value["worker_memory"] is None


def test_plan_of_a_file_too_large_to_read_says_what_would_do(trigpoint, machine, huge, tmp_path, disk):
    disk(10**15)
    code, out, err = trigpoint("plan", huge, "--store", tmp_path / "run", "--cluster-memory-mib", 100_000)
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()[2:-2]] == [stage for stage in STAGES if stage != "axes"]
    code, out, err = trigpoint("plan", huge, "--store", tmp_path / "run", "--cluster-memory-mib", 1024)
    needed = next(line.split()[2] for line in out.splitlines() if line.startswith("  rows "))
    assert code == 2
    assert err.startswith(f"trigpoint: stage rows needs {needed} MiB of memory in a worker, which has 1,024: ")
    assert not (tmp_path / "run").exists()


def test_plan_for_programs_lists_what_does_not_fit(trigpoint, machine, huge, tmp_path, disk):
    disk(7 * MIB)
    code, out, err = trigpoint("plan", huge, "--store", tmp_path / "run", "--cluster-memory-mib", 1024, "--json")
    assert code == 2
    problems = json.loads(out)["problems"]
    assert ["memory" in problem for problem in problems] == [True, False]
    assert ["MiB of disk, where 7 are free" in problem for problem in problems] == [False, True]
    assert err == f"trigpoint: {' '.join(problems)}\n"


@pytest.mark.parametrize("command", ["plan", "fit"])
def test_bad_settings_are_refused_before_any_figure(trigpoint, machine, huge, tmp_path, command):
    code, out, err = trigpoint(command, huge, "--store", tmp_path / "run", "--pca", 4)
    assert (code, out) == (2, "")
    assert "pca=4 is out of range" in err


def test_fit_refuses_what_plan_does_before_there_is_a_store(trigpoint, machine, huge, tmp_path):
    arguments = (huge, "--store", tmp_path / "run", "--cluster-memory-mib", 1024)
    refusals = [trigpoint(command, *arguments) for command in ("plan", "fit")]
    assert refusals[0][0] == refusals[1][0] == 2
    assert refusals[0][2] == refusals[1][2]
    assert refusals[1][1] == ""
    assert not (tmp_path / "run").exists()


def test_fit_goes_past_a_refusal_if_told_to(trigpoint, machine, small, tmp_path, monkeypatch):
    monkeypatch.setattr(planning, "machine_memory", lambda: 64 * MIB)
    arguments = (small, "--store", tmp_path / "run", "--n-landmarks", 40, *SERIAL)
    code, out, err = trigpoint("fit", *arguments)
    assert (code, out) == (2, "")
    assert "MiB of memory in a worker, which has 64: " in err
    assert not (tmp_path / "run").exists()
    code, out, err = trigpoint("fit", *arguments, "--anyway")
    assert (code, err) == (0, "")
    assert "1,500 of 1,500 rows embedded" in out
    assert open_run(tmp_path / "run").published
