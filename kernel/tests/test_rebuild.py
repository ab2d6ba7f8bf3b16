"""Every model request can be rebuilt from the log alone, whatever plugins did to it."""

import attrs

from treadle import Agent, Message, Stack, Text, Tool, hookimpl
from treadle.codec import event_from_plain, event_to_plain
from treadle.events import ModelRequest
from treadle.grammar import State, request_messages
from treadle.messages import canonical
from treadle.store import MemoryStore
from treadle_script import ScriptModel, call, calls


class Remembers:
    """Puts a memory beside the newest user message."""

    @hookimpl
    async def transform_context(self, view, context):
        newest = next((item.seq for item in reversed(view.items) if item.message.role == "user"), None)
        return view.insert(f"remember step {context.step}", before=newest)


class Shortens:
    """Hides the first exchange once there is a second, and cuts long results."""

    @hookimpl
    def transform_context(self, view):
        for item in view.items:
            if item.message.role == "tool" and item.seq:
                view = view.replace(item.seq, "cut")
        return view


class Shapes:
    """Changes instructions, parameters and the last message."""

    @hookimpl
    def shape_request(self, request, context):
        messages = [*request.messages, Message(id=f"end-{context.step}", role="context", parts=(Text("be brief"),))]
        return attrs.evolve(
            request,
            messages=messages,
            instructions=(*request.instructions, Text(f"turn {context.turn}")),
            params={**request.params, "temperature": context.step / 10},
        )


def rebuilt(events):
    """The requests that a log holds: header and messages, from nothing but the log."""
    state, header, out = State(), None, []
    for event in events:
        if isinstance(event.data, ModelRequest):
            header = event.data.header or header
            out.append((header, request_messages(state, event.data)))
        state.apply(event)
    return out


async def test_every_request_of_a_run_with_three_context_changing_plugins_is_rebuilt_byte_for_byte():
    store = MemoryStore()
    model = ScriptModel(
        [call("t"), calls(call("t"), call("t"), text="twice"), "done", "second turn", call("t"), "end"],
        ref="script:x",
    )
    agent = Agent(model=model, tools=[Tool(name="t", call=lambda: "a long result")], instructions="Be good.")
    async with Stack([Remembers(), Shortens(), Shapes()], store=store).open(agent, "s") as driver:
        for text in ("one", "two", "three"):
            await driver.prompt(text)
    stored = await (await store.open("s", write=False)).read()
    # through the codec, so that nothing but what a store keeps is used
    events = [event_from_plain(event_to_plain(event)) for event in stored]
    assert len(model.asked) == 6
    for asked, (header, messages) in zip(model.asked, rebuilt(events), strict=True):
        assert [canonical(m) for m in messages] == [canonical(m) for m in asked.messages]
        assert messages == asked.messages
        assert header.instructions == asked.request.instructions
        assert dict(header.params) == dict(asked.request.params)
        assert header.tools == asked.request.tools
        assert (header.model, header.family) == ("script:x", "script")
    changed = [e.data.changes for e in events if isinstance(e.data, ModelRequest)]
    assert changed[0].plugins == ("remembers", "shortens", "shapes")


async def test_an_unchanged_header_is_logged_once_and_referred_to():
    store = MemoryStore()
    async with Stack(store=store).open(Agent(model=ScriptModel(["a", "b"]), instructions="x"), "s") as driver:
        await driver.prompt("one")
        await driver.prompt("two")
        requests = [e for e in await driver.read() if isinstance(e.data, ModelRequest)]
    assert requests[0].data.header is not None
    assert (requests[1].data.header, requests[1].data.header_seq) == (None, requests[0].seq)


async def test_a_view_that_fits_no_model_fails_the_step_and_names_the_plugin():
    class Halves:
        @hookimpl
        def transform_context(self, view):
            tools = [item.seq for item in view.items if item.message.role == "tool"]
            return view.hide(*tools) if tools else None

    model = ScriptModel([call("t"), "never"])
    agent = Agent(model=model, tools=[Tool(name="t", call=lambda: "x")])
    result = await Stack([Halves()]).run(agent, "hi")
    assert (result.reason, len(model.asked)) == ("failed", 1)
    assert 'Plugin "halves"' in result.detail and "stands without its result" in result.detail
