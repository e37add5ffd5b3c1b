"""Settings: from keywords and files alike, everything wrong with them named."""

import pytest

from pipeline.errors import InvalidInputError
from pipeline.settings import (
    ClusterSettings,
    ExtendSettings,
    FitSettings,
    InvertSettings,
    RefitSettings,
    StudySettings,
    fit_settings,
)

BASE = {"source": "x.npy", "store": "run"}


def test_keywords_win_over_the_file(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text('source = "x.npy"\nstore = "a"\nn_neighbors = 7\ncolumns = ["u", 2]\n')
    settings = fit_settings({"store": "b"}, file)
    assert (settings.source, settings.store, settings.n_neighbors) == ("x.npy", "b", 7)
    assert settings.columns == ("u", "2")


def test_words_of_the_command_line_are_understood():
    words = {"n_neighbors": "12", "n_landmarks": "300", "diagonal_weight": "balanced", "columns": "u, v,w"}
    settings = fit_settings({**BASE, **words})
    assert (settings.n_neighbors, settings.n_landmarks, settings.diagonal_weight) == (12, 300, "balanced")
    assert settings.columns == ("u", "v", "w")
    assert fit_settings({**BASE, "diagonal_weight": "2.5", "n_landmarks": "auto"}).diagonal_weight == 2.5


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_neighbours": 5}, r"setting 'n_neighbours' is not known; did you mean 'n_neighbors'\?"),
        ({"n-landmarks": 5}, r"did you mean 'n_landmarks'\?"),
        ({"zzz": 5}, "setting 'zzz' is not known; known are source, store"),
        ({"n_neighbors": 0}, "n_neighbors=0: .*greater than or equal to 1"),
        ({"n_neighbors": "many"}, "n_neighbors='many': .*valid integer"),
        ({"n_landmarks": "most"}, "n_landmarks='most': .*integer.* or .*'auto'"),
        ({"component_policy": "join"}, "component_policy='join': .*'error', 'bridge' or 'largest'"),
        ({"recall": 1.5}, "recall=1.5: .*less than or equal to 1"),
        ({"source": None}, "source=None: "),
        ({"n_neighbors": True}, "n_neighbors=True: .*a number is needed"),
        ({"diagonal_weight": True}, "diagonal_weight=True: .*a number is needed"),
    ],
)
def test_wrong_settings_are_named(wrong, message):
    with pytest.raises(InvalidInputError, match=message):
        fit_settings({**BASE, **wrong})


def test_what_is_not_given_is_named():
    with pytest.raises(InvalidInputError, match=r"^Missing argument STORE"):
        fit_settings({"source": "x.npy"})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_neighbors": 100}, r"n_neighbors=100 is out of range; use one from 1 to 99 \(the source has 100 rows\)"),
        ({"n_components": 100}, "n_components=100 is out of range"),
        ({"n_landmarks": 101}, "n_landmarks=101 is out of range; use one from 3 to 100"),
        ({"n_landmarks": 2}, "n_landmarks=2 is out of range"),
        ({"n_landmarks": 0}, "n_landmarks=0 is out of range"),
        ({"pca": 6}, "pca=6 is out of range; use one from 1 to 5"),
        ({"diagonal_weight": 0}, "diagonal_weight=0: .*greater than or equal to 1e-30, or .*'balanced'"),
    ],
)
def test_settings_that_do_not_fit_the_source_are_refused(settings, message):
    with pytest.raises(InvalidInputError, match=message):
        fit_settings({**BASE, **settings}).check_against(100, 5)


def test_too_many_columns_for_principal_axes_are_refused():
    with pytest.raises(InvalidInputError, match=r"pca=2 needs a matrix of 9000 x 9000; at most 8192 columns"):
        fit_settings({**BASE, "pca": 2}).check_against(100, 9000)


def test_more_rows_than_can_be_numbered_are_refused():
    with pytest.raises(InvalidInputError, match="the source has 3000000000 rows; fewer than 2147483648 are supported"):
        fit_settings(BASE).check_against(3_000_000_000, 2)


def test_columns_may_be_numbers_in_a_file():
    assert fit_settings({**BASE, "id_column": 0}).id_column == "0"


def test_files_that_cannot_be_used_are_named(tmp_path):
    with pytest.raises(InvalidInputError, match=r"config=.*cannot be read: No such file"):
        fit_settings(BASE, tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("a = [")
    with pytest.raises(InvalidInputError, match=r"config=.* is not TOML"):
        fit_settings(BASE, tmp_path / "bad.toml")


def test_settings_are_frozen():
    settings = fit_settings(BASE)
    with pytest.raises(ValueError, match="frozen"):
        settings.seed = 1
    unsaid = set(FitSettings.model_fields) - set(settings.of_results())
    assert unsaid == {
        "source",
        "store",
        "cluster",
        "plugins",
        "landmark_weights",
        "spread",
        "shortcuts",
        "new_edges",
        "exclude",
        "on_changed_source",
    }
    told = fit_settings({**BASE, "landmark_weights": "counts"}).of_results()
    assert told["landmark_weights"] == "counts"


def test_every_setting_has_a_group_and_a_help_text():
    for model in (FitSettings, ExtendSettings, RefitSettings, InvertSettings, StudySettings, ClusterSettings):
        for name, field in model.model_fields.items():
            assert field.json_schema_extra["group"], name
            assert field.description.endswith((".", "]")), name


def test_settings_of_results_keep_their_names_and_order():
    """They are in manifests: a change would make every refit another one."""
    names = list(fit_settings(BASE).of_results())
    assert names[:3] == ["partition_mib", "method", "extension"]
    assert names[-3:] == ["n_components", "diagonal_weight", "seed"]
