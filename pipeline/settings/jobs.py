"""The settings of the other jobs: extend, refit, invert and study."""

import re
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from pipeline.errors import InvalidInputError
from pipeline.methods import DISSIMILARITIES, RADIAL_FUNCTIONS, SELECTIONS, VECTORS, landmark_choices, one_of, uses
from pipeline.settings.base import (
    DATA,
    EXECUTION,
    INTERPOLATION,
    MISSING,
    PLACEMENT,
    QUERIES,
    STUDY,
    JobSettings,
    option,
    required,
    split,
    within,
)
from pipeline.settings.fit import FitSettings


class ExtendSettings(JobSettings):
    """Settings of `trigpoint extend`; the table `[extend]` of a TOML file."""

    table: ClassVar[str | None] = "extend"

    store: str = required(DATA, "Folder of the fitted run, or of a model exported from one.")
    source: str = required(DATA, "The new data, in any format of a fit; with --incoming a folder of batches.")
    output: str = required(DATA, "Folder for the results; with --incoming, a folder with one per batch.")
    version: str | None = option(DATA, None, "Version of the run to extend. [default: the published one]")
    key: str | None = option(DATA, None, "Array in a .npz file or Zarr group. [default: that of the fit]")
    id_column: str | None = option(DATA, None, "Column or array with row ids. [default: that of the fit]")
    own_key: str | None = option(
        DATA, None, "For similarities: array (or .npy file) with the similarity of each new point to itself."
    )
    missing: Literal["error", "drop"] = option(DATA, "error", MISSING)
    incoming: bool = option(DATA, False, "Extend to every batch in the folder that has no results yet.")
    joint: int | None = option(
        PLACEMENT, None, "Reconstruct blocks of this many consecutive rows jointly.", **within("joint")
    )
    joint_distances: Literal["paths", "bound"] = option(
        PLACEMENT,
        "paths",
        "Distances between new rows: shortest paths along the graph (without a graph: by the metric, your function or "
        "between_key), or an upper bound through the landmarks.",
    )
    between_key: str | None = option(
        PLACEMENT,
        None,
        "With --joint, for proximities: array next to the matrix (or .npy file) with those between the new points.",
    )
    arc: int | None = option(
        PLACEMENT,
        None,
        "Number of positions on the arc from the projection to the restricted reconstruction.",
        **within("arc"),
    )
    arc_rows: tuple[int, ...] | None = option(PLACEMENT, None, "Rows to compute arcs for, separated by commas.")
    level: float = option(PLACEMENT, 0.01, "False-alarm rate of the drift test.", gt=0, lt=0.5)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if (self.arc is None) != (self.arc_rows is None):
            raise ValueError("arc and arc_rows go together: the number of positions, and the rows")
        for name in ("own_key", "between_key"):
            value = getattr(self, name)
            if self.incoming and value is not None and value.endswith(".npy"):
                raise ValueError(
                    f"{name}={value!r} is one file for all batches of incoming: name an array next to the matrix in "
                    "each"
                )
        self._check_between()
        return self

    def _check_between(self) -> None:
        if self.between_key is not None and self.joint is None:
            raise ValueError(f"between_key={self.between_key!r} goes with joint only; leave it out")
        if self.between_key is not None and self.joint_distances == "bound":
            raise ValueError(
                f"between_key={self.between_key!r} names distances between new rows, and joint_distances='bound' takes "
                "upper bounds for them; leave one of them out"
            )


