"""A finished or unfinished run, to look at: `open_run(url)`.

How long a run will take still: from the plan at first, more and more from how long things took.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from pipeline.errors import InvalidInputError, StoreError
from pipeline.methods import METHODS
from pipeline.numerics.mds import LandmarkModel, Placer
from pipeline.numerics.verdict import Verdict, verdict
from pipeline.stages.exchange import IN_ROW_ORDER
from pipeline.stages.graph.components import component_figures
from pipeline.stages.publish import COORDINATES, FLAGS, PUBLISHED
from pipeline.stages.space import load_any_model, registered
from pipeline.stages.validate import as_ids
from pipeline.store import lease, run
from pipeline.store.arrays import RowArray
from pipeline.store.ledger import StageLedger
from pipeline.types import AnyArray, Json

# Before so many seconds have been seen, a pace is an accident.
TRUSTED_SECONDS = 2.0
SLOWEST, FASTEST = 20.0, 0.05


@dataclass
class TimeLeft:
    """Told what has taken how long; `planned` is seconds for each stage, in order."""

    planned: Mapping[str, float]
    _seen: dict[str, float] = field(default_factory=dict)

    def finished(self, stage: str, seconds: float | None) -> None:
        """A stage is complete after so many seconds; None if nothing is known of how long it took."""
        self._seen[stage] = -1.0 if seconds is None else seconds

    @property
    def pace(self) -> float:
        """How many times as long as planned stages have taken so far."""
        known = {name: seconds for name, seconds in self._seen.items() if seconds >= 0 and self.planned.get(name)}
        seen, planned = sum(known.values()), sum(self.planned[name] for name in known)
        if seen < TRUSTED_SECONDS and planned < TRUSTED_SECONDS:
            return 1.0
        return min(SLOWEST, max(FASTEST, seen / planned))

    def of_stage(self, stage: str, seconds: float, share: float) -> float:
        """Seconds that a stage will take still, of which a share is done after so many seconds."""
        if share > 0:
            return seconds * (1 - share) / share
        return max(0.0, self.pace * self.planned.get(stage, 0.0) - seconds)

    def of_run(self, stage: str, seconds: float, share: float) -> float:
        """Seconds that the run will take still: the rest of this stage and all stages to come."""
        to_come = (planned for name, planned in self.planned.items() if name not in self._seen and name != stage)
        return self.of_stage(stage, seconds, share) + self.pace * sum(to_come)


def in_words(seconds: float) -> str:
    """A duration as one would say it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.1f} days"


@dataclass(frozen=True)
class StageStatus:
    """How far one stage is: how many of its partitions are complete, and its figures once it is."""

    stage: str
    digest: str
    complete: bool
    n_partitions: int
    n_committed: int
    figures: Json


