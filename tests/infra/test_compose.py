"""What compose.yaml promises about every service."""

import re
import tomllib
from importlib.metadata import entry_points

import pytest
import yaml
from infra_files import GIVEN, IMAGE_ROOT, INFRA, REFERENCE, composition, dockerfile, services

from pipeline.settings import fit_settings

NAMES = sorted(services())
LASTING = [name for name in NAMES if "profiles" not in services()[name]]


def test_ports_are_published_on_loopback_only():
    published = [port for service in services().values() for port in service.get("ports", [])]
    assert published
    for port in published:
        assert re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port), port


@pytest.mark.parametrize("name", NAMES)
def test_a_service_has_no_more_rights_than_it_needs(name):
    service = services()[name]
    assert not service.get("privileged")
    assert "network_mode" not in service
    assert "user" not in service  # that of the image
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]


@pytest.mark.parametrize("name", LASTING)
def test_a_service_runs_a_program_of_the_image_and_tells_its_health(name):
    command, check = services()[name]["command"], services()[name]["healthcheck"]["test"]
    assert command[0] in {"dask", "prefect", "trigpoint"}
    assert check[:3] == ["CMD", "python", "infra/healthcheck.py"]
    assert check[3].startswith("http://127.0.0.1:")


def test_programs_of_the_image_exist():
    installed = {script.name for script in entry_points(group="console_scripts")}
    assert {"dask", "prefect", "trigpoint"} <= installed


@pytest.mark.parametrize("name", ["dask-scheduler", "dask-worker"])
def test_dashboards_listen_inside_their_container_only(name):
    command = " ".join(services()[name]["command"])
    assert re.search(r"--dashboard-address[ =]127\.0\.0\.1:8787\b", command)


@pytest.mark.parametrize("missing", GIVEN)
def test_what_must_be_given_has_no_default(missing):
    with pytest.raises(KeyError, match=missing):
        composition({name: value for name, value in GIVEN.items() if name != missing})


def test_secrets_come_from_the_environment():
    secret = re.compile("AUTH_STRING|PASSWORD|SECRET|TOKEN")
    as_written = yaml.safe_load((INFRA / "compose.yaml").read_text())["services"]
    values = {
        value
        for service in as_written.values()
        for name, value in service.get("environment", {}).items()
        if secret.search(name)
    }
    assert values
    for value in values:
        assert REFERENCE.fullmatch(value).group(2) == "?"


def test_dask_finds_its_configuration_and_certificates():
    config = yaml.safe_load((INFRA / "dask.yaml").read_text())["distributed"]["comm"]["tls"]
    for name in ("dask-scheduler", "dask-worker"):
        service = services()[name]
        assert service["environment"]["DASK_CONFIG"] == f"{IMAGE_ROOT}/infra/dask.yaml"
        mounts = {mount["target"]: mount for mount in service["volumes"]}
        assert config["ca-file"].rpartition("/")[0] in mounts
        assert mounts["/certificates"]["read_only"]
    assert re.search(rf"^COPY .*infra/dask\.yaml.* {IMAGE_ROOT}/infra/$", dockerfile(), re.MULTILINE)


def test_a_store_has_the_same_path_wherever_it_is_used():
    for name in ("prefect-worker", "dask-worker", "client"):
        mounts = {mount["target"]: mount["source"] for mount in services()[name]["volumes"] if "source" in mount}
        assert mounts["/shared"] == GIVEN["TRIGPOINT_SHARED"]


def test_the_guide_names_every_variable_and_no_other():
    guide = (INFRA / "README.md").read_text()
    used = set(re.findall(r"\$\{(\w+)", (INFRA / "compose.yaml").read_text()))
    assert used == set(re.findall(r"^\| `(TRIGPOINT_\w+)`", guide, re.MULTILINE))


def test_the_run_of_the_guide_has_valid_settings_and_paths_of_the_containers():
    guide = (INFRA / "README.md").read_text()
    settings = fit_settings(tomllib.loads(re.search(r"```toml\n(.*?)```", guide, re.DOTALL).group(1)))
    targets = {mount["target"] for mount in services()["client"]["volumes"]}
    for file in (settings.source, settings.store, settings.cluster.tls_key):
        assert file.rpartition("/")[0] in targets
