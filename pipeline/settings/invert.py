"""The settings of an inversion: what is asked for, and what to interpolate with."""

import re
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from pipeline.settings.jobs import FIELDS, TABLES, JobSettings
from pipeline.settings.method import within

# Kind and power of each radial function, by the names that users give; see numerics/inverse_kernels.
KERNELS: dict[str, tuple[str, int | None]] = {
    "cubic": ("power", 3),
    "power-1": ("power", 1),
    "power-5": ("power", 5),
    "power-7": ("power", 7),
    "thin-plate": ("thin_plate", 2),
    "thin-plate-4": ("thin_plate", 4),
    "thin-plate-6": ("thin_plate", 6),
    "gaussian": ("gaussian", None),
    "shepard": ("shepard", None),
}
WITH_SCALE = ("gaussian", "shepard")
COLUMN_MAJOR = "column-major"
IMAGE = re.compile(rf"([1-9][0-9]{{0,4}})x([1-9][0-9]{{0,4}})(,{COLUMN_MAJOR})?")

Row = Annotated[int, Field(ge=0)]


class InvertSettings(JobSettings):
    """Everything that `trigpoint invert` can be told; the table `[invert]` of a TOML file."""

    store: str = Field(description="Folder of the fitted run.")
    coordinates: str | None = Field(
        None, description="Points in the space of the run, of any kind that a fit takes, a column for each coordinate."
    )
    output: str = Field(description="Folder for the results; the same command again goes on where it stopped.")
    version: str | None = Field(None, description="Version of the run, if not the published one.")
    source: str | None = Field(None, description="Where the data of the fit is now, if it was moved.")
    key: str | None = Field(None, description="Array of coordinates to take from a .npz file or a Zarr group.")
    columns: tuple[str, ...] | None = Field(
        None, description="Columns of the coordinates, by name or number, separated by commas."
    )
    id_column: str | None = Field(None, description="Column, or array beside the coordinates, that names them.")
    n_neighbors: int = Field(200, ge=1, le=5000, description="Embedded points to interpolate between.")
    kernel: Literal[
        "cubic", "power-1", "power-5", "power-7", "thin-plate", "thin-plate-4", "thin-plate-6", "gaussian", "shepard"
    ] = Field("cubic", description="Radial function to interpolate with.")
    scale: float | None = Field(
        None, ge=1e-3, le=1e3, description="Of the gaussian and shepard, in 1 / fill distance of the neighborhood [1]."
    )
    outside: float = Field(
        3.0, gt=0, description="Fill distances to the nearest embedded point beyond which a query counts as outside."
    )
    recall: float = Field(
        0.995,
        **within("recall"),
        description="Share of the nearest points to find among many in many dimensions; 1: all.",
    )
    leave_one_out: bool = Field(False, description="How far embedded rows are from what the others make of them.")
    sample: int | None = Field(None, ge=1, description="So many rows are left out, drawn at random, instead of all.")
    path: tuple[Row, Row] | None = Field(None, description="Two rows of the run: the data on the way between them.")
    steps: int = Field(9, ge=2, le=10_000, description="Positions on the path, with both ends.")
    along: Literal["straight", "data"] = Field(
        "straight", description="The path: a straight line, or the shortest way between near embedded points."
    )
    image: str | None = Field(
        None, description=f"Rows are images of this size, such as 28x28, or 28x20,{COLUMN_MAJOR} if columns come first."
    )
    seed: int = Field(0, ge=0, lt=2**32, description="Seed of every random choice.")

    @field_validator("scale", "outside", "sample", "steps", mode="before")
    @classmethod
    def _no_truth(cls, value: object) -> object:
        if isinstance(value, bool):
            raise ValueError("a number is needed")  # noqa: TRY004  pydantic takes ValueErrors
        return value

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
        asked = [self.coordinates is not None, self.leave_one_out, self.path is not None]
        if sum(asked) != 1:
            raise ValueError("give exactly one of coordinates, leave_one_out and path")
        self._refuse_without("leave_one_out", self.leave_one_out, ("sample",))
        self._refuse_without("path", self.path is not None, ("steps", "along", "image"))
        self._refuse_without("coordinates", self.coordinates is not None, ("key", "columns", "id_column"))
        if self.scale is not None and self.kernel not in WITH_SCALE:
            raise ValueError(f"scale={self.scale} means nothing to kernel={self.kernel!r}; leave it out")
        return self

    def _refuse_without(self, needed: str, is_given: bool, names: tuple[str, ...]) -> None:
        for name in names:
            if not is_given and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name}={getattr(self, name)!r} goes with {needed} only; leave it out")

    @property
    def image_shape(self) -> tuple[int, int, bool] | None:
        """Rows and columns of an image, and whether columns come first."""
        found = IMAGE.fullmatch(self.image or "")
        return None if found is None else (int(found[1]), int(found[2]), found[3] is not None)


TABLES[InvertSettings] = "invert"
FIELDS.update(InvertSettings.model_fields)
