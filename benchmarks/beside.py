"""Compare the speed of this tree with an earlier revision: `python -m benchmarks.beside REV [ROW...]`.

Every row runs in both trees in turn, each time in a new process. The table shows the median seconds of both, and the
median processor time, which varies less when other programs use the machine. The exit code is 1 if a row got slower
by more than `--limit` in both measures.

A row is a benchmark of `python -m benchmarks` (only our side counts), a fit, or the imports of a process.
"""

import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

Times = dict[str, tuple[float, float]]  # of each key: seconds, and seconds of processor time
WHOLE_BENCHMARKS = {
    "paths_against_scipy": "paths",
    "fit_against_sklearn": "peers",
    "fit_against_tapkee": "peers",
    "neighbors_against_faiss": "neighbors",
    "extension_against_faiss": "extending",
    "inverse_against_scipy": "inverse",
    "restricted_against_projection": "extension",
    "placing_by_every_method": "methods",
}
N_POINTS, N_LANDMARKS = 1_000_000, 300


def main() -> int:
    from benchmarks.revisions import ROOT, cache_folder, extracted

    asked = _asked()
    caches = cache_folder("beside")
    older = extracted(asked.revision, caches / "older" / "tree", "pipeline", "flows", "benchmarks")
    trees = {"older": (older, caches / "older" / "numba"), "newer": (ROOT, caches / "newer" / "numba")}
    slower = []
    print("| row | older s | newer s | ratio | older cpu s | newer cpu s | ratio |\n|---|---|---|---|---|---|---|")
    for row in asked.rows or ROWS:
        found: dict[str, list[Times]] = {name: [] for name in trees}
        for _ in range(asked.turns):
            for name, (tree, compiled) in trees.items():
                found[name].append(_timed(row, tree, compiled))
        for key in found["newer"][0]:
            if key not in found["older"][0]:
                print(f"| {key} | | {statistics.median(times[key][0] for times in found['newer']):.3g} | | | | |")
                continue
            seconds, processor = (
                [statistics.median(times[key][column] for times in found[name]) for name in trees] for column in (0, 1)
            )
            ratios = [max(after, 1e-9) / max(before, 1e-9) for before, after in (seconds, processor)]
            cells = [f"{seconds[0]:.3g}", f"{seconds[1]:.3g}", f"{ratios[0]:.2f}"]
            cells += [f"{processor[0]:.3g}", f"{processor[1]:.3g}", f"{ratios[1]:.2f}"]
            print(f"| {key} | {' | '.join(cells)} |", flush=True)
            slower += [key] * (min(ratios) > asked.limit)
    print(f"slower than {asked.limit}x: {', '.join(slower) or 'none'}")
    return 1 if slower else 0


def _asked() -> Namespace:
    parser = ArgumentParser(prog="python -m benchmarks.beside", description="Speed of this tree beside a revision.")
    parser.add_argument("revision", metavar="REV", help="a commit, branch or tag to compare with")
    parser.add_argument("rows", metavar="ROW", nargs="*", help=f"only these of {', '.join(ROWS)}")
    parser.add_argument("--turns", type=int, default=5, help="turns of each tree (default 5)")
    parser.add_argument("--limit", type=float, default=1.15, help="largest ratio that passes (default 1.15)")
    asked = parser.parse_intermixed_args()
    if unknown := set(asked.rows) - set(ROWS):
        parser.error(f"no row is called {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")
    return asked


def _timed(row: str, tree: Path, compiled: Path) -> Times:
    """One row in a new process that imports `pipeline`, `flows` and `benchmarks` from a tree."""
    compiled.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(tree), "NUMBA_CACHE_DIR": str(compiled), "DO_NOT_TRACK": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # users have their modules compiled too
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-P", __file__, "--one", row, f"{folder}/times.json"]
        done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{row} in {tree} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}")
        times: Times = json.loads(Path(folder, "times.json").read_text())
    return times


