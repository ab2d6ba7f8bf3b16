"""One process of the kill test: writes to a session or posts to many, and says what it was told is safe.

A line goes out by one write, so that a kill leaves whole lines: `synced SESSION SEQ VALUE`, `posted SESSION ID`,
`refused SESSION`, or `error ...` for whatever must not happen.
"""

import os
import random
import sys
import traceback
from functools import partial

import anyio

from treadle.plugin import Event, LeaseLost, PluginData, PostMessage, SessionBusy, as_message

LEASE_SECONDS = 0.4


def store_of(ref):
    if ref.startswith("sqlite"):
        from treadle_sqlite import Sqlite

        return Sqlite(Sqlite.Settings(lease_seconds=LEASE_SECONDS, poll_seconds=0.02)).open_store(ref)
    if ref.startswith("jsonl"):
        from treadle_jsonl import Jsonl

        return Jsonl(Jsonl.Settings(poll_seconds=0.02)).open_store(ref)
    from treadle_postgres import Postgres

    return Postgres(Postgres.Settings(lease_seconds=LEASE_SECONDS)).open_store(ref)


def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def note(seq, value):
    return Event(seq, 1.0, PluginData("kit/note", value), owner="kit", required=False)


async def write(store, session):
    """Hold the session for some commits, give it back, begin again."""
    number = 0
    while True:
        try:
            log = await store.open(session, write=True)
        except SessionBusy:
            await anyio.sleep(random.uniform(0.005, 0.05))
            continue
        try:
            events = await log.read()
            head, seen = len(events), {event.data.value for event in events}
            for _ in range(random.randint(5, 60)):
                batch = [f"{os.getpid()}.{number + each}" for each in range(random.randint(1, 3))]
                number += len(batch)
                head = await commit(log, session, head, batch)
                head = await take_post(log, session, head, seen)
                await anyio.sleep(random.uniform(0, 0.01))
        except LeaseLost:
            say("refused", session)
        await log.close()


async def take_post(log, session, head, seen):
    """Make an event of the oldest post, as a driver does: one that is in the log already was only not forgotten."""
    posts = log.posted()
    with anyio.move_on_after(0.03):
        async for post in posts:
            if post.id not in seen:
                with anyio.CancelScope(shield=True):
                    head = await commit(log, session, head, [post.id])
                seen.add(post.id)
            await log.forget([post.id])
            break
    await posts.aclose()
    return head


async def commit(log, session, head, values):
    await log.append([note(head + at, value) for at, value in enumerate(values, 1)], head)
    await log.sync()
    for at, value in enumerate(values, 1):
        say("synced", session, head + at, value)
    return head + len(values)


async def post(store, sessions):
    """Leave messages for the writers of all sessions."""
    while True:
        session = random.choice(sessions)
        say("posted", session, await store.post(session, PostMessage(message=as_message("x"))))
        await anyio.sleep(random.uniform(0.005, 0.05))


async def main(ref, role, *sessions):
    store = store_of(ref)
    try:
        await (post(store, sessions) if role == "post" else write(store, sessions[0]))
    except BaseException:
        say("error", traceback.format_exc().replace("\n", " | "))
        raise


if __name__ == "__main__":
    anyio.run(partial(main, *sys.argv[2:]), backend=sys.argv[1])
