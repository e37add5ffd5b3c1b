"""The help of every command, and shell completion."""

import re

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from flows.cli import app
from pipeline.settings import StudySettings

COMMANDS = sorted(get_command(app).commands)
WITH_SETTINGS = ("fit", "extend", "refit", "plan", "study", "invert")


def told(*arguments, **environment):
    result = CliRunner().invoke(app, arguments, prog_name="trigpoint", env=environment)
    assert result.exit_code == 0, result.output
    return result.output


def completed(words):
    n_words = len(words.split(" ")) - 1
    return told(_TRIGPOINT_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=str(n_words)).split()


def test_every_command_is_listed_with_a_whole_sentence():
    listed = told("--help").partition("Commands:\n")[2].splitlines()
    assert sorted(line.split()[0] for line in listed) == COMMANDS
    assert all(line.endswith(".") and not line.endswith("...") for line in listed)


@pytest.mark.parametrize("command", COMMANDS)
def test_values_and_defaults_are_written_in_one_way(command):
    text = told(command, "--help")
    for value in re.findall(r"^  --[a-z-]+ (\S+)", text, re.M):
        assert value == "/" or re.fullmatch(r"[A-Z]+(,[A-Z]+|,\.\.\.)*|([A-Za-z]+\|)+[a-z]+", value), value
    assert "(default" not in text
    assert "<" not in text


@pytest.mark.parametrize("command", WITH_SETTINGS)
def test_options_are_in_groups_and_the_general_ones_come_last(command):
    titles = re.findall(r"^([A-Z][a-z]+):$", told(command, "--help"), re.M)
    assert titles[:2] == ["Arguments", "Data"]
    assert titles[-2:] == ["Execution", "Options"]


def test_what_must_be_given_is_marked():
    assert "trigpoint fit [OPTIONS] SOURCE\n" in told("fit", "--help")
    assert "trigpoint invert [OPTIONS] STORE [COORDINATES]\n" in told("invert", "--help")
    assert re.search(r"--store PATH\s[^-]*\[required, here\s+or in --config\]", told("fit", "--help"))
    assert "[required" not in told("study", "--help").partition("Data:\n")[2]


def test_a_study_does_not_offer_what_it_refuses():
    text = told("study", "--help")
    assert not [name for name in StudySettings.refused if f"--{name.replace('_', '-')} " in text]
    assert "--landmarks INTEGER,..." in text


def test_a_shell_completes_commands_options_and_choices():
    assert completed("trigpoint ex") == ["extend", "export"]
    assert completed("trigpoint refit --pl") == ["--plugins"]
    assert completed("trigpoint fit --component-policy ") == ["error", "bridge", "largest"]
    assert completed("trigpoint fit --method kernel") == ["kernel-isomap", "kernel-mds"]