class Run:
    """A run's published results and the state of the command under way, read only."""

    def __init__(self, url: str | Path, version: str | None = None) -> None:
        self.url, self._version = str(url), version
        self._store = run.open_store(url)

    @property
    def published(self) -> bool:
        """Whether there are results to read."""
        return run.read_manifest(self._store) is not None

    @property
    def is_current(self) -> bool:
        """Whether what is published is what the latest command was to make."""
        published = {name: entry["digest"] for name, entry in self.manifest["stages"].items()}
        return published == {entry["stage"]: entry["digest"] for entry in run.read_journal(self._store)}

    @cached_property
    def manifest(self) -> Json:
        """What was published and how it was made; that of the first time it is asked for, so that all fits together."""
        return run.published_manifest(self._store, self._version)

    @property
    def versions(self) -> list[str]:
        """The names that `open_run` takes for a version, the oldest first; "1" if the run was never fitted again."""
        return run.versions(self._store)

    @property
    def version(self) -> str:
        """The name of the version that this is."""
        return run.version_name(self.manifest)

    @property
    def retained(self) -> str | None:
        """What `trigpoint gc --retain` kept of this version, `extendable` or `results`; None if it is whole."""
        return run.retained(self._store, self.manifest)

    @property
    def registration(self) -> Json | None:
        """How well the coordinates could be turned onto those of the version before; None if there was none."""
        return self.stage_figures("register") if "register" in self.manifest["stages"] else None

    @property
    def dominating_columns(self) -> Json | None:
        """The columns that carry nearly all of the variance of the data and their share, if there are such."""
        return self.manifest.get("dominating_columns")

    @property
    def components(self) -> Json | None:
        """What became of a graph in several components, their rows and links; None for a graph in one or none."""
        names = [name for name in ("components", "connecting") if name in self.manifest["stages"]]
        return component_figures({name: self.stage_figures(name) for name in names})

    @property
    def verdict(self) -> Verdict:
        """What the figures come to, in one line, as docs/quality.md says."""
        settings, stages = self.manifest["settings"], self.manifest["stages"]
        left = 0
        if "shortcuts" in stages:
            cut = self.stage_figures("components").get("n_cut", 0)
            left = 0 if cut else int(self.stage_figures("shortcuts")["n_found"])
        figures = {
            "quality": self.quality,
            "judged_by": METHODS[settings["method"]].judged_by,
            "n_rows": self.n_rows,
            "n_components": settings["n_components"],
            "components": self.components,
            "dominating_columns": self.dominating_columns,
            "short_circuits": left,
        }
        return verdict(figures)

    def __repr__(self) -> str:
        if not self.published:
            return f"<Run {self.url}: nothing is published>"
        words = f"; {self.verdict.words}" if self.kind == run.FIT else ""
        return f"<Run {self.url}: {self.n_rows:,} rows, version {self.version}{words}>"

    @property
    def kind(self) -> str:
        """`fit`, `extension`, `model` or `inversion`."""
        return run.kind_of(self._store)

    @property
    def portable(self) -> Json | None:
        """Of an exported model: its anchors, its bytes and how near to the run's it places rows."""
        return self.manifest.get("portable")

    @property
    def arrays(self) -> tuple[str, ...]:
        """The names of the published arrays."""
        return tuple(self._homes)

    @property
    def _homes(self) -> dict[str, str]:
        """The stage that each published array is of."""
        if self.manifest.get("arrays"):
            return dict(self.manifest["arrays"])
        figures = self.stage_figures("embed") if self.kind == run.FIT else {}
        if "coordinates" not in figures:
            return dict.fromkeys(PUBLISHED, "publish")
        names = (*figures["coordinates"], *figures["columns"], *figures.get("flags", FLAGS))
        return dict.fromkeys(names, "publish")

    def embedding(self, name: str = "projection", start: int = 0, stop: int | None = None) -> AnyArray:
        """Rows of a published array in the source's order; NaN where a row takes no part in the embedding."""
        return self.array(name).read(start, stop)

    def array(self, name: str) -> RowArray:
        """A published array, to be read in portions."""
        if self.kind == run.MODEL:
            raise InvalidInputError(
                f"{self.url} holds {run.KINDS[run.MODEL]}, which places new rows and has none of its own; use the run, "
                "or `trigpoint extend` with this model."
            )
        if name not in self.arrays:
            raise InvalidInputError(f"array={name!r} is not published; use one of {', '.join(self.arrays)}.")
        return self._ledger(self._homes[name]).read(name)

    def arcs(self) -> tuple[AnyArray, AnyArray]:
        """Of an extension that was asked for them: rows (r,), and their positions (r, steps, d) between the answers."""
        if "arcs" not in self.manifest["stages"]:
            raise InvalidInputError(f"{self.url} has no arcs; extend with arc and arc_rows.")
        return self._ledger("arcs").read("rows").read(), self._ledger("arcs").read("arcs").read()

    def ids(self, start: int = 0, stop: int | None = None) -> AnyArray | None:
        """The names of rows, if the fit was told an id column."""
        if self.manifest["settings"]["id_column"] is None:
            return None
        validated = self._ledger("validate")
        end, each = self.n_rows if stop is None else stop, int(self.stage_figures("validate")["rows_each"])
        pieces: list[AnyArray] = [np.empty(0, np.int64)] if start >= end else []
        for partition in range(start // each, -(-end // each)):
            part, base = validated.part("ids", partition), partition * each
            pieces.append(as_ids(part.read(max(start - base, 0), min(end - base, part.shape[0]))))
        return np.concatenate(pieces)

    def parts(self, stage: str, array: str) -> Iterator[AnyArray]:
        """What each partition of a published stage has of an array, in the run's own order."""
        ledger = self._ledger(stage)
        return (ledger.part(array, partition).read() for partition in ledger.complete())

    @property
    def n_rows(self) -> int:
        return int(self.manifest["source"]["n_rows"])

    @property
    def model(self) -> LandmarkModel | Placer:
        """The landmarks' model, in the run's own units (see `unit`)."""
        return load_any_model(self._ledger("model"))

    @property
    def unit(self) -> float:
        """What a length 1 in the run's own units is in the user's; a power of two."""
        return float(2.0 ** self.stage_figures("calibrate" if self.kind == run.MODEL else "embed")["exponent"])

    @property
    def landmark_rows(self) -> AnyArray:
        """Source rows of the landmarks, in the model's order."""
        return self._ledger("landmarks").read("rows").read()

    @property
    def quality(self) -> Json:
        """Quality figures of the published embedding."""
        return self.stage_figures("evaluate")

    @property
    def sample(self) -> tuple[AnyArray, ...]:
        """The coordinates of a few thousand random rows at most, by each of the ways that the run places points."""
        embedded, figures = self._ledger("embed"), self.stage_figures("embed")
        if figures.get(IN_ROW_ORDER):
            answers = [embedded.read(COORDINATES[0]).read()]
        else:
            answers = [self.unit * embedded.read(name).read() for name in figures.get("coordinates", COORDINATES)]
        if "register" in self.manifest["stages"]:
            answers = [registered(self._ledger("register"), answer) for answer in answers]
        return tuple(answers)

    @property
    def trust(self) -> Json:
        """Quantiles of the trust columns over the training rows."""
        return dict(self.stage_figures("embed")["quantiles"])

    @property
    def calibration(self) -> Json:
        """Quantiles of the trust columns of training rows that were taken as if they were new."""
        return dict(self.stage_figures("calibrate")["quantiles"])

    @property
    def calibration_values(self) -> dict[str, AnyArray]:
        """Those columns themselves, each rising."""
        ledger = self._ledger("calibrate")
        return {name: ledger.read(name).read() for name in self.calibration}

    @property
    def drift(self) -> Json | None:
        """Of an extension: how its rows compare with the fitted ones; None for one without rows."""
        return dict(self.stage_figures("place")["drift"]) if "place" in self.manifest["stages"] else None

    @property
    def status(self) -> list[StageStatus]:
        """How far each stage of the latest command is, in order."""
        found = []
        for entry in run.read_journal(self._store):
            ledger = StageLedger(self._store, entry["stage"], entry["digest"])
            figures, n = ledger.finished(), len(ledger.complete())
            found.append(StageStatus(**entry, complete=figures is not None, n_committed=n, figures=figures or {}))
        return found

    def seconds_left(self) -> float | None:
        """How long the command under way will take still; None if none is, or nothing is known.

        Told from the plan and from the times at which partitions were declared complete since it began.
        """
        begin, planned = lease.held_since(self._store), run.read_plan(self._store)
        if begin is None or not planned:
            return None
        left, start, now = TimeLeft(planned), begin, time.time()
        for entry in run.read_journal(self._store):
            ledger = StageLedger(self._store, entry["stage"], entry["digest"])
            end = ledger.written_at()
            if end is None:
                return left.of_run(ledger.stage, max(0.0, now - start), _share(ledger, entry["n_partitions"], start))
            left.finished(ledger.stage, max(0.0, end - start) if end > begin else None)
            start = max(start, end)
        return left.of_run("", 0.0, 1.0)

    def damaged(self) -> list[str]:
        """Everything that is not as it was written; empty for a sound run."""
        return run.damaged(self._store)

    def stage_figures(self, stage: str) -> Json:
        """What a published stage says of itself."""
        figures = self._ledger(stage).finished()
        if figures is None:
            raise StoreError(f"stage {stage} of {self.url} is published but not complete: verify the store.")
        return dict(figures)

    def _ledger(self, stage: str) -> StageLedger:
        if stage not in self.manifest["stages"]:
            raise InvalidInputError(f"{self.url} holds {run.KINDS[self.kind]}, which has no results of stage {stage}.")
        return run.published_ledger(self._store, self.manifest, stage)


def _share(ledger: StageLedger, n_partitions: int, start: float) -> float:
    """Of the partitions that were not complete at a time, the share that is now."""
    times = [ledger.written_at(partition) or 0.0 for partition in ledger.complete()]
    n_since = sum(when > start for when in times)
    n_missing = n_partitions - len(times) + n_since
    return n_since / n_missing if n_missing else 1.0


def open_run(url: str | Path, version: str | None = None) -> Run:
    """The run in the folder `url`: what is published there, or one of its versions."""
    return Run(url, version)