class RefitSettings(JobSettings):
    """Settings of `trigpoint refit`; the table `[refit]` of a TOML file."""

    table: ClassVar[str | None] = "refit"

    store: str = required(DATA, "Folder of the fitted run.")
    new: tuple[str, ...] = option(DATA, (), "New data to add to that of the published version, separated by commas.")
    incoming: str | None = option(DATA, None, "Folder of batches, all of them new data.")
    source: str | None = option(DATA, None, "Where the data of the first fit is now, if it was moved.")
    name: str | None = option(DATA, None, "Name of the new version. [default: the next number]")

    @field_validator("name")
    @classmethod
    def _plain(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", value):
            raise ValueError("letters, digits, dots, dashes and underscores are allowed, at most 64")
        return value


COLUMN_MAJOR = "column-major"
IMAGE = re.compile(rf"([1-9][0-9]{{0,4}})x([1-9][0-9]{{0,4}})(,{COLUMN_MAJOR})?")

Row = Annotated[int, Field(ge=0)]


class InvertSettings(JobSettings):
    """Settings of `trigpoint invert`; the table `[invert]` of a TOML file."""

    table: ClassVar[str | None] = "invert"

    store: str = required(DATA, "Folder of the fitted run.")
    coordinates: str | None = option(
        QUERIES, None, "Points in the space of the run, in any format of a fit, with one column per coordinate."
    )
    output: str = required(DATA, "Folder for the results; the same command resumes the job.")
    version: str | None = option(DATA, None, "Version of the run. [default: the published one]")
    source: str | None = option(DATA, None, "Where the data of the fit is now, if it was moved.")
    key: str | None = option(QUERIES, None, "Array of coordinates in a .npz file or Zarr group.")
    columns: tuple[str, ...] | None = option(
        QUERIES, None, "Columns of the coordinates, by name or number, separated by commas."
    )
    id_column: str | None = option(QUERIES, None, "Column, or array next to the coordinates, with row ids.")
    n_neighbors: int = option(INTERPOLATION, 200, "Embedded points to interpolate between.", ge=1, le=5000)
    kernel: str = option(
        INTERPOLATION, "cubic", f"Radial basis function: {', '.join(RADIAL_FUNCTIONS)}.", examples=[*RADIAL_FUNCTIONS]
    )
    scale: float | None = option(
        INTERPOLATION,
        None,
        "Scale of gaussian and shepard, in units of 1 / fill distance of the neighborhood. [default: 1]",
        ge=1e-3,
        le=1e3,
    )
    outside: float = option(
        INTERPOLATION,
        3.0,
        "Distance to the nearest embedded point, in fill distances, beyond which a query is outside the embedding.",
        gt=0,
    )
    recall: float = option(
        INTERPOLATION, 0.995, "Target share of true neighbors found; 1 searches exactly.", **within("recall")
    )
    leave_one_out: bool = option(QUERIES, False, "Leave-one-out reconstruction error of each row.")
    sample: int | None = option(QUERIES, None, "Leave out this many random rows instead of all.", ge=1)
    path: tuple[Row, Row] | None = option(QUERIES, None, "Two rows of the run: reconstruct the data between them.")
    steps: int = option(QUERIES, 9, "Positions on the path, both ends included.", ge=2, le=10_000)
    along: Literal["straight", "data"] = option(
        QUERIES, "straight", "Path: a straight line, or the shortest path through nearby embedded points."
    )
    image: str | None = option(
        QUERIES, None, f"Rows are images of this size, such as 28x28, or 28x20,{COLUMN_MAJOR} if columns come first."
    )
    seed: int = option(EXECUTION, 0, "Random seed.", ge=0, lt=2**32)

    @field_validator("kernel")
    @classmethod
    def _known_kernel(cls, value: str) -> str:
        return one_of("kernel", value, RADIAL_FUNCTIONS)

    @field_validator("path", mode="before")
    @classmethod
    def _two_rows(cls, value: object) -> object:
        rows = value.split(",") if isinstance(value, str) else value
        if isinstance(rows, list | tuple) and len(rows) == 2:
            return tuple(rows)
        if value is None:
            return None
        raise ValueError("two rows are needed, such as 7,0")

    @field_validator("image")
    @classmethod
    def _size(cls, value: str | None) -> str | None:
        if value is not None and not IMAGE.fullmatch(value):
            raise ValueError(f"rows x columns are needed, such as 28x28 or 28x20,{COLUMN_MAJOR}")
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        goes_with = {
            "leave_one_out": (self.leave_one_out, ("sample",)),
            "path": (self.path is not None, ("steps", "along", "image")),
            "coordinates": (self.coordinates is not None, ("key", "columns", "id_column")),
        }
        if sum(is_given for is_given, _ in goes_with.values()) != 1:
            raise ValueError("give exactly one of coordinates, leave_one_out and path")
        for needed, (is_given, names) in goes_with.items():
            for name, value in self.changed(() if is_given else names):
                raise ValueError(f"{name}={value!r} goes with {needed} only; leave it out")
        if self.scale is not None and RADIAL_FUNCTIONS[self.kernel][1] is not None:
            raise ValueError(f"scale={self.scale} means nothing to kernel={self.kernel!r}; leave it out")
        return self

    @property
    def image_shape(self) -> tuple[int, int, bool] | None:
        """Rows and columns of an image, and whether columns come first."""
        found = IMAGE.fullmatch(self.image or "")
        return None if found is None else (int(found[1]), int(found[2]), found[3] is not None)


Count = Annotated[int, Field(ge=1)]
NEIGHBORS = (5, 10, 20)


class StudySettings(FitSettings):
    """Settings of `trigpoint study`: those of the fit, and the table `[study]` of a TOML file.

    Where no list is given, the fit's own n_neighbors, n_landmarks or landmark_selection is studied if it is set.
    """

    table: ClassVar[str | None] = "study"
    refused: ClassVar[tuple[str, ...]] = ("radius", "landmarks_key", "own_key", "n_evaluated")

    store: str = option(DATA, "run.zarr", "Folder of the recommended fit; the study itself writes nothing there.")
    landmarks: tuple[Count, ...] = option(STUDY, (), "Numbers of landmarks to try, separated by commas.")
    neighbors: tuple[Count, ...] = option(
        STUDY, (), "Numbers of neighbors to try, for methods that use them, separated by commas. [default: 5,10,20]"
    )
    selections: tuple[str, ...] = option(
        STUDY, (), f"Landmark selections to try, separated by commas. [default: {','.join(SELECTIONS)}]"
    )
    sample: int = option(STUDY, 4000, "Rows to select landmarks from.", ge=50, le=10_000)
    held_out: int = option(STUDY, 1000, "Additional rows that are placed like new ones.", ge=30, le=5000)
    repeats: int = option(STUDY, 5, "Repetitions of each trial, with different seeds.", ge=2, le=100)

    @field_validator("landmarks", "neighbors", "selections", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        if not isinstance(value, str | int | list | tuple):
            raise ValueError("a list is needed, such as 50,100,200")  # noqa: TRY004  pydantic takes ValueErrors
        return tuple(dict.fromkeys(part.strip() for part in split(str(value) if isinstance(value, int) else value)))

    @field_validator("selections")
    @classmethod
    def _known_selections(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(one_of("selections", name, landmark_choices()) for name in value)

    @property
    def tried_neighbors(self) -> tuple[int, ...]:
        """Numbers of neighbors to try, rising; none where the method has none."""
        given = (self.n_neighbors,) if "n_neighbors" in self.model_fields_set else NEIGHBORS
        return tuple(sorted(self.neighbors or given)) if uses(self.method, "n_neighbors") else ()

    @property
    def tried_selections(self) -> tuple[str, ...]:
        """Ways of choosing landmarks to try."""
        given = (self.landmark_selection,) if "landmark_selection" in self.model_fields_set else SELECTIONS
        return self.selections or given

    @property
    def tried_landmarks(self) -> tuple[int, ...]:
        """Numbers of landmarks that are asked for, rising; none where the study is to choose them."""
        given = () if self.n_landmarks == "auto" else (self.n_landmarks,)
        return tuple(sorted(self.landmarks or given))

    def check_choices(self) -> None:
        """Refuse choices that do not go together, before anything is opened."""
        super().check_choices()
        if self.input not in (VECTORS, DISSIMILARITIES) or self.landmarks_key is not None:
            what = "landmarks_key" if self.landmarks_key is not None else f"input={self.input!r}"
            raise InvalidInputError(
                f"{what} does not go with a study, which compares landmarks of its own choice: it takes vectors, or "
                "dissimilarities (square) between all points."
            )
        if self.radius is not None:
            raise InvalidInputError(
                f"radius={self.radius} cannot be studied on a sample, where points are farther apart than in the whole "
                "source; leave it out."
            )
        if self.neighbors and not uses(self.method, "n_neighbors"):
            raise InvalidInputError(f"neighbors means nothing with method={self.method!r}; leave it out.")
        low, high = self.least_components + 1, self.sample
        for m in self.tried_landmarks:
            if not low <= m <= high:
                raise InvalidInputError(
                    f"landmarks={m} is out of range; use ones from {low} to {high} (above n_components, no more than "
                    "the sample has rows: raise sample for more)."
                )
