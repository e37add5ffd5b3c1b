"""Batches of new data: found in a folder, opened as the fit opened its own data, and checked.

Every entry is a batch, a file or a folder of any kind that a fit takes. What is still being written has a name that
begins with a dot or an underscore or ends in .partial or .tmp, and is given its own when it is complete. A batch is
done once its results are published, and is never done again.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TypeAlias

from pipeline.errors import EmptySourceError, InvalidInputError
from pipeline.jobs.job import require_apart
from pipeline.methods import DISSIMILARITIES, OBJECTS, SIMILARITIES, VECTORS
from pipeline.numerics.mds import LandmarkModel
from pipeline.settings import ExtendSettings, FitSettings
from pipeline.sources.graphs import NewNodes, open_new_nodes
from pipeline.sources.inputs import AnySource, comparison_of, n_columns, n_points
from pipeline.sources.objects import open_objects
from pipeline.sources.opening import open_source
from pipeline.sources.partitions import GRAIN_ROWS, RowPartitions
from pipeline.sources.proximities import (
    between_new,
    is_file_of_its_own,
    open_proximities,
    require_own_similarities,
)
from pipeline.sources.source import Source
from pipeline.stages.providers.proximities import rows_of_landmarks
from pipeline.stages.space import GraphSpace, Space
from pipeline.stages.stage import Outcome
from pipeline.stages.validate import Validate
from pipeline.store import local_folder, run
from pipeline.store.ledger import stage_digest
from pipeline.types import Json

AnyBatch: TypeAlias = AnySource | NewNodes
# What objects are, by whether they are texts.
KINDS = {True: "texts", False: "rows of numbers"}
UNFINISHED_STARTS, UNFINISHED_ENDS = (".", "_"), (".partial", ".tmp")
RESULTS_SUFFIX = ".zarr"


@dataclass(frozen=True)
class Batch:
    """An entry of the folder, and where its results are or will be."""

    source: Path
    output: Path

    @property
    def mark(self) -> Json:
        """What tells the batch from others, and from itself changed; kept with its results."""
        return {"name": self.source.name, "stamp": _stamp(self.source)}

    @property
    def is_done(self) -> bool:
        return _published(self.output) is not None

    @property
    def has_changed(self) -> bool:
        """Whether it is not what its results were made from."""
        published = _published(self.output)
        return published is not None and published.get("batch") != self.mark


def batches(folder: str | Path) -> list[Path]:
    """The complete entries of a folder of batches, by their names."""
    path = Path(folder)
    if not path.is_dir():
        raise InvalidInputError(f"incoming={str(folder)!r} is not a folder; name one that batches are put into.")
    return sorted(
        entry
        for entry in path.iterdir()
        if not entry.name.startswith(UNFINISHED_STARTS) and not entry.name.endswith(UNFINISHED_ENDS)
    )


def batches_with_results(folder: str | Path, output: str | Path) -> list[Batch]:
    """The batches of a folder, each with the folder of its results."""
    results = _results_folder(output)
    if results.exists() and (not results.is_dir() or (results / run.MARKER).exists()):
        raise InvalidInputError(f"output={str(output)!r} is no folder for results of several batches; name another.")
    return [Batch(entry, results / f"{entry.name}{RESULTS_SUFFIX}") for entry in batches(folder)]


def done_batches(output: str | Path) -> list[Path]:
    """The folders of results in a folder of them, by their names; empty if it holds none."""
    folder = local_folder(output)
    found = [] if folder is None else sorted(folder.glob(f"*{RESULTS_SUFFIX}"))
    return [path for path in found if _published(path) and run.kind_of(run.open_store(path)) == run.EXTENSION]


def _results_folder(output: str | Path) -> Path:
    folder = local_folder(output)
    if folder is None:
        raise InvalidInputError(f"output={str(output)!r} is not a local folder; results of several batches need one.")
    return folder


def _published(output: Path) -> Json | None:
    """What is published in a folder, if it is a run."""
    return run.read_manifest(run.open_store(output)) if (output / run.MARKER).is_file() else None


def _stamp(path: Path) -> str:
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    seen = ((file.relative_to(path), file.stat()) for file in files if file.is_file())
    parts = [(str(name), status.st_size, status.st_mtime_ns) for name, status in seen]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:20]


def fitted_settings(space: Space) -> FitSettings:
    """The settings of the fit."""
    return published_settings(space.settings)


def published_settings(settings: Json) -> FitSettings:
    """Settings of a fit as its manifest has them, with placeholders for its paths; not checked again: a later version
    may refuse more."""
    # Plugins are the user's to name, never a store's, and how landmarks were chosen no longer matters.
    told = {name: value for name, value in settings.items() if name not in ("plugins", "landmark_selection")}
    return FitSettings.model_validate({**told, "source": "fitted", "store": "fitted"})


def checked_batch(settings: ExtendSettings, space: Space, data: object | None = None) -> AnyBatch | None:
    """The new rows; None if there are none, which is no error: a night without new data comes to every schedule."""
    _require_used(settings, space)
    require_apart("output", settings.output, settings.store)
    if data is None:
        require_apart("output", settings.output, settings.source)
    try:
        source = _opened(settings, space, settings.source if data is None else data)
    except EmptySourceError:
        return None
    if not isinstance(source, NewNodes):
        _require_fitting(settings, space, source)
    return source


def data_paths(store: str, manifest: Json, moved: str | None) -> list[str]:
    """The files of a run's data; the first is where it was moved to, if it was."""
    paths = list(manifest.get("sources", []))
    if not paths and moved is None:
        raise InvalidInputError(
            f"store={store!r} does not say where its data is, for it was fitted from an array or by an earlier "
            "version; run the fit again from a file, or name one with the same rows as source."
        )
    return paths if moved is None else [moved, *paths[1:]]


