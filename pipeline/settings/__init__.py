"""The settings of every job as frozen pydantic models, filled from keywords, a TOML file or the command line."""

from pipeline.settings.base import EXECUTION, TLS_FILES, ClusterSettings, JobSettings
from pipeline.settings.fit import FitSettings, MethodSettings
from pipeline.settings.jobs import ExtendSettings, InvertSettings, RefitSettings, StudySettings
from pipeline.settings.reading import (
    Settings,
    described_faults,
    fields_of,
    fit_settings,
    job_settings,
    read_toml,
    require_known,
)

__all__ = [
    "EXECUTION",
    "TLS_FILES",
    "ClusterSettings",
    "ExtendSettings",
    "FitSettings",
    "InvertSettings",
    "JobSettings",
    "MethodSettings",
    "RefitSettings",
    "Settings",
    "StudySettings",
    "described_faults",
    "fields_of",
    "fit_settings",
    "job_settings",
    "read_toml",
    "require_known",
]
