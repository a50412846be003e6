"""What the words of a query are, so that any text is one, in any script."""

import re
import unicodedata
from typing import Final

# Han, kana, Hangul, Thai, Lao, Burmese, Khmer: written without spaces, or with endings that a stemmer does not know
_UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3130-\u318f\u3400-\u4dbf"
    "\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
_unspaced = re.compile(f"[{_UNSPACED}]")
_runs = re.compile(f"[{_UNSPACED}]+|[^\\W_{_UNSPACED}]+")


def terms_in(query: str) -> list[str]:
    """The words as quoted phrases of FTS5, each once; of scripts without spaces every pair of characters.

    They are to be looked for in a text and in the ``spaced`` form of it.
    """
    terms: dict[str, None] = {}
    for run in _runs.findall(unicodedata.normalize("NFC", query).casefold()):
        if _unspaced.match(run) is None or len(run) == 1:
            terms[f'"{run}"'] = None
        else:
            terms.update((f'"{run[at]} {run[at + 1]}"', None) for at in range(len(run) - 1))
    return list(terms)


def spaced(text: str) -> str:
    """``text`` with a space around each character of a script without spaces; empty if it has none."""
    return _unspaced.sub(r" \g<0> ", text) if _unspaced.search(text) else ""