def fitted_sources(store: str, manifest: Json, paths: Sequence[str]) -> list[Source]:
    """The files that a run was fitted on: the first as its fit opened it, others as new data beside it."""
    told, (first, *others) = manifest["settings"], paths
    opened = open_source(first, told["key"], told["columns"], told["id_column"], told.get("exclude"))
    return [opened, *(opened_alike(store, told, manifest["source"], path) for path in others)]


def is_scanned(data: Source, validated: Outcome, settings: Json) -> bool:
    """Whether data is in the files that a fit with these settings has scanned, untouched."""
    told, n_grains = published_settings(settings), int(validated.figures["rows_each"]) // GRAIN_ROWS
    scan = Validate(data, RowPartitions(data.shape[0], n_grains), told.missing, told.metric_of_rows)
    return validated.ledger.digest == stage_digest(scan.name, scan.version, scan.settings(), scan.inputs())


def opened_alike(
    store: str, told: Json, fitted: Json, data: object, key: str | None = None, id_column: str | None = None
) -> Source:
    """New vectors, opened as a fit that was `told` these settings opened its own as far as they allow it.

    Array, ids and columns of the fit are looked for first. Columns are found by their names, whatever their order;
    where either side has no names, they are counted.
    """
    given = told.get("input", VECTORS)
    if given != VECTORS:
        raise InvalidInputError(
            f"{store} was fitted with input={given!r}, which new rows of numbers cannot be joined to; fit old "
            "and new data together into a new store."
        )
    errors = []
    for way in _ways_to_open(told, list(fitted["column_names"]), key, id_column):
        try:
            return open_source(data, *way)
        except EmptySourceError:
            raise
        except InvalidInputError as error:
            errors.append(error)
    raise errors[0]


def _ways_to_open(
    told: Json, names: list[str], key: str | None, id_column: str | None
) -> Iterator[tuple[str | None, list[str] | None, str | None, list[str] | None]]:
    """Each an array, columns, an id column and columns to leave out, to try."""
    numbered = names == [str(number) for number in range(len(names))]
    named = told["columns"] or (None if numbered else names)
    # Names of fitted columns are without those that were left out.
    exclude = None if named is names else told.get("exclude")
    keys = (key,) if key is not None else dict.fromkeys((told["key"], None))
    ids = (id_column,) if id_column is not None else dict.fromkeys((told["id_column"], None))
    for each_key, each_id in product(keys, ids):
        yield each_key, named, each_id, exclude
    if (named or exclude) and not told["columns"]:
        # A table without names has as many columns, or is refused for that.
        yield key, None, id_column, None


def _require_fitting(settings: ExtendSettings, space: Space, source: AnySource) -> None:
    fitted = int(space.source["n_columns"])
    if n_columns(source) != fitted:
        raise InvalidInputError(
            f"{source.name} has {n_columns(source)} columns; the run was fitted on {fitted}: give the same columns in "
            "the same order."
        )
    outside = [row for row in settings.arc_rows or () if not 0 <= row < n_points(source)]
    if outside:
        raise InvalidInputError(
            f"arc_rows={outside[0]} is out of range; {source.name} has rows 0 to {n_points(source) - 1}."
        )


