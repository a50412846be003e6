"""``skynet audit`` against a real gateway."""

from __future__ import annotations

import contextlib
import json
import sqlite3

import pytest

from skynet.cli.errors import Exit
from tests.skynet.cli.conftest import RunningGateway, Skynet


@pytest.fixture
def edited(gateway: RunningGateway, skynet: Skynet) -> object:
    """The log with one row that somebody changed, until the test is over."""
    skynet("status")
    connection = sqlite3.connect(gateway.home / "skynet.db", timeout=30)
    with contextlib.closing(connection):
        (trigger,) = connection.execute("SELECT sql FROM sqlite_schema WHERE name = 'audit_no_update'").fetchone()
        (actor,) = connection.execute("SELECT actor FROM audit WHERE seq = 1").fetchone()
        connection.execute("DROP TRIGGER audit_no_update")
        connection.execute("UPDATE audit SET actor = 'ben' WHERE seq = 1")
        connection.commit()
        yield
        connection.execute("UPDATE audit SET actor = ? WHERE seq = 1", (actor,))
        connection.execute(trigger)
        connection.commit()


class TestList:
    def test_logins_are_in_it(self, skynet: Skynet) -> None:
        skynet("status")
        outcome = skynet("audit", "list", "--action", "login", "--actor", "owner")
        assert outcome.code == Exit.OK
        seq, _, action, who, *_ = outcome.out.splitlines()[0].split("\t")
        assert seq.isdigit() and action.startswith("login") and who == "Owner"

    def test_for_a_script_by_pages(self, skynet: Skynet) -> None:
        for _ in range(3):
            skynet("status")
        entries = json.loads(skynet("audit", "list", "--limit", "3", "--action", "login", "--json").out)["entries"]
        assert len(entries) == 3
        assert all(entry["action"].startswith("login") for entry in entries)
        assert [entry["seq"] for entry in entries] == sorted((entry["seq"] for entry in entries), reverse=True)

    def test_people_are_named_as_everywhere(self, skynet: Skynet) -> None:
        skynet("memory", "learn", "bike", "blue")
        skynet("memory", "forget", "bike")
        (line, *_) = skynet(
            "audit", "list", "--actor", "owner", "--subject", "Owner", "--action", "memory"
        ).out.splitlines()
        assert line.split("\t")[2:] == ["memory.erased", "Owner", "Owner", "method=memory.forget"]
        assert "nobody is called 'Zoe'" in skynet("audit", "list", "--actor", "Zoe").err
        removed = "01900000-0000-7000-8000-000000000000"
        assert skynet("audit", "list", "--actor", removed).code == Exit.OK

    def test_details_are_words(self, skynet: Skynet) -> None:
        skynet("users", "set", "owner", "--tone", "dry", "--language", "en")
        (line, *_) = skynet("audit", "list", "--action", "user.changed").out.splitlines()
        assert line.rpartition("\t")[2] in ("fields=language+tone", "fields=tone+language")


class TestVerify:
    def test_whole(self, skynet: Skynet) -> None:
        """SK-193."""
        skynet("status")
        outcome = skynet("audit", "verify")
        assert (outcome.code, outcome.out.splitlines()[0]) == (Exit.OK, "audit log\twhole")
        head = json.loads(skynet("audit", "verify", "--json").out)["head"]
        skynet("status")
        assert skynet("audit", "verify", "--head", head).code == Exit.OK

    def test_an_edited_row(self, skynet: Skynet, edited: object) -> None:
        """SK-193: and the exit code is one that a timer notices."""
        outcome = skynet("audit", "verify")
        assert outcome.code == Exit.FAILED
        assert "BROKEN: row 1 is not what was recorded, or not where it was" in outcome.out
        result = json.loads(skynet("audit", "verify", "--json").out)
        assert (result["ok"], result["firstBadSeq"], result["problem"]) == (False, 1, "changed")

    def test_another_log(self, skynet: Skynet) -> None:
        outcome = skynet("audit", "verify", "--head", f"1:{'0' * 64}")
        assert outcome.code == Exit.FAILED and "was written anew" in outcome.out
        # 1 would say that the log is broken
        assert skynet("audit", "verify", "--head", "nonsense").code == Exit.USAGE
