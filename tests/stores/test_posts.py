"""Posts that a store cannot give take down neither their session nor another."""

import pytest

from treadle import Agent, Stack, driver, hookimpl
from treadle.errors import StoreFault, UnreadableLog
from treadle.plugin import PostMessage, as_message
from treadle_jsonl import Jsonl
from treadle_script import ScriptModel


class Sees:
    def __init__(self):
        self.seen = []

    @hookimpl
    def on_hook_error(self, hook, plugin, error):
        self.seen.append((hook, type(error)))


def agent(*replies):
    return Agent(model=ScriptModel(list(replies)))


async def test_a_damaged_post_is_reported_and_all_sessions_go_on(tmp_path):
    posts = tmp_path / ".treadle" / "posts"
    posts.mkdir(parents=True)
    (posts / "s").write_text("oops\n")
    sees = Sees()
    async with Stack([Jsonl(), sees]) as stack:
        other = await stack.attach(agent("b"), f"jsonl:{tmp_path}#other")
        one = await stack.attach(agent("a"), f"jsonl:{tmp_path}#s")
        assert (await one.prompt("x")).text == "a"
        assert (await other.prompt("x")).text == "b"
    assert sees.seen == [("post", UnreadableLog)]


@pytest.mark.parametrize("fails", ["posted", "forget"])
async def test_a_store_that_cannot_be_asked_for_posts_is_asked_again(tmp_path, monkeypatch, fails):
    monkeypatch.setattr(driver, "POSTS_AGAIN_SECONDS", 0.01)
    store = Jsonl(Jsonl.Settings(poll_seconds=0.005)).open_store(f"jsonl:{tmp_path}")
    opened = store.open
    faults = [StoreFault("s", "the disk is away")]

    class Faulty:
        """A log whose first answer about posts is a fault."""

        def __init__(self, log):
            self.log = log

        def __getattr__(self, name):
            return getattr(self.log, name)

        async def posted(self):
            if fails == "posted" and faults:
                raise faults.pop()
            async for post in self.log.posted():
                yield post

        async def forget(self, post_ids):
            if fails == "forget" and faults:
                raise faults.pop()
            await self.log.forget(post_ids)

    async def faulty(session_id, write):
        log = await opened(session_id, write)
        return Faulty(log) if write else log

    monkeypatch.setattr(store, "open", faulty)
    sees = Sees()
    async with Stack([sees], store=store) as stack, stack.open(agent("hello"), "s") as live:
        message = as_message("posted")
        await store.post("s", PostMessage(message=message))
        async with live.watch(0) as items:
            async for item in items:
                if getattr(item, "type", "") == "turn/end":
                    break
        await live.until_idle()
        said = [event for event in await live.read() if event.type == "user/message"]
    assert [event.data.message.id for event in said] == [message.id]
    assert sees.seen == [("post", StoreFault)]
