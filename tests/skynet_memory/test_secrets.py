import pickle

import pytest

from skynet_memory.secrets import Secret, random_token


def test_it_does_not_show_itself() -> None:
    secret = Secret("hunter2")
    assert [repr(secret), str(secret), f"{secret}", f"{secret:>5}", f"{secret}", repr([secret])] == [
        "***", "***", "***", "  ***", "***", "[***]",
    ]  # fmt: skip
    assert secret.reveal() == "hunter2"


def test_comparing() -> None:
    assert Secret("a").equals("a")
    assert not Secret("a").equals("b")
    assert not Secret("").equals("")
    assert Secret("é\udc80").equals("é\udc80")
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"


def test_empty_is_false() -> None:
    assert not Secret("")
    assert Secret(" ")


def test_it_is_neither_hashed_nor_pickled() -> None:
    with pytest.raises(TypeError):
        hash(Secret("a"))
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(Secret("a"))
    with pytest.raises(AttributeError):
        Secret("a").other = 1  # type: ignore[attr-defined]


def test_a_random_token_is_no_option_of_a_command_line() -> None:
    """One in 64 of such texts begins with a hyphen."""
    tokens = {random_token(32) for _ in range(2000)}
    assert len(tokens) == 2000
    assert not any(token.startswith("-") for token in tokens)
    assert {len(token) for token in tokens} == {43}
