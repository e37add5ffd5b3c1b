"""A refit: old and new data fitted together in the store of a run, and published as its next version.

The stages are those of a fit, under digests of their own, so that all that was published before stays readable. One
more turns the coordinates onto those of the version before, on the landmarks that it had.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from pipeline.errors import EmptySourceError, InvalidInputError, StoreError
from pipeline.jobs.batches import batch_source, batches
from pipeline.jobs.fit import Fitted, chain, described_fit
from pipeline.jobs.job import Around, Job, Runner, at_once, require_apart, require_kind
from pipeline.jobs.plan import STAGES as FIT_STAGES
from pipeline.jobs.plan import Plan, free_disk, plan_fit
from pipeline.settings import ExtendSettings, FitSettings, RefitSettings, fit_settings
from pipeline.sources import Source, open_source
from pipeline.sources.arrays import joined
from pipeline.sources.partitions import GRAIN_ROWS
from pipeline.stages.publish import Register
from pipeline.stages.space import Space
from pipeline.stages.stage import Execute, Outcome, Stage, Watch, serially
from pipeline.stages.validate import digest_of_rows
from pipeline.store import run
from pipeline.store.backend import Backend
from pipeline.store.ledger import StageLedger
from pipeline.types import Json

# Every stage that a refit may have, in order.
STAGES = (*FIT_STAGES[:-1], Register.name, FIT_STAGES[-1])


class Refitted(Fitted):
    """What a refit came to."""

    @property
    def version(self) -> str:
        return run.version_name(self.manifest)


@dataclass(frozen=True)
class Refit(Job[Refitted]):
    """A refit whose data is open and checked.

    `old` are the rows that the published version was fitted on, `paths` the files of `source`. `base` names the version
    to register to. `version` is the name to publish under.
    """

    settings: FitSettings
    published: Json
    paths: list[str]
    old: Source
    source: Source
    base: Json
    version: str

    @property
    def is_new(self) -> bool:
        """Whether there is another version to make than the published one."""
        return self.version != run.version_name(self.published)

    @cached_property
    def plan(self) -> Plan:
        """What is published stays on the disk beside the new version."""
        plan = plan_fit(self.settings, self.source)
        free = free_disk(self.settings.store, beside_published=True) if self.is_new else plan.free_disk
        return replace(plan, free_disk=free)

    def planned_seconds(self) -> Mapping[str, float] | None:
        return self.plan.seconds

    def open_store(self) -> Backend:
        return run.open_store(self.settings.store, writable=True)

    def check_again(self, store: Backend) -> None:
        if run.read_manifest(store) != self.published:
            raise StoreError(f"{store} was published to at this moment; run the same command again.")

    def manifest(self, store: Backend, outcomes: dict[str, Outcome]) -> Json:
        return {**described_fit(self.settings, self.source, self.paths), "registered_to": self.base}

    def result(self, outcomes: dict[str, Outcome], manifest: Json) -> Refitted:
        return Refitted(outcomes, manifest)

    def stages(self, store: Backend, done: Runner) -> None:
        """Every stage of a fit and the registration; the old data is known to be unchanged before anything but the
        scan is computed."""

        def checked(stage: Stage) -> Outcome:
            outcome = done(stage)
            if stage.name == "validate":
                _require_unchanged(self, run.published_ledger(store, self.published, "validate"), outcome)
            return outcome

        def registration(embedded: Outcome) -> Stage:
            landmarks, published = (StageLedger(store, name, self.base[name]) for name in ("landmarks", "publish"))
            return Register(landmarks, published, embedded, self.settings.n_components)

        chain(self.settings, self.source, checked, registration)


def refit(
    settings: RefitSettings,
    watch: Watch | None = None,
    take_over: bool = False,
    execute: Execute = serially,
    around: Around = at_once,
) -> Refitted:
    """Run every stage that is not complete and publish the next version."""
    return prepare_refit(settings).run(watch, take_over, execute, around)


def prepare_refit(settings: RefitSettings) -> Refit:
    """Open and check the old data and the new."""
    return _Preparation(settings).job()


class _Preparation:
    """What the store and the settings say together."""

    def __init__(self, settings: RefitSettings) -> None:
        self._settings = settings
        self._store = run.open_store(settings.store)
        require_kind(self._store, settings.store, run.FIT)
        self._published = run.published_manifest(self._store)
        self._version = run.version_name(self._published)

    def job(self) -> Refit:
        new = self._new
        if not new and not self._is_done_already:
            given = ", ".join(self._given) or "none is given"
            raise InvalidInputError(
                f"there is no new data: {given}; name with new or incoming what is not in version {self._version!r} "
                "yet and has rows."
            )
        old = self._old
        source = joined([*old, *new.values()])
        self._require_ids(source)
        chosen = self._fit_settings
        chosen.check_against(*source.shape)
        base = self._as_base if new else dict(self._published["registered_to"])
        name = self._new_name() if new else self._version
        return Refit(chosen, self._published, [*self._old_paths, *new], joined(old), source, base, name)

    @cached_property
    def _old_paths(self) -> list[str]:
        """Where the published version's data is, the first as it is told if it was moved."""
        paths, moved = list(self._published.get("sources", [])), self._settings.source
        if not paths and moved is None:
            raise InvalidInputError(
                f"store={self._settings.store!r} does not say where its data is, for it was fitted from an array or "
                "by an earlier version; run the fit again from a file, or name one with the same rows as source."
            )
        return paths if moved is None else [_resolved(moved), *paths[1:]]

    @cached_property
    def _given(self) -> list[str]:
        incoming = self._settings.incoming
        paths = [*map(Path, self._settings.new), *([] if incoming is None else batches(incoming))]
        return list(dict.fromkeys(map(_resolved, paths)))

    @cached_property
    def _new(self) -> dict[str, Source]:
        """What is given and not in the published version, by paths; without what has no rows."""
        return dict(self._opened_new())

    def _opened_new(self) -> Iterator[tuple[str, Source]]:
        for path in self._given:
            if path not in self._old_paths:
                require_apart("store", self._settings.store, path)
                try:
                    yield path, self._alike(path)
                except EmptySourceError:
                    continue  # a night without new data comes to every schedule

    @property
    def _is_done_already(self) -> bool:
        """Whether the published version is what is asked for: made by a refit with all that is given."""
        same_name = self._settings.name in (None, self._version)
        return "registered_to" in self._published and same_name and any(p in self._old_paths for p in self._given)

    @cached_property
    def _old(self) -> list[Source]:
        first, *others = self._old_paths
        fitted = self._published["settings"]
        opened = [open_source(first, fitted["key"], fitted["columns"], fitted["id_column"])]
        opened += [self._alike(path) for path in others]
        shape = tuple(int(self._published["source"][name]) for name in ("n_rows", "n_columns"))
        found = joined(opened).shape
        if found != shape:
            raise InvalidInputError(
                f"the data of version {self._version!r} has changed: it had {shape[0]} rows and {shape[1]} columns, "
                f"now {', '.join(self._old_paths)} have {found[0]} and {found[1]}; put it back, or name the place it "
                "was moved to as source. New rows belong into files of their own."
            )
        return opened

    def _alike(self, path: str) -> Source:
        """A source opened as `extend` opens new rows: array, ids and columns as the fit was told, if they are there."""
        space = Space({}, self._published["settings"], self._published["source"])
        return batch_source(ExtendSettings(store=self._settings.store, source=path, output=path), space, path)

    def _require_ids(self, source: Source) -> None:
        id_column = self._published["settings"]["id_column"]
        if id_column is not None and not source.has_ids:
            raise InvalidInputError(
                f"id_column={id_column!r} of the fit is not in all of the new data, or its ids are text here and whole "
                "numbers there; give every row an id of the same kind."
            )

    @property
    def _fit_settings(self) -> FitSettings:
        """Those of the published version, with what no result depends on as it is told now."""
        settings = self._settings
        values = {**self._published["settings"], "source": self._old_paths[0], "store": settings.store}
        if settings.partition_mib != "auto":
            values["partition_mib"] = settings.partition_mib
        return fit_settings({**values, "cluster": settings.cluster, "plugins": settings.plugins})

    @property
    def _as_base(self) -> Json:
        """What the published version is to one that is registered to it."""
        digests = {name: self._published["stages"][name]["digest"] for name in ("landmarks", "publish")}
        return {"version": self._version, "n_rows": self._published["source"]["n_rows"], **digests}

    def _new_name(self) -> str:
        states, name = run.states(self._store), self._settings.name
        names = [run.version_name(state) for state in states]
        if name in names:
            raise InvalidInputError(f"name={name!r} is a version already; choose another than {', '.join(names)}.")
        return name or run.free_name(1 + max(map(run.version_number, states)), names)


