from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Home, Start


def test_the_answer_alone_stands_on_stdout_and_the_work_on_stderr(home: Home) -> None:
    done = home.run("run", "What is 17 plus 25?", "-m", "script:calc", "-t", "tools.py:add")
    assert (done.returncode, done.stdout) == (0, "Let me add.\n17 plus 25 is 42.\n")
    work, session = done.stderr.split("session ")
    assert work == "step 1\n  add(a=17, b=25)\n  -> 42\nstep 2\n"
    assert len(session.strip()) == 36  # a UUID


def test_a_prompt_alone_is_the_command_run(home: Home) -> None:
    done = home.here("hi", "-m", "script:hi")
    assert (done.exit_code, done.stdout) == (0, "Hello there, friend.\n")


def test_options_before_the_prompt_are_the_command_run_too(home: Home) -> None:
    assert home.here("-m", "script:hi", "hi").stdout == "Hello there, friend.\n"


def test_a_simple_answer_shows_no_steps(home: Home) -> None:
    assert "step" not in home.here("hi", "-m", "script:hi").stderr


def test_piped_input_is_the_prompt(home: Home) -> None:
    assert home.here("-m", "script:hi", "--session", "a", input="a poem\n").exit_code == 0
    assert said(home, "a") == ["a poem"]


def test_piped_input_stands_below_a_prompt(home: Home) -> None:
    home.here("translate", "-m", "script:hi", "--session", "a", input="ein Gedicht\n")
    assert said(home, "a") == ["translate\n\nein Gedicht"]


def said(home: Home, session: str) -> list[str]:
    events = home.events(session)
    return [each["data"]["message"]["parts"][0]["text"] for each in events if each["type"] == "user/message"]


def test_no_prompt_is_a_usage_error_that_names_the_ways(home: Home) -> None:
    done = home.here("run", "-m", "script:hi", input="")
    assert done.exit_code == 2
    assert "pipe one in" in done.stderr and "treadle chat" in done.stderr


def test_json_is_one_document(home: Home) -> None:
    done = home.here("run", "17 + 25?", "-m", "script:calc", "-t", "tools.py:add", "--json")
    document = json.loads(done.stdout)
    assert (document["text"], document["reason"], document["steps"]) == ("17 plus 25 is 42.", "completed", 2)
    assert document["usage"]["tokens"] == 30  # the script counts 10 in and 5 out for each reply
    assert [each["role"] for each in document["messages"]] == ["user", "assistant", "tool", "assistant"]


def test_jsonl_is_events_and_deltas_and_the_result(home: Home) -> None:
    done = home.here("run", "hi", "-m", "script:hi", "--jsonl")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[0]["type"] == "session/open" and lines[-1]["type"] == "result"
    assert "".join(each["text"] for each in lines if each["type"] == "delta") == "Hello there, friend."
    assert [each["seq"] for each in lines if "seq" in each] == list(range(1, 10))


def test_without_streaming_each_reply_comes_whole(home: Home) -> None:
    done = home.here("run", "x", "-m", "script:calc", "-t", "tools.py:add", "--no-stream")
    assert done.stdout == "Let me add.\n17 plus 25 is 42.\n"


def test_quiet_leaves_only_the_answer(home: Home) -> None:
    done = home.here("run", "x", "-m", "script:calc", "-t", "tools.py:add", "-q")
    assert (done.stdout, done.stderr) == ("Let me add.\n17 plus 25 is 42.\n", "")


def test_parallel_calls_name_each_result(home: Home) -> None:
    calls = [{"name": "add", "arguments": {"a": 1, "b": 2}}, {"name": "plain", "arguments": {"text": "x"}}]
    home.script("two", [{"calls": calls}, "done"])
    done = home.here("run", "x", "-m", "script:two", "-t", "tools.py:add", "-t", "tools.py:plain")
    assert "  add -> 3\n  plain -> x\n" in done.stderr


def test_options_reach_the_model_as_json_or_text(home: Home) -> None:
    home.here(
        "x", "-m", "script:hi", "-o", "temperature", "0.5", "-o", "stop", "END", "-s", "Be brief.", "--session", "a"
    )
    (request,) = [each for each in home.events("a") if each["type"] == "model/request"]
    assert request["data"]["header"]["params"] == {"temperature": 0.5, "stop": "END"}
    assert request["data"]["header"]["instructions"] == [{"text": "Be brief."}]


# --- exit codes ----------------------------------------------------------------------------------------------


def test_a_failed_model_call_is_exit_code_1_and_one_message(home: Home) -> None:
    home.script("bad", [{"error": "auth", "message": "no key"}])
    done = home.here("hi", "-m", "script:bad", "-n")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "Failed: The model call failed (auth): no key\n"


def test_a_model_that_no_plugin_opens_is_exit_code_2(home: Home) -> None:
    done = home.here("hi", "-m", "nobody:x")
    assert done.exit_code == 2
    assert done.stderr.startswith('Error: No plugin opens the model "nobody:x".') and "Traceback" not in done.stderr


def test_traceback_shows_where_an_error_came_from(home: Home) -> None:
    done = home.run("hi", "-m", "nobody:x", "--traceback")
    assert done.returncode == 2
    assert "Traceback" in done.stderr and "Error: No plugin opens" in done.stderr


def test_an_unknown_option_is_exit_code_2(home: Home) -> None:
    assert home.here("run", "hi", "--nonsense").exit_code == 2


