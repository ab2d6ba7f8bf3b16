"""Importing treadle is quiet: it loads code and does nothing else."""

import json
import subprocess
import sys
from textwrap import dedent

import pytest

WATCH = """
import json, os, sys

before, touched, read = set(sys.modules), [], []

class Watched(type(os.environ)):
    def __getitem__(self, key):
        read.append(str(key))
        return super().__getitem__(key)
    def __iter__(self):
        read.append("*")
        return super().__iter__()

os.environ.__class__ = Watched
CODE = (".py", ".pyc", ".so", ".pyd")
NOISY = ("os.mkdir", "os.listdir", "os.scandir", "os.remove", "subprocess.Popen", "socket.", "sqlite3.", "os.putenv")

def watch(event, args):
    if event == "open" and not str(args[0]).endswith(CODE):
        touched.append([event, str(args[0])])
    elif event.startswith(NOISY) and str(args[0] if args else "") not in folders_of_code():
        touched.append([event, str(args[:1])])

def folders_of_code():
    # The import system lists each folder that it looks for modules in.
    paths = [path for module in list(sys.modules.values()) for path in list(getattr(module, "__path__", None) or ())]
    return {str(each) for each in [*sys.path, *paths]}

sys.addaudithook(watch)
import MODULE
sys.stdout.write(json.dumps({"modules": sorted(set(sys.modules) - before), "touched": touched, "read": read}))
"""


def imported(module):
    """What came in with a module in a new process: modules, files touched, variables read; and what was printed."""
    command = [sys.executable, "-B", "-W", "error", "-c", dedent(WATCH).replace("MODULE", module)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def kernel():
    return imported("treadle")


def test_the_kernel_opens_no_file_but_code(kernel):
    assert kernel["touched"] == []


def test_the_kernel_reads_no_environment(kernel):
    assert kernel["read"] == []


def test_the_kernel_brings_in_three_distributions(kernel):
    names = {name.split(".")[0] for name in kernel["modules"]} - sys.stdlib_module_names
    # attrs installs two modules; anyio asks for typing-extensions, and uses sniffio if it is there.
    assert names - {"typing_extensions", "sniffio"} == {"treadle", "pluggy", "attr", "attrs", "anyio"}


@pytest.mark.parametrize(
    "module",
    ["asyncio", "importlib.metadata", "sqlite3", "ssl", "tomllib", "msgspec", "cattrs", "pydantic", "httpx", "trio"],
)
def test_the_kernel_does_not_load(module, kernel):
    assert module not in kernel["modules"]


def test_the_kernel_stays_a_small_import(kernel):
    # 148 on Python 3.12 when this was written, 27 of them treadle's own. More is a decision.
    assert len(kernel["modules"]) < 180


def test_importing_a_plugin_opens_no_file_but_code(member):
    assert imported(member.module)["touched"] == []


def test_importing_a_plugin_reads_no_environment(member):
    assert imported(member.module)["read"] == []
