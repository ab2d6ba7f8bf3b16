"""Each member of the workspace is made alike, and the root names them all."""

import tomllib

import pytest


@pytest.fixture(scope="session")
def project(root):
    return tomllib.loads((root / "pyproject.toml").read_text("utf-8"))


def test_a_member_has_a_readme_and_says_that_it_is_typed(member):
    assert (member.folder / "README.md").read_text("utf-8").startswith(f"# {member.name}\n")
    assert (member.folder / "src" / member.module / "py.typed").is_file()


def test_a_member_says_its_license_and_goes_in_step_with_the_others(member):
    said = member.project["project"]
    assert said["license"] == "Apache-2.0"
    assert said["version"] == "0.1.0"
    assert said["requires-python"] == ">=3.11"
    assert "Typing :: Typed" in said["classifiers"]


def test_a_member_is_called_like_its_folder(member):
    assert member.folder.name in (member.name, "kernel")
    assert [each.name for each in (member.folder / "src").iterdir() if each.is_dir()] == [member.module]


def test_a_plugin_is_found_under_its_own_name(member):
    points = member.project["project"].get("entry-points", {}).get("treadle", {})
    if member.folder.parent.name == "plugins":
        assert list(points) == [member.name.removeprefix("treadle-")]
    for value in points.values():
        assert value.split(":")[0] == member.module


def test_a_member_depends_on_the_kernel_of_its_own_version(member):
    if member.name == "treadle":
        return
    needs = [each.replace(" ", "") for each in member.project["project"]["dependencies"]]
    ours = [each for each in needs if each.startswith("treadle")]
    assert ours
    assert [each for each in ours if not each.endswith("==0.1.*")] == []


def test_the_workspace_installs_every_member(members, project):
    named = {each.split("[")[0] for each in project["project"]["dependencies"]}
    assert named == {member.name for member in members}, "name each member in [project] dependencies"
    assert set(project["tool"]["uv"]["sources"]) == named, "name each member in [tool.uv.sources]"


def test_every_member_stands_under_the_import_contracts(members, project):
    linter = project["tool"]["importlinter"]
    assert set(linter["root_packages"]) == {member.module for member in members}
    contracts = {each["id"]: each for each in linter["contracts"]}
    rooms = {name for layer in contracts["rooms"]["layers"] for name in layer.split(" | ")}
    assert rooms == {member.module for member in members}
    plugins = {member.module for member in members if member.folder.parent.name == "plugins"}
    assert set(contracts["doors"]["source_modules"]) == plugins


def test_the_kernel_asks_for_pluggy_attrs_and_anyio_alone(members):
    kernel = members[0].project["project"]
    assert [each.split(">")[0] for each in kernel["dependencies"]] == ["pluggy", "attrs", "anyio"]


def test_every_pin_is_an_exact_version(project):
    uv = project["tool"]["uv"]
    pins = uv["constraint-dependencies"] + uv["build-constraint-dependencies"]
    assert [pin for pin in pins if "==" not in pin] == []
