"""Words and topics that cannot be used are told when the configuration is read, not when a child writes."""

from pathlib import Path

import pytest

from skynet.config import Config
from skynet.config.children_checks import check_children
from skynet.config.problems import Report
from skynet.config.schema import ChildrenConfig, FilterConfig


@pytest.fixture
def report(tmp_path: Path) -> Report:
    return Report(tmp_path / "skynet.toml", tmp_path)


def test_nothing_is_wrong_by_default(report: Report) -> None:
    check_children(Config(), report)
    assert report.problems == []


def test_a_file_of_words_that_cannot_be_used_is_named_with_line_and_key(report: Report, tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    config = Config(filter=FilterConfig(rules_file=file))
    check_children(config, report)
    file.write_text("[category.drugs.en]\nmoderate = 5\n")
    check_children(config, report)
    file.write_text("[category.drugs.en]\nmoderate = ['leaf']\n")
    check_children(config, report)
    assert [problem.key for problem in report.problems] == ["filter.rules_file"] * 2
    missing, wrong = (problem.message for problem in report.problems)
    assert f"{file}: No such file" in missing
    assert f"{file}:2: category.drugs.en.moderate: wanted a list" in wrong


def test_a_topic_that_nobody_defined_is_a_problem(report: Report, tmp_path: Path) -> None:
    children = ChildrenConfig(never_remember=("health", "helth", "pets"))
    check_children(Config(children=children), report)
    assert [problem.key for problem in report.problems] == ["children.never_remember[1]", "children.never_remember[2]"]
    assert "health" in report.problems[0].message
    file = tmp_path / "rules.toml"
    file.write_text("[topic.pets.en]\nwords = ['hamster*']\n")
    report.problems.clear()
    check_children(Config(children=children, filter=FilterConfig(rules_file=file)), report)
    assert [problem.key for problem in report.problems] == ["children.never_remember[1]"]
