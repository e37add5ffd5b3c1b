"""A refit: old and new data fitted together in the store of a run, and published as its next version.

The stages are those of a fit, under digests of their own, so that all that was published before stays readable. One
more turns the coordinates onto those of the version before, on the landmarks that it had.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Unpack

from pipeline.errors import EmptySourceError, InvalidInputError, StoreError
from pipeline.jobs.batches import batches, data_paths, fitted_sources, opened_alike
from pipeline.jobs.fit import STAGES as FIT_STAGES
from pipeline.jobs.fit import FitJob, chain, plan_fit
from pipeline.jobs.job import Done, Runner, Way, opened_run, require_apart
from pipeline.jobs.plan import Plan, free_disk
from pipeline.settings import FitSettings, RefitSettings, fit_settings
from pipeline.sources import Source
from pipeline.sources.arrays import joined
from pipeline.sources.partitions import GRAIN_ROWS
from pipeline.stages.publish import Register
from pipeline.stages.stage import Outcome, Stage, Watch
from pipeline.stages.validate import digest_of_rows
from pipeline.store import run
from pipeline.store.backend import Backend
from pipeline.store.ledger import StageLedger
from pipeline.types import Json

# Every stage that a refit may have, in order.
STAGES = (*FIT_STAGES[:-1], Register.name, FIT_STAGES[-1])


@dataclass(frozen=True)
class RefitJob(FitJob):
    """A refit whose data is open and checked.

    `old` are the rows that the published version was fitted on, `paths` the files of `source`. `base` names the version
    to register to.
    """

    source: Source
    published: Json
    old: Source
    base: Json

    @cached_property
    def plan(self) -> Plan:
        """What is published stays on the disk beside the new version."""
        plan = plan_fit(self.settings, self.source)
        is_new = self.version != run.version_name(self.published)
        return replace(plan, free_disk=free_disk(self.output, beside_published=True)) if is_new else plan

    def open_store(self) -> Backend:
        return run.open_store(self.output, writable=True)

    def check_again(self, store: Backend) -> None:
        if run.read_manifest(store) != self.published:
            raise StoreError(f"{store} was published to at this moment; run the same command again.")

    def version_of(self, store: Backend, outcomes: dict[str, Outcome]) -> str | None:
        return self.version

    def manifest(self, outcomes: dict[str, Outcome]) -> Json:
        return {**super().manifest(outcomes), "registered_to": self.base}

    def stages(self, done: Runner) -> None:
        """Every stage of a fit and the registration; the old data is known to be unchanged before anything but the
        scan is computed."""

        def checked(stage: Stage) -> Outcome:
            outcome = done(stage)
            if stage.name == "validate":
                _require_unchanged(self, outcome)
            return outcome

        def registration(embedded: Outcome) -> Stage:
            store = embedded.ledger.store
            landmarks, published = (StageLedger(store, name, self.base[name]) for name in ("landmarks", "publish"))
            return Register(landmarks, published, embedded, self.settings.components)

        chain(self.settings, self.source, checked, registration)


def refit(settings: RefitSettings, watch: Watch | None = None, **way: Unpack[Way]) -> Done:
    """Run every stage that is not complete and publish the next version."""
    return prepare_refit(settings).run(watch, **way)


def prepare_refit(settings: RefitSettings) -> RefitJob:
    """Open and check the old data and the new."""
    store, published = opened_run(settings.store, run.FIT)
    version, given = run.version_name(published), _given(settings)
    # The first file of the published version's data may have been moved.
    moved = None if settings.source is None else _resolved(settings.source)
    old_paths = data_paths(settings.store, published, moved)
    new = _opened_new(settings, published, [path for path in given if path not in old_paths])
    # The published version is what is asked for if it was made by a refit with all that is given.
    same_name = settings.name in (None, version)
    is_done = "registered_to" in published and same_name and any(path in old_paths for path in given)
    if not new and not is_done:
        raise InvalidInputError(
            f"there is no new data: {', '.join(given) or 'none is given'}; name with new or incoming what is not in "
            f"version {version!r} yet and has rows."
        )
    old = _opened_old(settings, published, old_paths)
    source = joined([*old, *new.values()])
    _require_ids(published, source)
    chosen = _fit_settings(settings, published, old_paths[0])
    chosen.check_against(*source.shape)
    base, name = dict(published.get("registered_to", {})), version
    if new:
        base, name = _as_base(published), _new_name(settings, store)
    return RefitJob(settings.store, chosen, source, [*old_paths, *new], published, joined(old), base, version=name)


def _given(settings: RefitSettings) -> list[str]:
    paths = [*map(Path, settings.new), *([] if settings.incoming is None else batches(settings.incoming))]
    return list(dict.fromkeys(map(_resolved, paths)))


def _opened_new(settings: RefitSettings, published: Json, paths: list[str]) -> dict[str, Source]:
    """What is not in the published version, by paths; without what has no rows."""
    new = {}
    for path in paths:
        require_apart("store", settings.store, path)
        with suppress(EmptySourceError):  # a night without new data comes to every schedule
            new[path] = opened_alike(settings.store, published["settings"], published["source"], path)
    return new


def _opened_old(settings: RefitSettings, published: Json, paths: list[str]) -> list[Source]:
    opened = fitted_sources(settings.store, published, paths)
    shape, found = (int(published["source"][name]) for name in ("n_rows", "n_columns")), joined(opened).shape
    n_rows, n_columns = shape
    if found != (n_rows, n_columns):
        raise InvalidInputError(
            f"the data of version {run.version_name(published)!r} has changed: it had {n_rows} rows and {n_columns} "
            f"columns, now {', '.join(paths)} have {found[0]} and {found[1]}; put it back, or name the place it was "
            "moved to as source. New rows belong into files of their own."
        )
    return opened


def _require_ids(published: Json, source: Source) -> None:
    id_column = published["settings"]["id_column"]
    if id_column is not None and not source.has_ids:
        raise InvalidInputError(
            f"id_column={id_column!r} of the fit is not in all of the new data, or its ids are text here and whole "
            "numbers there; give every row an id of the same kind."
        )


def _fit_settings(settings: RefitSettings, published: Json, source: str) -> FitSettings:
    """Those of the published version, with what no result depends on as it is told now."""
    values = {**published["settings"], "source": source, "store": settings.store}
    if settings.partition_mib != "auto":
        values["partition_mib"] = settings.partition_mib
    return fit_settings({**values, "cluster": settings.cluster, "plugins": settings.plugins})


def _as_base(published: Json) -> Json:
    """What the published version is to one that is registered to it."""
    digests = {name: published["stages"][name]["digest"] for name in ("landmarks", "publish")}
    return {"version": run.version_name(published), "n_rows": published["source"]["n_rows"], **digests}


def _new_name(settings: RefitSettings, store: Backend) -> str:
    states = run.states(store)
    names = [run.version_name(state) for state in states]
    if settings.name in names:
        raise InvalidInputError(f"name={settings.name!r} is a version already; choose another than {', '.join(names)}.")
    return settings.name or run.free_name(1 + max(map(run.version_number, states)), names)


def _resolved(path: str | Path) -> str:
    return str(Path(path).resolve())


def _require_unchanged(job: RefitJob, validated: Outcome) -> None:
    """Refuse old rows that are not those which were fitted, grain by grain."""
    fitted = _grain_digests(run.published_ledger(validated.ledger.store, job.published, "validate"))
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
