"""Configuration: sizes as text, precedence, names of unknown keys, one frozen object."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from transferqueue import config_page
from transferqueue.config import (
    Config,
    build_config,
    environment_variable,
    given_values,
    key_table,
    known_keys,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        (4096, 4096),
        ("4096", 4096),
        ("4GiB", 4 << 30),
        ("4 gib", 4 << 30),
        ("4G", 4 << 30),
        ("4GB", 4 * 10**9),
        ("1.5MiB", 3 << 19),
    ],
)
def test_sizes_are_bytes_or_text(text: object, nbytes: int) -> None:
    assert parse_size(text) == nbytes


@pytest.mark.parametrize("text", ["", "four", "4 parsecs", "-4GiB", -1, 1.5, True, None])
def test_what_is_no_size_is_refused(text: object) -> None:
    with pytest.raises(ValueError):
        parse_size(text)


def test_the_configuration_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().storage.size = 1  # type: ignore[misc]


def test_nested_dotted_and_omegaconf_say_the_same() -> None:
    nested = build_config(given_values({"storage": {"size": "8MiB"}, "allow_pickle": False}, {}))
    dotted = build_config(given_values({"storage.size": "8MiB", "allow_pickle": False}, {}))
    omega = build_config(given_values(OmegaConf.create({"storage": {"size": "8MiB"}, "allow_pickle": False}), {}))
    assert nested == dotted == omega
    assert nested.storage.size == 8 << 20
    assert not nested.allow_pickle


def test_overrides_beat_the_mapping_which_beats_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSFERQUEUE_STORAGE__SIZE", "4MiB")
    monkeypatch.setenv("TRANSFERQUEUE_READ__MODE", "copy")
    monkeypatch.setenv("TRANSFERQUEUE_ALLOW_PICKLE", "0")
    assert build_config(given_values(None, {})).storage.size == 4 << 20
    config = build_config(given_values({"storage.size": "8MiB", "read.mode": "shared"}, {"storage.size": "16MiB"}))
    assert (config.storage.size, config.read.mode, config.allow_pickle) == (16 << 20, "shared", False)


def test_every_key_has_a_variable_of_its_own() -> None:
    variables = [environment_variable(key) for key in known_keys()]
    assert len(set(variables)) == len(variables)
    assert environment_variable("put.timeout_s") == "TRANSFERQUEUE_PUT__TIMEOUT_S"


@pytest.mark.parametrize("given", [{"storage.siez": 1}, {"storage": {"siez": 1}}])
def test_an_unknown_key_is_refused_by_name_with_the_nearest_one(given: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"storage\.siez.*storage\.size"):
        given_values(given, {})
    with pytest.raises(ValueError, match=r"storage\.siez.*storage\.size"):
        given_values(None, given)


def test_variables_that_name_no_key_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSFERQUEUE_SOMETHING_ELSE", "x")
    assert given_values(None, {}) == {}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("storage.size", "12KiB"),
        ("storage.dir", "/no/such/directory"),
        ("read.mode", "fast"),
        ("put.timeout_s", -1),
        ("put.timeout_s", float("nan")),
        ("allow_pickle", "perhaps"),
        ("logging.level", "LOUD"),
    ],
)
def test_a_bad_value_names_its_key(key: str, value: object) -> None:
    with pytest.raises(ValueError, match=key.replace(".", r"\.")):
        build_config({key: value})


def test_no_limit_can_be_said_in_three_ways() -> None:
    assert {build_config({"put.timeout_s": value}).put.timeout_s for value in (None, "none", float("inf"))} == {None}


def test_a_config_object_is_taken_as_it_is() -> None:
    config = build_config({"storage.size": "8MiB", "controller.sampler": "GRPOGroupNSampler"})
    assert build_config(given_values(config, {})) == config


def test_every_key_is_explained_in_help_and_on_its_page() -> None:
    shown = Config.__doc__ or ""
    for key, default, owner, meaning in key_table():
        assert f"{key} ({default}; {owner}): " in shown
        assert meaning
    page = Path(__file__).parents[3] / "docs" / "configuration.md"
    assert page.read_text() == config_page.page(), "python -m transferqueue.config_page >docs/configuration.md"


def test_defaults_are_shown_as_one_would_write_them() -> None:
    defaults = {key: default for key, default, _, _ in key_table()}
    assert (defaults["storage.size"], defaults["storage.dir"], defaults["read.mode"]) == ("2.0 GiB", "none", "'cow'")
    assert build_config({"storage.size": defaults["storage.size"]}) == Config()
