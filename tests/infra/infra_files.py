"""The files of infra/ as Docker and Compose would read them."""

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent.parent
INFRA = ROOT / "infra"
# Where the Dockerfile puts the tree.
IMAGE_ROOT = "/opt/trigpoint"
GIVEN = {"TRIGPOINT_SHARED": "/srv/shared", "TRIGPOINT_PREFECT_AUTH": "someone:some words"}

REFERENCE = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")


def dockerfile() -> str:
    """Its instructions, one a line."""
    text = re.sub(r"^#.*\n", "", (INFRA / "Dockerfile").read_text(), flags=re.MULTILINE)
    return re.sub(r"\s*\\\n\s*", " ", text)


def image_environment() -> dict[str, str]:
    lines = re.findall(r"^ENV (.*)$", dockerfile(), re.MULTILINE)
    return dict(re.findall(r"(\w+)=(\S+)", " ".join(lines)))


def composition(given: dict[str, str] = GIVEN) -> dict[str, Any]:
    return _interpolated(yaml.safe_load((INFRA / "compose.yaml").read_text()), given)


def services(given: dict[str, str] = GIVEN) -> dict[str, dict[str, Any]]:
    return composition(given)["services"]


def _interpolated(value: Any, given: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _interpolated(entry, given) for key, entry in value.items()}
    if isinstance(value, list):
        return [_interpolated(entry, given) for entry in value]
    return REFERENCE.sub(lambda found: _resolved(found, given), value) if isinstance(value, str) else value


def _resolved(reference: re.Match[str], given: dict[str, str]) -> str:
    name, operator, rest = reference.groups()
    if given.get(name):
        return given[name]
    if operator != "-":
        raise KeyError(f"{name}: {rest}")
    return rest
