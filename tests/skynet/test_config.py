"""Configuration: sources and their order, every kind of problem, the generated token."""

from __future__ import annotations

import json
import stat
import string
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skynet.config import (
    Config,
    ConfigError,
    Problem,
    ProblemKind,
    RouterConfig,
    config_to_public,
    ensure_gateway_token,
    find_config_file,
    is_loopback,
    load_config,
    stored_gateway_token,
)
from skynet.config.environment import EnvTarget, env_target
from skynet.config.toml_lines import toml_lines
from skynet.models import provider_rows
from skynet_agent.catalogue import info
from skynet_agent.providers import ModelInfo, Price
from skynet_agent.registry import REGISTRY, KnownProvider
from skynet_memory.secrets import Secret

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no failure


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "state"


def load(home: Path, text: str = "", env: Mapping[str, str] | None = None, **flags: object) -> Config:
    """The configuration of a home whose file has this text; flags are given as ``gateway_port=1``."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "skynet.toml").write_text(text)
    overrides = {key.replace("_", ".", 1): value for key, value in flags.items()}
    return load_config(None, env={"SKYNET_HOME": str(home), **(env or {})}, overrides=overrides)


def problems(home: Path, text: str = "", env: Mapping[str, str] | None = None, **flags: object) -> tuple[Problem, ...]:
    with pytest.raises(ConfigError) as caught:
        load(home, text, env, **flags)
    return caught.value.problems


def problem(home: Path, text: str = "", env: Mapping[str, str] | None = None, **flags: object) -> Problem:
    found = problems(home, text, env, **flags)
    assert len(found) == 1, [str(one) for one in found]
    return found[0]


LAB = '[providers.lab]\nbase_url = "http://127.0.0.1:8000/v1"\nmodels = [{ id = "m-1" }]\n'


class TestSources:
    def test_defaults_without_any_file(self, home: Path) -> None:
        config = load_config(None, env={"SKYNET_HOME": str(home)})
        assert (config.gateway.host, config.gateway.port) == ("127.0.0.1", 18789)
        assert config.gateway.auth.mode == "token"
        assert (config.home, config.file) == (home, None)
        assert config.database.path == home / "skynet.db"
        assert config.logging.file == home / "logs" / "skynet.log"
        assert config.agent.workspace_dir == home / "workspace"
        assert config.providers == {}
        assert config.default_model == ""
        assert not home.exists(), "reading makes nothing"

    def test_home_is_under_the_users_home(self, tmp_path: Path) -> None:
        config = load_config(None, env={"HOME": str(tmp_path)})
        assert config.home == tmp_path / ".skynet"

    def test_the_file_in_the_home_is_read(self, home: Path) -> None:
        config = load(home, "[gateway]\nport = 19001")
        assert config.gateway.port == 19001
        assert config.file == home / "skynet.toml"

    def test_a_named_file_wins_over_the_homes(self, home: Path, tmp_path: Path) -> None:
        other = tmp_path / "other.toml"
        other.write_text("[gateway]\nport = 19005")
        assert load(home, "[gateway]\nport = 19001", {"SKYNET_CONFIG": str(other)}).gateway.port == 19005

    def test_an_explicit_path_wins_over_the_variable(self, home: Path, tmp_path: Path) -> None:
        explicit, named = tmp_path / "explicit.toml", tmp_path / "named.toml"
        explicit.write_text("[gateway]\nport = 1")
        named.write_text("[gateway]\nport = 2")
        env = {"SKYNET_HOME": str(home), "SKYNET_CONFIG": str(named)}
        assert load_config(explicit, env=env).gateway.port == 1
        assert find_config_file(explicit, env) == (explicit, True)
        assert find_config_file(None, env) == (named, True)
        assert find_config_file(None, {"SKYNET_HOME": str(home)}) == (home / "skynet.toml", False)

    def test_environment_wins_over_the_file_and_flags_over_both(self, home: Path) -> None:
        text, env = "[gateway]\nport = 1", {"SKYNET_GATEWAY_PORT": "2"}
        assert load(home, text, env).gateway.port == 2
        assert load(home, text, env, gateway_port=3).gateway.port == 3

    def test_an_explicit_file_has_to_exist(self, home: Path, tmp_path: Path) -> None:
        with pytest.raises(ConfigError) as caught:
            load_config(tmp_path / "nope.toml", env={"SKYNET_HOME": str(home)})
        (found,) = caught.value.problems
        assert (found.kind, found.where) == (ProblemKind.UNREADABLE, str(tmp_path / "nope.toml"))

    def test_a_directory_is_no_file(self, home: Path, tmp_path: Path) -> None:
        with pytest.raises(ConfigError) as caught:
            load_config(tmp_path, env={"SKYNET_HOME": str(home)})
        assert caught.value.problems[0].kind is ProblemKind.UNREADABLE

    def test_paths_are_relative_to_the_home_and_know_the_users_home(self, home: Path, tmp_path: Path) -> None:
        text = '[database]\npath = "data/x.db"\n[logging]\nfile = "~/skynet.log"\n[agent]\nworkspace_dir = "/srv/w"'
        config = load(home, text, {"HOME": str(tmp_path)})
        assert config.database.path == home / "data" / "x.db"
        assert config.logging.file == tmp_path / "skynet.log"
        assert config.agent.workspace_dir == Path("/srv/w")


class TestEnvironment:
    @pytest.mark.parametrize(
        "name",
        ["SKYNET_GATEWAY_AUTH_TOKEN", "SKYNET_GATEWAY_AUTH__TOKEN", "SKYNET__GATEWAY__AUTH__TOKEN"],
    )
    def test_spellings_of_a_nested_key(self, home: Path, name: str) -> None:
        assert load(home, env={name: "tok"}).gateway.auth.token.reveal() == "tok"

    def test_every_key_with_a_fixed_name_has_a_variable(self) -> None:
        assert env_target("SKYNET_GATEWAY_LIMITS_TICK_INTERVAL_S", {}) == EnvTarget(
            ("gateway", "limits", "tick_interval_s"), Config.__annotations__ and _kind("tick_interval_s")
        )

    def test_types(self, home: Path) -> None:
        config = load(
            home,
            env={
                "SKYNET_GATEWAY_PORT": "0",
                "SKYNET_GATEWAY_LIMITS_TICK_INTERVAL_S": "0.5",
                "SKYNET_GATEWAY_ORIGINS": '["https://a.example", "http://b.example:8080"]',
                "SKYNET_AGENT_NAME": "Ada",
                "SKYNET_PROVIDERS__LAB__BASE_URL": "http://127.0.0.1:1/v1",
                "SKYNET_PROVIDERS__LAB__ENABLED": "false",
                "SKYNET_PROVIDERS__LAB__MODELS": '[{"id": "m-1"}]',
                "SKYNET_MODELS_ALIASES__FAST": "lab/m-1",
                "SKYNET_POOLS": '{"smart": ["fast", "lab/m-1"]}',
            },
        )
        assert config.gateway.port == 0
        assert config.gateway.limits.tick_interval_s == 0.5
        assert config.gateway.origins == ("https://a.example", "http://b.example:8080")
        assert config.agent.name == "Ada"
        assert config.providers["lab"].models[0].id == "m-1"
        assert not config.providers["lab"].enabled
        assert config.models.aliases == {"fast": "lab/m-1"}
        assert config.pools == {"smart": ("fast", "lab/m-1")}

    def test_a_part_goes_on_top_of_the_whole_table(self, home: Path) -> None:
        env = {"SKYNET_POOLS__A": '["lab/m-1"]', "SKYNET_POOLS": '{"b": ["lab/m-1"]}'}
        assert load(home, LAB, env).pools == {"a": ("lab/m-1",), "b": ("lab/m-1",)}

    def test_names_of_the_file_are_matched_whatever_their_punctuation(self, home: Path) -> None:
        text = '[providers.my-lab]\nbase_url = "http://127.0.0.1:1/v1"'
        config = load(home, text, {"SKYNET_PROVIDERS__MY_LAB__PRIORITY": "7"})
        assert config.providers["my-lab"].priority == 7

    def test_an_empty_variable_does_not_count(self, home: Path) -> None:
        assert load(home, "[gateway]\nport = 5", {"SKYNET_GATEWAY_PORT": ""}).gateway.port == 5

    def test_a_bad_value_names_the_variable(self, home: Path) -> None:
        found = problem(home, env={"SKYNET_GATEWAY_PORT": "http"})
        assert found.where == "environment variable SKYNET_GATEWAY_PORT"
        assert (found.key, found.seen, found.allowed) == ("gateway.port", '"http"', "a whole number from 0 to 65535")

    def test_a_value_out_of_range_names_the_variable(self, home: Path) -> None:
        found = problem(home, env={"SKYNET_GATEWAY_PORT": "65536"})
        assert (found.where, found.seen) == ("environment variable SKYNET_GATEWAY_PORT", "65536")

    def test_an_unknown_key_of_a_section_is_an_error(self, home: Path) -> None:
        found = problem(home, env={"SKYNET_GATEWAY_PROT": "1"})
        assert found.kind is ProblemKind.UNKNOWN_KEY
        assert "did you mean SKYNET_GATEWAY_PORT?" in found.message

    def test_other_names_are_only_mentioned(self, home: Path) -> None:
        config = load(home, env={"SKYNET_SERVICE_HOST": "10.0.0.1"})
        assert "SKYNET_SERVICE_HOST" in config.warnings[0]

    @pytest.mark.parametrize(
        ("name", "whole"),
        [
            ("SKYNET_GATEWAY_ORIGINS__0", "SKYNET_GATEWAY_ORIGINS"),
            ("SKYNET_POOLS__SMART__0", "SKYNET_POOLS__SMART"),
            ("SKYNET_PROVIDERS__LAB__MODELS__0__ID", "SKYNET_PROVIDERS__LAB__MODELS"),
        ],
    )
    def test_one_element_of_a_list_is_refused_with_a_hint(self, home: Path, name: str, whole: str) -> None:
        found = problem(home, LAB, {name: "x"})
        assert f"give the whole list as JSON in {whole}" in found.message

    @pytest.mark.parametrize(
        ("name", "hint"),
        [
            ("SKYNET_PROVIDERS__LAB", "names a whole table"),
            ("SKYNET_PROVIDERS__LAB__PRIORTY", "did you mean priority?"),
            ("SKYNET_GATEWAY_PORT__X", "nothing is inside gateway.port"),
            ("SKYNET_MODELS_ALIASES__A__B", "nothing is inside models.aliases.a"),
        ],
    )
    def test_a_name_that_leads_nowhere(self, home: Path, name: str, hint: str) -> None:
        assert hint in problem(home, LAB, {name: "x"}).message

    def test_a_list_that_is_no_json(self, home: Path) -> None:
        found = problem(home, env={"SKYNET_GATEWAY_ORIGINS": "https://a.example"})
        assert found.allowed == "a list of: text, as JSON"

    def test_text_that_is_not_utf8(self, home: Path) -> None:
        found = problem(home, env={"SKYNET_AGENT_NAME": "a\udc80"})
        assert found.seen == "text that is not UTF-8"

    def test_a_value_has_nowhere_to_go(self, home: Path) -> None:
        found = problem(home, "gateway = 5", {"SKYNET_GATEWAY_PORT": "1"})
        assert (found.key, found.allowed) == ("gateway", "a table")


def _kind(name: str) -> Any:
    from skynet.config import LimitsConfig
    from skynet.config.schema import fields_of

    return fields_of(LimitsConfig)[name]


class TestSubstitution:
    def test_variables_in_texts(self, home: Path) -> None:
        config = load(home, '[agent]\nname = "${A}-${B}"', {"A": "x", "B": "y"})
        assert config.agent.name == "x-y"

    def test_a_literal_dollar_brace(self, home: Path) -> None:
        assert load(home, '[agent]\nname = "$${A} $A"').agent.name == "${A} $A"

    def test_what_a_variable_holds_is_not_looked_into(self, home: Path) -> None:
        assert load(home, '[agent]\nname = "${A}"', {"A": "${B}"}).agent.name == "${B}"
        assert load(home, "", {"SKYNET_AGENT_NAME": "${B}"}).agent.name == "${B}"

    @pytest.mark.parametrize("text", ["${NOPE}", "${}", "${A B}", "a${NOPE}b"])
    def test_an_unset_variable_is_an_error(self, home: Path, text: str) -> None:
        found = problem(home, f'[agent]\nname = "{text}"')
        assert (found.kind, found.key, found.where) == (
            ProblemKind.UNSET_VARIABLE,
            "agent.name",
            f"{home / 'skynet.toml'}:2",
        )

    @pytest.mark.parametrize("env", [{}, {"LAB_KEY": ""}])
    def test_an_unset_key_switches_the_provider_off(self, home: Path, env: dict[str, str]) -> None:
        """SK-074."""
        config = load(home, LAB + '[agent]\nmodel = "lab/m-1"\n[providers.lab.x]'.replace("[providers.lab.x]", ""), env)
        assert config.providers["lab"].enabled
        text = LAB.replace("models", 'api_key = "${LAB_KEY}"\nmodels') + '[agent]\nmodel = "lab/m-1"'
        config = load(home, text, env)
        assert not config.providers["lab"].enabled
        assert config.enabled_providers == {}
        (warning,) = config.warnings
        assert warning == f"{home / 'skynet.toml'}:3: provider lab is off: the environment variable LAB_KEY is not set"

    def test_a_key_that_is_set(self, home: Path) -> None:
        text = LAB.replace("models", 'api_key = "${LAB_KEY}"\nmodels')
        config = load(home, text, {"LAB_KEY": "sk-1"})
        assert config.providers["lab"].api_key.reveal() == "sk-1"
        assert config.warnings == ()


APIS = ("openai-completions", "openai-responses", "anthropic-messages", "ollama", "bedrock", "vertex")
LEVELS = '"off", "minimal", "low", "medium", "high", "xhigh"'
PORT = "a whole number from 0 to 65535"
ORIGIN = "scheme://host[:port], without a path"
NOT_FOUND = ProblemKind.UNKNOWN_REFERENCE


class TestProblems:
    def test_all_are_reported_at_once_with_their_lines(self, home: Path) -> None:
        text = """
