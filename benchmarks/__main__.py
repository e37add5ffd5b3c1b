"""Run every benchmark, print the table, and fail if a limit is missed."""

import platform
import sys
from importlib.metadata import version

from benchmarks.extension import restricted_against_projection
from benchmarks.measure import Measurement
from benchmarks.orchestration import spreading_the_work

# The one that binds this process to a core comes last.
BENCHMARKS = (spreading_the_work, restricted_against_projection)


def main() -> int:
    print(f"python {platform.python_version()}, " + ", ".join(f"{p} {version(p)}" for p in ("numpy", "scipy", "numba")))
    measurements = [measurement for benchmark in BENCHMARKS for measurement in benchmark()]
    for measurement in measurements:
        print(measurement)
    return 0 if all(map(Measurement.holds, measurements)) else 1


if __name__ == "__main__":
    sys.exit(main())
