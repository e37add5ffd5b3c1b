"""The settings of a fit, and what those of all jobs share: how a field is declared, where the work runs, plugins."""

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from pipeline import methods
from pipeline.errors import InvalidInputError
from pipeline.methods import EXTENSIONS, IMPORTABLE, INPUTS, KERNELS, METHODS, METRICS, RANGES, SELECTIONS, SIMILARITIES
from pipeline.plugins import load

# Groups of settings, for the help of a command.
DATA, GRAPH, LANDMARKS, METHOD, PLACEMENT = "Data", "Graph", "Landmarks", "Method", "Placement"
QUERIES, INTERPOLATION, STUDY, EXECUTION = "Queries", "Interpolation", "Study", "Execution"
TLS_FILES = ("tls_ca", "tls_cert", "tls_key")
MISSING = "Rows with NaN or infinite entries: refuse the source, or drop them (their results are NaN)."
# Row and node number share the 63 bits of a key in the neighbor search.
MOST_ROWS = 2**31
# A scatter matrix of 512 MB; wider tables need a choice of columns before principal axes.
MOST_PCA_COLUMNS = 8192


def option(group: str, default: Any, description: str, **limits: Any) -> Any:
    """A field with a default; its description is the option's help."""
    return Field(default, description=description, json_schema_extra={"group": group}, **limits)


def required(group: str, description: str) -> Any:
    """A field that must be given."""
    return Field(description=description, json_schema_extra={"group": group})


def within(name: str) -> dict[str, Any]:
    """The registry's range for a setting, as arguments of a field."""
    valid = RANGES[name]
    finite = {} if valid.whole else {"allow_inf_nan": False}
    upper = {} if valid.high is None else {"le": valid.high}
    return {"gt" if valid.above else "ge": valid.low, **upper, **finite}


def split(value: str | Iterable[object]) -> tuple[str, ...]:
    """Names in a list, or separated by commas."""
    if isinstance(value, str):
        return tuple(name.strip() for name in value.split(",") if name.strip())
    return tuple(map(str, value))


def _takes_numbers(annotation: object) -> bool:
    return annotation in (int, float) or any(_takes_numbers(part) for part in get_args(annotation))


