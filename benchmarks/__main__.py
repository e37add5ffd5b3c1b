"""Run the benchmarks, print the table, and fail if a limit is missed or a ratio got worse by 20%.

`python -m benchmarks [NAME...]` runs those of that name, or all; `python -m benchmarks --write` runs all and writes the
table anew that later runs are compared with.
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping

from benchmarks import table
from benchmarks.extending import extension_against_faiss
from benchmarks.extension import restricted_against_projection
from benchmarks.inverse import inverse_against_scipy
from benchmarks.machine import machine_limits, machine_name
from benchmarks.measure import Measurement
from benchmarks.methods import placing_by_every_method
from benchmarks.neighbors import neighbors_against_faiss
from benchmarks.orchestration import spreading_the_work
from benchmarks.paths import paths_against_scipy
from benchmarks.peers import fit_against_sklearn, fit_against_tapkee
from benchmarks.scaling import two_workers_against_one
from benchmarks.whole_fit import fit_against_bare_kernels

# Every benchmark, in the order in which they run. Those that bind this process to a core come last.
BENCHMARKS = (
    paths_against_scipy,
    fit_against_sklearn,
    fit_against_tapkee,
    neighbors_against_faiss,
    extension_against_faiss,
    fit_against_bare_kernels,
    two_workers_against_one,
    spreading_the_work,
    inverse_against_scipy,
    restricted_against_projection,
    placing_by_every_method,
)


def main() -> int:
    asked = _asked()
    print(", ".join(f"{name} {value}" for name, value in {**machine_name(), **table.versions()}.items()))
    limits = machine_limits()
    for name, figure in limits.items():
        print(f"{name}: {figure:.3g}", flush=True)
    committed = table.committed_ratios()
    measurements = _measured(asked.names, committed)
    comparison = table.compared(measurements, committed)
    for line in (*comparison.new, *comparison.slower):
        print(line)
    if asked.write:
        table.written(measurements, limits)
        print(table.markdown(measurements, limits))
    fast_enough = all(map(Measurement.holds, measurements))
    # A table that is written anew is the new measure.
    return 0 if fast_enough and (asked.write or not comparison.slower) else 1


def _asked() -> Namespace:
    names = [benchmark.__name__ for benchmark in BENCHMARKS]
    parser = ArgumentParser(prog="python -m benchmarks", description="Ratios of things timed side by side.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"run only these of {', '.join(names)}")
    parser.add_argument("--write", action="store_true", help="write the table that later runs are compared with")
    asked = parser.parse_args()
    if unknown := set(asked.names) - set(names):
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    if asked.names and asked.write:
        parser.error("--write takes all benchmarks: the table is of one run")
    return asked


def _measured(names: list[str], committed: Mapping[str, float]) -> list[Measurement]:
    measurements = []
    for benchmark in BENCHMARKS:
        if not names or benchmark.__name__ in names:
            for measurement in table.settled(benchmark, committed):
                print(measurement, flush=True)
                measurements.append(measurement)
    return measurements


if __name__ == "__main__":
    sys.exit(main())
