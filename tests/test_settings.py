import json
import re
from dataclasses import fields
from importlib.resources import files
from pathlib import Path

import pytest

from fairlead.errors import SettingInvalid
from fairlead.handlers import command
from fairlead.settings import TABLES, Settings, load, unknown_variables
from tests.tables import each_case


def test_flags_win_over_environment_and_environment_over_file(tmp_path: Path) -> None:
    file = tmp_path / "fairlead.toml"
    file.write_text('pool_size = 3\nschema = "from_file"\ndata_dir = "from-file"\n[commands.x]\nargv = []\n')
    environ = {"FAIRLEAD_SCHEMA": "from_env", "FAIRLEAD_DATA_DIR": "from-env", "FAIRLEAD_OTHER": "ignored"}

    settings = load({"data_dir": "from-flag", "schema": None}, environ=environ, file=file)

    assert (settings.pool_size, settings.schema, settings.data_dir) == (3, "from_env", Path("from-flag"))


def test_without_anything_the_defaults_hold(tmp_path: Path) -> None:
    assert load(environ={}, file=tmp_path / "none.toml") == Settings()


@each_case(
    "flags",
    [
        {"schema": "Upper"},
        {"schema": "pg_mine"},
        {"schema": 'x"; drop'},
        {"pool_size": "many"},
        {"pool_size": True},
        {"surprise": 1},
        {"database_url": 5},
    ],
)
def test_a_setting_that_cannot_work_is_refused_by_name(flags: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(SettingInvalid) as refused:
        load(flags, environ={}, file=tmp_path / "none.toml")
    assert refused.value.faults[0].path == next(iter(flags))


def test_a_file_that_is_not_toml_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "fairlead.toml"
    file.write_text("pool_size == 3")
    with pytest.raises(SettingInvalid, match="not valid TOML"):
        load(environ={}, file=file)


def test_an_unknown_table_is_refused_with_the_name_that_was_meant(tmp_path: Path) -> None:
    file = tmp_path / "fairlead.toml"
    file.write_text('[enginez.main]\ndriver = "nats"\n')
    with pytest.raises(SettingInvalid, match=r"unknown table \[enginez\]\. Did you mean \[engines\]\?"):
        load(environ={}, file=file)


def test_the_known_tables_are_those_of_the_schema() -> None:
    schema = json.loads(files("fairlead").joinpath("fairlead.schema.json").read_text("utf-8"))
    assert schema["properties"].keys() - {one.name for one in fields(Settings)} == set(TABLES)


def test_a_password_in_a_refused_url_is_not_repeated(tmp_path: Path) -> None:
    with pytest.raises(SettingInvalid) as refused:
        load({"database_url": ["postgresql://u:hunter2@h/d"]}, environ={}, file=tmp_path / "none.toml")
    assert "hunter2" not in str(refused.value.as_dict())


def test_settings_can_be_shown_without_a_password() -> None:
    shown = repr(Settings(database_url="postgresql://u:hunter2@h/d", direct_url="postgresql://u:hunter2@h/e"))
    assert "hunter2" not in shown
    assert "pool_size=10" in shown


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("postgresql+psycopg://u:p@h/d", "postgresql://u:p@h/d"),
        ("postgresql+asyncpg://h/d?x=a+b://", "postgresql://h/d?x=a+b://"),
        ("postgres+psycopg2://h/d", "postgres://h/d"),
        ("postgresql://h/d", "postgresql://h/d"),
        ("host=h dbname=d", "host=h dbname=d"),
    ],
)
def test_the_driver_that_an_address_of_sqlalchemy_names_is_left_out(given: str, read: str) -> None:
    settings = Settings(database_url=given, direct_url=given)
    assert (settings.database_url, settings.direct_url) == (read, read)


@pytest.mark.parametrize(("word", "means"), [("true", True), ("1", True), ("off", False), ("No", False)])
def test_a_switch_is_set_by_a_word(word: str, *, means: bool, tmp_path: Path) -> None:
    assert load(environ={"FAIRLEAD_ENABLE_TICK": word}, file=tmp_path / "none").enable_tick is means


def test_a_switch_that_says_neither_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingInvalid, match="enable_tick"):
        load(environ={"FAIRLEAD_ENABLE_TICK": "perhaps"}, file=tmp_path / "none")


def test_what_commands_are_given_is_not_taken_for_a_misspelt_setting() -> None:
    given = set(re.findall(r"FAIRLEAD_[A-Z_]+[A-Z]", Path(command.__file__).read_text(encoding="utf-8")))

    assert given
    assert unknown_variables(dict.fromkeys(given, "x") | {"FAIRLEAD_JOB_IDD": "x"}) == ["FAIRLEAD_JOB_IDD"]
