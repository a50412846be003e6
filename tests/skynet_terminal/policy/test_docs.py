from pathlib import Path

from skynet_terminal.policy.base import Level
from skynet_terminal.policy.table import BY_ID, RULES

from .cases import DANGEROUS

PAGE = Path(__file__).parents[3] / "docs" / "command-policy.md"


def rule_table() -> str:
    lines = ["| Rule | strict | standard | trusted | What it is about |", "|---|---|---|---|---|"]
    for rule in RULES:
        decisions = " | ".join(rule.decision(level) for level in Level)
        lines.append(f"| `{rule.id}`{' (never)' if rule.catastrophic else ''} | {decisions} | {rule.reason} |")
    return "\n".join(lines) + "\n"


def test_the_page_lists_every_rule() -> None:
    assert PAGE.read_text("utf-8").endswith("\n\n" + rule_table()), "write the table of docs/command-policy.md anew"


def test_ids_are_of_one_rule_each() -> None:
    assert len(BY_ID) == len(RULES)


def test_every_family_has_its_cases() -> None:
    families = {rule.id.partition(".")[0] for rule in RULES} - {"strict"}
    assert families <= {line.split()[2] for line in DANGEROUS.strip().splitlines()}


def test_no_level_is_harder_than_the_one_below_it() -> None:
    weight = {"allow": 0, "ask": 1, "deny": 2}
    for rule in RULES:
        strict, standard, trusted = (weight[rule.decision(level)] for level in Level)
        assert strict >= standard >= trusted, rule.id
        if rule.catastrophic:
            assert trusted == 2, rule.id
