"""TC-075: a result that is too long enters the context as an excerpt, and its whole is kept."""

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle import Agent, Answer, Image, Limits, Stack, Text, Tool, hookimpl
from treadle.codec import event_from_plain, event_to_plain
from treadle.events import PluginData, ToolResult
from treadle.excerpts import WHOLE, excerpt, stretch, whole_result
from treadle.functions import read_result
from treadle.messages import Payload
from treadle.store import MemoryStore
from treadle_script import ScriptModel, call


def shown(parts, most):
    return excerpt(parts, most, "ID")[0]


def test_what_fits_stays_as_it_is_and_nothing_is_kept():
    parts = (Text("12345"), Text("67890"))
    assert excerpt(parts, 10, "ID") == (parts, None)


def test_start_and_end_are_kept_with_the_size_and_the_handle_between():
    (part,) = shown([Text("abcdefghij")], 4)
    assert part.text == "ab\n[... 6 of 10 bytes are left out here. The whole is kept under the handle ID ...]\nij"


def test_the_gap_may_reach_over_several_texts_and_pictures_stay():
    image = Image("sha256:00")
    first, picture, last = shown([Text("abcd"), Text("efgh"), image, Text("ijkl")], 4)
    assert first.text.startswith("ab\n[... 8 of 12 bytes") and first.text.endswith("...]\n")
    assert (picture, last) == (image, Text("kl"))


def test_texts_outside_of_the_gap_stay_whole():
    made = shown([Text("ab"), Text("cdefgh"), Text("ij")], 4)
    assert (made[0], made[-1]) == (Text("ab"), Text("ij"))


def test_a_character_is_never_cut():
    (part,) = shown([Text("é" * 10)], 6)  # 20 bytes; 3 from each end are one é and half of another
    assert part.text.split("\n")[0] == "é" and part.text.split("\n")[2] == "é"


def test_no_limit_means_no_cap():
    parts = (Text("x" * 10**6),)
    assert excerpt(parts, None, "ID") == (parts, None)


def test_the_whole_is_kept_to_the_letter():
    _, whole = excerpt([Text("ab\ud800cd" * 5), Text("z" * 30)], 8, "ID")
    assert whole == PluginData(WHOLE, {"call": "ID", "texts": ["ab\ud800cd" * 5, "z" * 30]})


def test_a_payload_stays_with_its_text():
    payload = Payload("openai-chat", "x")
    (part,) = shown([Text("a" * 50, payload)], 10)
    assert part.payload == payload


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text(max_size=30), min_size=1, max_size=4), st.integers(0, 40))
def test_an_excerpt_holds_the_beginning_the_end_and_at_most_the_limit(texts, most):
    whole = "".join(texts)
    parts, kept = excerpt([Text(text) for text in texts], most, "ID")
    left = "".join(part.text for part in parts)
    if len(whole.encode("utf-8", "surrogatepass")) <= most:
        assert (left, kept) == (whole, None)
        return
    start, rest = left.split("\n[... ", 1) if not left.startswith("\n[... ") else ("", left[6:])
    end = rest.split(" ...]\n", 1)[1]
    assert whole.startswith(start) and whole.endswith(end)
    assert len((start + end).encode("utf-8", "surrogatepass")) <= most


@given(st.text(max_size=40), st.integers(0, 60), st.integers(0, 60))
def test_a_stretch_is_a_piece_of_the_text(text, start, most):
    assert stretch(text, start, most) in text


# --- in a turn -------------------------------------------------------------------------------------------------------

BIG = "start " + "x" * 2_000_000 + " end"


def asked_last(model):
    return sum(len(part.text) for m in model.requests[-1] for each in m.parts for part in getattr(each, "parts", ()))


async def run(tool, *lines, plugins=(), limits=None, tools=()):
    model, store = ScriptModel([call(tool.name), *lines]), MemoryStore()
    agent = Agent(model=model, tools=[tool, *tools], limits=limits or Limits())
    result = await Stack(plugins, store=store).run(agent, "go", session="s")
    log = await store.open("s", write=False)
    return model, result, await log.read()


