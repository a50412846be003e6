"""The rules of the content filter, read from TOML: the family of words and phrases that each category has."""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Literal, TypeAlias

from skynet_agent.filter_words import STRETCHED, Word, squeezed, words_of

Strictness: TypeAlias = Literal["moderate", "strict"]
BUILT_IN = "filter_rules.toml"
GAP = "..."
GAP_WORDS = 3
"""How many words may stand where a phrase has ``...``."""
MAX_PHRASE_WORDS = 10
MAX_PHRASE_CHARS = 1000
MAX_FILE_BYTES = 1_048_576
LANGUAGE = re.compile(r"[a-z]{2,3}")
NAME = re.compile(r"[a-z][a-z_]{0,39}")
LISTS = ("moderate", "strict", "ambiguous", "exceptions", "remove")


class FilterRulesError(ValueError):
    """A file of rules that cannot be used. ``str()`` is ``file:line: key: what is wrong``; line 0 is the
    whole file."""

    def __init__(self, file: str, line: int, key: str, problem: str) -> None:
        super().__init__(": ".join(part for part in (f"{file}:{line}" if line else file, key, problem) if part))
        self.file = file
        self.line = line
        self.key = key


@dataclass(frozen=True, slots=True)
class Element:
    """One word of a phrase: any of these words, or any word that begins so."""

    exact: frozenset[str]
    prefixes: tuple[str, ...]

    def accepts(self, word: Word) -> bool:
        return any(form in self.exact or (self.prefixes and form.startswith(self.prefixes)) for form in word.forms)


@dataclass(frozen=True, slots=True)
class Phrase:
    """Words in this order; ``None`` stands for up to :data:`GAP_WORDS` of any."""

    elements: tuple[Element | None, ...]

    def end(self, words: Sequence[Word], at: int, element: int = 0) -> int | None:
        """The index after the last word, if the phrase stands in ``words`` from ``at``."""
        while element < len(self.elements):
            wanted = self.elements[element]
            if wanted is None:
                ends = (self.end(words, at + skipped, element + 1) for skipped in range(GAP_WORDS + 1))
                return next((end for end in ends if end is not None), None)
            if at >= len(words) or not wanted.accepts(words[at]):
                return None
            at, element = at + 1, element + 1
        return at


@dataclass(frozen=True, slots=True)
class Rule:
    category: str
    language: str
    kind: str
    """One of :data:`LISTS`, or ``words`` of a topic."""
    phrase: Phrase


@dataclass(slots=True)
class Category:
    """Its phrases by language and list, and what is said in its place by language."""

    replacement: dict[str, str] = field(default_factory=dict)
    phrases: dict[tuple[str, str], set[Phrase]] = field(default_factory=dict)

    def rules(self, name: str) -> Iterator[Rule]:
        for (language, kind), phrases in self.phrases.items():
            for phrase in phrases:
                yield Rule(name, language, kind, phrase)


@dataclass(slots=True)
class Rules:
    """What the files say together. The order of the categories is their weight: of two hits the first counts."""

    categories: dict[str, Category] = field(default_factory=dict)
    topics: dict[str, Category] = field(default_factory=dict)