def test_a_call_that_waits_is_exit_code_3_and_says_how_to_decide(home: Home) -> None:
    home.script("wipe", [{"calls": [{"name": "wipe", "arguments": {"path": "/x"}}]}, "Done."])
    done = home.here("wipe", "-m", "script:wipe", "-t", "tools.py:wipe", "--session", "a")
    assert done.exit_code == 3
    assert '  wipe(path="/x")\n  -> waits for a decision\n' in done.stderr
    assert "treadle run --session a --approve NAME" in done.stderr


def test_approve_goes_on_with_a_call_that_waits_in_another_process(home: Home) -> None:
    home.script("wipe", [{"calls": [{"name": "wipe", "arguments": {"path": "/x"}}]}])
    home.script("after", ["Done."])
    home.here("wipe", "-m", "script:wipe", "-t", "tools.py:wipe", "--session", "a")
    done = home.run("--session", "a", "--approve", "wipe", "-m", "script:after", "-t", "tools.py:wipe")
    assert (done.returncode, done.stdout) == (0, "Done.\n")
    assert "-> wiped /x" in done.stderr


def test_deny_tells_the_model_so(home: Home) -> None:
    home.script("wipe", [{"calls": [{"name": "wipe", "arguments": {"path": "/x"}}]}, "As you wish."])
    done = home.here("wipe", "-m", "script:wipe", "-t", "tools.py:wipe", "--deny", "all", "--approve", "all")
    assert (done.exit_code, done.stdout) == (0, "As you wish.\n")
    assert "denied: The call was denied: The user did not allow it." in done.stderr


def test_approving_what_does_not_wait_is_a_usage_error(home: Home) -> None:
    home.here("hi", "-m", "script:hi", "--session", "a")
    done = home.here("--session", "a", "--approve", "all", "-m", "script:hi")
    assert done.exit_code == 2 and "Nothing waits" in done.stderr


def test_a_limit_is_exit_code_4(home: Home) -> None:
    done = home.here("x", "-m", "script:calc", "-t", "tools.py:add", "--max-steps", "1")
    assert done.exit_code == 4 and "the limit max_steps is used up" in done.stderr


def test_a_reader_that_goes_away_cancels_the_turn_and_leaves_a_closed_log(home: Home) -> None:
    home.script("long", ["word " * 200_000])
    command = home.command("x", "-m", "script:long", "--session", "a")
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=home.folder, env=home.env
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.read(5) == b"word "
        process.stdout.close()
        errors = process.stderr.read().decode()
        assert process.wait() == 1
    assert "Traceback" not in errors
    assert home.events("a")[-1]["data"]["detail"] == "the output was closed"


# --- tools ----------------------------------------------------------------------------------------------------


def test_a_file_without_a_function_gives_all_its_tools(home: Home) -> None:
    home.here("x", "-m", "script:hi", "-t", "tools.py", "--session", "a")
    (request,) = [each for each in home.events("a") if each["type"] == "model/request"]
    assert [each["name"] for each in request["data"]["header"]["tools"]] == ["add", "wipe", "wait", "hold"]


def test_a_module_in_the_current_folder_gives_a_tool(home: Home) -> None:
    home.write("more.py", 'def twice(n: int) -> int:\n    "Double."\n    return 2 * n\n')
    home.script("twice", [{"calls": [{"name": "twice", "arguments": {"n": 4}}]}, "8"])
    done = home.here("x", "-m", "script:twice", "-t", "more:twice")
    assert done.exit_code == 0 and "-> 8" in done.stderr


def test_a_tool_that_is_not_there_is_a_usage_error_with_what_is(home: Home) -> None:
    done = home.here("x", "-m", "script:hi", "-t", "tools.py:nothing")
    assert done.exit_code == 2
    assert "tools.py has no nothing. Functions in it: add, wipe, wait, hold, plain" in done.stderr


def test_a_file_that_does_not_load_says_why(home: Home) -> None:
    home.write("broken.py", "import nothing_like_this\n")
    done = home.here("x", "-m", "script:hi", "-t", "broken.py:f")
    assert done.exit_code == 2 and "No module named 'nothing_like_this'" in done.stderr


# --- a terminal -----------------------------------------------------------------------------------------------


def test_a_person_at_the_terminal_is_asked(home: Home, start: Start) -> None:
    home.script("wipe", [{"calls": [{"name": "wipe", "arguments": {"path": "/x"}}]}, "Done."])
    live = start("wipe", "-m", "script:wipe", "-t", "tools.py:wipe", terminal=True, NO_COLOR="1")
    live.wait_for('allow wipe(path="/x")? [y]es, [n]o, [e]dit, [s]kip: ')
    live.type("edit\n")
    live.wait_for("new: ")
    live.type('{"path": "/y"}\n')
    live.wait_for("-> wiped /y")
    live.wait_for("Done.")
    assert live.code() == 0


def test_words_come_to_the_terminal_before_the_turn_is_over(home: Home, start: Start) -> None:
    home.script("slow", [{"text": "First words.", "calls": [{"name": "wait"}]}, "Last words."])
    live = start("x", "-m", "script:slow", "-t", "tools.py:wait", terminal=True, NO_COLOR="1")
    live.wait_for("First words.\n")
    live.wait_for("… waiting\n")
    home.write("go", "")
    live.wait_for("Last words.\n")
    assert live.code() == 0