async def test_TC_075_two_megabytes_of_text_enter_the_context_as_fifty_kilobytes():
    model, result, events = await run(Tool(name="dump", call=lambda: BIG), "I see.")
    assert result.text == "I see."
    assert 50_000 <= asked_last(model) < 50_200
    (answer,) = [each.data for each in events if isinstance(each.data, ToolResult)]
    text = answer.parts[0].text
    assert text.startswith("start x") and text.endswith("x end")
    assert f"of {len(BIG)} bytes" in text and answer.call_id in text
    assert whole_result(events, answer.call_id) == BIG


async def test_the_whole_stands_directly_before_the_result():
    _, _, events = await run(Tool(name="dump", call=lambda: BIG), "I see.")
    types = [each.type for each in events]
    assert types[types.index("tool/result") - 1] == WHOLE


async def test_the_whole_survives_an_export_and_may_be_skipped():
    _, _, events = await run(Tool(name="dump", call=lambda: BIG), "I see.")
    kept = next(each for each in events if each.type == WHOLE)
    assert not kept.required
    assert event_from_plain(event_to_plain(kept)) == kept


async def test_TC_075_a_fault_a_guards_answer_and_a_plugins_tool_have_the_same_cap():
    class Guard:
        @hookimpl
        def before_tool(self, call):
            return Answer(BIG) if call.name == "guarded" else None

        @hookimpl
        def provide_tools(self):
            return [Tool(name="provided", call=lambda: BIG)]

    lines = (call("provided"), "done")
    model, _, events = await run(Tool(name="guarded", call=lambda: "no"), *lines, plugins=[Guard()])
    assert [each.type for each in events].count(WHOLE) == 2
    assert asked_last(model) < 101_000


async def test_what_is_kept_has_passed_the_redactors():
    class Redact:
        @hookimpl
        def after_tool(self, result):
            return attrs.evolve(result, parts=tuple(Text(p.text.replace("secret", "***")) for p in result.parts))

    tool = Tool(name="dump", call=lambda: "x" * 60_000 + "secret" + "x" * 60_000)
    _, _, events = await run(tool, "ok", plugins=[Redact()])
    assert "secret" not in f"{events}"


async def test_the_limit_is_the_agents_to_set():
    model, _, events = await run(Tool(name="dump", call=lambda: BIG), "ok", limits=Limits(result_bytes=None))
    assert asked_last(model) == len(BIG)
    assert WHOLE not in [each.type for each in events]


async def test_a_model_reads_on_by_the_handle():
    def more(request):
        handle = request.messages[-1].parts[0].call_id
        return call("read_result", handle=handle, start=2_000_000)

    _, result, _ = await run(Tool(name="dump", call=lambda: BIG), more, "ok", tools=[read_result])
    answer = [m.parts[0] for m in result.messages if m.role == "tool"][-1]
    assert answer.parts[0].text == "[bytes 2000000 to 2000010 of 2000010]\nxxxxxx end"


async def test_an_unknown_handle_and_a_start_beyond_the_end_are_refused_in_words():
    odd = call("read_result", handle="nonsense")
    _, result, _ = await run(Tool(name="dump", call=lambda: "short"), odd, "ok", tools=[read_result])
    answer = [m.parts[0] for m in result.messages if m.role == "tool"][-1]
    assert answer.status == "invalid_arguments"
    assert answer.parts[0].text.startswith("Nothing is kept under the handle nonsense.")


@pytest.mark.parametrize("most", [0, 1, 50, 101])
async def test_reading_on_under_a_small_limit_still_answers(most):
    def more(request):
        return call("read_result", handle=request.messages[-1].parts[0].call_id)

    tool = Tool(name="dump", call=lambda: "y" * 1000)
    _, result, _ = await run(tool, more, "ok", tools=[read_result], limits=Limits(result_bytes=most))
    assert result.reason == "completed"