class FrozenSettings(BaseModel):
    """Settings that cannot be changed, do not accept unknown names, and do not take true for 1."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def changed(self, names: Iterable[str]) -> Iterator[tuple[str, Any]]:
        """Those of some settings that are not as they would be anyway, with their values."""
        fields = type(self).model_fields
        return ((name, value) for name in names if (value := getattr(self, name)) != fields[name].default)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_value(cls, value: object, info: ValidationInfo) -> object:
        if isinstance(value, bool) and _takes_numbers(cls.model_fields[str(info.field_name)].annotation):
            raise ValueError("a number is needed")
        return value


class ClusterSettings(FrozenSettings):
    """Where the work runs; no result depends on it. The table `[cluster]` of a TOML file."""

    kind: Literal["serial", "local", "address"] = option(
        EXECUTION, "local", "Run in this process, on workers started on this machine, or on a running Dask scheduler."
    )
    n_workers: int | None = option(
        EXECUTION, None, "Workers to start [default: one per core], or to wait for at an address [default: 1].", ge=1
    )
    threads_per_worker: int = option(EXECUTION, 1, "Threads (partitions at a time) of each worker.", ge=1, le=256)
    memory_mib: int | None = option(
        EXECUTION,
        None,
        "Memory limit of each worker in MiB. [default: machine memory / workers]",
        ge=256,
    )
    address: str | None = option(EXECUTION, None, "Address of the Dask scheduler, such as tls://host:8786.")
    tls_ca: str | None = option(EXECUTION, None, "CA certificate file of the cluster.")
    tls_cert: str | None = option(EXECUTION, None, "Certificate file of this client.")
    tls_key: str | None = option(EXECUTION, None, "Private key file of this client.")
    allow_unencrypted: bool = option(EXECUTION, False, "Allow a connection to another machine without TLS.")
    wait_seconds: int = option(EXECUTION, 120, "Seconds to wait for workers before giving up.", ge=1)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        of_address = ("address", *TLS_FILES, "allow_unencrypted")
        if self.kind == "address":
            self._check_address()
            of_others = ["threads_per_worker", "memory_mib"]
        else:
            of_others = [*of_address, *(("n_workers", "threads_per_worker", "memory_mib") * (self.kind == "serial"))]
        for name, value in self.changed(of_others):
            raise ValueError(f"{name}={value!r} does not go with kind={self.kind!r}; leave it out")
        return self

    def _check_address(self) -> None:
        if self.address is None:
            raise ValueError("kind='address' needs the address of a Dask scheduler")
        if self.address.startswith("tls://"):
            absent = [name for name in TLS_FILES if getattr(self, name) is None]
            if absent:
                raise ValueError(f"address={self.address!r} needs {', '.join(absent)}")
        elif not (_is_loopback(self.address) or self.allow_unencrypted):
            raise ValueError(
                f"address={self.address!r} is another machine and not encrypted: use tls:// with "
                f"{', '.join(TLS_FILES)}, or set allow_unencrypted if the network is yours alone"
            )


def _is_loopback(address: str) -> bool:
    host = address.removeprefix("tcp://").rpartition(":")[0].strip("[]")
    return host in ("localhost", "::1") or re.fullmatch(r"127(\.[0-9]+){3}", host) is not None


class JobSettings(FrozenSettings):
    """Settings of every command that computes something."""

    # The command's table in a TOML file; a fit's settings are at the top level.
    table: ClassVar[str | None] = None
    # Settings of a parent class that this command always refuses; they are not offered as options.
    refused: ClassVar[tuple[str, ...]] = ()

    partition_mib: Annotated[int, Field(ge=1, le=4096)] | Literal["auto"] = option(
        EXECUTION, "auto", "MiB of data per partition; auto is at most 32. Results do not depend on it."
    )
    cluster: ClusterSettings = option(EXECUTION, ClusterSettings(), "Where the work runs.")
    plugins: tuple[str, ...] = option(EXECUTION, (), "Modules with plugins to load, separated by commas.")

    def check_choices(self) -> None:
        """Refuse choices that do not go together, before anything is opened."""

    @model_validator(mode="before")
    @classmethod
    def _load_plugins(cls, values: object) -> object:
        """Before any name is checked, because plugins may add it."""
        named = values.get("plugins", ()) if isinstance(values, dict) else ()
        load(split(named) if isinstance(named, str | list | tuple) else ())
        return values

    @field_validator("key", "id_column", mode="before", check_fields=False)
    @classmethod
    def _named(cls, value: object) -> object:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @field_validator("columns", "arc_rows", "new", "plugins", mode="before", check_fields=False)
    @classmethod
    def _separated(cls, value: object) -> object:
        return split(value) if isinstance(value, str | list | tuple) else value


def _names(choices: Collection[str]) -> str:
    return ", ".join(choices)


class MethodSettings(FrozenSettings):
    """What is embedded, by which method."""

    method: str = option(METHOD, "isomap", f"Method that embeds the landmarks: {_names(METHODS)}.", examples=[*METHODS])
    extension: str = option(
        PLACEMENT,
        "auto",
        f"How points other than landmarks are placed: {_names(EXTENSIONS)}; auto is the method's default. "
        "Classical methods publish both projection and restricted, whichever of the two is chosen.",
        examples=["auto", *EXTENSIONS],
    )
    input: str = option(DATA, "vectors", f"What the source holds: {_names(INPUTS)}.", examples=[*INPUTS])
    metric: str = option(
        METHOD,
        "euclidean",
        f"Distance between points, for methods without a graph: {_names(METRICS)}, or your own function of two objects "
        "as package.module:function.",
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
        GRAPH, None, "Connect all points within this distance, instead of the nearest neighbors.", **within("radius")
    )
    landmarks_key: str | None = option(
        DATA,
        None,
        "With a rectangular (landmarks x points) matrix: array (or .npy file) with the point number of each landmark.",
    )
    own_key: str | None = option(
        DATA,
        None,
        "With similarities: array (or .npy file) with each point's similarity to itself (the diagonal).",
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
        "Method sammon: fit only the distances between each landmark and this many nearest others.",
        **within("stress_neighbors"),
    )
    n_init: int = option(
        METHOD,
        1,
        "Starts of metric-mds, nonmetric-mds and sammon, the first classical and the others random; the one that ends "
        "with the least stress is kept.",
        **within("n_init"),
    )
    landmark_selection: str = option(
        LANDMARKS,
        "maxmin",
        "How landmarks are selected: maxmin (farthest point first), random, kmeans, trace (each next landmark explains "
        "most of what remains of the kernel's trace), cholesky (randomly pivoted). For objects and similarities the "
        "default is random.",
        examples=[*SELECTIONS],
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
        is_classical = METHODS[self.method].extensions == methods.CLASSICAL
        return is_classical and self.chosen_extension in ("projection", "restricted")

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
        changed = dict(self.changed(type(self).model_fields))
        unused = methods.unused_settings(self.method, self.kernel, self.input)
        methods.refuse_unused(changed, unused, f"method={self.method!r} and input={self.input!r}")


class FitSettings(MethodSettings, JobSettings):
    """Settings of a fit. Each field is a key of the TOML file and an option of `trigpoint fit`."""

    source: str = required(DATA, "The data: .npy, .npz, Zarr, Parquet, CSV or TSV; text files with --input objects.")
    store: str = required(DATA, "Folder of the run, created if needed. Rerun the same command to resume.")
    key: str | None = option(DATA, None, "Name of the array in a .npz file or Zarr group.")
    columns: tuple[str, ...] | None = option(DATA, None, "Columns to use, by name or number, separated by commas.")
    id_column: str | None = option(DATA, None, "Column with row ids, or another array in the same file or group.")
    missing: Literal["error", "drop"] = option(DATA, "error", MISSING)
    standardize: bool = option(DATA, False, "Subtract the mean of each column and divide by its standard deviation.")
    pca: int | None = option(DATA, None, "Number of principal axes to reduce the data to.", ge=1)
    n_neighbors: int = option(GRAPH, 10, "Number of nearest neighbors; duplicates count once.", **within("n_neighbors"))
    recall: float = option(
        GRAPH, 0.995, "Target recall of the approximate neighbor search; 1 searches exactly.", **within("recall")
    )
    component_policy: Literal["error", "bridge", "largest"] = option(
        GRAPH, "error", "For a disconnected graph: refuse, add the shortest links, or embed only the largest component."
    )
    n_landmarks: int | Literal["auto"] = option(
        LANDMARKS, "auto", "Number of landmarks; auto is 100 + 2 sqrt(rows), at least 40 (n_components + 1)."
    )
    n_components: int = option(METHOD, 2, "Dimension of the embedding.", **within("n_components"))
    diagonal_weight: Annotated[float, Field(**within("diagonal_weight"))] | Literal["balanced"] = option(
        PLACEMENT,
        1.0,
        "Weight of a point's squared norm in restricted reconstruction; balanced is the number of landmarks.",
    )
    seed: int = option(EXECUTION, 0, "Random seed.", ge=0, lt=2**32)

    def of_results(self) -> dict[str, Any]:
        """Settings that results depend on, for the manifest."""
        without = {"source", "store", "cluster", *(() if self.plugins else ("plugins",))}
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
            _require_range("n_neighbors", self.n_neighbors, 1, n_rows - 1, rows)
        _require_range("n_components", self.n_components, 1, n_rows - 1, rows)
        if self.n_landmarks != "auto":
            why = f"more than n_components, and {rows}"
            _require_range("n_landmarks", self.n_landmarks, self.n_components + 1, n_rows, why)
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