def _processor_seconds() -> float:
    """Of this process and of those below it that have ended."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _benchmark(name: str) -> Callable[[], Times]:
    def run() -> Times:
        module = import_module(f"benchmarks.{WHOLE_BENCHMARKS[name]}")
        before = _processor_seconds()
        measured = getattr(module, name)()
        processor = _processor_seconds() - before
        return {each.key: (each.seconds, processor) for each in measured}

    return run


def _million() -> Times:
    """A fit of a million points on two workers; one of few points comes first and has everything compiled."""
    from benchmarks.orchestration import in_own_process
    from benchmarks.whole_fit import timed_stages

    folder = _rolls()
    in_own_process(timed_stages, f"{folder}/few", 20)
    before = _processor_seconds()
    stages = in_own_process(timed_stages, folder, N_LANDMARKS)
    processor = _processor_seconds() - before
    whole = sum(stages.values())
    return {"fit-1000000": (whole, processor), **{f"stage {name}": (took, took) for name, took in stages.items()}}


def _spread() -> Times:
    """A fit of 200,000 points in this process and on two workers, and partitions with nothing in them."""
    from benchmarks.orchestration import in_own_process, timed_empty_stage, timed_fit

    folder, found = _rolls(200_000), {}
    for kind in ("serial", "local"):
        in_own_process(timed_fit, f"{folder}/few", kind)
        before = _processor_seconds()
        seconds = in_own_process(timed_fit, folder, kind)
        found[f"fit-200000-{kind}"] = (seconds, _processor_seconds() - before)
    before = _processor_seconds()
    seconds = in_own_process(timed_empty_stage, folder)
    return {**found, "empty-partitions": (seconds, _processor_seconds() - before)}


def _rolls(n_points: int = N_POINTS) -> str:
    """Swiss rolls in this folder, one of them small; the trees keep their own in different places."""
    import numpy as np

    Path("few").mkdir()
    for path, size in (("roll.npy", n_points), ("few/roll.npy", 5000)):
        turn, height = np.random.default_rng(0).random((2, size))
        angle = 1.5 * np.pi * (1 + 2 * turn)
        np.save(path, np.column_stack([angle * np.cos(angle), 21 * height, angle * np.sin(angle)]))
    return os.getcwd()


def _imports() -> Times:
    """Importing what a worker has imported when it is ready for work and when it has worked on every stage of a fit,
    and what `trigpoint fit` has imported before its first stage, on local workers (the default) and in one process."""
    import numpy as np

    np.save("points.npy", np.random.default_rng(0).normal(size=(500, 3)))
    lists: dict[str, list[str]] = {}
    for function in ("_worker_modules", "_fit_modules", "_serial_fit_modules"):
        command = [sys.executable, "-P", __file__, "--list", function]
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PREFECT_HOME": os.getcwd()})
        lists |= json.loads(Path("modules.json").read_text())
    return {f"imports of {name}": _import_times(modules) for name, modules in lists.items()}


def _worker_modules() -> None:
    from distributed import Client

    tree: Any = import_module("benchmarks.orchestration")  # it has the same names in every revision

    given = {"source": "points.npy", "store": "worker.zarr", "n_landmarks": 20}
    with tree.executor(tree.TWO_WORKERS) as execute:
        (client,) = Client._instances
        ready = client.run(_loaded_modules)
        tree.fit(tree.fit_settings(given), execute=execute)
        done = client.run(_loaded_modules)
    _write_modules(
        {"a worker, ready": max(ready.values(), key=len), "a worker, after a fit": max(done.values(), key=len)}
    )


def _fit_modules(*options: str) -> None:
    from flows.cli import main as command
    from pipeline.stages.validate import Validate

    def first_stage(_stage: object) -> int:
        _write_modules({f"fit, {' '.join(options[1:]) or 'on local workers'}": _loaded_modules()})
        raise ValueError("the first stage was reached")

    vars(sys.modules[Validate.__module__])["Validate"].n_partitions = first_stage
    sys.argv[1:] = ["fit", "points.npy", "--store", f"fit{len(options)}.zarr", *options]
    with suppress(SystemExit, ValueError):
        command()


def _serial_fit_modules() -> None:
    _fit_modules("--cluster-kind", "serial")


def _loaded_modules() -> list[str]:
    return [name for name in sys.modules if not name.startswith(("__", "tests"))]


def _write_modules(lists: dict[str, list[str]]) -> None:
    Path("modules.json").write_text(json.dumps(lists))


def _import_times(names: list[str]) -> tuple[float, float]:
    """Seconds of a new process that imports modules in the order in which they were imported."""
    Path("names.json").write_text(json.dumps(names))
    code = (
        "import contextlib, importlib, json\n"
        "for name in json.load(open('names.json')):\n"
        "    with contextlib.suppress(Exception):\n"
        "        importlib.import_module(name)\n"
    )
    begin, before = time.perf_counter(), _processor_seconds()
    subprocess.run([sys.executable, "-P", "-c", code], check=True, capture_output=True)
    return time.perf_counter() - begin, _processor_seconds() - before


def _startup() -> Times:
    """The command on a small table: the first time in its store and again, when nothing is left to do; and how soon a
    long fit has finished its first stage, after which it is stopped."""
    import numpy as np
    from sklearn.datasets import load_iris

    np.savetxt("iris.csv", load_iris().data, delimiter=",", header="a,b,c,d", comments="")
    folder = _rolls(LONG_POINTS)
    # One of the versions compared joins pieces only if it is told to.
    small = ("iris.csv", "--component-policy", "bridge", "--store")
    _command("fit", *small, "compiled.zarr")
    found = {"a small fit": _command("fit", *small, "iris.zarr")}
    found["nothing to do"] = _command("fit", *small, "iris.zarr")
    long = ("fit", f"{folder}/roll.npy", "--n-landmarks", "1000", "--store", "long.zarr")
    return {**found, "first stage of a long fit": _command(*long, until="partition")}


def _placing() -> Times:
    """Placing new rows along a graph, by each edge that they have: they may have more of them than before."""
    extending: Any = import_module("benchmarks.extending")
    from benchmarks.orchestration import in_own_process
    from pipeline.results.run import open_run

    folder = os.getcwd()
    extending._write_sources(Path(folder), 100_000, 200_000, 50)
    in_own_process(extending.fitted, folder, 200)
    placed = in_own_process(extending.extended, folder)
    n_edges = sum(part.size for part in open_run(f"{folder}/new.zarr").parts("search", "neighbors"))
    each = 1e6 * placed.stages["place"] / n_edges
    return {"place, in microseconds an edge": (each, each)}


LONG_POINTS = 3_000_000


def _command(*arguments: str, until: str | None = None) -> tuple[float, float]:
    """Seconds of a command in a process of its own, to its end or until it has said some word."""
    code = "import sys; sys.argv[0] = 'trigpoint'; from flows.cli import main; main()"
    begin, before = time.perf_counter(), _processor_seconds()
    with subprocess.Popen(
        [sys.executable, "-P", "-u", "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PREFECT_HOME": os.getcwd()},
    ) as process:
        output = []
        for line in process.stdout or ():
            output.append(line)
            if until is not None and until in line:
                took = time.perf_counter() - begin
                process.send_signal(signal.SIGINT)
                process.communicate()
                return took, _processor_seconds() - before
    if process.returncode:
        raise RuntimeError("".join(output))
    return time.perf_counter() - begin, _processor_seconds() - before


ROWS: dict[str, Callable[[], Times]] = {
    "startup": _startup,
    "placing": _placing,
    "imports": _imports,
    "million": _million,
    "spread": _spread,
    **{name: _benchmark(name) for name in WHOLE_BENCHMARKS},
}

if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        Path(sys.argv[3]).write_text(json.dumps(ROWS[sys.argv[2]]()))
    elif sys.argv[1:2] == ["--list"]:
        globals()[sys.argv[2]]()
    else:
        sys.exit(main())