[gateway]
port = 70000
hosst = "x"
[gateway.auth]
token = 5
[providers.lab]
base_url = "ftp://x"
models = [
  { id = "a" },
  { id = "b", context_window = -1 },
]
[agent]
timeout_s = "long"
"""
        found = problems(home, text)
        assert [(one.where.rpartition(":")[2], one.key) for one in found] == [
            ("3", "gateway.port"),
            ("4", "gateway.hosst"),
            ("6", "gateway.auth.token"),
            ("11", "providers.lab.models[1].context_window"),
            ("14", "agent.timeout_s"),
            ("8", "providers.lab.base_url"),
        ]
        assert all(one.where.startswith(f"{home / 'skynet.toml'}:") for one in found)
        assert str(ConfigError(found)).startswith("the configuration has 6 problems:\n  ")

    @pytest.mark.parametrize(
        ("text", "key", "seen", "allowed"),
        [
            ("[gateway]\nport = 65536", "gateway.port", "65536", PORT),
            ("[gateway]\nport = true", "gateway.port", "true", PORT),
            ("[gateway]\nport = 1.5", "gateway.port", "1.5", PORT),
            ('[gateway]\nport = "18789"', "gateway.port", '"18789"', PORT),
            ("[gateway]\nport = 99999999999999999999999", "gateway.port", "9" * 23, PORT),
            ("[gateway]\nport = 2020-01-01", "gateway.port", "2020-01-01", PORT),
            ('[gateway]\nhost = ""', "gateway.host", '""', "text of 1 to 255 characters"),
            ('[gateway]\norigins = "x"', "gateway.origins", '"x"', "a list of: text"),
            ("[gateway]\norigins = [1]", "gateway.origins[0]", "1", "text"),
            ('[gateway]\norigins = ["a.example"]', "gateway.origins[0]", '"a.example"', ORIGIN),
            ('[gateway]\norigins = ["https://a/b"]', "gateway.origins[0]", '"https://a/b"', ORIGIN),
            ('[gateway]\ntrusted_proxies = ["all"]', "gateway.trusted_proxies[0]", '"all"', "an IP address or network"),
            (
                "[gateway.limits]\ntick_interval_s = inf",
                "gateway.limits.tick_interval_s",
                "inf",
                "a number from 0.05 to 3600",
            ),
            (
                "[gateway.limits]\nauth_window_s = nan",
                "gateway.limits.auth_window_s",
                "nan",
                "a number above 0 to 86400",
            ),
            ("[gateway.limits]\nauth_window_s = 0", "gateway.limits.auth_window_s", "0", "a number above 0 to 86400"),
            ('[database]\nsynchronous = "full"', "database.synchronous", '"full"', '"NORMAL", "FULL"'),
            ("[database]\npath = 1", "database.path", "1", "a path"),
            ('[database]\npath = "a\\u0000b"', "database.path", '"a?b"', "a path, without control characters"),
            ("agent = 1", "agent", "1", "a table"),
            ("providers = 1", "providers", "1", "a table"),
            ("pools.x = []", "pools.x", "an empty list", "at least one model"),
            ("pools.x = {}", "pools.x", "a table", "a list of: text"),
            (LAB + 'enabled = "yes"', "providers.lab.enabled", '"yes"', "true or false"),
            (LAB + "api_key = 5", "providers.lab.api_key", "***", "text"),
            ("[gateway.auth]\ntoken = 123456", "gateway.auth.token", "***", "text"),
            ('[gateway.auth]\ntoken = "a\\nb"', "gateway.auth.token", "***", "text, without control characters"),
            ('providers.lab = "sk-secret"', "providers.lab", "***", "a table"),
            ('providers = "sk-secret"', "providers", "***", "a table"),
            ('gateway = "secret"', "gateway", "***", "a table"),
            ('gateway.auth = "secret"', "gateway.auth", "***", "a table"),
            ("gateway.auth = 123456", "gateway.auth", "***", "a table"),
        ],
    )
    def test_bad_values(self, home: Path, text: str, key: str, seen: str, allowed: str) -> None:
        found = problem(home, text)
        assert (found.kind, found.key, found.seen, found.allowed) == (ProblemKind.BAD_VALUE, key, seen, allowed)
        assert f"{seen} is not allowed; allowed: {allowed}" in str(found)

    @pytest.mark.parametrize(
        ("text", "key", "hint"),
        [
            ("gatway = {}", "gatway", " (did you mean gateway?)"),
            ("[gateway]\nlimit = {}", "gateway.limit", " (did you mean limits?)"),
            ("zzz = 1", "zzz", ""),
            ("home = 'x'", "home", ""),
            ("warnings = []", "warnings", ""),
            (LAB.replace("{ id", "{ idd = 1, id"), "providers.lab.models[0].idd", " (did you mean id?)"),
            ('"a\\"b" = 1', '"a\\"b"', ""),
        ],
    )
    def test_unknown_keys(self, home: Path, text: str, key: str, hint: str) -> None:
        found = problem(home, text)
        assert (found.kind, found.key, found.message) == (ProblemKind.UNKNOWN_KEY, key, f"unknown key{hint}")

    def test_an_unknown_key_does_not_show_its_value(self, home: Path) -> None:
        found = problem(home, LAB + 'api_kye = "sk-secret"')
        assert "sk-secret" not in str(found)

    @pytest.mark.parametrize("mode", ["trusted-proxy", "tailscale"])
    def test_modes_that_are_not_there_yet(self, home: Path, mode: str) -> None:
        found = problem(home, f'[gateway.auth]\nmode = "{mode}"')
        assert found.message == f'"{mode}" is not available in this version'
        assert found.allowed == '"token", "password", "none"'

    def test_an_api_that_nobody_speaks(self, home: Path) -> None:
        found = problem(home, LAB + 'api = "telepathy"')
        assert (found.key, found.seen) == ("providers.lab.api", '"telepathy"')
        assert found.allowed == ", ".join(f'"{api}"' for api in APIS)

    @pytest.mark.parametrize(
        ("text", "line"),
        [
            ("[gateway]\nport = ", 2),
            ("[gateway\n", 1),
            ("a = 1\na = 2", 2),
            ("x = '''", 1),
            ("[a]\n[a]", 2),
            ("a = [" * 10_000, 1),
            ("a = " + "1" * 5000, 1),
        ],
    )
    def test_bad_toml(self, home: Path, text: str, line: int) -> None:
        found = problem(home, text)
        assert (found.kind, found.where) == (ProblemKind.BAD_TOML, f"{home / 'skynet.toml'}:{line}")

    def test_a_file_that_is_not_utf8(self, home: Path) -> None:
        home.mkdir()
        (home / "skynet.toml").write_bytes(b"[agent]\nname = '\xff'")
        with pytest.raises(ConfigError) as caught:
            load_config(None, env={"SKYNET_HOME": str(home)})
        (found,) = caught.value.problems
        assert (found.kind, found.where) == (ProblemKind.BAD_TOML, f"{home / 'skynet.toml'}:2")

    def test_flags_are_checked_too(self, home: Path) -> None:
        found = problem(home, gateway_port=70000)
        assert (found.where, found.key) == ("command line", "gateway.port")

    def test_a_required_key(self, home: Path) -> None:
        found = problem(home, LAB.replace('id = "m-1"', "reasoning = true"))
        assert (found.kind, found.key) == (ProblemKind.MISSING_VALUE, "providers.lab.models[0].id")

    def test_no_secret_is_in_any_message(self, home: Path) -> None:
        text = LAB + 'api_key = ["sk-hush"]\n[gateway.auth]\ntoken = ["sk-hush"]\npassword = { a = "sk-hush" }'
        assert not any("sk-hush" in str(one) + one.seen for one in problems(home, text))


class TestProviders:
    def test_the_vendors_variable_is_enough(self, home: Path) -> None:
        config = load(home, env={"OPENAI_API_KEY": "sk-1"})
        provider = config.providers["openai"]
        assert (provider.api, provider.base_url) == ("openai-responses", "https://api.openai.com/v1")
        assert provider.api_key.reveal() == "sk-1"
        assert config.default_model == "openai/gpt-6.1-sol"

    def test_a_registry_name_needs_only_a_key(self, home: Path) -> None:
        config = load(home, '[providers.openai]\napi_key = "sk-2"\npriority = 4', {"OPENAI_API_KEY": "sk-1"})
        provider = config.providers["openai"]
        assert provider.base_url == "https://api.openai.com/v1"
        assert (provider.api_key.reveal(), provider.priority) == ("sk-2", 4)
        assert provider.models[0].id == "gpt-6.1-sol"

    def test_a_registry_name_without_a_key_is_off(self, home: Path) -> None:
        """SK-074."""
        config = load(home, "[providers.openai]\npriority = 4")
        assert not config.providers["openai"].enabled
        assert config.warnings == (
            f"{home / 'skynet.toml'}:1: provider openai is off: the environment variable OPENAI_API_KEY is not set",
        )

    def test_the_vendors_key_goes_nowhere_else(self, home: Path) -> None:
        text = '[providers.openai]\nbase_url = "http://127.0.0.1:9/v1"'
        config = load(home, text, {"OPENAI_API_KEY": "sk-1"})
        assert not config.providers["openai"].api_key
        same = load(home, '[providers.openai]\nbase_url = "https://api.openai.com/v1"', {"OPENAI_API_KEY": "sk-1"})
        assert same.providers["openai"].api_key.reveal() == "sk-1"

    def test_one_that_is_switched_off_stays_off(self, home: Path) -> None:
        config = load(home, "[providers.openai]\nenabled = false", {"OPENAI_API_KEY": "sk-1"})
        assert config.enabled_providers == {}
        assert config.warnings == ()

    def test_without_models_there_is_no_default(self, home: Path) -> None:
        config = load(home, LAB.replace("models", "# models"))
        assert config.default_model == ""
        assert "requests have to name one" in config.warnings[0]

    def test_without_a_provider_in_use_nothing_but_offline_answers(self, home: Path) -> None:
        config = load(home, LAB + 'enabled = false\n[agent]\nmodel = "lab/m-1"')
        assert config.default_model == ""

    def test_one_that_is_refused_is_not_replaced(self, home: Path) -> None:
        assert problem(home, "providers.openai = 1", {"OPENAI_API_KEY": "sk-1"}).key == "providers.openai"

    def test_order_is_by_priority_then_as_written(self, home: Path) -> None:
        text = "".join(
            LAB.replace("lab", name).replace("m-1", "m") + f"priority = {priority}\n"
            for name, priority in (("a", 0), ("b", 5), ("c", 0), ("d", 5))
        )
        config = load(home, text)
        assert list(config.enabled_providers) == ["b", "d", "a", "c"]
        assert config.default_model == "b/m"

    @pytest.mark.parametrize(
        "url",
        [
            "x",
            "http://",
            "https://u:p@h/v1",
            "http://h/v1?x=1",
            "http://h/#f",
            "http://h:99999/",
            "http://[::1",
            "ws://h",
            "http://a b/",
        ],
    )
    def test_base_urls_that_are_none(self, home: Path, url: str) -> None:
        found = problem(home, f'[providers.lab]\nbase_url = "{url}"')
        assert found.key == "providers.lab.base_url"
        assert "p@h" not in str(found)

    def test_a_base_url_is_required(self, home: Path) -> None:
        found = problem(home, "[providers.lab]")
        assert (found.kind, found.key) == (ProblemKind.MISSING_VALUE, "providers.lab.base_url")
        assert found.where == f"{home / 'skynet.toml'}:1"

    def test_names(self, home: Path) -> None:
        assert problem(home, "[providers.offline]").message == "is built in and cannot be configured"
        assert problem(home, LAB.replace("lab", '"My Lab"')).key == 'providers."My Lab"'

    def test_a_model_is_listed_once(self, home: Path) -> None:
        text = LAB.replace('[{ id = "m-1" }]', '[{ id = "m-1" }, { id = "m-1" }]')
        assert problem(home, text).key == "providers.lab.models[1].id"


@pytest.mark.parametrize("known", REGISTRY, ids=lambda known: known.name)
class TestRegistry:
    """What enables each provider that is known by name, and what does not."""

    ADDRESSES: ClassVar = {"AZURE_OPENAI_ENDPOINT": "https://house.openai.azure.com/"}

    def test_each_of_its_variables_alone(self, home: Path, known: KnownProvider) -> None:
        """SK-066."""
        for variable in (*known.keys, *known.projects):
            config = load(home, env={variable: "v-1", **self.ADDRESSES})
            provider = config.enabled_providers[known.name]
            assert list(config.enabled_providers) == [known.name]
            assert (provider.api, provider.priority) == (known.row.api, known.row.priority)
            assert (provider.api_key.reveal(), provider.project) == (
                ("v-1", "") if variable in known.keys else ("", "v-1")
            )
            assert config.default_model == f"{known.name}/{known.models[0]}"
            assert config.warnings == ()

    def test_the_address_of_its_server(self, home: Path, known: KnownProvider) -> None:
        for variable in known.urls:
            config = load(home, env={variable: "http://gpu:9000/v1"})
            assert config.enabled_providers[known.name].base_url == "http://gpu:9000/v1"

    def test_what_others_use_too_is_not_enough(self, home: Path, known: KnownProvider) -> None:
        for variable in (*known.shared_keys, *known.shared_projects, *known.regions):
            assert known.name not in load(home, env={variable: "v-1"}).providers

    def test_but_fills_in_a_section(self, home: Path, known: KnownProvider) -> None:
        for variable in (*known.shared_keys, *known.shared_projects, *known.regions):
            provider = load(home, f"[providers.{known.name}]", {variable: "v-1"}).providers[known.name]
            assert provider.enabled
            assert "v-1" in (provider.api_key.reveal(), provider.project, provider.region)

    def test_a_section_without_anything(self, home: Path, known: KnownProvider) -> None:
        config = load(home, f"[providers.{known.name}]")
        usable = not known.needs_key
        assert config.providers[known.name].enabled is usable
        assert bool(config.warnings) is not usable or not known.models

    def test_its_row(self, home: Path, known: KnownProvider) -> None:
        text = f'[providers.{known.name}]\napi_key = "k"'
        (row,) = provider_rows(load(home, text, self.ADDRESSES))
        assert row.base_url == known.row.base_url.replace("{AZURE_OPENAI_ENDPOINT}", "https://house.openai.azure.com")
        assert [model.id for model in row.models] == list(known.models)
        same = ("name", "api", "auth", "title", "local", "catalogue", "list_prices", "unlisted_models", "priority")
        quirks = ("max_tokens_field", "supports_stream_options", "thinking_field", "thinking_levels", "read_timeout_s")
        for name in (*same, *quirks, "tool_call_ids", "wants_thinking_back", "supports_prompt_cache_key"):
            assert getattr(row, name) == getattr(known.row, name), name


class TestKnownProviders:
    """What only some of them have."""

    def test_several_keys_make_a_sensible_default(self, home: Path) -> None:
        env = {"GROQ_API_KEY": "1", "MISTRAL_API_KEY": "2", "ANTHROPIC_API_KEY": "3", "OPENAI_API_KEY": "4"}
        config = load(home, env=env)
        assert list(config.enabled_providers) == ["anthropic", "openai", "mistral", "groq"]
        assert config.default_model == "anthropic/claude-sonnet-5-5"

    def test_what_somebody_set_up_himself_comes_first(self, home: Path) -> None:
        config = load(home, LAB, {"ANTHROPIC_API_KEY": "1"})
        assert config.default_model == "lab/m-1"

    def test_a_section_does_not_change_the_order(self, home: Path) -> None:
        text = "[providers.groq]\nrequests_per_minute = 30"
        config = load(home, text, {"GROQ_API_KEY": "1", "ANTHROPIC_API_KEY": "2"})
        assert list(config.enabled_providers) == ["anthropic", "groq"]

    def test_the_first_key_that_is_set_counts(self, home: Path) -> None:
        env = {"GEMINI_API_KEY": "1", "GOOGLE_API_KEY": "2"}
        assert load(home, env=env).providers["gemini"].api_key.reveal() == "1"
        assert load(home, env={**env, "GEMINI_API_KEY": ""}).providers["gemini"].api_key.reveal() == "2"

    @pytest.mark.parametrize("text", ["", "[providers.azure]"])
    @pytest.mark.parametrize(("endpoint", "lacks"), [("", "is not set"), ("house", "is not an address")])
    def test_an_address_that_is_missing_switches_it_off(self, home: Path, text: str, endpoint: str, lacks: str) -> None:
        config = load(home, text, {"AZURE_OPENAI_API_KEY": "k", "AZURE_OPENAI_ENDPOINT": endpoint})
        assert "azure" not in config.enabled_providers
        (warning,) = config.warnings
        assert warning.endswith(f"provider azure is off: the environment variable AZURE_OPENAI_ENDPOINT {lacks}")

    def test_azure_may_be_anywhere(self, home: Path) -> None:
        text = '[providers.azure]\nbase_url = "https://house.openai.azure.com/openai/v1"'
        provider = load(home, text, {"AZURE_OPENAI_API_KEY": "k"}).enabled_providers["azure"]
        assert provider.api_key.reveal() == "k"

    @pytest.mark.parametrize(
        ("host", "address"),
        [
            ("gpu", "http://gpu:11434"),
            ("gpu:11435", "http://gpu:11435"),
            (":11435", "http://127.0.0.1:11435"),
            ("0.0.0.0", "http://127.0.0.1:11434"),
            ("0.0.0.0:8000", "http://127.0.0.1:8000"),
            ("[::]:8000", "http://127.0.0.1:8000"),
            ("[::1]:8000", "http://[::1]:8000"),
            ("http://gpu", "http://gpu"),
            ("https://gpu:443/ollama/", "https://gpu:443/ollama"),
        ],
    )
    def test_ollamas_own_variable(self, home: Path, host: str, address: str) -> None:
        config = load(home, env={"OLLAMA_HOST": host})
        assert config.providers["ollama"].base_url == address
        assert config.warnings == ("agent.model is empty and no provider lists a model: requests have to name one",)
        assert load(home, "[providers.ollama]", {"OLLAMA_HOST": host}).providers["ollama"].base_url == address

    @pytest.mark.parametrize(
        "host", ["a b", "http://", "ftp://gpu", "gpu:99999", "http://u:p@gpu", "::1", "http://[::1"]
    )
    def test_an_address_that_is_none_is_not_meant_for_us(self, home: Path, host: str) -> None:
        assert load(home, env={"OLLAMA_HOST": host}).providers == {}
        assert load(home, "[providers.ollama]", {"OLLAMA_HOST": host}).providers["ollama"].base_url == (
            "http://127.0.0.1:11434"
        )

    @given(st.text(max_size=40), st.text(max_size=40))
    @patient
    def test_any_text_is_an_address_or_none(self, host: str, endpoint: str) -> None:
        env = {"SKYNET_HOME": "/nowhere", "OLLAMA_HOST": host, "AZURE_OPENAI_ENDPOINT": endpoint}
        config = load_config(None, env={**env, "AZURE_OPENAI_API_KEY": "k"})
        for provider in config.providers.values():
            assert provider.base_url.startswith(("http://", "https://"))

    def test_servers_of_ones_own_have_the_usual_path(self, home: Path) -> None:
        config = load(home, env={"HOSTED_VLLM_API_BASE": "http://gpu:8000"})
        assert config.providers["vllm"].base_url == "http://gpu:8000/v1"

    def test_ones_own_key_goes_to_ones_own_server(self, home: Path) -> None:
        text = '[providers.vllm]\nbase_url = "http://gpu:8000/v1"'
        assert load(home, text, {"VLLM_API_KEY": "k"}).providers["vllm"].api_key.reveal() == "k"

    @pytest.mark.parametrize("name", ["copilot", "qwen"])
    def test_a_login_is_enough(self, home: Path, name: str) -> None:
        (home / "credentials").mkdir(parents=True)
        (home / "credentials" / f"{name}.json").write_text("{}")
        (home / "credentials" / "openai.json").write_text("{}")
        config = load(home)
        assert list(config.enabled_providers) == [name]
        assert config.default_model.startswith(f"{name}/")

    def test_bedrock_needs_no_key(self, home: Path) -> None:
        text = '[providers.bedrock]\nprofile = "house"\nregion = "eu-central-1"'
        (row,) = provider_rows(load(home, text, {"AWS_REGION": "us-east-1"}))
        assert (row.auth, row.profile, row.region, row.base_url) == ("aws", "house", "eu-central-1", "")

    def test_a_profile_is_not_overruled_by_a_key(self, home: Path) -> None:
        env = {"AWS_BEARER_TOKEN_BEDROCK": "k"}
        (row,) = provider_rows(load(home, '[providers.bedrock]\nprofile = "house"', env))
        assert not row.api_key
        (row,) = provider_rows(load(home, "[providers.bedrock]", env))
        assert row.api_key.reveal() == "k"

    def test_vertex_takes_a_service_account(self, home: Path) -> None:
        text = '[providers.vertex]\nproject = "p"\ncredentials_file = "google.json"'
        (row,) = provider_rows(load(home, text))
        assert (row.auth, row.project, row.credentials_file) == ("google", "p", str(home / "google.json"))


class TestOverrides:
    """What a section says is over what is known."""

    def test_every_key_reaches_the_row(self, home: Path) -> None:
        text = """
