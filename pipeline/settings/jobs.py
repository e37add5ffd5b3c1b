"""The settings of each command: a frozen model, filled from keywords, a TOML file or the command line alike.

One file serves all: the settings of a fit stand at its top, those of other commands in tables of their names, `store`
and `[cluster]` hold for all.
"""

import difflib
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from pipeline.errors import InvalidInputError
from pipeline.methods import joins_neighbors
from pipeline.plugins import load
from pipeline.settings.method import MethodSettings, within

# Fields that would take true for 1.
NUMBERS = (
    *("pca", "n_neighbors", "recall", "n_landmarks"),
    *("n_components", "diagonal_weight", "seed", "partition_mib"),
    *("joint", "arc", "level"),
    *("gamma", "degree", "constant", "radius", "n_clusters", "n_evaluated", "regularization", "stress_neighbors"),
)
TLS_FILES = ("tls_ca", "tls_cert", "tls_key")
# Row and node number share the 63 bits of a key in the neighbor search.
MOST_ROWS = 2**31
# A scatter matrix of 512 MB; wider tables need a choice of columns before principal axes.
MOST_PCA_COLUMNS = 8192


def _number(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("a number is needed")  # noqa: TRY004  pydantic takes ValueErrors
    return value


def _split(value: str | Iterable[object]) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(name.strip() for name in value.split(",") if name.strip())
    return tuple(map(str, value))


class ClusterSettings(BaseModel):
    """Where the work is done; no result depends on it. The table `[cluster]` of a TOML file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["serial", "local", "address"] = Field(
        "local", description="This process, workers started on this machine, or those of a running Dask scheduler."
    )
    n_workers: int | None = Field(
        None, ge=1, description="Workers to start (one a core), or at an address to wait for (one)."
    )
    threads_per_worker: int = Field(1, ge=1, le=256, description="Partitions that a worker computes at once.")
    memory_mib: int | None = Field(None, ge=256, description="Memory of each worker (its share of the machine's).")
    address: str | None = Field(None, description="Of the Dask scheduler, such as tls://host:8786.")
    tls_ca: str | None = Field(None, description="File of the authority that signed the cluster's certificates.")
    tls_cert: str | None = Field(None, description="File of this client's certificate.")
    tls_key: str | None = Field(None, description="File of this client's key.")
    allow_unencrypted: bool = Field(False, description="Let data travel to another machine without TLS.")
    wait_seconds: int = Field(120, ge=1, description="How long to wait for workers when there are none.")

    @field_validator("n_workers", "threads_per_worker", "memory_mib", "wait_seconds", mode="before")
    @classmethod
    def _no_truth_value(cls, value: object) -> object:
        return _number(value)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        of_address = ("address", *TLS_FILES, "allow_unencrypted")
        if self.kind == "address":
            self._check_address()
            of_others = ["threads_per_worker", "memory_mib"]
        else:
            of_others = [*of_address, *(("n_workers", "threads_per_worker", "memory_mib") * (self.kind == "serial"))]
        for name in of_others:
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name}={getattr(self, name)!r} does not go with kind={self.kind!r}; leave it out")
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
                f"{', '.join(TLS_FILES)}, or say allow_unencrypted if the network is yours alone"
            )


def _is_loopback(address: str) -> bool:
    host = address.removeprefix("tcp://").rpartition(":")[0].strip("[]")
    return host in ("localhost", "::1") or re.fullmatch(r"127(\.[0-9]+){3}", host) is not None


class JobSettings(BaseModel):
    """What all commands that compute something can be told."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    partition_mib: Annotated[int, Field(ge=1, le=4096)] | Literal["auto"] = Field(
        "auto", description="MiB of data in a piece of work, or auto (at most 32); no result depends on it."
    )
    cluster: ClusterSettings = Field(ClusterSettings(), description="Where the work is done.")
    plugins: tuple[str, ...] = Field((), description="Modules with plugins to load, separated by commas.")

    def check_choices(self) -> None:
        """Refuse choices that do not go together, before anything is opened."""

    @model_validator(mode="before")
    @classmethod
    def _load_plugins(cls, values: object) -> object:
        """Before any name is checked: plugins may add it."""
        named = values.get("plugins", ()) if isinstance(values, dict) else ()
        load(_split(named) if isinstance(named, str | list | tuple) else ())
        return values

    @field_validator(*NUMBERS, mode="before", check_fields=False)
    @classmethod
    def _no_truth_value(cls, value: object) -> object:
        return _number(value)

    @field_validator("key", "id_column", mode="before", check_fields=False)
    @classmethod
    def _named(cls, value: object) -> object:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @field_validator("columns", "arc_rows", "new", "plugins", mode="before", check_fields=False)
    @classmethod
    def _separated(cls, value: object) -> object:
        return _split(value) if isinstance(value, str | list | tuple) else value


