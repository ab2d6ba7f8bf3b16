from __future__ import annotations

from treadle.plugin import Call, Message, Result, Text
from treadle_http.history import repaired


def user(text: str) -> Message:
    return Message(id=text, role="user", parts=(Text(text),))


def calls(*ids: str) -> Message:
    parts = tuple(Call(id=name, name="look", arguments="{}") for name in ids)
    return Message(id="-".join(ids), role="assistant", parts=parts)


def result(call: str, text: str = "ok") -> Message:
    return Message(
        id=f"r{call}", role="tool", parts=(Result(call_id=call, name="look", status="ok", parts=(Text(text),)),)
    )


def shape(messages: list[Message]) -> list[str]:
    out = []
    for message in messages:
        part = message.parts[0]
        out.append(f"{message.role} {part.call_id} {part.status}" if isinstance(part, Result) else message.role)
    return out


def test_a_whole_history_passes_unchanged() -> None:
    whole = [user("a"), calls("1", "2"), result("1"), result("2"), user("b")]
    assert repaired(whole) == whole


def test_a_call_without_a_result_gets_one_that_says_so() -> None:
    assert shape(repaired([user("a"), calls("1", "2"), result("2"), user("b")])) == [
        "user", "assistant", "tool 1 outcome_unknown", "tool 2 ok", "user",
    ]  # fmt: skip


def test_results_stand_in_the_order_of_their_calls() -> None:
    assert shape(repaired([user("a"), calls("1", "2"), result("2"), result("1")])) == [
        "user", "assistant", "tool 1 ok", "tool 2 ok",
    ]  # fmt: skip


def test_a_late_result_moves_to_its_call() -> None:
    assert shape(repaired([user("a"), calls("1"), user("b"), result("1")])) == [
        "user", "assistant", "tool 1 ok", "user",
    ]  # fmt: skip


def test_a_result_without_its_call_becomes_words_that_name_it() -> None:
    said = repaired([result("9", "42"), user("a")])
    assert [message.role for message in said] == ["context", "user"]
    assert "look" in said[0].text and "42" in said[0].text


def test_a_second_result_is_kept_as_words() -> None:
    said = repaired([user("a"), calls("1"), result("1", "first"), result("1", "second")])
    assert [message.role for message in said] == ["user", "assistant", "tool", "context"]
    assert "second" in said[3].text


def test_repairing_twice_changes_nothing_more() -> None:
    once = repaired([result("9"), user("a"), calls("1", "2"), user("b"), result("2")])
    assert repaired(once) == once
