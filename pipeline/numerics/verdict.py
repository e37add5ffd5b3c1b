"""What the figures of an embedding come to, in one line that one can act on.

The worst of these decides, the first of several: pieces of the graph that only bridges join, columns that drown the
others, distances that are missed, neighbors that are not neighbors, likely short circuits.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from pipeline.numerics.geodesics.components import at_least
from pipeline.types import Json

Level = Literal["good", "fair", "poor"]
LEVELS: tuple[Level, ...] = ("good", "fair", "poor")
# Up to the first, good; up to the second, fair: the residual variance, and the stress of methods that minimize it.
MISSED, STRESS = (0.1, 0.25), (0.1, 0.2)
# From the first on, good; from the second on, fair: trustworthiness, and the share of rows in the largest component.
TRUSTED, CONNECTED = (0.95, 0.85), (0.95, 0.5)


class Verdict(NamedTuple):
    """How good an embedding is to look at, and what to do about it."""

    level: Level
    words: str


def verdict(figures: Json) -> Verdict:
    """figures: the `quality`, what the method is `judged_by`, `n_rows` and `n_components`; and if known, the
    `components` of the graph, `dominating_columns`, and how many `short_circuits` were left."""
    found = list(_judged(figures))
    if not found:
        return Verdict("fair", "Nothing tells how good this is: the method has no distances to compare with.")
    return max(found, key=lambda one: LEVELS.index(one.level))


def _judged(figures: Json) -> Iterator[Verdict]:
    quality = figures["quality"]
    yield from _by_components(figures.get("components"), figures["n_rows"])
    yield from _by_columns(figures.get("dominating_columns"))
    if figures["judged_by"] == "stress" and quality["normalized_stress"] is not None:
        yield _by_stress(quality["normalized_stress"], figures["n_components"])
    elif figures["judged_by"] == "variance" and quality["residual_variance"]:
        yield _by_variance(quality)
    yield from _by_neighbors(quality)
    if figures.get("short_circuits"):
        yield Verdict("fair", "Fair: likely short circuits make some distances too short; look at those listed.")


def _by_components(found: Json | None, n_rows: int) -> Iterator[Verdict]:
    if not found:
        return
    share = found["largest_rows"][0] / n_rows
    level = _level(-share, *(-bound for bound in CONNECTED))
    if level == "good":
        return
    n = f"{found['n_components']:,} components, the largest with {share:.0%} of the rows"
    if not found["n_bridges"]:
        yield Verdict(level, f"{level.capitalize()}: only the largest of {n} is in the picture.")
        return
    enough = found.get("enough")
    name = "radius" if found["edges_from"] == "radius" else "n_neighbors"
    remedy = "" if enough is None else f"; {name}={at_least(enough)} is enough to connect them"
    much = "most" if level == "poor" else "some"
    yield Verdict(level, f"{level.capitalize()}: {much} of the picture is bridges between {n}{remedy}.")


def _by_columns(found: Json | None) -> Iterator[Verdict]:
    if found:
        names = ", ".join(map(repr, found["columns"]))
        yield Verdict("poor", f"Poor: the picture is of {names} alone; fit with --standardize (standardize=True).")


def _by_variance(quality: Json) -> Verdict:
    values, beyond = quality["residual_variance"], quality.get("residual_variance_beyond") or []
    d, missed = len(values), values[-1]
    level = _level(missed, *MISSED)
    components = "1 component misses" if d == 1 else f"{d} components miss"
    said = f"{components} {_percent(missed)} of how distances vary"
    if level == "good":
        return Verdict(level, f"Good to look at: {said}.")
    enough = next((d + i for i, value in enumerate(beyond, 1) if value <= MISSED[0]), None)
    if enough is not None:
        would = _percent(beyond[enough - d - 1])
        return Verdict(level, f"{level.capitalize()}: {said}: try n_components={enough}, which would miss {would}.")
    if beyond:
        most = f"{d + len(beyond)} would miss {_percent(beyond[-1])} still"
        return Verdict(level, f"{level.capitalize()}: {said}, and {most}: trust neighborhoods, not distances.")
    return Verdict(level, f"{level.capitalize()}: {said}: trust neighborhoods, not distances.")


def _by_stress(value: float, d: int) -> Verdict:
    level = _level(value, *STRESS)
    said = f"distances are {value:.0%} off in {d} component{'s' * (d != 1)} (stress)"
    if level == "good":
        return Verdict(level, f"Good to look at: {said}.")
    return Verdict(level, f"{level.capitalize()}: {said}: try n_components={d + 1}.")


def _by_neighbors(quality: Json) -> Iterator[Verdict]:
    known = [quality[name]["value"] for name in ("trustworthiness", "continuity") if quality.get(name)]
    if not known:
        return
    level = _level(-min(known), *(-bound for bound in TRUSTED))
    if level == "good":
        yield Verdict(level, f"Good to look at: neighbors are kept ({min(known):.2f} of 1).")
    elif quality["trustworthiness"]["value"] <= quality["continuity"]["value"]:
        said = "points that look near each other often are not in the data"
        yield Verdict(level, f"{level.capitalize()}: {said} (trustworthiness {min(known):.2f} of 1).")
    else:
        said = "points near each other in the data are often apart in the picture"
        yield Verdict(level, f"{level.capitalize()}: {said} (continuity {min(known):.2f} of 1).")


def _level(value: float, good: float, fair: float) -> Level:
    return "good" if value <= good else "fair" if value <= fair else "poor"


def _percent(share: float) -> str:
    if share < 0.001:
        return "less than 0.1%"
    return f"{share:.1%}" if share < 0.02 else f"{share:.0%}"