class FitSettings(MethodSettings, JobSettings):
    """Everything that a fit can be told. Each field is a key of the TOML file and an option of `trigpoint fit`."""

    source: str = Field(description="The data: .npy, .npz, Zarr, Parquet, CSV.")
    store: str = Field(description="Folder of the run; the same command again goes on where it stopped.")
    key: str | None = Field(None, description="Array to take from a .npz file or a Zarr group.")
    columns: tuple[str, ...] | None = Field(None, description="Columns to use, by name or number, separated by commas.")
    id_column: str | None = Field(None, description="Column, or array beside the data, that names the rows.")
    missing: Literal["error", "drop"] = Field(
        "error", description="Rows with NaN or infinite entries: refuse, or keep them out (their results are NaN)."
    )
    standardize: bool = Field(False, description="Take out each column's mean and divide by its spread.")
    pca: int | None = Field(None, ge=1, description="Work on this many principal axes of the columns.")
    n_neighbors: int = Field(
        10, **within("n_neighbors"), description="Neighbors of each point in the graph, counting distinct points."
    )
    recall: float = Field(
        0.995, **within("recall"), description="Share of true neighbors that the search aims at; 1 searches exactly."
    )
    component_policy: Literal["error", "bridge", "largest"] = Field(
        "error", description="A graph in pieces: refuse, join by the shortest links, or embed the largest only."
    )
    n_landmarks: int | Literal["auto"] = Field("auto", description="How many landmarks, or auto.")
    n_components: int = Field(2, **within("n_components"), description="Coordinates of the embedding.")
    diagonal_weight: Annotated[float, Field(**within("diagonal_weight"))] | Literal["balanced"] = Field(
        1.0, description="Weight of a point's length in restricted reconstruction; balanced = number of landmarks."
    )
    seed: int = Field(0, ge=0, lt=2**32, description="Seed of every random choice.")

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
        if joins_neighbors(self.method, self.input, self.radius):
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


