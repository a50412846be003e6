"""``skynet gateway run`` as the command-line library sees it; see :mod:`skynet.cli` for the quick way."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from skynet.cli import RunOptions
from skynet.cli.gateway import run_gateway


def run(
    *,
    host: Annotated[str | None, Parameter(help="Address to listen on.")] = None,
    port: Annotated[
        int | None, Parameter(help="Port to listen on; 0 takes any free one.", validator=Number(gte=0, lte=65535))
    ] = None,
    config: Annotated[Path | None, Parameter(help="Configuration file.")] = None,
    verbose: Annotated[
        bool, Parameter(name=("--verbose", "-v"), help="Log at level debug.", negative=(), show_default=False)
    ] = False,
) -> int:
    """Run the gateway in the foreground until it is told to stop."""
    return run_gateway(run_options(host=host, port=port, config=config, verbose=verbose))


def run_options(*, host: str | None, port: int | None, config: Path | None, verbose: bool) -> RunOptions:
    """Only what was given."""
    options: RunOptions = {}
    if host is not None:
        options["host"] = host
    if port is not None:
        options["port"] = port
    if config is not None:
        options["config"] = str(config)
    if verbose:
        options["verbose"] = True
    return options