def _require_used(settings: ExtendSettings, space: Space) -> None:
    """Refuse what needs both answers, and similarities that nothing uses."""
    told = fitted_settings(space)
    for name in ("joint", "arc"):
        value = getattr(settings, name)
        if value is not None and not space.answers.is_classical:
            raise InvalidInputError(
                f"{name}={value} does not go with the fitted run: method={told.method!r} with "
                f"extension={told.chosen_extension!r} places points in one way only; {name} needs both the projection "
                "and the restricted reconstruction, which isomap, kernel-isomap, mds and kernel-mds have."
            )
    if settings.joint is not None:
        _require_distances_between(settings, space, told)
    if settings.own_key is not None and not told.induces_distances:
        raise InvalidInputError(
            f"own_key={settings.own_key!r} means nothing for the fitted run, of method={told.method!r} and "
            f"input={told.input!r}; leave it out."
        )


def _require_distances_between(settings: ExtendSettings, space: Space, told: FitSettings) -> None:
    """Refuse joint reconstruction without distances between new rows, and bounds of such as have none."""
    is_given, key = told.input in (DISSIMILARITIES, SIMILARITIES), settings.between_key
    if key is not None and not is_given:
        raise InvalidInputError(
            f"between_key={key!r} means nothing for the fitted run, of input={told.input!r}: distances between new "
            "rows are computed; leave it out."
        )
    if settings.joint_distances == "bound":
        model = space.answers.model
        if isinstance(model, LandmarkModel) and model.signed:
            remedy = "name their similarities in between_key" if is_given else "leave it out"
            raise InvalidInputError(
                "joint_distances='bound' does not go with the fitted run: similarities give no upper bounds of the "
                f"distances between new rows; {remedy}."
            )
    elif is_given and key is None:
        bounds = "" if told.input == SIMILARITIES else ", or use joint_distances='bound' for upper bounds of them"
        raise InvalidInputError(
            f"joint={settings.joint} needs the {told.input} between the new points, which their {told.input} to the "
            f"landmarks do not say: name an array of them (points x points) in between_key{bounds}."
        )


def _opened(settings: ExtendSettings, space: Space, data: object) -> AnyBatch:
    if isinstance(space, GraphSpace) and space.is_precomputed:
        return open_new_nodes(settings.source, space.n_nodes)
    if isinstance(space, GraphSpace) or space.settings["input"] == VECTORS:
        return opened_alike(settings.store, space.settings, space.source, data, settings.key, settings.id_column)
    told = fitted_settings(space)
    if told.input == OBJECTS:
        _require_same_function(settings, space, told)
    if settings.key is None and told.key is not None:
        with suppress(InvalidInputError):
            return _opened_as_fitted(settings, space, told, told.key)
    return _opened_as_fitted(settings, space, told, settings.key)


def _opened_as_fitted(settings: ExtendSettings, space: Space, told: FitSettings, key: str | None) -> AnySource:
    if told.input == OBJECTS:
        source = open_objects(settings.source, key)
        fitted_is_text = bool(space.stages["landmarks"].figures["is_text"])
        if source.is_text != fitted_is_text:
            raise InvalidInputError(
                f"{source.name} holds {KINDS[source.is_text]}, and the run was fitted on {KINDS[fitted_is_text]}: give "
                "objects of the same kind (key names the array or the column that holds them)."
            )
        return source
    proximities = open_proximities(settings.source, key)
    rows_of_landmarks(proximities, space.stages["landmarks"])
    if told.induces_distances:
        require_own_similarities(proximities, own_key_of(settings, told))
    if settings.between_key is not None:
        between_new(proximities, settings.between_key)
    return proximities


def _require_same_function(settings: ExtendSettings, space: Space, told: FitSettings) -> None:
    """Refuse a function that was edited since the fit: new rows would be measured by another than the landmarks."""
    comparison = comparison_of(told)
    fitted = space.stages["rows"].figures.get("source") if "rows" in space.stages else None
    if fitted is None:
        raise InvalidInputError(
            f"store={settings.store!r} was made by an earlier version, which did not keep what extending to objects "
            "needs; run the fit again, and export a model of it again."
        )
    if "" not in (fitted, comparison.source) and fitted != comparison.source:
        raise InvalidInputError(
            f"{comparison} was edited since the run was fitted, and new rows cannot be measured by another function: "
            "put its file back as it was, or fit again, which calls it for every row."
        )


def own_key_of(settings: ExtendSettings, told: FitSettings) -> str | None:
    """The array of the new points' similarities to themselves; without a name, one beside them that is called as the
    fit's was. A file of the fit's, and the diagonal of a matrix of fitted x new points, say nothing of new points."""
    if settings.own_key is not None or told.own_key is None:
        return settings.own_key
    return None if is_file_of_its_own(told.own_key) else told.own_key