class Index:
    """Finds the rules whose phrase begins at a word without trying each of them."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._exact: dict[str, list[Rule]] = {}
        self._prefixes: dict[str, list[Rule]] = {}
        for rule in rules:
            first = rule.phrase.elements[0]
            assert first is not None
            for text in first.exact:
                self._exact.setdefault(text, []).append(rule)
            for text in first.prefixes:
                self._prefixes.setdefault(text, []).append(rule)
        self._lengths = sorted({len(text) for text in self._prefixes})

    def found(self, words: Sequence[Word]) -> Iterator[tuple[Rule, int, int]]:
        """Every rule that is hit, with the indices of its first word and after its last."""
        for at, word in enumerate(words):
            for rule in self._beginning(word):
                end = rule.phrase.end(words, at)
                if end is not None:
                    yield rule, at, end

    def _beginning(self, word: Word) -> Iterator[Rule]:
        for form in word.forms:
            yield from self._exact.get(form, ())
            for length in self._lengths:
                if length > len(form):
                    break
                yield from self._prefixes.get(form[:length], ())


def load_rules(paths: Iterable[Path] = ()) -> Rules:
    """The built-in rules with those of ``paths`` added to them, in this order.

    Raises:
        FilterRulesError: a file cannot be read or says what no file of rules may say.
    """
    rules = Rules()
    built_in = resources.files("skynet_agent").joinpath(BUILT_IN)
    _Reader(BUILT_IN, built_in.read_text(encoding="utf-8")).read_into(rules)
    for path in paths:
        try:
            with path.open("rb") as file:
                content = file.read(MAX_FILE_BYTES + 1)
            text = content.decode()
        except OSError as exc:
            raise FilterRulesError(str(path), 0, "", exc.strerror or "cannot be read") from exc
        except UnicodeDecodeError as exc:
            raise FilterRulesError(str(path), 0, "", "is not UTF-8 text") from exc
        if len(content) > MAX_FILE_BYTES:
            raise FilterRulesError(str(path), 0, "", f"is larger than {MAX_FILE_BYTES} bytes")
        _Reader(str(path), text).read_into(rules)
    return rules


def parse_phrase(text: str) -> Phrase:
    """Read ``"buy|sell ... cannabis*"``: words, ``|`` between words that stand for each other, ``*`` for any ending.

    Raises:
        ValueError: there is no word, or too many, or a sign that has no meaning here.
    """
    if len(text) > MAX_PHRASE_CHARS:
        raise ValueError(f"is longer than {MAX_PHRASE_CHARS} characters")
    parts = text.split()
    elements: list[Element | None] = []
    for part in parts:
        elements += [None] if part == GAP else _elements(part)
    if not elements or elements[0] is None or elements[-1] is None:
        raise ValueError("has to begin and end with a word")
    if len(elements) > MAX_PHRASE_WORDS or elements.count(None) > 2:
        raise ValueError(f"has more than {MAX_PHRASE_WORDS} words or more than two {GAP!r}")
    return Phrase(tuple(elements))


def _elements(part: str) -> list[Element]:
    """A part of a phrase between two spaces; ``self-harm`` is two words."""
    if "|" not in part and "*" not in part:
        variants = [[word.forms[0] for word in words_of(variant)] for variant in _umlauts(part)]
        if not variants[0]:
            raise ValueError(f"has no letter in {part!r}")
        return [_element(set(words), set()) for words in zip(*variants, strict=True)]
    exact: set[str] = set()
    prefixes: set[str] = set()
    for choice in part.split("|"):
        for variant in _umlauts(choice.removesuffix("*")):
            words = words_of(variant)
            if len(words) != 1 or "*" in variant:
                raise ValueError(f"wants one word between two | and * only at its end, not {part!r}")
            (prefixes if choice.endswith("*") else exact).add(words[0].forms[0])
    if any(len(prefix) < 3 for prefix in prefixes):
        raise ValueError(f"wants three letters at least before *, not {part!r}")
    return [_element(exact, prefixes)]


def _element(exact: set[str], prefixes: set[str]) -> Element:
    stretched = {STRETCHED + squeezed(word) for word in exact}
    return Element(
        frozenset(exact | stretched), tuple(sorted(prefixes | {STRETCHED + squeezed(word) for word in prefixes}))
    )


def _umlauts(text: str) -> list[str]:
    """``text``, and as it is written where there are no umlauts."""
    plain = text.casefold()
    written = plain.replace("ä", "ae").replace("ö", "oe").replace("ü", "ue")
    return [plain] if written == plain else [plain, written]


class _Reader:
    """One file: reads it into the rules, and knows on which line it says what."""

    def __init__(self, file: str, text: str) -> None:
        self._file = file
        self._lines = text.splitlines()
        try:
            self._data = tomllib.loads(text)
        except tomllib.TOMLDecodeError as exc:
            place = re.search(r"at line (\d+)", str(exc))
            line = int(place[1]) if place else len(self._lines)
            raise FilterRulesError(file, line, "", f"is not TOML: {exc}") from exc
        except RecursionError as exc:
            raise FilterRulesError(file, 0, "", "is nested too deeply") from exc

    def read_into(self, rules: Rules) -> None:
        for kind, table in self._data.items():
            if kind not in ("category", "topic"):
                raise self._error((kind,), "unknown key; wanted category.<name> or topic.<name>")
            known = rules.categories if kind == "category" else rules.topics
            for name, content in self._table((kind,), table).items():
                self._category((kind, name), content, known, is_topic=kind == "topic")

    def _category(self, key: tuple[str, ...], content: Any, known: dict[str, Category], *, is_topic: bool) -> None:
        if not NAME.fullmatch(key[-1]):
            raise self._error(key, "a name has lower-case letters and _")
        category = known.setdefault(key[-1], Category())
        for language, lists in self._table(key, content).items():
            if language == "replacement" and not is_topic:
                self._replacement((*key, language), lists, category)
            elif LANGUAGE.fullmatch(language):
                self._language((*key, language), lists, category, ("words", "remove") if is_topic else LISTS)
            else:
                raise self._error((*key, language), "unknown key; wanted a language such as en, or replacement")
        if not is_topic and "en" not in category.replacement:
            raise self._error(key, "a category needs replacement.en")

    def _replacement(self, key: tuple[str, ...], texts: Any, category: Category) -> None:
        for language, text in self._table(key, texts).items():
            if not LANGUAGE.fullmatch(language) or not isinstance(text, str) or not text.strip():
                raise self._error((*key, language), "wanted a language and its text")
            category.replacement[language] = text.strip()

    def _language(self, key: tuple[str, ...], lists: Any, category: Category, known: tuple[str, ...]) -> None:
        for name, texts in self._table(key, lists).items():
            here = (*key, name)
            if name not in known:
                raise self._error(here, f"unknown key; wanted {', '.join(known)}")
            if not isinstance(texts, list):
                raise self._error(here, "wanted a list of texts")
            for text in texts:
                if not isinstance(text, str):
                    raise self._error(here, f"wanted texts, not {text!r}")
                try:
                    phrase = parse_phrase(text)
                    if name == "remove":
                        _remove(phrase, category)
                    else:
                        category.phrases.setdefault((key[-1], name), set()).add(phrase)
                except ValueError as exc:
                    raise self._error(here, f"{text!r} {exc}", text) from exc

    def _table(self, key: tuple[str, ...], value: Any) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise self._error(key, "wanted a table")
        return value

    def _error(self, key: tuple[str, ...], problem: str, text: str = "") -> FilterRulesError:
        return FilterRulesError(self._file, self._line(key, text), ".".join(key), problem)

    def _line(self, key: tuple[str, ...], text: str) -> int:
        """Where ``text`` stands under ``key``, else where the key does, else the table that it would be in."""
        best, rank, table = 1, 0, ""
        for number, line in enumerate(self._lines, 1):
            header = re.match(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(#.*)?$", line)
            if header:
                table = header[1]
            entry = re.match(r"\s*([\w.\"'-]+)\s*=", line)
            path = tuple(part.strip("\"' ") for part in f"{table}.{entry[1] if entry else ''}".split(".") if part)
            shared = len(path) if path == key[: len(path)] else 0
            if (header or entry) and shared > rank:
                best, rank = number, shared
            if rank >= len(key) and text and text in line:
                return number
        return best


def _remove(phrase: Phrase, category: Category) -> None:
    """Out of every language: they share many words, and all of them are looked for."""
    holding = [phrases for phrases in category.phrases.values() if phrase in phrases]
    if not holding:
        raise ValueError("is not among the words")
    for phrases in holding:
        phrases.remove(phrase)
