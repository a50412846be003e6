"""What may be remembered at all. Every way in passes here: tools, methods, imports, and what is learned unasked.

Refused are secrets, echoes of the assistant's own instructions, what is too long, and what the caller's ``refuses``
names, such as a child's topics that are never kept. The reasons are for the person and for the model, and never
repeat what was refused.

An IBAN or a phone number is no secret here: households ask to remember them, and knowing one opens nothing. A card's
number can be charged, so it is refused.
"""

import re
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Final, TypeAlias

from skynet_memory.fulltext import folded
from skynet_memory.ids import UserId

MAX_KEY: Final = 200
MAX_VALUE: Final = 2_000
MAX_TAGS: Final = 20
MAX_TAG: Final = 50

Refusal: TypeAlias = Callable[[str], str | None]
"""Given a text, why it must not be kept; None if it may."""
Check: TypeAlias = Callable[[str, str, Iterable[str]], str]
"""Given key, value and tags, why they must not be kept; empty if they may."""

# Bounded where a word may begin in the middle of another: else a text of such words takes the square of its length.
_SECRETS: Final = (
    ("an API key", re.compile(r"\b[spr]k[-_](?=[\w-]{0,99}\d)[\w-]{16}|\b(?:gsk|xai|hf)[-_]\w{20}|\bAIza[\w-]{30}")),
    ("an access token", re.compile(r"\bgh[pousr]_\w{20}|\bgithub_pat_\w{20}|\bglpat-[\w-]{16}|xox[abeprs]-[\w-]{10}")),
    ("an AWS access key", re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b")),
    ("a signed token", re.compile(r"\beyJ[\w-]{8,500}\.[\w-]{8,}\.")),
    ("an authorization header", re.compile(r"\b(?:bearer|basic)\s+(?=\S*\d)[\w.~+/-]{16,}=*", re.IGNORECASE)),
    ("a private key", re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY|\bAGE-SECRET-KEY-1\w{20,}", re.IGNORECASE)),
    ("a bot token", re.compile(r"\b\d{8,10}:[\w-]{35}\b|\b[MNO][\w-]{23,27}\.[\w-]{6}\.[\w-]{27,}")),
    ("a password in an address", re.compile(r"\b[a-z][a-z0-9+.-]{0,30}://[^\s/:@]+:[^\s/@]+@", re.IGNORECASE)),
)  # fmt: skip
# A word for a secret that is given one: "password: x", "Passwort lautet x". What innocent words may follow cannot be
# listed, so "the password is on the fridge" is refused too. Codes of digits need their digits: a rolling pin is none.
_TO: Final = r"(?:\s+(?:for|of|to|für|vom|von|zum|pour|de|du)\b[^.:=\n]{1,60}?)?"
_IS: Final = r"\s*(?:[:=]|\b(?:is|was|ist|war|lautet|est|es|é)\b)\s*"
_GIVEN: Final = re.compile(
    r"\b(?:pass ?(?:word|phrase|code|wd)s?|\w*passwort|kennwort|mot de passe|contraseña|senha|wachtwoord|"
    r"(?:api|access|secret|private)[ _-]?key|(?:access|auth|api)[ _-]?token|client[ _-]?secret)"
    rf"{_TO}{_IS}\S",
    re.IGNORECASE,
)
_CODE: Final = re.compile(
    rf"\b(?:pin|puk|cvv|cvc|tan)(?:[ -]?(?:code|number|nummer))?{_TO}{_IS}(?:\D{{0,12}})\d[\d -]{{2,}}", re.IGNORECASE
)
_GIVEN_UNSPACED: Final = re.compile(r"(?:パスワード|暗証番号|密码|密碼|비밀번호)\s*(?:は|是|为|為|는|은|[:=])\s*\S")
_DIGITS: Final = re.compile(r"(?<![\dA-Za-z])\d(?:[ -]?\d){12,18}(?!\d)")

_MARKERS: Final = (
    "<|im_start|>", "<|system|>", "[inst]", "<<sys>>", "<system>", "</system>", "<session>", "</session>",
    "system prompt:", "### system", "you are a helpful assistant", "you are an ai assistant",
    "ignore all previous instructions", "ignore previous instructions", "ignore the above instructions",
)  # fmt: skip
_ECHO_SHORT: Final = 25
_ECHO_LONG: Final = 60
"""Characters of an instruction, word for word, that are an echo of it: as a whole text, or as a part of one."""


def secret_in(text: str) -> str:
    """What kind of secret ``text`` holds, in words; empty for none."""
    for name, pattern in _SECRETS:
        if pattern.search(text):
            return name
    if _GIVEN.search(text) or _CODE.search(text) or _GIVEN_UNSPACED.search(text):
        return "a password or a code"
    if any(_is_card(re.sub(r"\D", "", found)) for found in _DIGITS.findall(text)):
        return "the number of a payment card"
    return ""


def _is_card(digits: str) -> bool:
    """13 to 19 digits that begin like a card's and pass Luhn's check."""
    if digits[0] not in "23456" or len(set(digits)) == 1:
        return False
    doubled = [int(digit) * (1 + place % 2) for place, digit in enumerate(reversed(digits))]
    return sum(number - 9 * (number > 9) for number in doubled) % 10 == 0


def one_line(text: str) -> str:
    """``text`` with every run of spaces, line ends and characters that cannot be seen as one space."""
    whole = text.encode("utf-8", "replace").decode()
    return " ".join("".join(char if char.isprintable() else " " for char in whole).split())


class WriteGate:
    """
    Args:
        banned: the assistant's own instructions, asked for each time, so that they may change.
        refuses: what else must not be kept of a person; None where nothing is.
    """

    def __init__(
        self,
        *,
        banned: Callable[[], Collection[str]] = tuple,
        refuses: Callable[[UserId], Awaitable[Refusal | None]] | None = None,
    ) -> None:
        self._banned = banned
        self._refuses = refuses
        self._known: tuple[str, ...] = ()
        self._folded: tuple[str, ...] = ()

    async def check_for(self, owner: UserId) -> Check:
        """What is to be asked about every text of a write of this person."""
        own = None if self._refuses is None else await self._refuses(owner)

        def check(key: str, value: str, tags: Iterable[str]) -> str:
            name = " ".join(re.sub(r"[\W_]+", " ", key).split())
            whole = "\n".join((f"{name}: {value}", key, *tags))
            if secret := secret_in(whole):
                return f"it holds {secret}; secrets are not remembered"
            if self._echoes(value) or self._echoes(key):
                return "it repeats the assistant's own instructions"
            return (own and own(whole)) or ""

        return check

    def _echoes(self, text: str) -> bool:
        plain = _plain(text)
        cuts = [plain[at : at + _ECHO_LONG] for at in range(0, len(plain) - _ECHO_LONG + 1, 10)]
        return any(marker in plain for marker in _MARKERS) or any(
            (len(phrase) <= _ECHO_LONG and phrase in plain)
            or (len(plain) >= _ECHO_SHORT and plain in phrase)
            or any(cut in phrase for cut in cuts)
            for phrase in self._phrases()
        )

    def _phrases(self) -> tuple[str, ...]:
        banned = tuple(self._banned())
        if banned != self._known:
            self._known = banned
            self._folded = tuple(phrase for text in banned if len(phrase := _plain(text)) >= _ECHO_SHORT)
        return self._folded


def clean(value: str) -> str:
    """``value`` in whole characters that can be seen, besides line ends and tabs; others become spaces."""
    whole = value.encode("utf-8", "replace").decode()
    return "".join(char if char in "\n\t" or char.isprintable() else " " for char in whole).strip()


def length_problem(key: str, value: str, tags: Iterable[str], *, most: int = MAX_VALUE) -> tuple[str, str] | None:
    """The field that is empty or too long, and what is wrong with it."""
    names = tuple(tags)
    if not one_line(key):
        return "key", "is empty"
    if len(key) > MAX_KEY:
        return "key", f"is {len(key):,} characters, {MAX_KEY:,} are allowed"
    if not one_line(value):
        return "value", "is empty"
    if len(value) > most:
        return "value", f"is {len(value):,} characters, {most:,} are allowed"
    if len(names) > MAX_TAGS:
        return "tags", f"are {len(names)}, {MAX_TAGS} are allowed"
    if any(not one_line(name) or len(name) > MAX_TAG for name in names):
        return "tags", f"have to be of 1 to {MAX_TAG} characters each"
    return None


def _plain(text: str) -> str:
    return " ".join(folded(text).split())
