"""Runs every case in one tree and writes the record: `python -m benchmarks.same_bytes.driver TREE DATA WORK RECORD`.

The tree is first on the path, so that its `pipeline` is the one that runs; this file is always that of the newer tree.
"""

import json
import os
import shutil
import sys
import warnings
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

from benchmarks.same_bytes import trees
from benchmarks.same_bytes.cases import estimator_cases, run_cases, study_cases
from benchmarks.same_bytes.jobs import JOBS, Place, estimated, studied
from benchmarks.same_bytes.records import Json

Jobs = Mapping[str, Callable[[], Json]]


def main() -> int:
    asked = _asked()
    if trees.root() != asked.tree.resolve():
        print(f"pipeline is imported from {trees.root()}, not from {asked.tree}", file=sys.stderr)
        return 2
    warnings.simplefilter("ignore")
    # Nothing here has to survive a power cut.
    vars(os)["fsync"] = lambda _: None
    records = {}
    for name, folder, jobs in _cases(asked.data, asked.work):
        if asked.only is None or fnmatch(name, f"*{asked.only}*"):
            records[name] = {job: _outcome(run) for job, run in jobs.items()}
            if not asked.keep:
                shutil.rmtree(folder, ignore_errors=True)
    asked.record.write_text(json.dumps(records, sort_keys=True, indent=1))
    return 0


def _asked() -> Namespace:
    parser = ArgumentParser(description="Run every case in one tree.")
    for name in ("tree", "data", "work", "record"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--only", metavar="PATTERN")
    parser.add_argument("--keep", action="store_true")
    return parser.parse_args()


def _cases(data: Path, work: Path) -> Iterator[tuple[str, Path, Jobs]]:
    """Each case by name, with a folder for its results and its jobs."""
    methods = trees.methods()
    for case in run_cases(methods):
        place = Place(case, data, work / case.name.replace(" ", "-"))
        yield case.name, place.work, {job: partial(JOBS[job], place) for job in case.jobs}
    for name, (source, told) in estimator_cases(methods).items():
        yield name, work / "nothing", estimated(data, source, told)
    for name, (source, told) in study_cases(methods).items():
        yield name, work / "nothing", studied(data, source, told)


def _outcome(run: Callable[[], Json]) -> Json:
    """The record of a job, or its error."""
    try:
        return run()
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    sys.exit(main())
