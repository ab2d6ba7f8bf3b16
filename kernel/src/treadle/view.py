"""The view: what one request shows of the conversation.

A view shares the fold's items and never changes them; a changed view is a new one that remembers it was changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import attrs

from .errors import UsageError
from .events import Changes, Inserted, Kept
from .messages import Message, Part, Result, as_parts, new_id


@attrs.frozen
class Item:
    """One place in the view: the message, and the seq of the event that put it there (0: put in by a hook)."""

    seq: int
    message: Message


class View(Sequence[Message]):
    """A read-only sequence of messages over the first `length` items of a list that only ever grows."""

    __slots__ = ("_items", "_length", "changed")

    def __init__(self, items: Sequence[Item], length: int | None = None, *, changed: bool = False) -> None:
        self._items = items
        self._length = len(items) if length is None else length
        self.changed = changed

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        if isinstance(index, slice):
            return [self._items[at].message for at in range(*index.indices(self._length))]
        at = index + self._length if index < 0 else index
        if not 0 <= at < self._length:
            raise IndexError(index)
        return self._items[at].message

    def __iter__(self) -> Iterator[Message]:
        items = self._items
        for at in range(self._length):
            yield items[at].message

    @property
    def items(self) -> Sequence[Item]:
        """Messages with the seq that put them there, by which `hide`, `replace` and edits name them."""
        return self._items[: self._length]

    def insert(self, content: str | Part | Message | Sequence[Part], *, before: int | None = None) -> View:
        """A view with a context message put in: before the item of seq `before`, or at the end."""
        if isinstance(content, Message):
            message = content
        else:
            message = Message(id=new_id(), role="context", parts=as_parts(content), origin="view")
        items = list(self.items)
        items.insert(len(items) if before is None else self._at(before), Item(0, message))
        return View(items, changed=True)

    def hide(self, *seqs: int) -> View:
        """A view without the items of these seqs. A call and its results go together, or the request is refused."""
        hidden = {self._at(seq) for seq in seqs}
        return View([item for at, item in enumerate(self.items) if at not in hidden], changed=True)

    def replace(self, seq: int, content: str | Part | Sequence[Part]) -> View:
        """A view in which the item of `seq` says something else, under the same role.

        A tool's result keeps its call: give the parts that it should show.
        """
        at = self._at(seq)
        old, parts = self._items[at].message, as_parts(content)
        if old.role == "tool" and not any(isinstance(part, Result) for part in parts):
            result = next(part for part in old.parts if isinstance(part, Result))
            parts = (attrs.evolve(result, parts=parts),)
        items = list(self.items)
        items[at] = Item(0, attrs.evolve(old, id=new_id(), parts=parts))
        return View(items, changed=True)

    def _at(self, seq: int) -> int:
        for at in range(self._length - 1, -1, -1):
            if self._items[at].seq == seq:
                return at
        raise UsageError(f"The view has no item of seq {seq}. View.items lists those it has.")


def changes_of(base: View, changed: Sequence[Message], plugins: tuple[str, ...]) -> Changes:
    """How `changed` came from `base`: stretches of items kept as they are, and messages put in."""
    place = {id(item.message): at for at, item in enumerate(base.items)}
    items = base.items
    out: list[Kept | Inserted] = []
    last = -2
    for message in changed:
        at = place.get(id(message), -1)
        if at < 0:
            out.append(Inserted(message))
        elif at == last + 1 and out and isinstance(previous := out[-1], Kept):
            out[-1] = Kept(previous.first, items[at].seq)
        else:
            out.append(Kept(items[at].seq, items[at].seq))
        last = at if at >= 0 else -2
    return Changes(plugins=plugins, view=tuple(out))


def apply_changes(base: View, changes: Changes) -> tuple[Message, ...]:
    """The messages of a changed view, from the fold it was made of."""
    items = base.items
    place = {item.seq: at for at, item in enumerate(items)}
    out: list[Message] = []
    for entry in changes.view:
        if isinstance(entry, Inserted):
            out.append(entry.message)
        else:
            out.extend(item.message for item in items[place[entry.first] : place[entry.last] + 1])
    return tuple(out)


def why_invalid(messages: Iterable[Message], *, reply_owed: bool = True) -> str:
    """Why no model can be given these messages, or an empty string.

    Calls and results pair up with nothing between them, the first message is not the assistant's nor a result, and
    the last is not the assistant's.
    """
    waiting: set[str] = set()
    last: Message | None = None
    for message in messages:
        results = [part for part in message.parts if isinstance(part, Result)]
        if message.role == "tool":
            for result in results:
                if result.call_id not in waiting:
                    return f"the result of call {result.call_id} stands without its call"
                waiting.discard(result.call_id)
        elif waiting:
            return f"call {sorted(waiting)[0]} stands without its result"
        elif message.role == "assistant":
            if last is None:
                return "it begins with an assistant message"
            waiting = {call.id for call in message.calls}
        last = message
    if waiting:
        return f"call {sorted(waiting)[0]} stands without its result"
    if last is None:
        return "it is empty" if reply_owed else ""
    if last.role == "assistant" and reply_owed:
        return "it ends with an assistant message"
    return ""
