"""The stages of an extension to a run that was measured straight from its landmarks, in their order."""

from collections.abc import Callable
from contextlib import suppress

from pipeline.errors import InvalidInputError
from pipeline.jobs.direct_fit import kernel_choice
from pipeline.methods import METHODS, OBJECTS, SIMILARITIES
from pipeline.numerics.extension.reconstruction import DiagonalWeight
from pipeline.settings.jobs import ExtendSettings, FitSettings
from pipeline.sources import Source
from pipeline.sources.inputs import AnySource, as_table, comparison_of, partitions_of
from pipeline.sources.objects import ObjectSource, open_objects
from pipeline.sources.partitions import RowPartitions
from pipeline.sources.proximities import ProximitySource, is_file_of_its_own, open_proximities, require_own_similarities
from pipeline.stages.direct.asked import DirectAnswers
from pipeline.stages.direct.place import DirectPlace
from pipeline.stages.direct.space import NEEDED, OPTIONAL, DirectSpace
from pipeline.stages.direct.together import DirectArcs, DirectJoint
from pipeline.stages.place import ranks_of
from pipeline.stages.preprocess import ReplayedSource, ValidateBatch, point_dtype
from pipeline.stages.providers.estimated import EstimatedRows
from pipeline.stages.providers.objects import Compare, ComparedRows, ScanObjects
from pipeline.stages.providers.proximities import GivenRows, ScanProximities, rows_of_landmarks
from pipeline.stages.providers.vectors import Provider, VectorRows
from pipeline.stages.publish import Publish
from pipeline.stages.space import FittedSpace, published_stages
from pipeline.stages.stage import Outcome, Stage
from pipeline.store.backend import Backend
from pipeline.types import Json

Runner = Callable[[Stage], Outcome]
# What objects are, by whether they are texts.
KINDS = {True: "texts", False: "rows of numbers"}


def is_direct(manifest: Json) -> bool:
    """Whether a published run was measured straight from its landmarks."""
    return not METHODS[manifest["settings"].get("method", "isomap")].geodesic


def direct_space(store: Backend, manifest: Json) -> DirectSpace:
    """The space of such a run."""
    stages = published_stages(store, manifest, NEEDED, OPTIONAL)
    return DirectSpace(stages, manifest["settings"], manifest["source"])


def fitted_settings(space: DirectSpace | FittedSpace) -> FitSettings:
    """What the run was told, where it is and where its data was left out. Its fit has checked that: a later version may
    refuse what an earlier one ignored."""
    return FitSettings.model_validate({**space.settings, "source": "fitted", "store": "fitted"})


def open_direct_batch(settings: ExtendSettings, space: DirectSpace) -> AnySource:
    """New rows that are not vectors, of the kind that was fitted; the fit's key is tried first, if none is given."""
    told = fitted_settings(space)
    if told.input == OBJECTS:
        _require_same_function(settings, space, told)
    if settings.key is None and told.key is not None:
        with suppress(InvalidInputError):
            return _open_as_told(settings, space, told, told.key)
    return _open_as_told(settings, space, told, settings.key)


def _require_same_kind(source: ObjectSource, fitted_is_text: bool) -> None:
    """Refuse texts for a run of numbers, and numbers for a run of texts."""
    if source.is_text != fitted_is_text:
        here, there = (KINDS[is_text] for is_text in (source.is_text, fitted_is_text))
        raise InvalidInputError(
            f"{source.name} holds {here}, and the run was fitted on {there}: give objects of the same kind (key names "
            "the array or the column that holds them)."
        )


def _require_same_function(settings: ExtendSettings, space: DirectSpace, told: FitSettings) -> None:
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


def _open_as_told(settings: ExtendSettings, space: DirectSpace, told: FitSettings, key: str | None) -> AnySource:
    if told.input == OBJECTS:
        source = open_objects(settings.source, key)
        _require_same_kind(source, bool(space.stages["landmarks"].figures["is_text"]))
        return source
    proximities = open_proximities(settings.source, key)
    rows_of_landmarks(proximities, space.stages["landmarks"])
    if told.induces_distances:
        require_own_similarities(proximities, _own_key(settings, told))
    return proximities


def _own_key(settings: ExtendSettings, told: FitSettings) -> str | None:
    """The array of the new points' similarities to themselves; without a name, one beside them that is called as the
    fit's was. A file of the fit's, and the diagonal of a matrix of fitted x new points, say nothing of new points."""
    if settings.own_key is not None or told.own_key is None:
        return settings.own_key
    return None if is_file_of_its_own(told.own_key) else told.own_key


