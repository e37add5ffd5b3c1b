"""The settings of a study: those of the fit that it is for, and what it tries."""

from typing import Annotated

from pydantic import Field, field_validator

from pipeline.errors import InvalidInputError
from pipeline.methods import DISSIMILARITIES, SELECTIONS, VECTORS, landmark_choices, one_of, uses
from pipeline.settings.jobs import FIELDS, TABLES, FitSettings

Count = Annotated[int, Field(ge=1)]
NEIGHBORS = (5, 10, 20)
LISTS = ("landmarks", "neighbors", "selections")


class StudySettings(FitSettings):
    """Everything that `trigpoint study` can be told: what a fit can, and the table `[study]` of a TOML file.

    A single choice of the fit's (n_neighbors, n_landmarks, landmark_selection) is what is studied where no list is
    given for it.
    """

    store: str = Field("run.zarr", description="Folder of the fit that is recommended; a study writes nothing there.")
    landmarks: tuple[Count, ...] = Field((), description="Numbers of landmarks to try, separated by commas.")
    neighbors: tuple[Count, ...] = Field(
        (), description="Numbers of neighbors to try, if the method has any, separated by commas [5,10,20]."
    )
    selections: tuple[str, ...] = Field(
        (), description=f"Ways of choosing landmarks to try, separated by commas [{','.join(SELECTIONS)}]."
    )
    sample: int = Field(4000, ge=50, le=10_000, description="Rows that landmarks are chosen among.")
    held_out: int = Field(1000, ge=30, le=5000, description="Rows beside these that are placed as new ones.")
    repeats: int = Field(5, ge=2, le=100, description="How often each is tried, with landmarks of other seeds.")

    @field_validator(*LISTS, mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        parts = str(value).split(",") if isinstance(value, str | int) else value
        if not isinstance(parts, list | tuple):
            raise ValueError("a list is needed, such as 50,100,200")  # noqa: TRY004  pydantic takes ValueErrors
        return tuple(dict.fromkeys(str(part).strip() for part in parts if str(part).strip()))

    @field_validator("selections")
    @classmethod
    def _known_selections(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(one_of("selections", name, landmark_choices()) for name in value)

    @field_validator("sample", "held_out", "repeats", mode="before")
    @classmethod
    def _no_truth(cls, value: object) -> object:
        if isinstance(value, bool):
            raise ValueError("a number is needed")  # noqa: TRY004  pydantic takes ValueErrors
        return value

    @property
    def has_neighbors(self) -> bool:
        """Whether the method asks for neighbors at all."""
        return uses(self.method, "n_neighbors")

    @property
    def tried_neighbors(self) -> tuple[int, ...]:
        """Numbers of neighbors to try, rising; none where the method has none."""
        given = (self.n_neighbors,) if "n_neighbors" in self.model_fields_set else NEIGHBORS
        return tuple(sorted(self.neighbors or given)) if self.has_neighbors else ()

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
        if self.neighbors and not self.has_neighbors:
            raise InvalidInputError(f"neighbors means nothing with method={self.method!r}; leave it out.")
        self._check_landmarks()

    def _check_landmarks(self) -> None:
        low, high = self.n_components + 1, self.sample
        for m in self.tried_landmarks:
            if not low <= m <= high:
                raise InvalidInputError(
                    f"landmarks={m} is out of range; use ones from {low} to {high} (above n_components, no more than "
                    "the sample has rows: raise sample for more)."
                )


TABLES[StudySettings] = "study"
FIELDS.update(StudySettings.model_fields)
