"""What a stranger must never find in the repository."""

import re
import subprocess

import pytest

# Written so that this file does not hold what it looks for.
REGISTRIES = re.compile(r"pyp[i]\.org|pythonhoste[d]|npm[j]s|anacond[a]\.org|deb\.debia[n]", re.IGNORECASE)
MACHINE = re.compile(r"(?<![\w.:/}*~-])/(?:home|root|Users|work)/\w")
FORBIDDEN = re.compile(r"(^|/)(uv\.lock|\.env|__pycache__|node_modules|tests/__init__\.py)(/|$)|\.(whl|db|pyc|gguf)$")
VAGUE = {"utils", "util", "helpers", "helper", "common", "base", "manager", "data", "info", "misc"}
MEGABYTE = 1_000_000


@pytest.fixture(scope="session")
def files(root):
    """What is committed, or would be: nothing that is ignored."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout.decode()
    found = [root / name for name in listed.split("\0") if name and (root / name).is_file()]
    assert found
    return found


@pytest.fixture(scope="session")
def texts(files):
    out = {}
    for path in files:
        try:
            out[path] = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue
    return out


def lines_with(pattern, texts, root):
    return [
        f"{path.relative_to(root)}:{at}: {line.strip()[:120]}"
        for path, text in texts.items()
        for at, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def test_no_file_names_a_package_registry(texts, root):
    assert lines_with(REGISTRIES, texts, root) == []


def test_no_file_names_a_place_on_somebodys_machine(texts, root):
    assert lines_with(MACHINE, texts, root) == []


def test_nothing_is_kept_that_a_build_makes(files, root):
    names = [path.relative_to(root).as_posix() for path in files]
    assert [name for name in names if FORBIDDEN.search(name)] == []


def test_no_file_is_larger_than_a_megabyte(files, root):
    assert [str(path.relative_to(root)) for path in files if path.stat().st_size > MEGABYTE] == []


def test_the_top_level_holds_what_it_should_and_no_more(files, root):
    top = {path.relative_to(root).parts[0] for path in files}
    visible = {name for name in top if not name.startswith(".")}
    rooms = {"kernel", "plugins", "contrib", "tests", "docs"}
    pages = {"README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "pyproject.toml"}
    assert visible <= rooms | pages


def test_no_module_has_a_name_that_says_nothing(files, root):
    names = [path.relative_to(root) for path in files if path.suffix == ".py" and "src" in path.parts]
    assert [str(name) for name in names if VAGUE & {part.removesuffix(".py") for part in name.parts}] == []


def test_the_license_is_the_one_that_the_members_name(root):
    text = (root / "LICENSE").read_text("utf-8")
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
