"""The table [schedule], what a file has to deploy, and the names of stores: no server needed."""

import os
import re

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows import events
from flows.events import emit_drift, store_resource, store_slug
from flows.schedules import described, next_times, read_targets, schedule_settings
from pipeline.errors import InvalidInputError


def written(folder, text):
    file = folder / "run.toml"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"fit": "0 25 * * *"}, r"\[schedule\] fit='0 25 \* \* \*': .*not a cron expression; give .*fit_every"),
        ({"extend": ""}, r"extend='': .*not a cron expression"),
        ({"refit": "0 3 31 2 *"}, r"refit='0 3 31 2 \*': .*no such time ever comes"),
        ({"fit_every": True}, "fit_every=True: .*a number of seconds is needed"),
        ({"fit_every": 0}, "fit_every=0: .*greater than or equal to 1"),
        ({"fit": "0 3 * * 0", "fit_every": 60}, "fit and fit_every are both given; keep one"),
        ({"timezone": "Berlin"}, "timezone='Berlin': .*such as UTC or Europe/Berlin"),
        ({"timezone": "../etc/passwd"}, r"timezone='\.\./etc/passwd': .*not a time zone"),
        ({"work_pool": "a/b"}, "work_pool='a/b': .*letters, digits"),
        ({"time_zone": "UTC"}, "setting 'schedule.time_zone' is not known; did you mean 'schedule.timezone'"),
        ({"refit_on_drift": "often"}, "refit_on_drift='often'"),
    ],
)
def test_bad_settings_are_refused_with_key_value_and_remedy(table, message):
    with pytest.raises(InvalidInputError, match=message):
        schedule_settings({"schedule": table})


def test_a_schedule_that_is_no_table_is_refused():
    with pytest.raises(InvalidInputError, match=r"schedule='nightly' .* write \[schedule\] above its keys"):
        schedule_settings({"schedule": "nightly"})


def test_cron_times_are_of_the_time_zone():
    schedule = schedule_settings({"schedule": {"fit": "0 3 * * 0", "timezone": "Europe/Berlin"}}).schedule_of("fit")
    times = next_times(schedule, 60)
    assert {(time.isoweekday(), time.hour, time.minute) for time in times} == {(7, 3, 0)}
    assert {time.utcoffset().total_seconds() for time in times} == {3600, 7200}
    assert described(schedule) == "at 0 3 * * 0 (Europe/Berlin)"


def test_intervals_do_not_depend_on_when_they_were_deployed():
    first, second = (schedule_settings({"schedule": {"extend_every": 3600}}).schedule_of("extend") for _ in range(2))
    assert first == second
    assert {(time.minute, time.second) for time in next_times(first, 3)} == {(0, 0)}
    assert described(first) == "every 3,600 s"


def test_a_flow_without_a_time_has_no_schedule():
    assert schedule_settings({}).schedule_of("refit") is None
    assert described(None) == "only when asked to"


ALL = """
source = "points.npy"
store = "runs/faces.zarr"
n_landmarks = 100
[cluster]
kind = "address"
address = "tls://dask:8786"
tls_ca = "ca.pem"
tls_cert = "cert.pem"
tls_key = "key.pem"
[extend]
source = "incoming"
output = "placed"
incoming = true
[refit]
new = ["a.npy", "b.npy"]
[schedule]
extend = "0 2 * * *"
"""


def test_parameters_are_what_the_file_says_with_absolute_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, targets = read_targets(written(tmp_path, ALL))
    assert [target.flow for target in targets] == ["fit", "extend", "refit"]
    fit, extend, refit = (target.parameters["settings"] for target in targets)
    here, store = str(tmp_path), str(tmp_path / "runs" / "faces.zarr")
    assert fit["store"] == extend["store"] == refit["store"] == store
    assert fit["source"] == f"{here}/points.npy"
    assert fit.keys() == {"source", "store", "n_landmarks", "cluster", "component_policy", "on_changed_source"}
    assert (fit["component_policy"], fit["on_changed_source"]) == ("bridge", "version")
    assert fit["cluster"]["tls_key"] == f"{here}/key.pem"
    assert fit["cluster"]["address"] == "tls://dask:8786"
    assert (extend["source"], extend["output"], extend["incoming"]) == (f"{here}/incoming", f"{here}/placed", True)
    assert refit["new"] == [f"{here}/a.npy", f"{here}/b.npy"]
    assert [target.schedule is None for target in targets] == [True, False, True]
    assert len({target.slug for target in targets}) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n_neighbors = 5", r"nothing to deploy; give it source and store \(fit\), or a table \[extend\]"),
        (
            'source = "x"\nstore = "y"\n[schedule]\nextend = "0 2 * * *"',
            r"no settings of extend; give it a table \[ext",
        ),
        ('source = "x"\nstore = "y"\n[schedule]\nrefit_on_drift = true', "refit_on_drift=True: the file has no sett"),
        ('source = "x"\nstore = "y"\nn_neighbours = 5', "did you mean 'n_neighbors'"),
        ('store = "y"\n[extend]\nsource = "x"', "Missing argument OUTPUT"),
    ],
)
def test_files_that_cannot_be_deployed_are_refused(tmp_path, text, message):
    with pytest.raises(InvalidInputError, match=message):
        read_targets(written(tmp_path, text))


def test_credentials_are_refused_and_not_shown(tmp_path):
    with pytest.raises(InvalidInputError, match="source has credentials in its address") as caught:
        read_targets(written(tmp_path, 'source = "s3://someone:secret@bucket/x"\nstore = "y"'))
    assert "secret" not in str(caught.value)


def test_the_name_of_a_store_is_readable_stable_and_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    slug = store_slug("runs/Faces 2.zarr")
    assert re.fullmatch(r"faces-2-zarr-[0-9a-f]{10}", slug)
    same = [str(tmp_path / "runs" / "Faces 2.zarr"), "runs//Faces 2.zarr/", f"file://{tmp_path}/runs/Faces 2.zarr"]
    assert {store_slug(path) for path in same} == {slug}
    assert store_slug("other/Faces 2.zarr") != slug
    assert store_resource("runs/Faces 2.zarr") == f"trigpoint.store.{slug}"
    assert re.fullmatch(r"store-[0-9a-f]{10}", store_slug("日本"))
    assert len(store_slug("x" * 300)) < 60
    assert store_slug("s3://bucket/faces") == store_slug("s3://bucket/faces/")


@pytest.fixture
def configured():
    """A server is configured; nobody speaks to it."""
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):
        yield


@pytest.mark.usefixtures("configured")
def test_drift_is_told_with_the_resource_of_the_store(monkeypatch):
    sent = []
    monkeypatch.setattr(events, "emit_event", lambda event, **more: sent.append((event, more)) or object())
    assert emit_drift("runs/faces", {"batch": "b1"})
    store = {
        "prefect.resource.id": store_resource("runs/faces"),
        "prefect.resource.name": os.path.abspath("runs/faces"),
    }
    assert sent == [("trigpoint.drift", {"resource": store, "payload": {"batch": "b1"}})]


@pytest.mark.usefixtures("configured")
def test_a_server_that_fails_does_not_fail_the_run(monkeypatch, caplog):
    def fails(*_, **__):
        raise ConnectionError("refused")

    monkeypatch.setattr(events, "emit_event", fails)
    assert emit_drift("runs/faces", {}) is False
    assert "could not be sent: refused" in caplog.text


def test_without_a_server_none_is_started_to_be_told(monkeypatch):
    monkeypatch.setattr(events, "emit_event", lambda *_, **__: pytest.fail("Prefect would start a server"))
    assert emit_drift("runs/faces", {}) is False
