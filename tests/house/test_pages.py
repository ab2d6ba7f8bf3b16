"""The code of the README, of the tutorial and of the how-to pages runs as it stands, and prints what the page shows."""

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from house.pages import blocks, write_files

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/tutorial/*.md")), *sorted(ROOT.glob("docs/how-to/*.md"))]
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")


def shown(text):
    """What a page shows, to compare: `...` stands for anything, trailing white space for nothing."""
    return "\n".join(line.rstrip() for line in text.strip().splitlines()) + "\n"


def assert_shown(want, got, where):
    same = doctest.OutputChecker().check_output(shown(want), shown(got), doctest.ELLIPSIS)
    assert same, f"{where} shows:\n{want}\nbut it printed:\n{got}"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_the_code_of_a_page_prints_what_the_page_shows(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("TREADLE_")]:
        monkeypatch.delenv(name)
    names = {"__name__": page.stem}
    printed = ""
    for block in (block for block in blocks(page) if not block.file):
        where = f"{page.name}, line {block.line}"
        if block.language == "python":
            # Blank lines before the code, so that a traceback names the page's own line.
            exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec"), names)
            printed = capsys.readouterr().out
        elif block.language == "text":
            assert_shown(block.text, printed, where)
            printed = ""
    assert printed == "", f"{page.name} prints something that it does not show"


def test_the_first_plugin_does_what_its_page_shows(tmp_path):
    page = ROOT / "docs" / "tutorial" / "first-plugin.md"
    write_files(page, tmp_path)
    # A plugin folder is not installed by its tutorial's reader alone: an entry point needs metadata beside the module.
    info = tmp_path / "src" / "treadle_hush-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: treadle-hush\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("[treadle]\nhush = treadle_hush:Hush\n")
    for output, variables in {"trial.out": {}, "settings.out": {"TREADLE_HUSH_WORDS": "nine,gate"}}.items():
        env = {key: value for key, value in os.environ.items() if not key.startswith("TREADLE_")}
        env |= {"PYTHONPATH": str(tmp_path / "src"), **variables}
        command = [sys.executable, "-W", "error", "trial.py"]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert_shown((tmp_path / output).read_text("utf-8"), done.stdout, output)


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/**/*.md")) + sorted(ROOT.glob("*.md")), ids=lambda p: p.name)
def test_every_link_of_a_page_leads_somewhere(page):
    lost = [link for link in LINK.findall(page.read_text("utf-8")) if not (page.parent / link).exists()]
    assert lost == []
