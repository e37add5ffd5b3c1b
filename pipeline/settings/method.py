"""The settings of a fit that choose the method, what is measured and how; and which of them go together."""

from collections.abc import Collection
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from pipeline import methods
from pipeline.methods import EXTENSIONS, IMPORTABLE, INPUTS, KERNELS, METHODS, METRICS, RANGES, SELECTIONS, SIMILARITIES


def within(name: str) -> dict[str, Any]:
    """The range that the registry has for a setting, as arguments of a field."""
    valid = RANGES[name]
    finite = {} if valid.whole else {"allow_inf_nan": False}
    upper = {} if valid.high is None else {"le": valid.high}
    return {"gt" if valid.above else "ge": valid.low, **upper, **finite}


class MethodSettings(BaseModel):
    """What is embedded, by which method."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: str = Field("isomap", description=f"Method that embeds the landmarks: {', '.join(METHODS)}.")
    extension: str = Field(
        "auto",
        description=f"How the other points are placed: {', '.join(EXTENSIONS)}; auto is the method's own way.",
    )
    input: str = Field("vectors", description=f"What the source holds: {', '.join(INPUTS)}.")
    metric: str = Field(
        "euclidean",
        description=f"Distance between points: {', '.join(METRICS)}, or a function of two objects as "
        "package.module:function.",
    )
    kernel: str = Field(
        "rbf", description=f"Kernel of kernel-mds: {', '.join(KERNELS)}, or a function as package.module:function."
    )
    gamma: Annotated[float, Field(**within("gamma"))] | Literal["auto"] = Field(
        "auto",
        description="Width of the rbf and polynomial kernels and of the affinities of laplacian and spectral; auto is "
        "1 / median squared distance between landmarks.",
    )
    degree: int = Field(3, description="Degree of the polynomial kernel.", **within("degree"))
    constant: float = Field(1.0, description="Constant term of the polynomial kernel.", **within("constant"))
    radius: float | None = Field(
        None,
        description="Connect all points within this distance in the graph, instead of n_neighbors.",
        **within("radius"),
    )
    landmarks_key: str | None = Field(
        None, description="For proximities: array (or .npy file) with the row number of each landmark."
    )
    own_key: str | None = Field(
        None, description="For similarities: array (or .npy file) with the similarity of each point to itself."
    )
    n_evaluated: int | None = Field(
        None,
        description="For objects: compare each point with this many landmarks only, and estimate the other distances.",
        **within("n_evaluated"),
    )
    n_clusters: int | None = Field(
        None, description="Number of clusters of spectral; n_components by default.", **within("n_clusters")
    )
    regularization: float = Field(
        1e-3, description="Regularization of the neighbor weights of lle.", **within("regularization")
    )
    stress_neighbors: int | None = Field(
        None,
        description="Fit only the distances to this many nearest landmarks in sammon, not all.",
        **within("stress_neighbors"),
    )
    landmark_selection: str = Field(
        "maxmin",
        description=f"How landmarks are chosen: {', '.join(SELECTIONS)}; random by default where each distance is a "
        "function call.",
    )

    @field_validator("method", "input", "extension", "landmark_selection")
    @classmethod
    def _known(cls, value: str, info: ValidationInfo) -> str:
        return methods.one_of(str(info.field_name), value, _choices(str(info.field_name)))

    @property
    def is_geodesic(self) -> bool:
        """Whether distances are measured along a graph."""
        return METHODS[self.method].geodesic

    @property
    def chosen_extension(self) -> str:
        return methods.resolved_extension(self.method, self.extension)

    @property
    def two_answers(self) -> bool:
        """Whether points get both the projection and the restricted reconstruction."""
        return methods.has_two_answers(self.method, self.extension)

    @property
    def takes_affinities(self) -> bool:
        """Whether given similarities are used as they are."""
        return self.input == SIMILARITIES and METHODS[self.method].takes_affinities

    @property
    def induces_distances(self) -> bool:
        """Whether given similarities are turned into the distances that they induce."""
        return self.input == SIMILARITIES and not self.takes_affinities

    @property
    def evaluates(self) -> bool:
        """Whether a function of the user's is called for every landmark and point."""
        return IMPORTABLE.fullmatch(self._compared_by) is not None

    @property
    def _compared_by(self) -> str:
        return str(getattr(self, methods.compares_by(self.method)))

    @property
    def selection(self) -> str:
        """How landmarks are chosen; the default gives way to an input that allows only random ones."""
        given = "landmark_selection" in self.model_fields_set
        allowed = methods.selections_for(self.input, self.evaluates)
        return self.landmark_selection if given or self.landmark_selection in allowed else "random"

    def check_choices(self) -> None:
        """Refuse choices that do not go together, before anything is opened."""
        methods.require_input(self.method, self.input)
        methods.resolved_extension(self.method, self.extension)
        methods.require_extension(self.method, self.extension, self.input)
        for name, choices in (("metric", METRICS), ("kernel", KERNELS)):
            if not IMPORTABLE.fullmatch(getattr(self, name)):
                methods.one_of(name, getattr(self, name), choices, ", or a function as package.module:function")
        methods.require_metric(self.method, self.metric, self.input)
        methods.require_function(self.method, self._compared_by, self.input)
        methods.require_selection(self.selection, self.input, self.evaluates)
        changed = {name: value for name, value in self if value != type(self).model_fields[name].default}
        unused = methods.unused_settings(self.method, self.kernel, self.input)
        methods.refuse_unused(changed, unused, f"method={self.method!r} and input={self.input!r}")


def _choices(name: str) -> Collection[str]:
    """The names that a setting may have, those of plugins included."""
    if name == "landmark_selection":
        return methods.landmark_choices()
    extensions = (name for method in METHODS.values() for name in method.extensions)
    return {"method": tuple(METHODS), "input": INPUTS, "extension": ("auto", *dict.fromkeys(extensions))}[name]
