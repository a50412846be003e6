"""Configuration: every setting, where its value comes from, and what is wrong with it.

Sources, weakest first: the defaults in :mod:`skynet.config.schema`, the TOML file, ``SKYNET_<SECTION>_<KEY>``
variables, command-line flags. Anything unknown or out of range stops the start, and all problems are reported at once.

The schema is msgspec structs read with tomllib rather than pydantic-settings: importing the latter alone takes 0.2 s,
and the whole way from ``exec`` to an answered ``/health`` may take 0.45 s.
"""

from skynet.config.load import find_config_file, find_home, load_config
from skynet.config.loopback import is_loopback
from skynet.config.problems import ConfigError, Problem, ProblemKind
from skynet.config.schema import (
    BUILT_IN_PROVIDER,
    CREDENTIALS_DIRECTORY,
    PLACEHOLDER_TOKEN,
    AgentConfig,
    AuthConfig,
    Config,
    DatabaseConfig,
    GatewayConfig,
    HooksConfig,
    LimitsConfig,
    LoggingConfig,
    ModelConfig,
    ModelsConfig,
    PriceConfig,
    ProviderConfig,
    RouterConfig,
    config_to_public,
)
from skynet.config.token import TOKEN_FILE_NAME, ensure_gateway_token, ensure_home, stored_gateway_token

__all__ = [
    "BUILT_IN_PROVIDER",
    "CREDENTIALS_DIRECTORY",
    "PLACEHOLDER_TOKEN",
    "TOKEN_FILE_NAME",
    "AgentConfig",
    "AuthConfig",
    "Config",
    "ConfigError",
    "DatabaseConfig",
    "GatewayConfig",
    "HooksConfig",
    "LimitsConfig",
    "LoggingConfig",
    "ModelConfig",
    "ModelsConfig",
    "PriceConfig",
    "Problem",
    "ProblemKind",
    "ProviderConfig",
    "RouterConfig",
    "config_to_public",
    "ensure_gateway_token",
    "ensure_home",
    "find_config_file",
    "find_home",
    "is_loopback",
    "load_config",
    "stored_gateway_token",
]