def _resolved(path: str | Path) -> str:
    return str(Path(path).resolve())


def _require_unchanged(job: Refit, before: StageLedger, validated: Outcome) -> None:
    """Refuse old rows that are not those which were fitted, grain by grain."""
    fitted = _grain_digests(before)
    if job.old.dtype == job.source.dtype:
        # The scan has seen all grains but the last one, which goes on with new rows now.
        n_whole = job.old.shape[0] // GRAIN_ROWS
        found = [*_grain_digests(validated.ledger)[:n_whole], *_digests_from(job.old, n_whole)]
    else:
        found = list(_digests_from(job.old, 0))
    if found == fitted:
        return
    grain = next(number for number, pair in enumerate(zip(found, fitted, strict=True)) if pair[0] != pair[1])
    first, last = grain * GRAIN_ROWS, min((grain + 1) * GRAIN_ROWS, job.old.shape[0])
    raise InvalidInputError(
        f"the data of version {run.version_name(job.published)!r} has changed: rows {first} to {last} of "
        f"{job.old.name} are not those that were fitted; put them back, or fit into a new store."
    )


def _grain_digests(validated: StageLedger) -> list[str]:
    """Of all rows in order; partitions are whole numbers of grains."""
    figures = validated.committed()
    return [digest for partition in sorted(figures) for digest in figures[partition]["digests"]]


def _digests_from(source: Source, grain: int) -> Iterator[str]:
    for start in range(grain * GRAIN_ROWS, source.shape[0], GRAIN_ROWS):
        yield digest_of_rows(source.read(start, min(start + GRAIN_ROWS, source.shape[0])))
