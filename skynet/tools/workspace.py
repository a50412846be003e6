"""``workspace_update``: the one way in which an assistant changes the files that it is made of (C32)."""

from collections.abc import Mapping, Sequence

from skynet.threads import Stop, in_thread
from skynet_agent.messages import Json
from skynet_agent.tools import Tool, ToolContext, ToolFailed
from skynet_agent.workspace import BOOTSTRAP, FILE_CHARS, FILES, Workspace


class WorkspaceTools:
    """The tool, for who has the permission ``workspace.write``: what it writes is part of everybody's prompt."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def tools(self) -> Sequence[Tool]:
        return (
            Tool(
                name="workspace_update",
                description=(
                    f"Read or replace one of the files that you are made of ({', '.join(FILES)}), or finish the "
                    f"bootstrap, after which {BOOTSTRAP} is gone. They are part of everybody's conversations."
                ),
                parameters={
                    "type": "object",
                    "properties": {
                        "action": {"enum": ["read", "write", "finish_bootstrap"], "description": "What to do."},
                        "file": {"enum": list(FILES), "description": "The file, to read or write."},
                        "content": {
                            "type": "string",
                            "maxLength": FILE_CHARS,
                            "description": "To write: the whole new text of the file, what stays included.",
                        },
                    },
                    "required": ["action"],
                    "additionalProperties": False,
                },
                permission="workspace.write",
                run=self.update,
            ),
        )

    async def update(self, context: ToolContext, arguments: Mapping[str, Json]) -> str:
        action, name, content = arguments["action"], arguments.get("file"), arguments.get("content")
        if action == "finish_bootstrap":
            return await in_thread(self._finish)
        if name is None:
            raise ToolFailed(f"to {action} a file, name it in file")
        if action == "read":
            return await in_thread(lambda stop: self._read(name))
        if content is None:
            raise ToolFailed("to write a file, give its whole new text in content")
        return await in_thread(lambda stop: self._write(stop, name, content))

    def _read(self, name: str) -> str:
        try:
            return self._workspace.read(name) or f"({name} is empty)"
        except FileNotFoundError:
            return f"({name} is not there yet)"
        except (OSError, ValueError) as exc:
            raise _failed(name, exc) from exc

    def _write(self, stop: Stop, name: str, content: str) -> str:
        stop.check()
        try:
            self._workspace.write(name, content)
        except (OSError, ValueError) as exc:
            raise _failed(name, exc) from exc
        return f"{name}: written, {len(content)} characters; it holds from the next message on"

    def _finish(self, stop: Stop) -> str:
        stop.check()
        try:
            was_open = self._workspace.finish_first_run()
        except OSError as exc:
            raise _failed("the bootstrap", exc) from exc
        return "the bootstrap is finished" if was_open else "the bootstrap was finished before"


def _failed(name: str, error: OSError | ValueError) -> ToolFailed:
    if isinstance(error, UnicodeEncodeError):
        return ToolFailed(f"{name}: the text holds half a character (a lone surrogate) at {error.start}")
    return ToolFailed(f"{name}: {error.strerror or 'failed'}" if isinstance(error, OSError) else str(error))
