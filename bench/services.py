"""``python -m bench.services --account FILE``: the scripted model server with credentials that it checks.

It takes Bedrock's requests only if they are signed with the key of ``labs.py``, and gives tokens for Vertex AI to the
service account whose file it writes to FILE. It takes any token, as several clients have one at a time.
"""

import argparse
import asyncio
import signal
from pathlib import Path

import uvloop

from bench.labs import AWS_KEY_ID, AWS_SECRET, REGION
from tests.support.dialects.bedrock import AwsKey, Bedrock
from tests.support.model_server import ModelServer
from tests.support.service_account import service_account, written


def equip(server: ModelServer, account: Path) -> None:
    """Let the running ``server`` check credentials, and write the service account's file."""
    bedrock = server.dialect(Bedrock)
    bedrock.keys[AWS_KEY_ID] = AwsKey(AWS_SECRET)
    bedrock.region = REGION
    written(account, service_account(f"{server.origin}/token"))


async def serve(account: Path) -> None:
    """Serve until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with ModelServer(keep=16) as server:
        equip(server, account)
        print(f"listening on {server.origin}", flush=True)
        await stop.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="A scripted model server that checks credentials.")
    parser.add_argument("--account", type=Path, required=True, help="where to write the service account's file")
    uvloop.run(serve(parser.parse_args().account))


if __name__ == "__main__":
    main()
