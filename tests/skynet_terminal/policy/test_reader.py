import pytest

from skynet_terminal.policy.grammar import Unreadable
from skynet_terminal.policy.reader import read
from skynet_terminal.policy.walk import Walk

from .cases import DANGEROUS, ORDINARY


def words(line: str) -> list[list[str]]:
    walk = Walk()
    walk.line(line)
    return [command.texts for command in walk.commands if command.words and command.outer is None]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a b;c|d&&e", [["a", "b"], ["c"], ["d"], ["e"]]),
        ("a 'b  c' \"d $HOME\" e\\ f", [["a", "b  c", "d /files", "e f"]]),
        ("a # b\nc", [["a"], ["c"]]),
        ("a b#c", [["a", "b#c"]]),
        ("a {b,c}{1..2} '{d,e}' {f}", [["a", "b1", "b2", "c1", "c2", "{d,e}", "{f}"]]),
        ("x='a b'; c $x \"$x\" '$x'", [["c", "a", "b", "a b", "$x"]]),
        ("a $'\\x41\\102\\u0043\\n'", [["a", "ABC\n"]]),
        ("cat <<E; b\n$(c)\nE\nd", [["c"], ["cat"], ["b"], ["d"]]),
        ("cat <<'E'\n$(c)\nE", [["cat"]]),
        ("a $((1 + $(b))) $(c)", [["b"], ["c"], ["a", "\0", "\0"]]),
        ("((a)|b)", [["a"], ["b"]]),
        ("! time -p a", [["a"]]),
        ("if a; then b; elif c; then d; else e; fi", [["a"], ["b"], ["c"], ["d"], ["e"]]),
        ("case a in (b|c) d;; *) e; esac", [["d"], ["e"]]),
        ("[[ a =~ ^(b|c)$ && d < e ]]", []),
        ("a 2>&1 >b <c &>d", [["a"]]),
        ("{ a; } > b", [["a"]]),
        ("a ${b:-$(c)}", [["c"], ["a", "\0"]]),
        ("a `b \\`c\\``", [["c"], ["b", "\0"], ["a", "\0"]]),
        ('set -- x y; a "$@" $1', [["set", "--", "x", "y"], ["a", "x", "y", "x"]]),
        ("x=1; false && x=2; a $x", [["false"], ["a", "\0"]]),
        ("(x=1); a ${x:-u}", [["a", "u"]]),
    ],
)
def test_lines(line: str, expected: list[list[str]]) -> None:
    assert words(line) == expected


@pytest.mark.parametrize(
    "line",
    [
        "'",
        '"',
        "`",
        "$(",
        "${",
        "${}",
        "(",
        ")",
        "a;;",
        "if a",
        "for",
        "case a",
        "{ a",
        "}",
        "a | ",
        "a &&",
        ">",
        "x=(",
        "[[ a",
        "fi",
    ],
)
def test_what_is_not_read(line: str) -> None:
    with pytest.raises(Unreadable):
        read(line)


def test_a_second_reader_sees_no_other_commands() -> None:
    """tree-sitter-bash, where it reads a line without a fault."""
    tree_sitter = pytest.importorskip("tree_sitter")
    grammar = pytest.importorskip("tree_sitter_bash")
    language = tree_sitter.Language(grammar.language())
    lines = [*ORDINARY, *(line.partition(" | ")[2] for line in DANGEROUS.strip().splitlines())]
    compared = 0
    for line in lines:
        tree = tree_sitter.Parser(language).parse(line.encode("utf-8"))
        if tree.root_node.has_error:
            continue
        walk = Walk()
        walk.line(line)
        known = {text for command in walk.commands for text in command.texts}
        waiting = [tree.root_node]
        while waiting:
            node = waiting.pop()
            waiting += node.children
            name = node.text.decode("utf-8")
            if node.type == "command_name" and name.isalnum() and name not in ("coproc", "time", "select"):
                assert name in known, line
                compared += 1
    assert compared > 300