[providers.lab]
api = "openai-responses"
base_url = "http://127.0.0.1:8000/v1"
unlisted_models = true
headers = { "X-Team" = "house", "cf-access" = "${CF}" }
connect_timeout_s = 1.5
read_timeout_s = 30
requests_per_minute = 60
max_tokens_field = "max_completion_tokens"
supports_stream_options = false
supports_prompt_cache_key = true
thinking_field = "enable_thinking"
thinking_levels = ["off", "high"]
tool_call_ids = "nine"
wants_thinking_back = true
models = [{ id = "m-1" }]
"""
        (row,) = provider_rows(load(home, text, {"CF": "s-1"}))
        assert row.headers == {"X-Team": "house", "cf-access": "s-1"}
        assert (row.api, row.auth, row.unlisted_models) == ("openai-responses", "bearer", True)
        assert (row.connect_timeout_s, row.read_timeout_s, row.requests_per_minute) == (1.5, 30.0, 60)
        assert (row.max_tokens_field, row.supports_stream_options) == ("max_completion_tokens", False)
        assert (row.supports_prompt_cache_key, row.thinking_field) == (True, "enable_thinking")
        assert (row.thinking_levels, row.tool_call_ids) == (("off", "high"), "nine")
        assert row.wants_thinking_back

    @pytest.mark.parametrize(
        ("api", "auth"),
        [
            ("openai-completions", "bearer"),
            ("openai-responses", "bearer"),
            ("ollama", "bearer"),
            ("anthropic-messages", "anthropic"),
            ("bedrock", "aws"),
            ("vertex", "google"),
        ],
    )
    def test_an_api_brings_its_way_to_prove_who_asks(self, home: Path, api: str, auth: str) -> None:
        (row,) = provider_rows(load(home, LAB + f'api = "{api}"'))
        assert (row.api, row.auth, row.local) == (api, auth, False)

    @pytest.mark.parametrize("api", ["bedrock", "vertex"])
    def test_some_apis_need_no_address(self, home: Path, api: str) -> None:
        (row,) = provider_rows(load(home, f'[providers.lab]\napi = "{api}"\nmodels = [{{ id = "m" }}]'))
        assert row.base_url == ""

    def test_a_vendor_elsewhere_keeps_its_ways_but_not_its_prices(self, home: Path) -> None:
        text = '[providers.moonshot]\nbase_url = "https://api.moonshot.cn/v1"\napi_key = "k"'
        (row,) = provider_rows(load(home, text))
        assert (row.thinking_field, row.wants_thinking_back, row.list_prices) == ("thinking", True, False)
        assert row.models[0].price is None
        assert row.models[0].context_window == 1_048_576

    def test_another_api_of_a_vendor_has_ways_of_its_own(self, home: Path) -> None:
        text = '[providers.minimax]\napi = "openai-completions"\nbase_url = "https://api.minimax.io/v1"\napi_key = "k"'
        (row,) = provider_rows(load(home, text))
        assert (row.auth, row.title, row.unlisted_models) == ("bearer", "MiniMax", True)
        (row,) = provider_rows(load(home, '[providers.copilot]\napi = "openai-responses"'))
        assert (row.auth, row.api) == ("copilot", "openai-responses")

    def test_a_model_that_is_only_named_is_as_the_catalogue_says(self, home: Path) -> None:
        text = '[providers.anthropic]\napi_key = "k"\nmodels = [{ id = "claude-haiku-5-5" }, { id = "claude-99" }]'
        (row,) = provider_rows(load(home, text))
        known, unknown = row.models
        assert known == info("anthropic", "claude-haiku-5-5")
        assert unknown == ModelInfo(id="claude-99")

    def test_what_is_said_of_a_model_is_put_over_it_field_by_field(self, home: Path) -> None:
        text = """
