"""The tool with which a model reads on in a result of which it saw an excerpt."""

from __future__ import annotations

from treadle.context import CallContext
from treadle.errors import InvalidArguments
from treadle.excerpts import stretch, whole_result
from treadle.messages import Json
from treadle.tools import Tool

_STRETCH = 20_000  # bytes, where no limit says less


async def _read(context: CallContext[Json], handle: str, start: int = 0) -> str:
    whole = whole_result(await context.turn.read(), handle)
    if whole is None:
        raise InvalidArguments(f"Nothing is kept under the handle {handle[:80]}. Copy it from the note in the result.")
    size = len(whole.encode("utf-8", "surrogatepass"))
    if not 0 <= start < size:
        raise InvalidArguments(f"start must be from 0 to {size - 1}, not {start}.")
    limit = context.turn.limits.result_bytes
    most = _STRETCH if limit is None else max(4, min(_STRETCH, limit - 100))  # room for the line above it
    return f"[bytes {start} to {min(start + most, size)} of {size}]\n{stretch(whole, start, most)}"


read_result = Tool(
    name="read_result",
    description="Read more of a tool result that was shortened. Its note names the handle and the size.",
    parameters={
        "type": "object",
        "properties": {
            "handle": {"type": "string", "description": "The handle in the note."},
            "start": {"type": "integer", "description": "The byte to read from.", "default": 0},
        },
        "required": ["handle"],
        "additionalProperties": False,
    },
    call=_read,
    replay="pure",
)
"""Put it among an agent's tools: it reads whole results of the session it is called in."""
