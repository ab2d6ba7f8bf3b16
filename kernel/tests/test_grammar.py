"""The grammar by itself: each row of its table, each rule under it, and what each event means to the fold.

The right values stand here as DESIGN says them, worked out by hand; nothing is copied from what the code answers.
"""

import hashlib

import attrs
import pytest

from treadle.errors import UnlawfulEvent
from treadle.events import (
    AssistantMessage,
    ContextEdit,
    Event,
    Header,
    InboxDrop,
    InboxPut,
    ModelFailed,
    ModelRequest,
    PluginData,
    SessionMeta,
    SessionOpen,
    StepEnd,
    StepStart,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from treadle.grammar import Phase, State, closers, fold, is_outside, late_message, link
from treadle.messages import Call, Message, Result, Text, Usage

NEW = SessionOpen(reason="new", kernel="0", plugins=())
RESUME = SessionOpen(reason="resume", kernel="0", plugins=())
SWAP = SessionOpen(reason="swap", kernel="0", plugins=())
FORK = SessionOpen(reason="fork", kernel="0", plugins=(), parent="p", parent_seq=1)
HEADER = Header(model="m", family="f")
END = TurnEnd(reason="completed", park=False, steps=0, usage=Usage())
STEP = StepStart(agent="a", digest="d")


def said(id, text="words", role="user", origin="application"):
    return Message(id=id, role=role, parts=(Text(text),) if text else (), origin=origin)


def put(id, lane="turn", wake=True, origin="application"):
    return InboxPut(message=said(id, origin=origin), lane=lane, wake=wake)


def claim(*ids):
    return StepStart(agent="a", digest="d", claims=ids)


def resume(*ids):
    return StepStart(agent="a", digest="d", resumes=ids)


def request(attempt=1, header=HEADER, header_seq=0):
    return ModelRequest(attempt=attempt, digest="x", header=header, header_seq=header_seq)


def failed(attempt=1, action="stop", usage=None):
    return ModelFailed(attempt=attempt, kind="server", error="e", action=action, usage=usage)


def reply(*calls, text="", id="r", finish="calls", usage=None):
    parts = (*((Text(text),) if text else ()), *[Call(id=each, name=f"tool-{each}", arguments="{}") for each in calls])
    message = Message(id=id, role="assistant", parts=parts, origin="model")
    return AssistantMessage(message=message, finish=finish if calls else "end", usage=usage)


def took(id, replay="never"):
    return ToolCall(call_id=id, arguments="{}", replay=replay)


def got(id, status="ok", text="result", **given):
    return ToolResult(call_id=id, status=status, parts=(Text(text),), **given)


def edit(first, last, text=None):
    return ContextEdit(first=first, last=last, put=None if text is None else (Text(text),), plugin="p")


def log(*data):
    """The fold of these events, each stamped where it stands."""
    state = State("s")
    for at, each in enumerate(data, 1):
        state.apply(state.stamp(each, float(at)))
    return state


def why(state, data):
    """Why the next event is refused, or an empty string; it never changes the state then."""
    before = (state.seq, state.phase, list(state.pending), list(state.items))
    try:
        state.apply(state.stamp(data, 0.0))
    except UnlawfulEvent as error:
        assert (state.seq, state.phase, list(state.pending), list(state.items)) == before
        return error.reason
    return ""


OPENED = (NEW, TurnStart())
READY = (*OPENED, STEP)
ASKING = (*READY, request())
ACTING = (*ASKING, reply())
BEGUN = (NEW, put("m"), TurnStart(), claim("m"), UserMessage(said("m")), request())  # seq 1 to 6
PHASES = {
    Phase.NEW: (),
    Phase.IDLE: (NEW,),
    Phase.OPEN: OPENED,
    Phase.READY: READY,
    Phase.ASKING: ASKING,
    Phase.ACTING: ACTING,
}


def texts(state):
    return [(item.message.role, item.message.text) for item in state.items]


def shown(state):
    """Items with what they say, a result with what it shows."""
    return [(item.seq, item.message.role, _words(item.message.parts)) for item in state.items]


def _words(parts):
    return "".join(_words(part.parts) if isinstance(part, Result) else getattr(part, "text", "") for part in parts)


# --- the table --------------------------------------------------------------------------------------------------

SAMPLES = {
    "session/open": (NEW, RESUME, SWAP),
    "context/edit": (edit(1, 1),),
    "turn/start": (TurnStart(),),
    "turn/end": (END,),
    "step/start": (STEP,),
    "step/end": (StepEnd("failed"),),
    "user/message": (UserMessage(said("u")),),
    "model/request": (request(),),
    "model/failed": (failed(),),
    "assistant/message": (reply(),),
    "tool/call": (took("c"),),
    "tool/result": (got("c"),),
}
LAWFUL = {
    Phase.NEW: {"session/open"},
    Phase.IDLE: {"session/open", "context/edit", "turn/start"},
    Phase.OPEN: {"step/start", "context/edit", "session/open", "turn/end"},
    Phase.READY: {"user/message", "context/edit", "model/request", "step/end"},
    Phase.ASKING: {"model/failed", "assistant/message"},
    Phase.ACTING: {"tool/call", "tool/result", "step/end"},
}


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("type", SAMPLES)
def test_the_table_lets_in_what_design_lists_and_nothing_else(phase, type):
    reasons = [why(log(*PHASES[phase]), data) for data in SAMPLES[type]]
    unlisted = [reason == "the table has no such row" for reason in reasons]
    assert not any(unlisted) if type in LAWFUL[phase] else all(unlisted)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("data", [put("x"), SessionMeta(title="t"), PluginData("p/x", 1)])
def test_messages_titles_and_plugins_events_stand_anywhere_but_first_and_leave_the_phase(phase, data):
    state = log(*PHASES[phase])
    reason = why(state, data)
    assert reason == ("a log begins with session/open" if phase is Phase.NEW else "")
    assert state.phase is phase


@pytest.mark.parametrize(
    ("data", "after"),
    [
        ((*OPENED, END), Phase.IDLE),
        ((*READY, StepEnd("failed")), Phase.OPEN),
        ((*ASKING, failed(action="retry")), Phase.READY),
        ((*ACTING, StepEnd("done")), Phase.OPEN),
        ((*OPENED, SWAP), Phase.OPEN),
    ],
)
def test_an_event_leads_to_the_phase_that_design_names(data, after):
    assert log(*data).phase is after


# --- the door ---------------------------------------------------------------------------------------------------


def test_an_event_gets_the_next_seq_and_the_turn_and_step_it_stands_in():
    data = [NEW, put("m"), TurnStart(), put("n", "step"), claim("n", "m"), UserMessage(said("m")), request(), reply()]
    data += [StepEnd("done"), STEP, StepEnd("failed"), PluginData("p/x", 1), END, PluginData("p/x", 1), edit(6, 6, "e")]
    state, seen = State("s"), []
    for each in [*data, TurnStart(), STEP]:
        event = state.stamp(each, 7.5, "owner", False)
        seen.append((event.turn, event.step))
        assert (event.seq, event.time, event.owner, event.required) == (state.seq + 1, 7.5, "owner", False)
        state.apply(event)
        assert state.time == 7.5
    assert seen == [
        (None, None), (None, None), (1, None), (None, None), (1, 1), (1, 1), (1, 1), (1, 1),
        (1, 1), (1, 2), (1, 2), (1, None), (1, None), (None, None), (None, None), (2, None), (2, 1),
    ]  # fmt: skip


@pytest.mark.parametrize("seq", [0, 1, 3])
def test_a_seq_that_is_not_the_next_is_refused(seq):
    state = log(NEW)
    with pytest.raises(UnlawfulEvent, match="seq 2 was due"):
        state.apply(Event(seq, 0.0, TurnStart(), turn=1))


@pytest.mark.parametrize(("data", "named", "was"), [(TurnStart(), 2, 1), (TurnStart(), 0, 1)])
def test_an_event_that_names_another_turn_is_refused(data, named, was):
    with pytest.raises(UnlawfulEvent, match=f"it names turn {named}, not {was}"):
        log(NEW).apply(Event(2, 0.0, data, turn=named))
    with pytest.raises(UnlawfulEvent, match="it names turn 2, not 1"):
        log(*OPENED).apply(Event(3, 0.0, STEP, turn=2, step=1))


def test_a_refusal_says_which_event_where_and_why():
    with pytest.raises(UnlawfulEvent) as raised:
        log(*OPENED).apply(Event(3, 0.0, TurnStart(), turn=2))
    assert (raised.value.type, raised.value.phase, raised.value.seq) == ("turn/start", "OPEN", 3)


# --- the rules under the table ----------------------------------------------------------------------------------


def test_only_the_first_event_opens_anew_and_it_does():
    assert why(log(NEW), NEW) == "reason new belongs to the first event, and to no other"
    assert why(log(), RESUME) == "reason new belongs to the first event, and to no other"
    assert why(log(NEW), RESUME) == "" == why(log(NEW), SWAP)


@pytest.mark.parametrize("opening", [RESUME, FORK])
def test_inside_a_turn_only_a_swap_opens(opening):
    assert why(log(*OPENED), opening) == "only a swap may come inside a turn"


def test_a_messages_id_is_used_once_for_ever():
    assert why(log(NEW, put("m")), put("m")) == "id m was used before"
    assert why(log(*BEGUN), put("m")) == "id m was used before"
    assert why(log(NEW, put("m"), InboxDrop(ids=("m",), why="withdrawn")), put("m")) == "id m was used before"


def test_only_what_pends_is_dropped():
    assert why(log(NEW, put("m")), InboxDrop(ids=("m", "n"), why="withdrawn")) == "n does not pend"


def test_a_step_claims_the_oldest_of_each_lane_and_one_of_the_turns():
    inbox = (NEW, put("t1"), put("s1", "step"), put("t2"), put("s2", "step"), TurnStart())
    for lawful in ((), ("s1",), ("s1", "s2"), ("t1",), ("s2", "t1", "s1")):
        assert why(log(*inbox), claim(*lawful)) == ""
    assert why(log(*inbox), claim("s2")) == "it must claim the oldest of the step lane, at most 4"
    assert why(log(*inbox), claim("t2")) == "it must claim the oldest of the turn lane, at most 1"
    assert why(log(*inbox), claim("t1", "t2")) == "it must claim the oldest of the turn lane, at most 1"
    assert why(log(*inbox), claim("s1", "t1", "nobody")) == "nobody does not pend"


def test_a_step_that_resumes_claims_nothing_and_resumes_what_waits():
    asked = (*BEGUN, reply("c"), took("c"), got("c", "deferred"), StepEnd("done"), put("n"))
    assert (
        why(log(*asked), StepStart(agent="a", digest="d", claims=("n",), resumes=("c",)))
        == "a step that resumes calls claims no message"
    )
    assert why(log(*asked), resume("c", "x")) == "call x is neither deferred nor resumable"
    state = log(*asked, resume("c"))
    assert (state.phase, state.order, list(state.deferred)) == (Phase.ACTING, ["c"], [])


def test_a_users_message_stands_directly_behind_its_step_start():
    waits = "a user/message stands directly behind its step/start"
    assert why(log(*READY, PluginData("p/x", 1)), UserMessage(said("u"))) == waits
    assert why(log(*READY, request(), failed(action="retry")), UserMessage(said("u"))) == waits
    assert why(log(*READY, UserMessage(said("u")), UserMessage(said("v"))), UserMessage(said("w"))) == ""


def test_a_users_message_is_one_that_was_claimed_or_one_that_a_hook_added():
    claimed = (NEW, put("m"), put("n"), TurnStart(), claim("m"))
    assert why(log(*claimed), UserMessage(said("m"))) == ""
    assert why(log(*claimed), UserMessage(said("added"))) == ""
    assert why(log(*claimed), UserMessage(said("n"))) == "id n was used before"
    assert why(log(*claimed, UserMessage(said("added"))), UserMessage(said("added"))) == "id added was used before"


def test_attempts_count_on_and_name_a_header_that_stands_there():
    assert why(log(*READY), request(2)) == "attempt 1 was due"
    retried = (*ASKING, failed(action="retry"))  # its request has seq 4
    assert why(log(*retried), request(1)) == "attempt 2 was due"
    assert why(log(*retried), request(2, header=None, header_seq=4)) == ""
    assert why(log(*retried), request(2, header=None, header_seq=3)) == "no request with a header stands at seq 3"
    assert why(log(*READY), request(header=None)) == "no request with a header stands at seq 0"
    assert why(log(*ASKING), failed(2)) == "attempt 1 is open"


def test_after_a_stop_a_step_asks_no_more_and_the_next_step_does():
    assert why(log(*ASKING, failed()), request(2)) == "the step's asking was stopped"
    assert why(log(*ASKING, failed(), StepEnd("failed"), STEP), request(1)) == ""


def test_a_call_is_taken_up_once_and_belongs_to_its_step():
    acting = (*ASKING, reply("c"))
    assert why(log(*acting), took("x")) == "the step has no call x"
    assert why(log(*acting, took("c")), took("c")) == "call c was taken up before"
    next_step = (StepEnd("done"), STEP, request(), reply())
    assert why(log(*acting, took("c"), got("c"), *next_step), took("c")) == "the step has no call c"


def test_results_stand_in_model_order_one_for_each_call_that_was_taken_up():
    acting = (*ASKING, reply("c", "d"))
    assert why(log(*acting), got("c")) == "no tool/call c stands in this step"
    assert why(log(*acting), got("x")) == "no tool/call x stands in this step"
    order = "results stand in the model's order, one for each call"
    assert why(log(*acting, took("c"), took("d")), got("d")) == order
    assert why(log(*acting, took("c"), got("c")), got("c")) == order
    assert why(log(*acting, took("c"), took("d"), got("c"), got("d")), got("d")) == order
    assert why(log(*acting, took("d"), took("c"), got("c")), got("d")) == ""


def test_a_step_is_done_with_a_reply_and_all_its_results():
    assert why(log(*READY), StepEnd("done")) == "a step without a reply is not done"
    assert why(log(*READY), StepEnd("aborted")) == ""
    acting = (*ASKING, reply("c", "d"), took("c"), got("c"))
    assert why(log(*acting), StepEnd("aborted")) == "call d has no result"


@pytest.mark.parametrize("status", ["not_started", "outcome_unknown"])
def test_only_repair_leaves_resumable_calls_and_only_such_as_never_settled(status):
    done = (*ASKING, reply("c"), took("c"), got("c", status))
    assert why(log(*done), StepEnd("aborted", ("c",))) == "only repair leaves resumable calls"
    assert why(log(*done), StepEnd("interrupted", ("c",))) == ""
    settled = (*ASKING, reply("c"), took("c"), got("c", "ok"))
    assert why(log(*settled), StepEnd("interrupted", ("c",))) == "call c is not resumable"
    assert why(log(*settled), StepEnd("interrupted", ("x",))) == "call x is not resumable"


# --- edits ------------------------------------------------------------------------------------------------------

# u1 at 5, reply with c and d at 7, results at 10 and 11, answer at 14, u2 at 19, answer at 21
TALK = (
    *BEGUN, reply("c", "d"), took("c"), took("d"), got("c", text="1"), got("d", text="2"), StepEnd("done"),
    STEP, request(), reply(text="answer", id="r2"), StepEnd("done"), END,
    put("m2"), TurnStart(), claim("m2"), UserMessage(said("m2", "more")), request(), reply(text="again", id="r3"),
    StepEnd("done"), END,
)  # fmt: skip


def seqs(state):
    return [item.seq for item in state.items]


def test_the_talk_stands_where_these_tests_think():
    assert seqs(log(*TALK)) == [5, 7, 10, 11, 15, 21, 23]
    assert log(*TALK).seq == 25


@pytest.mark.parametrize(
    ("first", "last", "left"),
    [
        (5, 5, None),  # would begin with the assistant's calls
        (5, 15, [21, 23]),
        (5, 11, None),  # would begin with an assistant message
        (7, 11, [5, 15, 21, 23]),
        (7, 15, [5, 21, 23]),
        (21, 23, [5, 7, 10, 11, 15]),
        (5, 23, []),
        (15, 15, [5, 7, 10, 11, 21, 23]),
    ],
)
def test_a_range_is_hidden_if_a_view_that_begins_with_the_user_is_left(first, last, left):
    state = log(*TALK)
    reason = why(state, edit(first, last))
    assert (
        reason == "" and seqs(state) == left
        if left is not None
        else reason == "the view would not begin with a user's item"
    )


@pytest.mark.parametrize(("first", "last"), [(7, 7), (7, 10), (10, 11), (10, 10), (11, 15), (10, 15)])
def test_a_message_and_its_results_are_hidden_together(first, last):
    assert why(log(*TALK), edit(first, last)) == "a message and its results are edited together"


@pytest.mark.parametrize(("first", "last"), [(7, 10), (10, 11), (10, 15)])
def test_a_message_and_its_results_are_replaced_together(first, last):
    assert why(log(*TALK), edit(first, last, "short")) == "a message and its results are edited together"


def test_an_edit_names_live_items_the_first_of_them_first():
    assert why(log(*TALK), edit(6, 15)) == "no live item has seq 6"
    assert why(log(*TALK), edit(5, 16)) == "no live item has seq 16"
    assert why(log(*TALK), edit(15, 5)) == "last stands before first"
    assert why(log(*TALK, edit(5, 15, "short")), edit(15, 15)) == "no live item has seq 15"


def test_a_range_gives_way_to_one_context_message_that_the_plugin_put_there():
    state = log(*TALK, edit(5, 15, "short"))
    assert seqs(state) == [26, 21, 23]
    message = state.items[0].message
    assert (message.id, message.role, message.text, message.origin) == ("edit:26", "context", "short", "plugin:p")


def test_a_summary_may_be_shadowed_by_the_seq_that_put_it_there_though_it_is_the_larger():
    assert seqs(log(*TALK, edit(5, 15, "short"), edit(26, 23, "shorter"))) == [27]


def test_one_result_is_replaced_for_the_same_call():
    state = log(*TALK, edit(10, 10, "redacted"))
    assert seqs(state) == [5, 7, 26, 11, 15, 21, 23]
    result = state.items[2].message.parts[0]
    assert (result.call_id, result.name, result.status, result.parts) == ("c", "tool-c", "ok", (Text("redacted"),))
    whole = Result(call_id="other", name="x", status="error", parts=(Text("whole"),))
    state = log(*TALK, ContextEdit(first=10, last=10, put=(whole,), plugin="p"))
    assert state.items[2].message.parts == (attrs.evolve(result, parts=(Text("whole"),)),)


def test_a_deferred_call_is_not_edited_away():
    waiting = (*BEGUN, reply("c"), took("c"), got("c", "deferred"), StepEnd("done"))
    assert why(log(*waiting), edit(5, 9)) == "a deferred call may not be edited away"
    assert why(log(*waiting), edit(9, 9, "x")) == "a deferred call may not be edited away"


def test_a_result_beside_a_deferred_one_may_be_replaced():
    waiting = (*BEGUN, reply("c", "d"), took("c"), took("d"), got("c"), got("d", "deferred"), StepEnd("done"))
    assert why(log(*waiting), edit(10, 10, "redacted")) == ""


def test_a_call_is_not_edited_away_from_the_result_that_ends_the_view():
    assert why(log(*BEGUN, reply("c"), took("c"), got("c"), StepEnd("done")), edit(7, 7)) == (
        "a message and its results are edited together"
    )


def test_while_a_reply_is_owed_an_edit_leaves_something_to_answer():
    owed = (*TALK, put("m3"), TurnStart(), claim("m3"), UserMessage(said("m3")))
    assert why(log(*owed), edit(29, 29)) == "a reply is owed, and nothing would be left to answer"
    assert why(log(*owed), edit(5, 29)) == "a reply is owed, and nothing would be left to answer"
    assert why(log(*owed), edit(29, 29, "shorter")) == ""
    assert why(log(*owed), edit(5, 23)) == ""
    assert log(*TALK).check_edit(edit(5, 15)) == ""


# --- what events mean -------------------------------------------------------------------------------------------


def test_a_log_that_says_nothing_means_nothing():
    state = fold(())
    assert State().session == ""
    assert (state.session, state.phase, state.seq, state.time, state.turn, state.step) == ("", Phase.NEW, 0, 0.0, 0, 0)
    assert (state.attempt, state.stopped, state.answered, state.alone) == (0, False, 0, 0)
    assert (state.parked, state.owed, state.last_deferred) == (False, False, False)
    assert (state.pending, state.put_seq, state.ids, state.items, state.order) == ({}, {}, set(), [], [])
    assert (state.calls, state.deferred, state.resumable) == ({}, {}, {})
    assert state.last_reply is None and state.last_end is None and state.header is None
    assert (state.header_seq, state.usage, state.size, state.digest, state.meta) == (0, Usage(), 0, "", SessionMeta())


def test_an_event_is_the_kernels_and_required_if_nobody_says_otherwise():
    event = State().stamp(NEW, 1.0)
    assert (event.owner, event.required) == ("treadle", True)


def test_what_is_put_pends_until_it_is_claimed_or_dropped():
    inbox = (NEW, put("a"), put("b", "step", wake=False), put("c"))
    state = log(*inbox)
    assert (list(state.pending), state.put_seq) == (["a", "b", "c"], {"a": 2, "b": 3, "c": 4})
    assert list(log(*inbox, InboxDrop(ids=("a", "c"), why="cancelled")).pending) == ["b"]
    state = log(*inbox, TurnStart(), claim("a", "b"))
    assert (list(state.pending), state.put_seq) == (["c"], {"c": 4})


def test_the_batch_is_the_step_lane_and_one_of_the_turns_in_seq_order():
    state = log(NEW, put("t1"), put("s1", "step"), put("t2"), put("s2", "step", wake=False))
    assert [each.id for each in state.batch(with_turn_lane=True)] == ["t1", "s1", "s2"]
    assert [each.id for each in state.batch(with_turn_lane=False)] == ["s1", "s2"]


def test_a_message_wakes_by_its_lane_and_since_its_seq():
    state = log(NEW, put("t"), put("s", "step", wake=False))
    assert (state.wakes(), state.wakes("turn"), state.wakes("step")) == (True, True, False)
    assert (state.woken_since(1), state.woken_since(2)) == (True, False)
    assert not log(NEW, put("s", "step", wake=False)).wakes()


def test_a_log_is_parked_by_an_ending_or_a_resume_until_a_wake_or_a_turn():
    parking = attrs.evolve(END, park=True)
    parked = (NEW, TurnStart(), parking)
    assert log(*parked).parked and log(NEW, RESUME).parked
    assert not log(NEW, TurnStart(), END).parked and not log(NEW).parked
    assert log(*parked, put("m", wake=False)).parked
    assert not log(*parked, put("m")).parked
    assert not log(*parked, TurnStart()).parked
    assert log(NEW, RESUME, SWAP).parked
    for unparked in ((NEW, RESUME, FORK), (*parked, put("m")), (*parked, TurnStart())):
        assert log(*unparked).parked is False
    assert log(*parked).last_end == parking


def test_turns_count_on_steps_begin_anew_and_so_do_attempts():
    state = log(*ASKING, failed(action="retry"), request(2), failed(2), StepEnd("failed"), STEP)
    assert (state.turn, state.step, state.attempt) == (1, 2, 0)
    state = log(*OPENED, STEP, StepEnd("failed"), END, RESUME, TurnStart())
    assert (state.turn, state.step) == (2, 0)


def test_a_reply_is_owed_by_the_last_of_what_was_said():
    assert log(*BEGUN).owed
    assert not log(NEW, put("m")).owed
    assert log(*BEGUN, reply(text="words")).owed is False
    assert not log(*BEGUN, reply()).owed  # an empty answer is one
    acting = (*BEGUN, reply("c", "d"), took("c"), took("d"))
    assert log(*acting, got("c")).owed
    assert not log(*acting, got("c", concludes=True), got("d")).owed
    assert log(
        *acting, got("c", concludes=True), got("d"), StepEnd("done"), put("n"), claim("n"), UserMessage(said("n"))
    ).owed
    again = (StepEnd("done"), STEP, request(), reply("e", id="r2"), took("e"), got("e"))
    assert log(*acting, got("c", concludes=True), got("d"), *again).owed  # it concluded its own step only


def test_an_empty_answer_stands_in_the_log_and_not_in_the_view():
    state = log(*BEGUN, reply())
    assert (texts(state), state.last_reply) == ([("user", "words")], reply())


def test_a_deferred_result_is_a_placeholder_and_its_late_result_takes_its_place():
    waiting = (
        *BEGUN,
        reply("c", "d"),
        took("c"),
        took("d"),
        got("c", "deferred", "wait"),
        got("d"),
        StepEnd("done"),
        END,
    )
    state = log(*waiting)
    assert (list(state.deferred), state.deferred["c"].placeholder, state.last_deferred) == (["c"], 10, True)
    state = log(*waiting, TurnStart(), resume("c"), took("c"), got("c", text="late"))
    assert shown(state) == [(5, "user", "words"), (7, "assistant", ""), (17, "tool", "late"), (11, "tool", "result")]
    assert not state.deferred and not state.last_deferred and state.owed
    assert state.calls["c"].status == "ok"


def test_deferred_said_again_changes_nothing_that_the_model_sees():
    waiting = (*BEGUN, reply("c"), took("c"), got("c", "deferred", "wait"), StepEnd("done"), END)
    again = (TurnStart(), resume("c"), took("c"), got("c", "deferred", "still"), StepEnd("done"), END)
    state = log(*waiting, *again)
    assert shown(state)[-1] == (9, "tool", "wait") and state.deferred["c"].placeholder == 9
    state = log(*waiting, *again, TurnStart(), resume("c"), took("c"), got("c", text="late"))
    assert shown(state)[-1][1:] == ("tool", "late")


def test_a_late_result_that_was_answered_over_stands_at_its_own_place_and_names_the_call():
    waiting = (*BEGUN, reply("c"), took("c"), got("c", "deferred"), StepEnd("done"), END)
    spoke = (put("n"), TurnStart(), claim("n"), UserMessage(said("n")), request(), reply(text="later", id="r2"))
    state = log(*waiting, *spoke, StepEnd("done"), END, TurnStart(), resume("c"), took("c"), got("c", "error", "late"))
    message = state.items[-1].message
    call = Call(id="c", name="tool-c", arguments="{}")
    assert message == late_message(call, "error", (Text("late"),))
    assert (message.id, message.role, message.origin) == ("c:late", "context", "call:c")
    assert message.text == "[Result of the earlier call tool-c (c), status error]\nlate"
    assert shown(state)[2] == (9, "tool", "result")  # the placeholder stays
    assert seqs(state)[-1] == state.seq


def test_a_result_reads_as_a_tool_message_of_its_own():
    message = log(*BEGUN, reply("c"), took("c"), got("c", "error")).items[-1].message
    assert (message.id, message.role, message.origin) == ("c:result", "tool", "call:c")
    assert message.parts == (Result(call_id="c", name="tool-c", status="error", parts=(Text("result"),)),)


def test_repair_makes_calls_resumable_once_until_the_next_step():
    cut = (*BEGUN, reply("c", "d"), took("c", "safe"), took("d"), got("c", "outcome_unknown"), got("d", "not_started"))
    state = log(*cut, StepEnd("interrupted", ("c", "d")))
    assert {each: waiting.placeholder for each, waiting in state.resumable.items()} == {"c": 10, "d": 11}
    assert not log(*cut, StepEnd("interrupted", ("c", "d")), STEP).resumable
    state = log(*cut, StepEnd("interrupted", ("c", "d")), resume("d"), took("d"), got("d", text="ran"))
    assert shown(state)[-1][1:] == ("tool", "ran") and not state.resumable
    assert not log(*cut, StepEnd("interrupted")).resumable


def test_a_resumed_call_that_repair_cut_off_again_takes_its_place_when_it_runs_at_last():
    calls = (reply("c", "d", "e"), took("c", "safe"), took("d"), took("e"), got("c", "deferred"), got("d"), got("e"))
    waiting = (*BEGUN, *calls, StepEnd("done"), END, TurnStart(), resume("c"), took("c", "safe"))
    cut = (got("c", "outcome_unknown", "cut"), StepEnd("interrupted", ("c",)), END)
    state = log(*waiting, *cut)
    place = shown(state)[2]
    assert place[1:] == ("tool", "cut") and state.resumable["c"].placeholder == place[0]
    state = log(*waiting, *cut, TurnStart(), resume("c"), took("c", "safe"), got("c", text="at last"))
    assert [each[1:] for each in shown(state)] == [
        ("user", "words"), ("assistant", ""), ("tool", "at last"), ("tool", "result"), ("tool", "result"),
    ]  # fmt: skip


def test_a_resumed_call_that_was_answered_over_and_cut_off_keeps_its_placeholder():
    waiting = (*BEGUN, reply("c"), took("c"), got("c", "deferred"), StepEnd("done"), END)
    spoke = (put("n"), TurnStart(), claim("n"), UserMessage(said("n")), request(), reply(text="later", id="r2"))
    cut = (TurnStart(), resume("c"), took("c", "safe"), got("c", "outcome_unknown"), StepEnd("interrupted", ("c",)))
    assert log(*waiting, *spoke, StepEnd("done"), END, *cut).resumable["c"].placeholder == 9


def test_a_resumable_call_whose_result_was_edited_away_is_told_of_at_the_end():
    cut = (*BEGUN, reply("c"), took("c"), got("c", "not_started"), StepEnd("interrupted", ("c",)), END, edit(7, 9))
    state = log(*cut, TurnStart(), resume("c"), took("c"), got("c", text="ran"))
    head = "[Result of the earlier call tool-c (c), status ok]\n"
    assert [each[1:] for each in shown(state)] == [("user", "words"), ("context", f"{head}ran")]


def test_a_call_that_was_edited_away_and_cut_off_again_is_still_told_of_at_the_end():
    cut = (*BEGUN, reply("c"), took("c"), got("c", "not_started"), StepEnd("interrupted", ("c",)), END, edit(7, 9))
    again = (TurnStart(), resume("c"), took("c", "safe"), got("c", "outcome_unknown"), StepEnd("interrupted", ("c",)))
    state = log(*cut, *again, END, TurnStart(), resume("c"), took("c"), got("c"))
    assert [item.message.role for item in state.items] == ["user", "context", "context"]


def test_usage_is_summed_over_the_turn_and_begins_anew_with_the_next():
    some = Usage(input=1, output=2)
    asked = (
        *ASKING,
        failed(action="retry", usage=some),
        request(2),
        reply("c", usage=some),
        took("c"),
        got("c", usage=some),
    )
    assert log(*asked).usage == Usage(input=3, output=6)
    assert log(*asked, StepEnd("done"), END).usage == Usage(input=3, output=6)
    assert log(*asked, StepEnd("done"), END, TurnStart()).usage == Usage()


def test_turns_alone_are_counted_from_the_last_message_from_outside():
    inside = (
        put("p", origin="plugin:x"),
        TurnStart(),
        claim("p"),
        UserMessage(said("p", origin="plugin:x")),
        StepEnd("failed"),
        END,
    )
    assert log(NEW, *inside).alone == 1
    again = [
        attrs.evolve(each, message=attrs.evolve(each.message, id="q")) if hasattr(each, "message") else each
        for each in inside
    ]
    assert log(NEW, *inside, *[claim("q") if each == claim("p") else each for each in again]).alone == 2
    outside = (TurnStart(), STEP, UserMessage(said("o")))
    assert log(NEW, *inside, *outside).alone == 0


@pytest.mark.parametrize(("origin", "outside"), [
    ("application", True), ("", True), ("plugin:x", False), ("call:c", False), ("turn:inside", False),
])  # fmt: skip
def test_what_plugins_calls_and_turns_say_does_not_come_from_outside(origin, outside):
    assert is_outside(said("m", origin=origin)) == outside


def test_of_title_labels_and_metadata_the_last_that_was_said_counts():
    state = log(NEW, SessionMeta(title="a", labels=("x",)), SessionMeta(labels=()), SessionMeta(metadata={"k": 1}))
    assert state.meta == SessionMeta(title="a", labels=(), metadata={"k": 1})
    assert log(NEW, SessionMeta(labels=("x", "y"))).meta.labels == ("x", "y")


def test_a_fork_begins_with_an_empty_inbox_and_nothing_waiting():
    waiting = (*BEGUN, reply("c"), took("c"), got("c", "deferred"), StepEnd("done"), END, put("n"))
    state = log(*waiting, FORK)
    assert (state.pending, state.put_seq, state.deferred, state.resumable) == ({}, {}, {}, {})
    cut = (*BEGUN, reply("c"), took("c"), got("c", "not_started"), StepEnd("interrupted", ("c",)), END)
    assert log(*cut).resumable and not log(*cut, FORK).resumable


def test_the_digest_is_a_chain_of_keyed_blake2b_over_role_id_and_parts():
    one, two = b'["user","m",[["Text","words",null]]]', b'["assistant","r",[["Text","answer",null]]]'
    first = hashlib.blake2b(one, digest_size=16, key=b"").digest()
    second = hashlib.blake2b(two, digest_size=16, key=first).digest()
    assert log(NEW).digest == ""
    state = log(*BEGUN, reply(text="answer"))
    assert (state.digest, state.size) == (second.hex(), len(one) + len(two))
    assert link(first, two) == second


def test_the_digest_is_the_same_looked_at_often_or_once_and_new_after_an_edit():
    often = State("s")
    for at, each in enumerate(TALK, 1):
        often.apply(often.stamp(each, float(at)))
        assert often.digest is not None
    once = log(*TALK)
    assert (often.digest, often.size) == (once.digest, once.size)
    edited = log(*TALK)
    assert edited.digest == once.digest
    edited.apply(edited.stamp(edit(5, 15, "short"), 0.0))
    assert edited.digest != once.digest
    assert (edited.digest, edited.size) == ((fresh := log(*TALK, edit(5, 15, "short"))).digest, fresh.size)


def test_after_an_edit_the_digest_is_that_of_what_is_left():
    state = log(*BEGUN, reply(text="answer"), StepEnd("done"), END)
    assert state.digest
    state.apply(state.stamp(edit(5, 7, "short"), 0.0))
    left = b'["context","edit:10",[["Text","short",null]]]'
    assert state.digest == hashlib.blake2b(left, digest_size=16, key=b"").hexdigest() and state.size == len(left)


def test_views_made_before_stay_what_they_were():
    state = log(*TALK)
    view = state.view
    state.apply(state.stamp(edit(5, 15, "short"), 0.0))
    assert [item.seq for item in view.items] == [5, 7, 10, 11, 15, 21, 23]


def test_a_state_is_idle_between_turns_and_before_the_first():
    assert log().idle and log(NEW).idle and not log(*OPENED).idle


# --- repair -----------------------------------------------------------------------------------------------------


def test_repair_says_what_came_of_each_call_and_which_may_run():
    parts = reply("done", "safe", "once", "late")
    cut = (*BEGUN, parts, took("done"), got("done"), took("safe", "safe"), took("once"))
    unknown, never = [
        "The process ended while this call ran. Whether it took effect is unknown: check before calling again.",
        "The process ended before this call was started.",
    ]
    assert list(closers(log(*cut))) == [
        got("safe", "outcome_unknown", unknown),
        got("once", "outcome_unknown", unknown),
        took("late"),
        got("late", "not_started", never),
        StepEnd("interrupted", ("safe", "late")),
        TurnEnd(reason="interrupted", detail="the process ended", park=True, steps=1, usage=Usage()),
    ]


def test_repair_closes_an_open_request_with_its_attempt_and_the_turns_usage():
    spent = Usage(input=3)
    assert list(closers(log(*ASKING, failed(action="retry", usage=spent), request(2)))) == [
        ModelFailed(attempt=2, kind="interrupted", error="The process ended during the model call.", action="stop"),
        StepEnd("interrupted"),
        TurnEnd(reason="interrupted", detail="the process ended", park=True, steps=1, usage=spent),
    ]


def test_repair_leaves_a_resumed_call_that_had_not_begun_deferred_and_one_that_had_unknown():
    waiting = (
        *BEGUN,
        reply("c", "d"),
        took("c"),
        took("d"),
        got("c", "deferred"),
        got("d", "deferred"),
        StepEnd("done"),
        END,
    )
    made = list(closers(log(*waiting, TurnStart(), resume("c", "d"), took("c"))))
    assert [(type(each).__name__, getattr(each, "status", "")) for each in made[:3]] == [
        ("ToolResult", "outcome_unknown"), ("ToolCall", ""), ("ToolResult", "deferred"),
    ]  # fmt: skip
    assert made[2].parts == (Text("This call still waits for a decision."),)
    assert made[3] == StepEnd("interrupted")


def test_repair_never_resumes_the_calls_of_a_truncated_reply():
    made = list(closers(log(*ASKING, reply("c", finish="length"))))
    assert [getattr(each, "status", "") for each in made] == ["", "not_started", "", ""]
    assert made[2] == StepEnd("interrupted")


def test_repair_adds_nothing_to_a_balanced_log():
    assert closers(log()) == () == closers(log(NEW)) and list(closers(log(*TALK))) == []


def test_a_fold_is_the_same_event_by_event_or_all_at_once():
    events, state = [], State("s")
    for each in TALK:
        events.append(state.stamp(each, 1.0))
        state.apply(events[-1])
    assert fold(events, "s").digest == state.digest and fold(events, "s").session == "s"
