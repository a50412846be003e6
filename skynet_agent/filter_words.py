"""Text as the words that a filter compares: whatever alphabet, signs and gaps they are disguised with.

Every step looks at each character a fixed number of times, so any text takes time in proportion to its length.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

MAX_SPELLED = 40
"""Letters of a word that is spelled out, and characters of a chunk that is remembered."""
MAX_CHUNK = 200
STRETCHED = "="
"""Begins the form of a word with repeated letters (``siiick``) in which no letter follows itself (``=sick``)."""

_CHUNK = re.compile(r"\S+")
_FRAGMENT = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_ELISIONS = frozenset({"c", "d", "j", "l", "m", "n", "qu", "s", "t"})
_APOSTROPHES = dict.fromkeys(map(ord, "\u2019\u02bc\u2018`\u00b4\uff07\u2032"), "'")
_LOOK_ALIKES = str.maketrans(
    # Cyrillic, Greek, and a few Latin letters that have no decomposition.
    "абвгдеёзіїјкмнопрстухѕԁԛԝһӏѵαβγεζηικμνορτυχωϲϳıłøđħŧɑɡɩ",
    "abbrdee3iijkmhonpctyxsdqwhlvabyeznikuvoptuxwcjilodhtagi",
)
_GREEK_CAPITALS = str.maketrans("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "abezhikmnoptyx")
"""Some look like another letter than the small one does."""
_DIGITS = str.maketrans("0134578", "oieastb")
_DIGITS_L = str.maketrans("0134578", "oleastb")
_SIGNS = str.maketrans("$@!|\u20ac+", "saiiet")
_SIGN = re.compile(r"[$@!|\u20ac+]")
_EDGES = ".,;:!?\"'()[]{}<>|*_~-+\u2026"
_HIDDEN = re.compile(r"(?<=[^\W_])[*#%](?=[^\W_])")
"""Stands for a vowel."""
_HYPHENED = re.compile(r"[^\W_]+(?:[-_*~\u00b7\u2022]+[^\W_]+)+")
_REPEATED = re.compile(r"(.)\1+")
_STRETCHED = re.compile(r"(.)\1\1|(.)\2.*(.)\3")


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a text in each form it may be meant in, the plain one first; ``start`` and ``end`` are its chunk's."""

    forms: tuple[str, ...]
    start: int
    end: int


def words_of(text: str) -> list[Word]:
    """The words of ``text``, with letters that are spelled out one by one put together."""
    words = []
    for start, end in _chunks(text):
        raw = text[start:end]
        fragments = _known_fragments(raw) if len(raw) <= MAX_SPELLED else _fragments(raw)
        words += [Word(forms, start, end) for forms in fragments]
    return _put_together(words)


def _chunks(text: str) -> Iterator[tuple[int, int]]:
    """Where something stands between two spaces; what is long is cut, between two words if it has any."""
    for found in _CHUNK.finditer(text):
        start, end = found.span()
        while end - start > MAX_CHUNK:
            cut = start + MAX_CHUNK
            after = next((at for at in range(cut, start, -1) if not text[at - 1].isalnum()), cut)
            yield start, after
            start = after
        yield start, end


def squeezed(word: str) -> str:
    """``word`` with no letter twice in a row."""
    return _REPEATED.sub(r"\1", word)


def _put_together(words: list[Word]) -> list[Word]:
    result: list[Word] = []
    run: list[Word] = []
    for word in words:
        if run and not (_is_letter(word) and word.start - run[-1].end == _gap(run, word)):
            result += _joined(run)
            run = []
        if _is_letter(word):
            run.append(word)
        else:
            result.append(word)
    return result + _joined(run)


def _is_letter(word: Word) -> bool:
    return len(word.forms[0]) == 1


def _gap(run: list[Word], word: Word) -> int:
    """How far apart the letters of a run stand. A wider gap separates two words that are spelled out."""
    return run[1].start - run[0].end if len(run) > 1 else word.start - run[0].end


def _joined(run: list[Word]) -> list[Word]:
    letters = "".join(word.forms[0] for word in run)
    if not 3 <= len(letters) <= MAX_SPELLED or letters.isdigit():
        return run
    # "i" and "a" are words too: "s e x a lot".
    parts = (letters[first : len(letters) - last] for first in (0, 1) for last in (0, 1))
    forms = dict.fromkeys(form for part in parts if len(part) >= 3 for form in _forms(part))
    return [Word(tuple(forms), run[0].start, run[-1].end)]


@lru_cache(maxsize=4096)
def _known_fragments(chunk: str) -> tuple[tuple[str, ...], ...]:
    return tuple(_fragments(chunk))


def _fragments(chunk: str) -> list[tuple[str, ...]]:
    """The words between two spaces, each in its forms."""
    folded = _fold(chunk)
    fragments = _split(folded)
    if not fragments:
        return []
    forms = [_forms(fragment) for fragment in fragments]
    more: list[str] = []
    core = folded.strip(_EDGES)
    if len(core) <= MAX_SPELLED:
        if _SIGN.search(core):
            more += [form for fragment in _split(core.translate(_SIGNS)) for form in _forms(fragment)]
        if _HIDDEN.search(core):
            more += [_HIDDEN.sub(vowel, core) for vowel in "aeiou"]
        lengths = {len(fragment) for fragment in fragments}
        if len(fragments) > 1 and (min(lengths) == 1 or max(lengths) == 2 or _HYPHENED.fullmatch(core)):
            more += _forms("".join(fragments))
    forms[0] = tuple(dict.fromkeys((*forms[0], *more)))
    return forms


def _split(folded: str) -> list[str]:
    if "'" not in folded:
        return _FRAGMENT.findall(folded)
    fragments = []
    for fragment in _FRAGMENT.findall(folded):
        first, _, rest = fragment.partition("'")
        rest = rest.replace("'", "")
        fragments += [first, rest] if rest and first in _ELISIONS else [first + rest]
    return fragments


def _forms(word: str) -> tuple[str, ...]:
    if word.isdigit() or len(word) > MAX_SPELLED:
        return (word,)
    forms = [word] if word.isalpha() else [word, word.translate(_DIGITS), word.translate(_DIGITS_L)]
    if _STRETCHED.search(word):
        forms += [STRETCHED + squeezed(form) for form in forms]
    return tuple(dict.fromkeys(forms))


def _fold(chunk: str) -> str:
    if chunk.isascii():
        return chunk.lower().replace("`", "'")
    text = unicodedata.normalize("NFKC", chunk.translate(_APOSTROPHES)).translate(_GREEK_CAPITALS).casefold()
    text = unicodedata.normalize("NFKD", text)
    text = "".join(char for char in text if unicodedata.category(char) not in {"Mn", "Me", "Mc", "Cf", "Co", "Cn"})
    return text.translate(_LOOK_ALIKES)
