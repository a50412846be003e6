import json

from skynet_memory.database import Database
from skynet_memory.ids import AgentId, RunId, SessionKey, UserId, new_id
from skynet_memory.keys import build_key
from skynet_memory.sessions import Session
from skynet_memory.transcripts import NewEntry
from skynet_memory.turns import FinalStatus, TurnBegun, TurnStore
from skynet_memory.usage import UsageRecord

ADA = UserId("0190aaaa-ada")
BEN = UserId("0190bbbb-ben")
T0 = 1_795_000_000_000


async def add_person(db: Database, user_id: UserId) -> None:
    await db.write(
        lambda tx: tx.execute(
            "INSERT INTO users (id, display_name, role, created_at_ms) VALUES (?, ?, 'admin', ?)",
            (user_id, user_id, T0),
        )
    )


def key(owner: UserId, name: str = "main", agent: str = "main") -> SessionKey:
    return build_key(owner, AgentId(agent), name)


def message(role: str, text: str) -> bytes:
    return json.dumps({"role": role, "content": [{"type": "text", "text": text}], "timestamp": T0}).encode()


def said(role: str, text: str) -> NewEntry:
    return NewEntry("message", message(role, text))


def text_of(payload: bytes) -> str:
    return " ".join(block["text"] for block in json.loads(payload)["content"])


def usage(input: int = 10, output: int = 5, **values: int | None) -> UsageRecord:  # noqa: A002
    given = {"cost_microusd": None, "at_ms": T0, **values}
    return UsageRecord(provider="lab", model="m-1", input=input, output=output, **given)  # type: ignore[arg-type]


async def begin(
    turns: TurnStore,
    owner: UserId,
    text: str | None = "hello",
    *,
    run_id: str = "",
    name: str = "main",
    at_ms: int = T0,
    **values: object,
) -> tuple[RunId, TurnBegun]:
    run = RunId(run_id or new_id())
    begun = await turns.begin(
        owner=owner,
        key=key(owner, name),
        run_id=run,
        kind="chat",
        payload=None if text is None else message("user", text),
        now_ms=at_ms,
        **values,  # type: ignore[arg-type]
    )
    assert isinstance(begun, TurnBegun)
    return run, begun


async def finish(
    turns: TurnStore,
    owner: UserId,
    run_id: RunId,
    text: str = "answer",
    *,
    status: FinalStatus = "ok",
    at_ms: int = T0,
    records: list[UsageRecord] | None = None,
) -> Session:
    return await turns.finish(
        owner=owner,
        kind="chat",
        run_id=run_id,
        entries=[said("assistant", text)],
        usage=[usage()] if records is None else records,
        status=status,
        response=b'{"status":"ok"}',
        model="m-1",
        provider="lab",
        context_tokens=1000,
        now_ms=at_ms,
    )


async def turn(turns: TurnStore, owner: UserId, text: str = "hello", *, name: str = "main", at_ms: int = T0) -> Session:
    run_id, _ = await begin(turns, owner, text, name=name, at_ms=at_ms)
    return await finish(turns, owner, run_id, f"re: {text}", at_ms=at_ms)
