"""What people install: built wheels in empty environments, a zip file, and a plugin from outside the workspace."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from house.pages import write_files

pytestmark = pytest.mark.wheels

UV = (sys.executable, "-m", "uv")

PROGRAM = """
from treadle import Agent, Stack, Tool
from treadle_script import ScriptModel, call

numbers = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
add = Tool(name="add", parameters=numbers, call=lambda a, b: str(a + b))
model = ScriptModel([call("add", a=17, b=25), call("add", a=42, b=8), "The sum is 50."])
agent = Agent(name="clerk", instructions="Use the tools.", model=model, tools=[add])
result = Stack().run_sync(agent, "What is 17 plus 25 plus 8?").check()

sums = [part.parts[0].text for message in result.messages if message.role == "tool" for part in message.parts]
print(result.steps, sums, result.text)
"""

CRACKED = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "treadle-cracked"
version = "0.3.1"
dependencies = ["treadle==0.1.*"]

[project.entry-points.treadle]
cracked = "treadle_cracked:Cracked"

[tool.hatch.build.targets.wheel]
packages = ["src/treadle_cracked"]
"""


def done(*command, **settings):
    """Run a command that must succeed; what it printed. Nothing of the machine's own settings reaches it."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("TREADLE_", "PYTHON", "VIRTUAL_ENV"))}
    env |= settings.pop("env", {})
    ran = subprocess.run(command, capture_output=True, text=True, env=env, **settings)
    assert ran.returncode == 0, f"{command}\n{ran.stdout}{ran.stderr}"
    return ran.stdout


@pytest.fixture(scope="session")
def dist(root, tmp_path_factory):
    """A folder of the workspace's wheels: the test command's, or built now."""
    if given := os.environ.get("TREADLE_DIST"):
        return Path(given)
    folder = tmp_path_factory.mktemp("dist")
    done(*UV, "build", "--quiet", "--all-packages", "--wheel", "--out-dir", str(folder), cwd=root)
    return folder


@pytest.fixture(scope="session")
def pins(run, tmp_path_factory):
    path = tmp_path_factory.mktemp("pins") / "constraints.txt"
    path.write_text("\n".join(run.pins()), encoding="utf-8")
    return path


class Environment:
    """An empty environment to install into."""

    def __init__(self, folder, pins):
        done(*UV, "venv", "--quiet", "--python", sys.executable, str(folder))
        self.python = str(folder / ("Scripts" if os.name == "nt" else "bin") / "python")
        self._pins = pins

    def install(self, *what):
        command = (*UV, "pip", "install", "--quiet", "--python", self.python, "--constraint", str(self._pins))
        done(*command, *map(str, what))

    def distributions(self):
        listed = done(*UV, "pip", "list", "--python", self.python, "--format", "json")
        return {each["name"] for each in json.loads(listed)}

    def run(self, *arguments, **settings):
        return done(self.python, "-W", "error", *arguments, **settings)


def wheel(dist, module):
    return next(dist.glob(f"{module}-*.whl"))


@pytest.fixture(scope="module")
def alone(dist, pins, tmp_path_factory):
    """The kernel's wheel in an empty environment, with nothing but what it asks for."""
    environment = Environment(tmp_path_factory.mktemp("alone") / "venv", pins)
    environment.install(wheel(dist, "treadle"))
    return environment


def test_the_kernel_alone_installs_what_it_needs_and_no_more(alone):
    # anyio asks for the last two.
    expected = {"treadle", "pluggy", "attrs", "anyio", "idna", "typing-extensions"}
    assert alone.distributions() - {"treadle-script"} == expected


def test_the_kernel_alone_takes_a_turn_of_three_steps(alone, dist, tmp_path):
    alone.install(wheel(dist, "treadle_script"))
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    assert alone.run("-I", str(program)) == "3 ['42', '50'] The sum is 50.\n"


