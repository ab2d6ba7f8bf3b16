from __future__ import annotations

import json
from typing import TYPE_CHECKING

from treadle.hooks import JOINS

if TYPE_CHECKING:
    from conftest import Home

GOOD = '''
from treadle.plugin import hookimpl


class Guard:
    """Looks at every call."""

    ambient = True

    @hookimpl
    def before_tool(self, call):
        return None
'''


def test_plugins_are_listed_without_being_imported(home: Home) -> None:
    home.declare("treadle-bang", "2.0", {"treadle": {"bang": "bang:Bang"}}, bang="raise SystemExit('imported')\n")
    done = home.run("plugins")
    assert done.returncode == 0
    assert "bang\t2.0\ttreadle-bang\t?\t?\n" in done.stdout
    assert "script\t0.1.0\ttreadle-script\tmodels\tby itself\n" in done.stdout


def test_a_plugins_hooks_are_read_from_its_source(home: Home) -> None:
    home.declare("treadle-guard", "1.0", {"treadle": {"guard": "guard:Guard"}}, guard=GOOD)
    rows = {each["name"]: each for each in json.loads(home.run("plugins", "--json").stdout)["plugins"]}
    guard = rows["guard"]
    assert (guard["hooks"], guard["ambient"], guard["about"]) == (["before_tool"], True, "Looks at every call.")
    assert guard["seams"] == "hooks"


def test_a_broken_plugin_does_not_stop_a_turn_and_is_named(home: Home) -> None:
    home.declare("treadle-bang", "2.0", {"treadle": {"bang": "bang:Bang"}}, bang="import nothing_like_this\n")
    done = home.run("hi", "-m", "script:hi")
    assert (done.returncode, done.stdout) == (0, "Hello there, friend.\n")
    assert 'plugin "bang" (treadle-bang 2.0)' in done.stderr and "treadle doctor" in done.stderr


def test_a_plugin_can_be_left_out(home: Home) -> None:
    assert home.here("hi", "-m", "script:hi", "-p", "no:script").exit_code == 2


def test_a_plugin_that_acts_by_itself_joins_when_it_is_named(home: Home) -> None:
    home.declare("treadle-guard", "1.0", {"treadle": {"guard": "guard:Guard"}}, guard=GOOD)
    home.run("hi", "-m", "script:hi", "--session", "without")
    home.run("hi", "-m", "script:hi", "--session", "with", "-p", "guard")
    names = {each: [name for name, _ in home.events(each)[0]["data"]["plugins"]] for each in ("without", "with")}
    assert "guard" not in names["without"] and "guard" in names["with"]


# --- hooks ----------------------------------------------------------------------------------------------------


def test_the_reference_has_every_hook_in_the_kernels_order(home: Home) -> None:
    rows = json.loads(home.here("hooks", "--json").stdout)
    assert [each["name"] for each in rows] == list(JOINS)
    assert all(each["text"] and each["rule"] and each["signature"].startswith(each["name"] + "(") for each in rows)


def test_a_hooks_page_says_how_answers_are_joined_and_what_a_fault_does(home: Home) -> None:
    text = home.here("hooks", "after_tool", "--markdown").stdout
    assert text.startswith("### `after_tool`\n\n```python\nafter_tool(result: ToolAnswer, call: AskedCall, ")
    assert "waterfall (sync or async)" in text and "In reverse order" in text and "error result" in text


def test_a_hook_that_is_not_there_is_a_usage_error(home: Home) -> None:
    done = home.here("hooks", "before_tea")
    assert done.exit_code == 2 and "before_tool" in done.stderr


# --- doctor ---------------------------------------------------------------------------------------------------


def test_the_doctor_finds_nothing_where_nothing_is_broken(home: Home) -> None:
    done = home.run("doctor")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "Nothing is broken.")


def test_the_doctor_names_what_is_broken_and_why(home: Home) -> None:
    misspelt = GOOD.replace("before_tool", "before_tol").replace("Guard", "Odd")
    home.declare("treadle-bang", "2.0", {"treadle": {"bang": "bang:Bang"}}, bang="import nothing_like_this\n")
    home.declare("treadle-odd", "1.0", {"treadle": {"odd": "odd:Odd"}}, odd=misspelt)
    home.declare("treadle-dead", "1.0", {"treadle": {"dead": "dead:Dead"}}, dead="import os\nos._exit(7)\n")
    home.declare("treadle-noise", "1.0", {"treadle": {"noise": "noise:Guard"}}, noise="print('hello')\n" + GOOD)
    done = home.run("doctor", "--json", TREADLE_SCRIPT_FOLDR="x", TREADLE_SCRPT_FOLDER="x")
    report = json.loads(done.stdout)
    faults = "\n".join(report["faults"])
    assert done.returncode == 1
    assert 'plugin "bang" (treadle-bang 2.0): ModuleNotFoundError: No module named' in faults
    assert "did you mean before_tool?" in faults
    assert 'plugin "dead" (treadle-dead 1.0): its process ended with code 7' in faults
    assert 'plugin "script"' in faults and '"foldr"' in faults
    assert "noise" not in faults
    assert report["notes"] == ["the variable TREADLE_SCRPT_FOLDER sets nothing: no installed plugin has that name"]


def test_two_distributions_with_one_name_are_a_conflict(home: Home) -> None:
    for name in ("treadle-one", "treadle-two"):
        home.declare(name, "1.0", {"treadle": {"same": "same:Guard"}}, same=GOOD)
    done = home.run("doctor")
    assert done.returncode == 1
    assert '2 distributions declare the plugin "same": treadle-one 1.0, treadle-two 1.0.' in done.stdout


def test_settings_of_the_file_are_checked(home: Home) -> None:
    config = home.write("treadle.toml", '[plugins.script]\nfoldr = "x"\n\n[plugins.absent]\na = 1\n')
    done = home.run("doctor", "--config", str(config))
    assert done.returncode == 1
    assert "there is no such setting. Known: folder." in done.stdout and 'plugin "absent", which is not' in done.stdout


def test_the_doctor_says_who_comes_before_whom(home: Home) -> None:
    home.declare("treadle-guard", "1.0", {"treadle": {"guard": "guard:Guard"}}, guard=GOOD)
    home.declare("treadle-post", "1.0", {"treadle": {"post": "post:Guard"}}, post=GOOD)
    home.write("treadle.toml", "[plugins.post]\n\n[plugins.guard]\n")
    report = json.loads(home.run("doctor", "--json").stdout)
    assert report["order"]["before_tool"] == ["post", "guard"]


# --- commands of others ---------------------------------------------------------------------------------------


def test_another_distribution_adds_a_command(home: Home) -> None:
    text = "import click\n\n\n@click.command()\ndef hello():\n    click.echo('hello')\n"
    home.declare("treadle-hello", "1.0", {"treadle.commands": {"hello": "hello:hello"}}, hello=text)
    assert home.run("hello").stdout == "hello\n"
    assert "hello  from treadle-hello 1.0" in home.run("--help").stdout


def test_a_broken_command_is_reported_and_breaks_no_other(home: Home) -> None:
    points = {"treadle.commands": {"bang": "bangs:command"}}
    home.declare("treadle-bangs", "1.0", points, bangs="import nothing_like_this\n")
    done = home.run("bang")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert 'The command "bang" of treadle-bangs 1.0 cannot be loaded' in done.stderr
    assert home.run("--help").returncode == 0 and home.run("hi", "-m", "script:hi").returncode == 0