class ExtendSettings(JobSettings):
    """Everything that `trigpoint extend` can be told; the table `[extend]` of a TOML file."""

    store: str = Field(description="Folder of the fitted run, or of a model exported from one.")
    source: str = Field(description="The new data, of any kind that a fit takes; with --incoming a folder of batches.")
    output: str = Field(description="Folder for the results; with --incoming, a folder for those of each batch.")
    version: str | None = Field(None, description="Version of the run to extend, if not the published one.")
    key: str | None = Field(None, description="Array to take from a .npz file or a Zarr group, if not that of the fit.")
    id_column: str | None = Field(None, description="Names of the rows, if not the column that the fit was told.")
    own_key: str | None = Field(
        None, description="Of similarities: array (or .npy file) with the similarity of each new point to itself."
    )
    missing: Literal["error", "drop"] = Field(
        "error", description="Rows with NaN or infinite entries: refuse, or keep them out (their results are NaN)."
    )
    incoming: bool = Field(False, description="Extend to every batch in a folder that was not done yet.")
    joint: int | None = Field(None, **within("joint"), description="Reconstruct so many consecutive rows together.")
    joint_distances: Literal["paths", "bound"] = Field(
        "paths", description="Between new rows: shortest paths along the graph, or an upper bound over the landmarks."
    )
    arc: int | None = Field(None, **within("arc"), description="Positions between the two answers, of the arc rows.")
    arc_rows: tuple[int, ...] | None = Field(None, description="Rows whose arcs are wanted, separated by commas.")
    level: float = Field(
        0.01, gt=0, lt=0.5, description="How often a batch like the training data may raise the alarm."
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if (self.arc is None) != (self.arc_rows is None):
            raise ValueError("arc and arc_rows go together: how many positions, and of which rows")
        if self.incoming and self.own_key is not None and self.own_key.endswith(".npy"):
            raise ValueError(
                f"own_key={self.own_key!r} is one file for all batches of incoming: name an array that is kept beside "
                "the matrix in each"
            )
        return self


class RefitSettings(JobSettings):
    """Everything that `trigpoint refit` can be told; the table `[refit]` of a TOML file."""

    store: str = Field(description="Folder of the fitted run.")
    new: tuple[str, ...] = Field((), description="New data besides that of the published version, separated by commas.")
    incoming: str | None = Field(None, description="A folder of batches: all of them are new data.")
    source: str | None = Field(None, description="Where the data of the first fit is now, if it was moved.")
    name: str | None = Field(None, description="Name of the new version (a number, one more than the last).")

    @field_validator("name")
    @classmethod
    def _plain(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", value):
            raise ValueError("letters, digits, dots, dashes and underscores are allowed, at most 64")
        return value


# Tables of a TOML file that belong to one command each.
TABLES: dict[type[JobSettings], str | None] = {FitSettings: None, ExtendSettings: "extend", RefitSettings: "refit"}
# Keys at the top of the file that hold for every command.
COMMON = ("store", "partition_mib", "cluster")
OTHER_TABLES = ("extend", "refit", "invert", "schedule", "study")
FIELDS = {*ClusterSettings.model_fields, *(name for model in TABLES for name in model.model_fields)}
Settings = TypeVar("Settings", bound=JobSettings)


def fields_of(model: type[JobSettings]) -> dict[str, FieldInfo]:
    """The fields of a command's settings, its own before those of the method and those that all commands have."""
    fields = model.model_fields
    shared = [name for part in (MethodSettings, JobSettings) for name in part.model_fields if name in fields]
    return {name: field for name, field in fields.items() if name not in shared} | {n: fields[n] for n in shared}


def fit_settings(given: Mapping[str, Any], file: Path | None = None) -> FitSettings:
    """Settings of a fit from keywords, over those of a TOML file if there is one."""
    return job_settings(FitSettings, given, file)


def job_settings(model: type[Settings], given: Mapping[str, Any], file: Path | None = None) -> Settings:
    """Settings of a command from keywords, over those of a TOML file if there is one."""
    from_file = _of_file(model, read_toml(file)) if file else {}
    values = {**from_file, **given}
    if isinstance(from_file.get("cluster"), dict) and isinstance(given.get("cluster"), dict):
        values["cluster"] = {**from_file["cluster"], **given["cluster"]}
    require_known(values, fields_of(model))
    if isinstance(values.get("cluster"), dict):
        require_known(values["cluster"], ClusterSettings.model_fields, "cluster.")
    try:
        settings = model.model_validate(values)
    except ValidationError as error:
        raise InvalidInputError(described_faults(error, FIELDS)) from error
    settings.check_choices()
    return settings


def _of_file(model: type[JobSettings], content: dict[str, Any]) -> dict[str, Any]:
    """What a file says to one command."""
    table, for_a_fit = TABLES[model], {name: value for name, value in content.items() if name not in OTHER_TABLES}
    if table is None:
        return for_a_fit
    own = content.get(table, {})
    if not isinstance(own, dict):
        raise InvalidInputError(f"{table}={own!r} in the configuration is not a table; write [{table}] above its keys.")
    common = for_a_fit if issubclass(model, FitSettings) else COMMON
    return {**{name: content[name] for name in common if name in content}, **own}


def read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInputError(f"config={str(file)!r} cannot be read: {error.strerror}; check the path.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"config={str(file)!r} is not TOML: {error}.") from error


def require_known(names: Iterable[str], known: Iterable[str], prefix: str = "") -> None:
    """Refuse a setting that does not exist, with the nearest one that does."""
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name.replace("-", "_"), known, n=1, cutoff=0.5)
            hint = f"did you mean {prefix + near[0]!r}?" if near else f"known are {', '.join(known)}."
            raise InvalidInputError(f"setting {prefix + name!r} is not known; {hint}")


def _require_range(name: str, value: float, low: float, high: float, why: str) -> None:
    if not low <= value <= high:
        raise InvalidInputError(f"{name}={value} is out of range; use one from {low} to {high} ({why}).")


def described_faults(error: ValidationError, fields: Collection[str]) -> str:
    """Each wrong setting with its value and what is expected of it; of a choice of types, what either expects.

    What is wrong with several settings together names them itself.
    """
    expected: dict[str, list[str]] = {}
    values: dict[str, object] = {}
    together = set()
    for entry in error.errors():
        name = ".".join(str(part) for part in entry["loc"] if part in fields)
        values[name] = None if entry["type"] == "missing" else entry["input"]
        expected.setdefault(name, []).append(_expectation(entry))
        if entry["type"] == "value_error" and isinstance(entry["input"], dict):
            together.add(name)
    listed = (
        ("" if name in together or messages[0].startswith(f"{name}=") else f"{name}={values[name]!r}: ")
        + ", or ".join(messages)
        for name, messages in expected.items()
    )
    return "; ".join(listed).removesuffix(".") + "."


def _expectation(entry: ErrorDetails) -> str:
    """What pydantic expects of a value, with limits such as 1e-300 not written out digit by digit."""
    if entry["type"] == "missing":
        return "it must be given"
    limit = next((entry["ctx"][name] for name in ("ge", "gt", "le", "lt") if name in entry.get("ctx", {})), None)
    if isinstance(limit, float):
        return f"{entry['msg'].rpartition(' ')[0]} {limit:g}"
    return entry["msg"].removeprefix("Value error, ")