def test_the_kernel_runs_out_of_a_zip_file_without_site_packages(alone, dist, tmp_path):
    alone.install(wheel(dist, "treadle_script"))
    site = Path(alone.run("-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    archive = tmp_path / "program.pyz"
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted(site.rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                file.write(path, path.relative_to(site))
        file.writestr("__main__.py", PROGRAM)
    assert alone.run("-I", "-S", str(archive)) == "3 ['42', '50'] The sum is 50.\n"


CAUGHT = "import treadle\ntry:\n    {}\nexcept treadle.TreadleError as error:\n    print(error)"


def test_a_function_as_a_tool_names_the_extra_that_is_missing(alone):
    code = "def double(n: int) -> int: return 2 * n\n" + CAUGHT.format("treadle.tool(double)")
    assert "pip install 'treadle[tools]'" in alone.run("-I", "-c", code)


@pytest.fixture(scope="module")
def outside(root, dist, pins, tmp_path_factory):
    """The tutorial's plugin, made in an empty folder outside the workspace; and beside it one that cannot load."""
    folder = tmp_path_factory.mktemp("outside")
    environment = Environment(folder / "venv", pins)
    environment.install(wheel(dist, "treadle"), wheel(dist, "treadle_script"))
    write_files(root / "docs" / "tutorial" / "first-plugin.md", folder / "treadle-hush")
    environment.install(folder / "treadle-hush")
    cracked = folder / "treadle-cracked"
    (cracked / "src" / "treadle_cracked").mkdir(parents=True)
    (cracked / "pyproject.toml").write_text(CRACKED, encoding="utf-8")
    (cracked / "src" / "treadle_cracked" / "__init__.py").write_text("import not_there\n", encoding="utf-8")
    environment.install(cracked)
    environment.folder = folder / "treadle-hush"
    return environment


def test_a_plugin_from_outside_is_found_and_acts(outside):
    printed = outside.run("-I", "trial.py", cwd=outside.folder)
    assert printed == (outside.folder / "trial.out").read_text("utf-8")


def test_a_plugin_from_outside_takes_its_settings_from_the_environment(outside):
    printed = outside.run("trial.py", cwd=outside.folder, env={"TREADLE_HUSH_WORDS": "nine,gate"})
    assert printed == (outside.folder / "settings.out").read_text("utf-8")


def test_an_ambient_plugin_joins_only_stacks_that_name_it(outside):
    code = "from treadle import Stack; print(list(Stack.discover().plugins))"
    assert outside.run("-I", "-c", code) == "['script']\n"
    assert outside.run("-c", code, env={"TREADLE_PLUGINS": "hush"}) == "['hush']\n"
    assert outside.run("-c", code, env={"TREADLE_PLUGINS": ""}) == "[]\n"


def test_a_broken_plugin_disables_itself_alone_and_is_reported(outside):
    code = "from treadle import Stack; s = Stack.discover(also=['hush']); print(list(s.plugins), *s.broken, sep='\\n')"
    assert outside.run("-I", "-c", code).splitlines() == [
        "['hush', 'script']",
        "plugin \"cracked\" (treadle-cracked 0.3.1): ModuleNotFoundError: No module named 'not_there'",
    ]


@pytest.mark.parametrize("stack", ["Stack(['script', 'cracked'])", "Stack.discover(also=['cracked'])"])
def test_a_stack_that_names_a_broken_plugin_says_distribution_version_and_cause(stack, outside):
    assert outside.run("-I", "-c", CAUGHT.format(f"treadle.{stack}")) == (
        'The stack was not composed: plugin "cracked" (treadle-cracked 0.3.1): '
        "ModuleNotFoundError: No module named 'not_there'\n"
    )


def test_listing_plugins_imports_none_of_them(outside):
    code = (
        "import sys; from treadle.discovery import installed; print([each.name for each in installed()]); "
        "print([name for name in sys.modules if name.startswith('treadle_')])"
    )
    assert outside.run("-I", "-c", code) == "['cracked', 'hush', 'script']\n[]\n"
