"""The committed table: results of a run as JSON, what got slower since, and the same as Markdown."""

import json
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from benchmarks.machine import machine_name
from benchmarks.measure import Measurement
from pipeline.types import Json

COMMITTED = Path(__file__).with_name("results.json")
PACKAGES = ("numpy", "scipy", "numba", "scikit-learn", "faiss-cpu", "tapkee")
# A ratio that has grown by this factor is no longer noise.
SLOWER = 1.2


class Comparison(NamedTuple):
    """Lines about what got slower, and about what the committed table does not have."""

    slower: list[str]
    new: list[str]


def compared(measurements: Iterable[Measurement], committed: Mapping[str, float]) -> Comparison:
    """Ratios beside the committed ones, by key. What was committed but not measured now is nobody's fault."""
    slower, new = [], []
    for measurement in measurements:
        before = committed.get(measurement.key)
        if before is None:
            new.append(f"not in the committed table: {measurement.name} {measurement.ratio:.3g}")
        elif measurement.ratio >= SLOWER * before:
            change = f"{before:.3g} -> {measurement.ratio:.3g} ({measurement.ratio / before:.2f}x)"
            slower.append(f"slower than the committed table: {measurement.name} {change}")
    return Comparison(slower, new)


def settled(benchmark: Callable[[], list[Measurement]], committed: Mapping[str, float]) -> list[Measurement]:
    """What a benchmark finds, run once more if anything looks slow: often it is others who use the machine too."""
    found = benchmark()
    if all(map(Measurement.holds, found)) and not compared(found, committed).slower:
        return found
    return [first.fastest_of(second) for first, second in zip(found, benchmark(), strict=True)]


def committed_ratios(path: Path = COMMITTED) -> dict[str, float]:
    """The ratio of each key in the committed table; none where there is no table yet."""
    if not path.exists():
        return {}
    rows = json.loads(path.read_text())["measurements"]
    return {key: float(row["ratio"]) for key, row in rows.items()}


def written(measurements: Sequence[Measurement], limits: Mapping[str, float], path: Path = COMMITTED) -> None:
    """Write the table anew, with what it was measured on."""
    rows = {measurement.key: _row(measurement) for measurement in measurements}
    if len(rows) < len(measurements):
        raise ValueError("two measurements have the same key; one would hide the other in the table.")
    results = {
        "machine": machine_name(),
        "date": date.today().isoformat(),
        "versions": versions(),
        "limits of the machine": {name: _rounded(figure) for name, figure in limits.items()},
        "measurements": rows,
    }
    path.write_text(json.dumps(results, indent=2) + "\n")


def versions() -> dict[str, str]:
    """Of everything that a figure may depend on; tapkee is not there on every platform."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def _row(measurement: Measurement) -> Json:
    row: Json = {
        "name": measurement.name,
        "seconds": _rounded(measurement.seconds),
        "baseline": measurement.baseline,
        "baseline_seconds": _rounded(measurement.baseline_seconds),
        "ratio": _rounded(measurement.ratio),
        "limit": _rounded(measurement.limit),
    }
    return {**row, "note": measurement.note} if measurement.note else row


def _rounded(figure: float) -> float:
    """Four digits: more would only be noise in a diff."""
    return float(f"{figure:.4g}")


def markdown(measurements: Iterable[Measurement], limits: Mapping[str, float]) -> str:
    lines = ["| | seconds | beside | ratio | limit |", "|---|---|---|---|---|"]
    for measurement in measurements:
        name = measurement.name + (f" ({measurement.note})" if measurement.note else "")
        beside = f"{measurement.baseline}: {measurement.baseline_seconds:.3g}"
        ratio, limit = f"{measurement.ratio:.3g}", f"{measurement.limit:.3g}"
        lines.append(f"| {name} | {measurement.seconds:.3g} | {beside} | {ratio} | {limit} |")
    lines += ["", "| limits of the machine | |", "|---|---|"]
    lines += [f"| {name} | {figure:.3g} |" for name, figure in limits.items()]
    return "\n".join(lines)