[providers.anthropic]
api_key = "k"
models = [{ id = "claude-haiku-5-5", name = "Quick", max_output_tokens = 4096, input = ["text"] }]
"""
        (row,) = provider_rows(load(home, text))
        (model,) = row.models
        known = info("anthropic", "claude-haiku-5-5")
        assert known is not None
        assert model == replace(known, name="Quick", max_output_tokens=4096, output_limit=4096, input=("text",))

    def test_a_model_that_nothing_is_known_of(self, home: Path) -> None:
        text = """
[providers.lab]
base_url = "http://127.0.0.1:8000/v1"
[[providers.lab.models]]
id = "m-1"
context_window = 32000
reasoning = true
thinking_form = "effort"
thinking_levels = ["off", "high"]
tools = false
input = ["text", "image"]
price = { input = 0.5, output = 1.5, cache_read = 0.05 }
[[providers.lab.models]]
id = "gpt-6-luna"
"""
        (row,) = provider_rows(load(home, text))
        said, bare = row.models
        assert said == ModelInfo(
            id="m-1",
            context_window=32_000,
            reasoning=True,
            thinking_form="effort",
            thinking_levels=("off", "high"),
            tools=False,
            input=("text", "image"),
            price=Price(input=500_000, output=1_500_000, cache_read=50_000),
        )
        assert bare == ModelInfo(id="gpt-6-luna"), "nobody knows what an endpoint of one's own calls so"

    def test_a_server_of_ones_own_costs_nothing(self, home: Path) -> None:
        (row,) = provider_rows(load(home, '[providers.ollama]\nmodels = [{ id = "llama3.2" }]'))
        assert row.models == (ModelInfo(id="llama3.2", price=Price(input=0, output=0)),)

    @pytest.mark.parametrize(
        ("text", "key", "seen", "allowed"),
        [
            ("read_timeout_s = 0", "read_timeout_s", "0", "a number above 0 to 86400"),
            ("requests_per_minute = 0", "requests_per_minute", "0", "a whole number from 1 to 1000000"),
            (
                'thinking_levels = ["hard"]',
                "thinking_levels[0]",
                '"hard"',
                '"off", "minimal", "low", "medium", "high", "xhigh"',
            ),
            ('max_tokens_field = "max"', "max_tokens_field", '"max"', '"max_tokens", "max_completion_tokens"'),
            ('tool_call_ids = "ten"', "tool_call_ids", '"ten"', '"any", "nine"'),
            ("unlisted_models = 1", "unlisted_models", "1", "true or false"),
            ('headers = "hush"', "headers", "***", "a table"),
            ("headers = { X-A = 5 }", "headers.X-A", "***", "text"),
            ('headers = { "X A" = "v" }', "headers", '"X A"', "names of letters, digits and -"),
            ('headers = { "X-A" = " hush" }', "headers.X-A", "***", "printable ASCII without spaces around it"),
            ('headers = { "X-A" = "hush\u00e9" }', "headers.X-A", "***", "printable ASCII without spaces around it"),
        ],
    )
    def test_bad_values(self, home: Path, text: str, key: str, seen: str, allowed: str) -> None:
        found = problem(home, LAB + text)
        assert (found.key, found.seen, found.allowed) == (f"providers.lab.{key}", seen, allowed)
        assert "hush" not in str(found)

    def test_by_environment(self, home: Path) -> None:
        env = {
            "SKYNET_PROVIDERS__LAB__HEADERS": '{"X-Team": "house"}',
            "SKYNET_PROVIDERS__LAB__READ_TIMEOUT_S": "30",
            "SKYNET_PROVIDERS__LAB__UNLISTED_MODELS": "true",
            "SKYNET_PROVIDERS__LAB__THINKING_LEVELS": '["off", "low"]',
            "SKYNET_PROVIDERS__LAB__CREDENTIALS_FILE": "/etc/google.json",
            "SKYNET_PROVIDERS__OPENAI__REGION": "eu",
            "OPENAI_API_KEY": "k",
        }
        lab, openai = provider_rows(load(home, LAB, env))
        assert (lab.headers, lab.read_timeout_s, lab.unlisted_models) == ({"X-Team": "house"}, 30.0, True)
        assert (lab.thinking_levels, lab.credentials_file) == (("off", "low"), "/etc/google.json")
        assert (openai.region, openai.api_key.reveal()) == ("eu", "k")

    def test_headers_are_never_shown(self, home: Path) -> None:
        config = load(home, LAB + 'headers = { "X-Key" = "sk-hush" }')
        assert config_to_public(config)["providers"]["lab"]["headers"] == {"X-Key": "***"}


class TestRouterAndAgent:
    def test_defaults(self, home: Path) -> None:
        config = load(home)
        assert config.router == RouterConfig(retries=2, breaker_failures=5, breaker_cooldown_s=30.0, cheapest=False)
        agent = config.agent
        assert (agent.max_rounds, agent.max_output_tokens, agent.restrict_to_workspace) == (25, None, True)
        assert (agent.soul_path, config.workspace_is_set) == (Path(), False)

    def test_set(self, home: Path) -> None:
        text = '[agent]\nsoul_path = "soul.md"\nworkspace_dir = "w"\nmax_rounds = 100\n[router]\nretries = 0'
        config = load(home, text, {"SKYNET_ROUTER_CHEAPEST": "true", "SKYNET_ROUTER_BREAKER_COOLDOWN_S": "0.5"})
        assert (config.agent.soul_path, config.agent.max_rounds) == (home / "soul.md", 100)
        assert (config.agent.workspace_dir, config.workspace_is_set) == (home / "w", True)
        assert (config.router.retries, config.router.cheapest, config.router.breaker_cooldown_s) == (0, True, 0.5)

    @pytest.mark.parametrize(
        ("text", "key", "allowed"),
        [
            ("[router]\nretries = 11", "router.retries", "a whole number from 0 to 10"),
            ("[router]\nbreaker_failures = 0", "router.breaker_failures", "a whole number from 1 to 1000"),
            ("[router]\nbreaker_cooldown_s = 0", "router.breaker_cooldown_s", "a number above 0 to 86400"),
            ("[router]\ncheapest = 1", "router.cheapest", "true or false"),
            ("[agent]\nmax_rounds = 101", "agent.max_rounds", "a whole number from 1 to 100"),
            ("[agent]\nmax_output_tokens = 0", "agent.max_output_tokens", "a whole number from 1 to 100000000"),
            ('[agent]\nrestrict_to_workspace = "no"', "agent.restrict_to_workspace", "true or false"),
        ],
    )
    def test_bad_values(self, home: Path, text: str, key: str, allowed: str) -> None:
        found = problem(home, text)
        assert (found.key, found.allowed) == (key, allowed)


class TestReferences:
    def test_what_may_be_named(self, home: Path) -> None:
        text = LAB + '[models.aliases]\na = "lab/m-1"\nb = "a"\n[pools]\np = ["b", "offline/any", "openai/gpt-9"]\n'
        for model in ("lab/m-1", "a", "b", "p", "offline/any", "openai/x"):
            assert load(home, text + f'[agent]\nmodel = "{model}"').default_model == model

    def test_a_model_that_anybody_may_offer(self, home: Path) -> None:
        """BA-073: its id alone, of a provider here or of the registry; then the cheapest offer can be asked."""
        text = LAB.replace("m-1", "org/m-1") + '[pools]\np = ["org/m-1"]\n'
        text += '[models.aliases]\na = "org/m-1"\nb = "gpt-6.1-sol"\n'
        for model in ("org/m-1", "a", "b", "p"):
            assert load(home, text + f'[agent]\nmodel = "{model}"').default_model == model
        assert problem(home, text.replace('a = "org/m-1"', 'a = "org/m-2"')).key == "models.aliases.a"

    @pytest.mark.parametrize(
        ("text", "key", "message"),
        [
            ('[agent]\nmodel = "smart"', "agent.model", '"smart": no alias and no model has this name'),
            (
                '[agent]\nmodel = "laab/m-1"',
                "agent.model",
                '"laab/m-1": there is no provider "laab" (did you mean lab?)',
            ),
            (
                '[agent]\nmodel = "lab/m-2"',
                "agent.model",
                '"lab/m-2": provider "lab" has no model "m-2" (did you mean m-1?)',
            ),
            ('[agent]\nmodel = "lab/"', "agent.model", '"lab/": provider "lab" has no model ""'),
            ('[pools]\np = ["q"]\nq = ["lab/m-1"]', "pools.p[0]", '"q": a pool cannot be named here'),
            ('[models.aliases]\na = "x"', "models.aliases.a", '"x": no alias and no model has this name'),
        ],
    )
    def test_what_is_not_there(self, home: Path, text: str, key: str, message: str) -> None:
        found = problem(home, LAB + text)
        assert (found.kind, found.key, found.message) == (ProblemKind.UNKNOWN_REFERENCE, key, message)

    def test_aliases_that_lead_back(self, home: Path) -> None:
        found = problems(home, '[models.aliases]\na = "b"\nb = "c"\nc = "b"\nd = "d"')
        assert [one.key for one in found] == [f"models.aliases.{name}" for name in "abcd"]

    def test_a_name_means_one_thing(self, home: Path) -> None:
        text = LAB + '[models.aliases]\na = "lab/m-1"\n[pools]\na = ["lab/m-1"]'
        assert problem(home, text).message == "is the name of a pool too"
        assert problem(home, LAB + '[models.aliases]\n"a/b" = "lab/m-1"').key == 'models.aliases."a/b"'

    def test_a_provider_that_could_not_be_read_still_exists(self, home: Path) -> None:
        assert problem(home, 'providers.lab = 1\nagent.model = "lab/m-1"').key == "providers.lab"


class TestExposure:
    """SK-012: what others can reach asks for a secret of its own."""

    @pytest.mark.parametrize(
        ("text", "kind", "key"),
        [
            ("", ProblemKind.UNSAFE_NO_TOKEN, "gateway.auth.token"),
            ('[gateway.auth]\ntoken = "change-me"', ProblemKind.UNSAFE_PLACEHOLDER, "gateway.auth.token"),
            (
                '[gateway.auth]\nmode = "password"\npassword = "change-me"',
                ProblemKind.UNSAFE_PLACEHOLDER,
                "gateway.auth.password",
            ),
            ('[gateway.auth]\nmode = "none"', ProblemKind.UNSAFE_NO_AUTH, "gateway.auth.mode"),
        ],
    )
    @pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org", "127.0.0.1.example.org"])
    def test_refused_with_a_named_reason(self, home: Path, host: str, text: str, kind: ProblemKind, key: str) -> None:
        found = problem(home, text, {"SKYNET_GATEWAY_HOST": host})
        assert (found.kind, found.key) == (kind, key)
        assert f"refused ({kind.value}): others can reach {host}" in found.message

    def test_allowed_with_a_secret(self, home: Path) -> None:
        env = {"SKYNET_GATEWAY_HOST": "0.0.0.0"}
        assert load(home, env={**env, "SKYNET_GATEWAY_AUTH_TOKEN": "own"}).warnings == ()
        assert load(home, '[gateway.auth]\nmode = "password"\npassword = "own"', env).warnings == ()

    def test_the_token_that_an_earlier_start_made_counts(self, home: Path) -> None:
        ensure_gateway_token(load(home))
        assert load(home, env={"SKYNET_GATEWAY_HOST": "0.0.0.0"}).gateway.host == "0.0.0.0"

    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.8.8.8"])
    def test_loopback_only_warns(self, home: Path, host: str) -> None:
        env = {"SKYNET_GATEWAY_HOST": host}
        assert load(home, env=env).warnings == ()
        assert "placeholder" in load(home, '[gateway.auth]\ntoken = "change-me"', env).warnings[0]
        assert "everyone on this machine" in load(home, '[gateway.auth]\nmode = "none"', env).warnings[0]

    def test_mode_password_needs_one(self, home: Path) -> None:
        found = problem(home, '[gateway.auth]\nmode = "password"')
        assert (found.kind, found.key) == (ProblemKind.MISSING_VALUE, "gateway.auth.password")

    def test_a_bad_section_is_not_judged_further(self, home: Path) -> None:
        found = problem(home, "[gateway.auth]\ntoken = 5", {"SKYNET_GATEWAY_HOST": "0.0.0.0"})
        assert found.kind is ProblemKind.BAD_VALUE


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("[::1]", True),
        ("::ffff:127.0.0.1", True),
        ("localhost", True),
        ("LOCALHOST", True),
        ("10.0.0.1", False),
        ("", False),
        ("localhost.example", False),
        ("127.0.0.1.example", False),
    ],
)
def test_is_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


class TestGatewayToken:
    def test_made_once_and_kept_private(self, home: Path) -> None:
        config = load_config(None, env={"SKYNET_HOME": str(home)})
        first, is_new = ensure_gateway_token(config)
        token = first.gateway.auth.token.reveal()
        assert is_new
        assert len(token) >= 40
        assert stat.S_IMODE(home.stat().st_mode) == 0o700
        assert stat.S_IMODE((home / "gateway.token").stat().st_mode) == 0o600
        assert [file.name for file in home.iterdir()] == ["gateway.token"]
        again, is_new = ensure_gateway_token(config)
        assert not is_new
        assert again.gateway.auth.token.reveal() == token
        assert stored_gateway_token(home).reveal() == token

    @pytest.mark.parametrize(
        "text",
        [
            '[gateway.auth]\ntoken = "own"',
            '[gateway.auth]\nmode = "none"',
            '[gateway.auth]\nmode = "password"\npassword = "p"',
        ],
    )
    def test_not_made_where_it_is_not_needed(self, home: Path, text: str) -> None:
        config = load(home, text)
        assert ensure_gateway_token(config) == (config, False) or config.gateway.auth.token.reveal() == "own"
        assert not (home / "gateway.token").exists()

    def test_an_empty_file_is_no_token(self, home: Path) -> None:
        home.mkdir()
        (home / "gateway.token").touch()
        config, is_new = ensure_gateway_token(load(home))
        assert is_new
        assert stored_gateway_token(home).equals(config.gateway.auth.token.reveal())

    def test_two_starts_agree(self, home: Path) -> None:
        from concurrent.futures import ThreadPoolExecutor

        config = load_config(None, env={"SKYNET_HOME": str(home)})
        with ThreadPoolExecutor(8) as pool:
            results = list(pool.map(lambda _: ensure_gateway_token(config), range(16)))
        assert len({one.gateway.auth.token.reveal() for one, _ in results}) == 1
        assert sum(is_new for _, is_new in results) == 1
        assert [file.name for file in home.iterdir()] == ["gateway.token"]

    def test_a_home_that_cannot_be_made(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        config = msgspec.structs.replace(Config(), home=tmp_path / "file" / "home")
        with pytest.raises(NotADirectoryError):
            ensure_gateway_token(config)

    def test_a_home_inside_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(ConfigError, match="cannot be read: Not a directory"):
            load_config(None, env={"SKYNET_HOME": str(tmp_path / "file" / "home")})


class TestPublic:
    def test_secrets_are_replaced_and_the_rest_is_json(self, home: Path) -> None:
        text = LAB + 'api_key = "sk-hush"\n[gateway.auth]\ntoken = "sk-hush"'
        config = load(home, text)
        public = config_to_public(config, "__REDACTED__")
        assert "sk-hush" not in json.dumps(public)
        assert public["gateway"]["auth"] == {"mode": "token", "token": "__REDACTED__", "password": ""}
        assert public["providers"]["lab"]["api_key"] == "__REDACTED__"
        assert public["database"]["path"] == str(home / "skynet.db")
        assert "home" not in public
        assert "sk-hush" not in repr(config)

    def test_defaults_are_what_an_empty_file_means(self) -> None:
        public = config_to_public(Config())
        assert public["database"] == {"path": "", "synchronous": "NORMAL"}
        assert public["gateway"]["port"] == 18789


TOML_EXAMPLE = r'''
top = 1
"quo\"ted" = { a.b = 1, 'c d' = [1,
  2, { x = "]" } ] }
dotted.key."x.y" = """
[not.a.table]
a = '1' \"""" # [no]
[table] # comment with = and [
when = 1979-05-27 07:32:00
list = [ # comment ]
  "a # b", 'c',
  [3],
]
[[rows]]
id = 1
[rows.sub]
k = true
[[rows]]
id = 2
[rows.sub]
k = false
[ table . "in" ]
z = \'\'\'
[x]
\'\'\'
last=0'''.replace("\\'", "'")


class TestTomlLines:
    def test_every_key_has_its_line(self) -> None:
        lines = toml_lines(TOML_EXAMPLE)
        assert {path: lines[path] for path in lines if len(path) == 1} == {
            ("top",): 2,
            ('quo"ted',): 3,
            ("dotted",): 5,
            ("table",): 8,
            ("rows",): 14,
        }
        assert lines[('quo"ted', "c d", 2, "x")] == 4
        assert lines["dotted", "key", "x.y"] == 5
        assert lines["table", "list", 0] == 11
        assert lines["table", "list", 2, 0] == 12
        assert lines["rows", 1, "sub", "k"] == 21
        assert lines["table", "in", "last"] == 26
        assert ("x",) not in lines

    @patient
    @given(st.data())
    def test_every_path_of_any_document_is_found(self, data: st.DataObject) -> None:
        document = data.draw(_documents)
        text = "\n".join(data.draw(_rendered(document)))
        parsed = tomllib.loads(text)
        lines = toml_lines(text)
        assert set(lines) == set(_paths(parsed))
        assert all(1 <= line <= text.count("\n") + 1 for line in lines.values())

    @patient
    @given(st.text(alphabet="a.=[]{}\"'\\\n #,1", max_size=60))
    def test_whatever_tomllib_reads_is_located(self, text: str) -> None:
        try:
            parsed = tomllib.loads(text)
        except tomllib.TOMLDecodeError:
            return
        assert set(_paths(parsed)) == set(toml_lines(text))


_keys = st.text(alphabet=string.ascii_letters + ".\"# =[]{}'é", min_size=1, max_size=6)
_scalars = (
    st.integers(-9, 9)
    | st.booleans()
    | st.text(alphabet="ab\"'\\\n#[]{}=,é", max_size=12)
    | st.floats(allow_nan=False, allow_infinity=False)
)
_values = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=3), max_leaves=8
)
_documents = st.dictionaries(_keys, _values, max_size=5)


@st.composite
def _rendered(draw: st.DrawFn, document: dict[str, Any]) -> list[str]:
    """The document as TOML: values inline, tables with a header or inline, blank lines and comments between."""
    tables = {key: value for key, value in document.items() if isinstance(value, dict) and draw(st.booleans())}
    lines = [f"{_key(key)} = {_inline(value)}" for key, value in document.items() if key not in tables]
    for name, table in tables.items():
        lines += draw(st.sampled_from([[], [""], ["# [x] = 1"]]))
        lines.append(f"[ {_key(name)} ]")
        lines += [f"  {_key(key)}={_inline(value)}  # = [" for key, value in table.items()]
    return lines


def _key(key: str) -> str:
    return key if key.isascii() and key.isalpha() else json.dumps(key)


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(key)} = {_inline(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[\n" + ",  # ]\n".join(_inline(item) for item in value) + "\n]"
    if isinstance(value, str):
        return (
            f"'''\n{value}'''"
            if "'''" not in value and not value.endswith("'") and "\n" in value
            else json.dumps(value)
        )
    return json.dumps(value)


def _paths(node: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    if isinstance(node, dict):
        items: list[tuple[str | int, Any]] = list(node.items())
    elif isinstance(node, list):
        items = list(enumerate(node))
    else:
        items = []
    return [found for key, item in items for found in ((*path, key), *_paths(item, (*path, key)))]


_wild = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=10,
)


@patient
@given(st.dictionaries(st.sampled_from(["gateway.port", "gateway.auth", "providers.lab", "pools.x", "models"]), _wild))
def test_any_value_is_taken_or_refused_with_a_reason(overrides: dict[str, object]) -> None:
    """*Any values are a configuration or a list of problems.*"""
    try:
        config = load_config(None, env={"SKYNET_HOME": "/nonexistent/skynet"}, overrides=overrides)
    except ConfigError as exc:
        assert exc.problems
        assert all(str(found) for found in exc.problems)
    else:
        assert msgspec.json.encode(config_to_public(config))


@patient
@given(st.dictionaries(st.from_regex(r"SKYNET_[A-Z_]{0,30}", fullmatch=True), st.text(max_size=10), max_size=4))
def test_any_environment_is_taken_or_refused_with_a_reason(env: dict[str, str]) -> None:
    try:
        load_config(None, env={**env, "SKYNET_HOME": "/nonexistent/skynet"})
    except ConfigError as exc:
        assert exc.problems


def test_a_secret_stays_one() -> None:
    assert isinstance(Config().gateway.auth.token, Secret)
