"""Settings: what cannot work is refused before anything starts, and nothing is misspelt in silence."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from click.testing import CliRunner

from structured_server.cli.serve import serve
from structured_server.environment import refuse_demo_model, refuse_unknown, service_links
from structured_server.errors import SettingsError
from structured_server.settings import (
    Settings,
    choices,
    flag,
    variable,
)

NEEDED: dict[str, Any] = {"upstream": "http://127.0.0.1:8000", "model": "dgemma"}
EMBEDDED: dict[str, Any] = {"backend": "embedded"}
TRANSFORMERS: dict[str, Any] = {"backend": "transformers", "model": "./model"}
every_field = pytest.mark.parametrize("name", [each.name for each in fields(Settings)])


def test_an_upstream_and_a_model_are_enough() -> None:
    settings = Settings(**NEEDED)
    assert ("127.0.0.1", 8080, 64, 8000) == (
        settings.host,
        settings.port,
        settings.canvas,
        settings.deadline_ms,
    )
    assert ("dgemma", "vllm") == (settings.tokenizer_source, settings.backend)


def test_the_embedded_model_needs_nothing_more() -> None:
    settings = Settings(**EMBEDDED)
    assert (64, 2, None) == (settings.canvas, settings.threads, settings.entropy_threshold)


@pytest.mark.parametrize(
    "given", [("http://a", "https://b/v1"), "http://a,https://b/v1", (" http://a , https://b/v1,",)]
)
def test_several_upstreams_are_repeated_or_separated_by_commas(given: tuple[str, ...] | str) -> None:
    assert ("http://a", "https://b/v1") == Settings(**NEEDED | {"upstream": given}).upstreams


@pytest.mark.parametrize(
    ("arguments", "environ"),
    [
        (["--upstream", "http://a", "--upstream", "http://b"], {}),
        (["--upstream", "http://a,http://b"], {}),
        ([], {"STRUCTURED_SERVER_UPSTREAM": "http://a,http://b"}),
        ([], {"STRUCTURED_SERVER_UPSTREAM": "http://a http://b"}),
    ],
)
def test_several_upstreams_may_come_as_flags_or_as_a_variable(
    arguments: list[str], environ: dict[str, str]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environ.items():
            patch.setenv(name, value)
        context = serve.make_context("serve", ["--model", "dgemma", *arguments])
    assert ("http://a", "http://b") == Settings(**context.params).upstreams


def test_transformers_need_a_model() -> None:
    settings = Settings(**TRANSFORMERS)
    assert ("./model", "auto", "auto") == (settings.tokenizer_source, settings.device, settings.dtype)


def test_without_a_word_on_what_reads_all_ways_are_named() -> None:
    with pytest.raises(SettingsError) as caught:
        Settings(model="dgemma")
    for said in ("--upstream URL", "--backend embedded", "--backend transformers --model DIR"):
        assert said in caught.value.message


def test_no_policy_is_loaded_unless_a_file_is_named() -> None:
    assert ("", "p.yaml") == (Settings(**NEEDED).policy, Settings(**NEEDED, policy="p.yaml").policy)


def test_a_tokenizer_of_its_own_is_taken_before_the_models_name() -> None:
    assert "./folder" == Settings(**NEEDED, tokenizer="./folder").tokenizer_source


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"upstream": None}, "add --upstream URL"),
        ({"upstream": ""}, "add --upstream URL"),
        ({"upstream": "", "backend": "vllm"}, "--backend vllm needs --upstream URL"),
        ({"backend": "embedded"}, "--upstream is not for --backend embedded"),
        ({"backend": "transformers"}, "--upstream is not for --backend transformers"),
        ({"threads": 0}, "--threads must be at least 1, got 0"),
        (
            {"upstream": "127.0.0.1:8000"},
            "--upstream must start with http:// or https://, got '127.0.0.1:8000'",
        ),
        ({"upstream": "ftp://host"}, "--upstream must start with http:// or https://"),
        ({"upstream": "http://a,host"}, "--upstream must start with http:// or https://, got 'host'"),
        ({"upstream": ("http://a", "http://b", "http://a")}, "--upstream names the same server twice"),
        ({"upstream": ("http://a/v1", "http://a/")}, "--upstream names the same server twice"),
        ({"upstream": " , "}, "add --upstream URL"),
        ({"max_wait_ms": -1}, "--max-wait-ms must not be negative, got -1"),
        ({"model": None}, "serve needs --model NAME"),
        ({"model": ""}, "serve needs --model NAME"),
        ({"canvas": 0}, "--canvas must be a multiple of 16 up to 256, got 0"),
        ({"canvas": -16}, "--canvas must be a multiple of 16 up to 256, got -16"),
        ({"canvas": 40}, "--canvas must be a multiple of 16 up to 256, got 40"),
        ({"canvas": 272}, "--canvas must be a multiple of 16 up to 256, got 272"),
        ({"prompt_transport": "chat"}, "--prompt-transport chat needs --scaffold canvas"),
        ({"max_positions": 63}, r"--max-positions must be at least --canvas \(64\)"),
        ({"deadline_ms": 0}, "--deadline-ms must be at least 1, got 0"),
        ({"read_timeout_ms": 0}, "--read-timeout-ms must be at least 1, got 0"),
        ({"max_reads": 0}, "--max-reads must be at least 1, got 0"),
        ({"max_body_bytes": 0}, "--max-body-bytes must be at least 1, got 0"),
        ({"max_waiting": -1}, "--max-waiting must not be negative, got -1"),
        ({"entropy_threshold": -0.1}, "--entropy-threshold must not be negative, got -0.1"),
        ({"entropy_threshold": float("nan")}, "--entropy-threshold must not be negative, got nan"),
        ({"port": -1}, "--port must not be negative, got -1"),
        ({"port": 65_536}, "--port must be at most 65535, got 65536"),
    ],
)
def test_what_cannot_work_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        Settings(**NEEDED | wrong)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (EMBEDDED | {"model": "dgemma"}, "--backend embedded has its own model: leave --model out"),
        (EMBEDDED | {"tokenizer": "./t"}, "--backend embedded has its own tokenizer: leave --tokenizer out"),
        (EMBEDDED | {"canvas": 80}, "--canvas must be at most 64 with --backend embedded, got 80"),
        (TRANSFORMERS | {"model": ""}, "--backend transformers needs --model, the model's folder or hub id"),
    ],
)
def test_what_does_not_belong_to_a_backend_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        Settings(**wrong)


# The demo model away from the machine of who started it


@pytest.mark.parametrize(
    ("host", "environ", "said"),
    [
        ("127.0.0.1", {"K_SERVICE": "decisions"}, "in Cloud Run"),
        ("127.0.0.1", {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "in Kubernetes"),
        ("0.0.0.0", {}, "on 0.0.0.0"),
        ("::", {}, "on ::"),
        ("192.0.2.1", {}, "on 192.0.2.1"),
        ("example.org", {}, "on example.org"),
        ("0.0.0.0", {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "in Kubernetes and on 0.0.0.0"),
    ],
)
def test_the_demo_model_is_not_served_to_others_unless_that_is_meant(
    host: str, environ: dict[str, str], said: str
) -> None:
    with pytest.raises(SettingsError, match=f"would serve it {said}: add --allow-demo-model"):
        refuse_demo_model(Settings(**EMBEDDED, host=host), environ)
    refuse_demo_model(Settings(**EMBEDDED, host=host, allow_demo_model=True), environ)
    refuse_demo_model(Settings(**NEEDED, host=host), environ)
    refuse_demo_model(Settings(**TRANSFORMERS, host=host), environ)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.5", "::1", "localhost"])
def test_on_loopback_the_demo_model_needs_no_word_more(host: str) -> None:
    refuse_demo_model(Settings(**EMBEDDED, host=host), {"PATH": "/bin", "K_SERVICE": ""})


@pytest.mark.parametrize(
    "right",
    [
        {"backend": "vllm"},
        {"upstream": "https://engine.example/v1"},
        {"canvas": 16},
        {"canvas": 256},
        {"prompt_transport": "chat", "scaffold": "canvas"},
        {"max_positions": 64},
        {"deadline_ms": 1, "read_timeout_ms": 1, "max_reads": 1, "max_body_bytes": 1},
        {"max_waiting": 0, "entropy_threshold": 0.0, "port": 0},
        {"port": 65_535},
    ],
)
def test_what_just_works_is_not_refused(right: dict[str, Any]) -> None:
    settings = Settings(**NEEDED | right)
    assert right == {name: getattr(settings, name) for name in right}


def test_settings_cannot_change_under_a_running_server() -> None:
    with pytest.raises(FrozenInstanceError):
        Settings(**NEEDED).port = 1  # type: ignore[misc]


# Flags and variables


@every_field
def test_each_field_is_a_flag_with_help_and_an_environment_variable(name: str) -> None:
    option = {option.name: option for option in serve.params}[name]
    text = CliRunner().invoke(serve, ["--help"]).output
    assert f"--{flag(name)}" in option.opts
    assert f"--{flag(name)}" in text
    assert variable(name) == option.envvar
    help_text = next(each for each in fields(Settings) if each.name == name).metadata["help"]
    assert help_text.endswith(".")
    assert " ".join(help_text.split())[:20] in " ".join(text.split())


@every_field
def test_each_flag_has_its_fields_default(name: str) -> None:
    option = {option.name: option for option in serve.params}[name]
    default = getattr(Settings(**NEEDED, backend="vllm"), name)
    assert default == {**NEEDED, "backend": "vllm"}.get(name, option.default)


@every_field
def test_each_field_with_words_to_choose_from_says_which(name: str) -> None:
    annotation = str(next(each for each in fields(Settings) if each.name == name).type)
    hint = get_type_hints(Settings)[name]
    literals = [each for each in (hint, *get_args(hint)) if get_origin(each) is Literal]
    expected = get_args(literals[0]) if literals else ()
    assert expected == choices(annotation)
    assert not expected or Settings.__dataclass_fields__[name].default in (*expected, None)


def test_a_flag_and_a_variable_are_named_after_the_field() -> None:
    assert ("max-body-bytes", "STRUCTURED_SERVER_MAX_BODY_BYTES") == (
        flag("max_body_bytes"),
        variable("max_body_bytes"),
    )


@every_field
def test_a_variable_of_ours_is_known(name: str) -> None:
    refuse_unknown({variable(name): "1", "PATH": "/bin", "STRUCTURED": "x"})


@pytest.mark.parametrize("name", ["URL", "TOKEN", "TIMEOUT"])
def test_the_clients_variables_do_not_disturb_the_server(name: str) -> None:
    refuse_unknown({f"STRUCTURED_SERVER_{name}": "1"})


@pytest.mark.parametrize(
    ("unknown", "message"),
    [
        (
            "STRUCTURED_SERVER_UPSTRAEM",
            "the environment variable STRUCTURED_SERVER_UPSTRAEM is no setting. "
            "Did you mean STRUCTURED_SERVER_UPSTREAM?",
        ),
        (
            "STRUCTURED_SERVER_CANVAS_LENGTH",
            "the environment variable STRUCTURED_SERVER_CANVAS_LENGTH is no setting. "
            "Did you mean STRUCTURED_SERVER_CANVAS?",
        ),
    ],
)
def test_an_unknown_variable_is_named_with_the_nearest_known_one(unknown: str, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        refuse_unknown({variable("port"): "1", unknown: "x"})
    assert message == caught.value.message


def test_an_unknown_variable_like_no_other_is_just_named() -> None:
    name = f"STRUCTURED_SERVER_{'X' * 60}"
    with pytest.raises(SettingsError) as caught:
        refuse_unknown({name: "x"})
    assert f"the environment variable {name} is no setting." == caught.value.message


def test_the_value_of_an_unknown_variable_is_not_shown() -> None:
    with pytest.raises(SettingsError) as caught:
        refuse_unknown({"STRUCTURED_SERVER_API_KEYS": "hunter2"})
    assert "hunter2" not in caught.value.message


def test_variables_that_kubernetes_sets_for_a_service_of_our_name_are_told_apart() -> None:
    links = {
        "STRUCTURED_SERVER_SERVICE_HOST": "10.0.0.1",
        "STRUCTURED_SERVER_SERVICE_PORT": "8080",
        "STRUCTURED_SERVER_SERVICE_PORT_HTTP": "8080",
        "STRUCTURED_SERVER_PORT": "tcp://10.0.0.1:8080",
        "STRUCTURED_SERVER_PORT_8080_TCP": "tcp://10.0.0.1:8080",
        "STRUCTURED_SERVER_PORT_8080_TCP_ADDR": "10.0.0.1",
    }
    ours = {"STRUCTURED_SERVER_HOST": "0.0.0.0", "OTHER_SERVICE_HOST": "10.0.0.2"}
    assert list(links) == service_links(links | ours)
    assert [] == service_links(ours | {"STRUCTURED_SERVER_PORT": "8080"})
