"""What children are protected with can be used: the household's words, and the topics that are never remembered."""

from __future__ import annotations

from pathlib import Path

from skynet.config.problems import ProblemKind, Report, quoted, suggestion
from skynet.config.schema import ChildrenConfig, Config


def check_children(config: Config, report: Report) -> None:
    """Reads the rules (50 ms) only if something is configured."""
    own_file, topics = config.filter.rules_file, config.children.never_remember
    if own_file == Path() and topics == ChildrenConfig().never_remember:
        return
    from skynet_agent.filter_rules import FilterRulesError
    from skynet_agent.filters import ContentFilter

    try:
        known = ContentFilter.load(() if own_file == Path() else (own_file,)).topics
    except FilterRulesError as exc:
        allowed = "a file as docs/children.md describes it"
        report.add(ProblemKind.BAD_VALUE, f"cannot be used: {exc}", path=("filter", "rules_file"), allowed=allowed)
        return
    for index, topic in enumerate(topics):
        if topic not in known:
            near = suggestion(topic, sorted(known))
            report.bad_value(("children", "never_remember", index), quoted(topic) + near, ", ".join(sorted(known)))
