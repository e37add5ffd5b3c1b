"""What the settings of all jobs share: how a field is declared, where the work runs, plugins."""

import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from pipeline.methods import RANGES
from pipeline.plugins import load

# Groups of settings, for the help of a command.
DATA, GRAPH, LANDMARKS, METHOD, PLACEMENT = "Data", "Graph", "Landmarks", "Method", "Placement"
QUERIES, INTERPOLATION, STUDY, EXECUTION = "Queries", "Interpolation", "Study", "Execution"
TLS_FILES = ("tls_ca", "tls_cert", "tls_key")
MISSING = "Rows with NaN or infinite entries: refuse the source, or drop them (their results are NaN)."


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

    kind: Literal["auto", "serial", "local", "address"] = option(
        EXECUTION,
        "auto",
        "Run on the threads of this process and, once a run proves long, on workers started beside it (auto); on one "
        "thread; on workers from the start; or on a running Dask scheduler.",
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

    @field_validator("columns", "exclude", "arc_rows", "new", "plugins", mode="before", check_fields=False)
    @classmethod
    def _separated(cls, value: object) -> object:
        return split(value) if isinstance(value, str | list | tuple) else value
