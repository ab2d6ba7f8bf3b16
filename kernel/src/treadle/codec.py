"""Events to plain data and back, for stores and exports. Needs treadle[codec] (cattrs).

The shape of an event is `{seq, time, type, turn?, step?, owner?, required?, data}`; parts are objects with a `kind`.
Fields at their default are left out. Reading ignores fields that a newer release added to a known type; a core type
this release does not know is refused, a plugin's own passes through unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Union

from .errors import MissingExtra, UnreadableLog
from .events import CORE_TYPES, KERNEL, Data, Event, Inserted, Kept, PluginData
from .messages import Call, Document, Image, Json, Opaque, Part, Reasoning, Result, Text

if TYPE_CHECKING:
    from cattrs import Converter

KINDS: Mapping[str, type[Part]] = {
    "text": Text,
    "image": Image,
    "document": Document,
    "reasoning": Reasoning,
    "call": Call,
    "result": Result,
    "opaque": Opaque,
}
_KIND_OF = {cls: kind for kind, cls in KINDS.items()}


@cache
def converter() -> Converter:
    """The one converter of event data. Loads cattrs on first use."""
    try:
        import cattrs
    except ImportError:
        raise MissingExtra("codec", "Reading and writing stored sessions") from None
    made = cattrs.Converter(omit_if_default=True, detailed_validation=False)
    made.register_unstructure_hook(Part, lambda part: {"kind": _KIND_OF[type(part)], **made.unstructure(part)})
    made.register_structure_hook(Part, lambda value, _: made.structure(value, KINDS[value["kind"]]))
    # A changed view is a list of [first, last] pairs and messages.
    made.register_unstructure_hook(
        Union[Kept, Inserted],
        lambda item: [item.first, item.last] if isinstance(item, Kept) else made.unstructure(item.message),
    )
    made.register_structure_hook(
        Union[Kept, Inserted],
        lambda value, _: Kept(*value) if isinstance(value, list) else Inserted(made.structure(value, _message())),
    )
    made.register_structure_hook_func(lambda cls: cls is Json, lambda value, _: value)
    return made


def _message() -> type:
    from .messages import Message

    return Message


def data_to_plain(data: Data) -> Json:
    """An event's data as plain data; a plugin's value as it is."""
    return data.value if isinstance(data, PluginData) else converter().unstructure(data)


def dump_data(data: Data) -> str:
    """An event's data as JSON text: ASCII, so that NUL and lone surrogates survive everywhere."""
    return json.dumps(data_to_plain(data), separators=(",", ":"), allow_nan=False)


def load_data(type: str, text: str, *, required: bool = True, owner: str = KERNEL, where: str = "the log") -> Data:
    """The data of one stored event. Raises `UnreadableLog` naming `where`."""
    try:
        return data_from_plain(type, json.loads(text), required=required, owner=owner, where=where)
    except ValueError as error:
        raise UnreadableLog(where, f"its {type} is not valid JSON ({error})", "Restore it from a copy.") from error


def data_from_plain(
    type: str, value: Json, *, required: bool = True, owner: str = KERNEL, where: str = "the log"
) -> Data:
    """As `load_data`, from parsed JSON."""
    cls = CORE_TYPES.get(type)
    if cls is None:
        if owner == KERNEL and required:
            raise UnreadableLog(where, f"it holds the unknown event {type}", "Read it with a newer release of treadle.")
        return PluginData(type, value)
    try:
        return converter().structure(value, cls)
    except Exception as error:
        reason = f"its {type} has not the expected fields ({error.__class__.__name__}: {error})"
        raise UnreadableLog(where, reason, "Read it with the release that wrote it.") from error


def event_to_plain(event: Event) -> Json:
    """An event as one JSON object, the form of exports and of JSONL files."""
    out: dict[str, Json] = {"seq": event.seq, "time": event.time, "type": event.type}
    if event.turn is not None:
        out["turn"] = event.turn
    if event.step is not None:
        out["step"] = event.step
    if event.owner != KERNEL or not event.required:
        out["owner"] = event.owner
        out["required"] = event.required
    out["data"] = data_to_plain(event.data)
    return out


def event_from_plain(value: Json, *, where: str = "the log") -> Event:
    """The inverse of `event_to_plain`."""
    try:
        owner, required = value.get("owner", KERNEL), value.get("required", True)
        head = (value["seq"], value["time"], value["type"], value["data"])
    except (KeyError, AttributeError, TypeError) as error:
        raise UnreadableLog(where, f"an event lacks {error}", "Restore it from a copy.") from error
    seq, time, type, data = head
    return Event(
        seq,
        time,
        data_from_plain(type, data, required=required, owner=owner, where=f"{where}, event {seq}"),
        value.get("turn"),
        value.get("step"),
        owner,
        required,
    )


__all__ = [
    "converter", "data_from_plain", "data_to_plain", "dump_data", "event_from_plain", "event_to_plain",
    "load_data",
]  # fmt: skip
