"""A real Prefect server and worker, run as compose.yaml has it, and infra/prefect.yaml deployed to them."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from infra_files import GIVEN, IMAGE_ROOT, INFRA, ROOT, image_environment, services
from infra_processes import clean_environment, free_port, in_environment, running, wait_for

from pipeline.settings import FitSettings

DEPLOY = ["prefect", "--no-prompt", "deploy", "--all", "--prefect-file", "infra/prefect.yaml"]


@pytest.mark.cluster
@pytest.mark.timeout(280)
def test_the_server_is_guarded_and_takes_the_deployment(tmp_path):
    """One test for all of it: a server takes ten seconds to start."""
    with running_server(tmp_path) as url:
        assert_strangers_are_refused(url)
        assert_forged_requests_are_refused(url)
        assert_other_origins_are_refused(url)
        client = client_environment(tmp_path, url)
        # The worker of compose.yaml makes the work pool.
        run([*services()["prefect-worker"]["command"], "--run-once"], client)
        run(DEPLOY, client)
        assert_deployed(url)
        run(["prefect", "deployment", "run", "fit/fit"], client)
        assert_scheduled_with_trigpoint(url, client, tmp_path)


def test_the_example_parameters_are_settings_of_a_fit():
    parameters = deployment()["parameters"]
    assert parameters.keys() == {"settings", "take_over"}
    settings = FitSettings.model_validate(parameters["settings"])
    assert settings.cluster.address == services()["dask-worker"]["command"][2]


def test_the_deployment_has_no_schedule_and_starts_in_the_image():
    assert deployment()["schedules"] == []
    (step,) = yaml.safe_load((INFRA / "prefect.yaml").read_text())["pull"]
    assert step == {"prefect.deployments.steps.set_working_directory": {"directory": IMAGE_ROOT}}


def deployment() -> dict[str, Any]:
    (only,) = yaml.safe_load((INFRA / "prefect.yaml").read_text())["deployments"]
    return only


@contextmanager
def running_server(folder: Path) -> Iterator[str]:
    url, log = f"http://127.0.0.1:{(port := free_port())}/api", folder / "server.log"
    environment = service_environment("prefect-server", folder / "server")
    environment |= {"PREFECT_SERVER_API_HOST": "127.0.0.1", "PREFECT_SERVER_API_PORT": str(port)}
    with running(services()["prefect-server"]["command"], environment, log) as server:
        wait_for(lambda: healthy(url), server, log, seconds=120)
        yield url


def client_environment(folder: Path, url: str) -> dict[str, str]:
    own_port = {"PREFECT_WORKER_WEBSERVER_PORT": str(free_port())}
    return service_environment("prefect-worker", folder / "client") | {"PREFECT_API_URL": url} | own_port


def service_environment(name: str, home: Path) -> dict[str, str]:
    """What the container would have, its folders below one of the test."""
    in_container = image_environment() | services()[name]["environment"]
    wanted = {key: value for key, value in in_container.items() if key.startswith("PREFECT_") or key == "DO_NOT_TRACK"}
    home.mkdir()
    folders = {"PREFECT_HOME": str(home), "PREFECT_SERVER_UI_STATIC_DIRECTORY": str(home / "ui")}
    return clean_environment(home, **wanted) | folders


def healthy(url: str) -> bool | None:
    try:
        return httpx.get(f"{url}/health").is_success or None
    except httpx.TransportError:
        return None


def run(command: list[str], environment: dict[str, str]) -> None:
    result = subprocess.run(
        in_environment(command), env=environment, cwd=ROOT, capture_output=True, text=True, timeout=90, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


def authority() -> httpx.BasicAuth:
    return httpx.BasicAuth(*GIVEN["TRIGPOINT_PREFECT_AUTH"].split(":"))


def assert_strangers_are_refused(url: str) -> None:
    assert httpx.get(f"{url}/admin/version").status_code == 401
    assert httpx.get(f"{url}/admin/version", auth=httpx.BasicAuth("someone", "other words")).status_code == 401
    assert httpx.get(f"{url}/admin/version", auth=authority()).status_code == 200


def assert_forged_requests_are_refused(url: str) -> None:
    assert httpx.post(f"{url}/deployments/filter", json={}, auth=authority()).status_code == 403


def assert_other_origins_are_refused(url: str) -> None:
    assert allowed_origin(url, "https://elsewhere.example") is None
    assert allowed_origin(url, "http://127.0.0.1:4200") == "http://127.0.0.1:4200"


def allowed_origin(url: str, origin: str) -> str | None:
    headers = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    return httpx.options(f"{url}/deployments/filter", headers=headers).headers.get("access-control-allow-origin")


def assert_deployed(url: str) -> None:
    (found,) = posted(f"{url}/deployments/filter", url)
    assert (found["name"], found["entrypoint"]) == (deployment()["name"], deployment()["entrypoint"])
    assert found["work_pool_name"] == "trigpoint"
    assert found["schedules"] == []
    assert found["global_concurrency_limit"]["limit"] == 1
    assert found["concurrency_options"]["collision_strategy"] == "ENQUEUE"
    assert found["parameters"] == deployment()["parameters"]
    assert found["parameter_openapi_schema"]["properties"].keys() == {*found["parameters"], "anyway", "keywords"}


def assert_scheduled_with_trigpoint(url: str, client: dict[str, str], folder: Path) -> None:
    file = folder / "run.toml"
    file.write_text('source = "/shared/points.npy"\nstore = "/shared/run.zarr"\n[schedule]\nfit = "0 3 * * 0"\n')
    run(["trigpoint", "deploy", "--config", str(file)], client)
    (found,) = [one for one in posted(f"{url}/deployments/filter", url) if one["name"] != deployment()["name"]]
    assert [one["schedule"]["cron"] for one in found["schedules"]] == ["0 3 * * 0"]
    assert found["parameters"]["settings"] == {
        "source": "/shared/points.npy",
        "store": "/shared/run.zarr",
        "component_policy": "bridge",
        "on_changed_source": "version",
    }


def posted(address: str, url: str) -> Any:
    """The answer to a request that carries the token the server gave out for it."""
    token = httpx.get(f"{url}/csrf-token", params={"client": "tests"}, auth=authority()).json()["token"]
    headers = {"Prefect-Csrf-Token": token, "Prefect-Csrf-Client": "tests"}
    answer = httpx.post(address, json={}, auth=authority(), headers=headers)
    assert answer.is_success, answer.text
    return answer.json()