def direct_extension(settings: ExtendSettings, space: DirectSpace, source: AnySource | None, done: Runner) -> None:
    """Every stage after the other."""
    told, answers = fitted_settings(space), space.answers
    columns = (*space.columns, *ranks_of(space.columns))
    flags = direct_flags(space)
    if source is None:
        nothing = RowPartitions(0, 1)
        done(Publish(space.stages["model"], nothing, answers.n_components, columns, None, answers.coordinates, flags))
        return
    cut = partitions_of(source, answers.n_landmarks, settings.partition_mib)
    provider = _provider(settings, told, space, source, cut, done)
    weight: DiagonalWeight = float(space.stages["calibrate"].figures["weight"])
    lengths = METHODS[told.method].coordinates_are_lengths
    asked = DirectAnswers(provider, space.stages["model"], weight, lengths)
    placed = done(DirectPlace(space, asked, cut, settings.level))
    if settings.joint:
        done(DirectJoint(space, asked, cut, settings.joint, settings.joint_distances == "bound"))
    if settings.arc and settings.arc_rows:
        done(DirectArcs(space, asked, settings.arc_rows, settings.arc))
    done(Publish(placed, cut, answers.n_components, columns, None, answers.coordinates, flags))


def direct_flags(space: DirectSpace) -> tuple[str, ...]:
    """The names of the published flags."""
    clusters = "centers" in space.stages["model"].ledger.vouched_for(0)
    return (*(("ambiguous",) * space.answers.is_classical), "component", *(("labels",) * clusters))


def _provider(
    settings: ExtendSettings, told: FitSettings, space: DirectSpace, source: AnySource, cut: RowPartitions, done: Runner
) -> Provider:
    fitted = space.stages
    landmarks = fitted["landmarks"]
    if isinstance(source, ProximitySource):
        similar = told.input == SIMILARITIES
        affinity = told.takes_affinities
        scanned = done(ScanProximities(source, landmarks, cut, similar, affinity))
        return GivenRows(source, scanned, landmarks, similar, affinity, _own_key(settings, told), space.exponent)
    if isinstance(source, ObjectSource):
        comparison = comparison_of(told)
        subset = fitted.get("subset")
        scanned = done(ScanObjects(source, cut))
        compared = done(Compare(source, scanned, landmarks, comparison, subset, has_landmarks=False))
        kernel = comparison.is_kernel
        values = ComparedRows(compared, landmarks, kernel, source.name, space.exponent, fitted.get("rows"))
        return values if subset is None else EstimatedRows(values, subset, has_landmarks=False)
    return _vector_rows(settings, told, space, as_table(source), cut, done)


def _vector_rows(
    settings: ExtendSettings, told: FitSettings, space: DirectSpace, source: Source, cut: RowPartitions, done: Runner
) -> VectorRows:
    fitted = space.stages
    validated = done(ValidateBatch(source, cut, settings.missing, space.exponent_of_source))
    dtype = point_dtype(fitted["validate"].figures["dtype"])
    data = ReplayedSource(source, fitted["validate"], told.standardize, fitted.get("axes"), validated, dtype)
    return VectorRows(data, fitted["landmarks"], told.metric, kernel_choice(told))


def require_use_of_own_key(settings: ExtendSettings, space: DirectSpace | FittedSpace) -> None:
    """Refuse similarities of points to themselves where nothing is computed from them."""
    if settings.own_key is None:
        return
    told = fitted_settings(space)
    if not told.induces_distances:
        raise InvalidInputError(
            f"own_key={settings.own_key!r} means nothing for the fitted run, of method={told.method!r} and "
            f"input={told.input!r}; leave it out."
        )


def require_two_answers(settings: ExtendSettings, space: DirectSpace | FittedSpace) -> None:
    """Refuse what only models with two answers have."""
    for name in ("joint", "arc"):
        if getattr(settings, name) is not None and not space.answers.is_classical:
            told = fitted_settings(space)
            raise InvalidInputError(
                f"{name}={getattr(settings, name)} does not go with the fitted run: method={told.method!r} with "
                f"extension={told.chosen_extension!r} places points in one way only; {name} needs both the projection "
                "and the restricted reconstruction, which isomap, kernel-isomap, mds and kernel-mds have."
            )
