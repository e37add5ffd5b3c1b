"""The settings of a fit."""

from collections.abc import Collection
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator

from pipeline import methods
from pipeline.errors import InvalidInputError
from pipeline.methods import (
    EXTENSIONS,
    IMPORTABLE,
    INPUTS,
    KERNELS,
    LANDMARK_WEIGHTS,
    METHODS,
    METRICS,
    SELECTIONS,
    SIMILARITIES,
)
from pipeline.settings.base import (
    DATA,
    EXECUTION,
    GRAPH,
    LANDMARKS,
    METHOD,
    MISSING,
    PLACEMENT,
    FrozenSettings,
    JobSettings,
    option,
    required,
    within,
)

# Row and node number share the 63 bits of a key in the neighbor search.
MOST_ROWS = 2**31
# Settings that earlier states of this version did not have, with defaults that change nothing.
LATER = ("plugins", "landmark_weights", "spread", "shortcuts", "new_edges", "exclude")
# A scatter matrix of 512 MB; wider tables need a choice of columns before principal axes.
MOST_PCA_COLUMNS = 8192


def _names(choices: Collection[str]) -> str:
    return ", ".join(choices)


class MethodSettings(FrozenSettings):
    """What is embedded, by which method."""

    method: str = option(METHOD, "isomap", f"Method that embeds the landmarks: {_names(METHODS)}.", examples=[*METHODS])
    extension: str = option(
        PLACEMENT,
        "auto",
        f"How points other than landmarks are placed: {_names(EXTENSIONS)}; auto is the method's default "
        "(docs/methods.md). "
        "For isomap, kernel-isomap, mds and kernel-mds, projection and restricted mean the same: both are published.",
        examples=["auto", *EXTENSIONS],
    )
    input: str = option(DATA, "vectors", f"What the source holds: {_names(INPUTS)}.", examples=[*INPUTS])
    metric: str = option(
        METHOD,
        "euclidean",
        f"Distance between points: {_names(METRICS)}, or your own function of two objects as package.module:function. "
        f"isomap and kernel-isomap take {_names(methods.EDGE_METRICS)}.",
        examples=[*METRICS],
    )
    kernel: str = option(
        METHOD,
        "rbf",
        f"Kernel of kernel-mds: {_names(KERNELS)}, or your own function of two objects as package.module:function.",
        examples=[*KERNELS],
    )
    gamma: Annotated[float, Field(**within("gamma"))] | Literal["auto"] = option(
        METHOD,
        "auto",
        "Gamma of the rbf and polynomial kernels and of the affinities of laplacian and spectral; auto is 1 / "
        "median(d^2) between landmarks.",
    )
    degree: int = option(METHOD, 3, "Degree of the polynomial kernel.", **within("degree"))
    constant: float = option(METHOD, 1.0, "Constant term of the polynomial kernel.", **within("constant"))
    radius: float | None = option(
        GRAPH,
        None,
        "Connect each point to all points within this distance (in the metric), instead of to its nearest neighbors.",
        **within("radius"),
    )
    landmarks_key: str | None = option(
        DATA,
        None,
        "With a matrix of landmarks x points: array (or .npy file) that says which point each landmark is, counted "
        "from 0.",
    )
    own_key: str | None = option(
        DATA,
        None,
        "With similarities of landmarks x points, which have no diagonal: array (or .npy file) with each point's "
        "similarity to itself.",
    )
    n_evaluated: int | None = option(
        LANDMARKS,
        None,
        "With objects: call your function for only this many landmarks and estimate the other distances.",
        **within("n_evaluated"),
    )
    n_clusters: int | None = option(
        METHOD, None, "Method spectral: number of clusters. [default: n_components]", **within("n_clusters")
    )
    regularization: float = option(
        METHOD,
        1e-3,
        "Method lle: regularization, relative to the trace of each local Gram matrix.",
        **within("regularization"),
    )
    stress_neighbors: int | None = option(
        METHOD,
        None,
        "Method sammon: fit only the distances between each landmark and this many nearest other landmarks. [default: "
        "all]",
        **within("stress_neighbors"),
    )
    n_init: int = option(
        METHOD,
        1,
        "Number of starts of metric-mds, nonmetric-mds and sammon, the first from classical scaling, the others "
        "random; the one that ends with the least stress is kept.",
        **within("n_init"),
    )
    landmark_selection: str = option(
        LANDMARKS,
        "maxmin",
        "How landmarks are selected: maxmin (farthest point first), random, kmeans, trace (each the point that "
        "explains most of what those before leave unexplained), cholesky (randomly pivoted Cholesky of a Gaussian "
        "kernel of the points). For objects and similarities the default is random.",
        examples=[*SELECTIONS],
    )
    landmark_weights: str = option(
        LANDMARKS,
        "none",
        "How much landmarks count in isomap, kernel-isomap, mds and kernel-mds: none (all the same), counts (by the "
        "number of rows nearest to each, so that dense regions count as much as if every row were a landmark).",
        examples=[*LANDMARK_WEIGHTS],
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
        return methods.publishes_both(self.method, self.extension)

    @property
    def takes_affinities(self) -> bool:
        """Whether given similarities are used as they are."""
        return methods.takes_affinities(self.method, self.input)

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
    def counts_rows(self) -> bool:
        """Whether landmarks count by how many rows each stands for."""
        return self.landmark_weights == "counts"

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
        methods.require_weights(self.method, self.landmark_weights)
        changed = dict(self.changed(type(self).model_fields))
        unused = methods.unused_settings(self.method, self.kernel, self.input)
        methods.refuse_unused(changed, unused, f"method={self.method!r} and input={self.input!r}")


class FitSettings(MethodSettings, JobSettings):
    """Settings of a fit. Each field is a key of the TOML file and an option of `trigpoint fit`."""

    source: str = required(DATA, "The data: .npy, .npz, Zarr, Parquet, CSV, TSV or text.")
    store: str = required(DATA, "Folder of the run, created if needed. Rerun the same command to resume.")
    on_changed_source: Literal["refuse", "version"] = option(
        DATA,
        "refuse",
        "What to do with other data than a version in the store has: refuse it, or publish the result as the next "
        "version.",
    )
    key: str | None = option(DATA, None, "Name of the array in a .npz file or Zarr group.")
    columns: tuple[str, ...] | None = option(
        DATA, None, "Columns to use, by name, number or range of numbers (0-9), separated by commas."
    )
    exclude: tuple[str, ...] | None = option(DATA, None, "Columns to leave out, given as for --columns.")
    id_column: str | None = option(DATA, None, "Column with row ids, or another array in the same file or group.")
    missing: Literal["error", "drop"] = option(DATA, "error", MISSING)
    standardize: bool = option(DATA, False, "Subtract the mean of each column and divide by its standard deviation.")
    pca: int | None = option(DATA, None, "Number of principal axes to reduce the data to.", ge=1)
    n_neighbors: int = option(GRAPH, 10, "Number of nearest neighbors; duplicates count once.", **within("n_neighbors"))
    recall: float = option(
        GRAPH, 0.995, "Target recall of the approximate neighbor search; 1 searches exactly.", **within("recall")
    )
    component_policy: Literal["error", "bridge", "largest"] = option(
        GRAPH,
        "bridge",
        "For a disconnected graph: refuse, add the shortest links, or embed only the largest component. A graph of "
        "your own is refused unless largest is asked for.",
    )
    shortcuts: Literal["report", "cut"] = option(
        GRAPH,
        "report",
        "What to do with likely short circuits of the graph (long edges across gaps in the data): report them, or also "
        "cut them.",
    )
    new_edges: Literal["both", "own"] = option(
        GRAPH,
        "both",
        "Edges of a new row to fitted ones: both (to its nearest neighbors, and to all rows that would take it for one "
        "of theirs), own (only the former, as in scikit-learn).",
    )
    n_landmarks: int | Literal["auto"] = option(
        LANDMARKS,
        "auto",
        "Number of landmarks; auto is 100 + 2 sqrt(n) for n points (with a neighbor graph, identical rows count "
        "once), at least 40 x (n_components + 1), at most n.",
    )
    n_components: Annotated[int, Field(**within("n_components"))] | Literal["auto"] = option(
        METHOD, 2, "Dimension of the embedding; auto is the intrinsic dimension of a sample of the rows, rounded."
    )
    diagonal_weight: Annotated[float, Field(**within("diagonal_weight"))] | Literal["balanced"] = option(
        PLACEMENT,
        1.0,
        "Weight of a point's squared distance from the centroid in restricted reconstruction; balanced is the number "
        "of landmarks.",
    )
    spread: bool = option(
        PLACEMENT,
        False,
        "Also publish a standard error of each row's projection, how much it depends on single landmarks "
        "(docs/spread.md); isomap, kernel-isomap, mds and kernel-mds only, with extension projection or restricted.",
    )
    seed: int = option(EXECUTION, 0, "Random seed.", ge=0, lt=2**32)

    @property
    def components(self) -> int:
        """The number of components, once it is known."""
        if self.n_components == "auto":
            raise TypeError("n_components='auto' has not been resolved")
        return self.n_components

    @property
    def least_components(self) -> int:
        """The number of components, or the least that there may be."""
        return 1 if self.n_components == "auto" else self.n_components

    def with_components(self, n_components: int) -> Self:
        """The same with a number of components."""
        return self.model_copy(update={"n_components": n_components})

    def most_components(self, n_rows: int, n_columns: int) -> int:
        """How many components there may be of a source of this shape."""
        axes = n_columns if self.pca is None else self.pca
        return max(1, min(n_rows - 1, axes, *([] if self.n_landmarks == "auto" else [self.n_landmarks - 1])))

    def check_choices(self) -> None:
        """Refuse choices that do not go together, before anything is opened."""
        super().check_choices()
        methods.require_new_edges(self.new_edges, self.radius)
        if self.n_components == "auto":
            methods.require_estimable(self.method, self.input, self.metric, self.kernel)
        if self.spread:
            methods.require_spread(self.method, self.extension)

    @property
    def metric_of_points(self) -> str:
        """What points are prepared for: the metric of edges along a graph. Other methods measure points themselves."""
        return self.metric if self.is_geodesic else "euclidean"

    @property
    def metric_of_rows(self) -> str:
        """The same, where rows are points as they are."""
        return "euclidean" if self.standardize or self.pca is not None else self.metric_of_points

    def of_results(self) -> dict[str, Any]:
        """Settings that results depend on, for the manifest. Later ones are named only if they are set, so that runs
        without them are named as before."""
        unset = {name for name in LATER if not dict(self.changed([name]))}
        without = {"source", "store", "cluster", "on_changed_source", *unset}
        values = self.model_dump(mode="json", exclude=without)
        return {**values, "landmark_selection": self.selection}

    def check_against(self, n_rows: int, n_columns: int) -> None:
        """Refuse, before anything runs, what cannot work with a source of this shape."""
        self.check_choices()
        if n_rows >= MOST_ROWS:
            raise InvalidInputError(
                f"the source has {n_rows} rows; fewer than {MOST_ROWS} are supported: fit on a part of them."
            )
        rows = f"the source has {n_rows} rows"
        if methods.uses(self.method, "n_neighbors") and self.input != methods.GRAPH and self.radius is None:
            _require_range("n_neighbors", methods.fewer_neighbors(self.n_neighbors, n_rows), 1, n_rows - 1, rows)
        _require_range("n_components", self.least_components, 1, n_rows - 1, rows)
        if self.n_landmarks != "auto":
            why = f"more than n_components{', with spread by 2' * self.spread}, and {rows}"
            _require_range("n_landmarks", self.n_landmarks, self.least_components + 1 + self.spread, n_rows, why)
        if self.pca is not None:
            _require_range("pca", self.pca, 1, n_columns, f"{n_columns} columns are chosen")
            if n_columns > MOST_PCA_COLUMNS:
                raise InvalidInputError(
                    f"pca={self.pca} needs a matrix of {n_columns} x {n_columns}; at most {MOST_PCA_COLUMNS} columns "
                    "are supported: choose some with columns."
                )


def _choices(name: str) -> Collection[str]:
    """The names that a setting may have, those of plugins included."""
    if name == "landmark_selection":
        return methods.landmark_choices()
    extensions = (name for method in METHODS.values() for name in method.extensions)
    return {"method": tuple(METHODS), "input": INPUTS, "extension": ("auto", *dict.fromkeys(extensions))}[name]


def _require_range(name: str, value: float, low: float, high: float, why: str) -> None:
    if not low <= value <= high:
        raise InvalidInputError(f"{name}={value} is out of range; use one from {low} to {high} ({why}).")
