"""The inverse map's speed against scipy's interpolant: `python -m benchmarks.inverse`.

Its errors, their convergence and its conditioning are experiments of a paper: reconstructions, sphere and
condition_numbers in benchmarks/papers.
"""

import numpy as np
from scipy.interpolate import RBFInterpolator
from threadpoolctl import threadpool_limits

from benchmarks.measure import Measurement, fastest_in_turns, use_one_core
from benchmarks.orchestration import in_own_process
from pipeline.numerics.inverse.interpolant import invert
from pipeline.types import FloatArray

N_POINTS, N_QUERIES, N_COLUMNS, N_COMPONENTS = 20_000, 10_000, 784, 10
# scipy takes as long for every query, so that a few tell what all would take.
N_TIMED, REPEATS, LIMIT, LARGEST_DIFFERENCE = 200, 3, 1 / 5, 1e-8


def inverse_against_scipy() -> list[Measurement]:
    """Both with their search for neighbors, on one core; what is compiled is compiled before the clock starts."""
    ours, theirs, difference = in_own_process(timed_with_scipy)
    if not difference < LARGEST_DIFFERENCE:
        raise RuntimeError(f"values are {difference:.2g} from scipy's, more than {LARGEST_DIFFERENCE}.")
    name = f"inverse map at {N_QUERIES:,} queries of {N_POINTS:,} x {N_COLUMNS}, d={N_COMPONENTS}, 200 neighbors"
    note = f"relative difference {difference:.2g}"
    return [Measurement("inverse-scipy", name, ours, "scipy's RBFInterpolator", theirs, LIMIT, note)]


def timed_with_scipy() -> tuple[float, float, float]:
    """Seconds of ours and of theirs for all queries, and how far their values differ."""
    use_one_core()
    rng = np.random.default_rng(0)
    points, values = rng.normal(size=(N_POINTS, N_COMPONENTS)), rng.normal(size=(N_POINTS, N_COLUMNS))
    queries = 0.8 * rng.normal(size=(N_QUERIES, N_COMPONENTS))
    some = slice(None, None, N_QUERIES // N_TIMED)
    answers: dict[str, FloatArray] = {}

    def ours() -> None:
        answers["ours"] = invert(queries, points, values).values[some]

    def theirs() -> None:
        answers["scipy"] = RBFInterpolator(points, values, neighbors=200, kernel="cubic")(queries[some])

    invert(queries[:2], points, values)
    with threadpool_limits(1):
        seconds, few_seconds = fastest_in_turns(REPEATS, ours, theirs)
    difference = np.abs(answers["ours"] - answers["scipy"]).max() / np.abs(answers["scipy"]).max()
    return seconds, few_seconds * N_QUERIES / N_TIMED, float(difference)


if __name__ == "__main__":
    for measurement in inverse_against_scipy():
        print(measurement)
