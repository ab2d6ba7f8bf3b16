"""The glossary is in order, and the words of time are all there."""

import re

import pytest


@pytest.fixture(scope="session")
def words(root):
    page = (root / "docs" / "explanation" / "glossary.md").read_text("utf-8")
    return re.findall(r"^- \*\*(.+?)\*\*: ", page, re.MULTILINE)


def test_the_glossary_has_each_word_once_and_in_order(words):
    assert words == sorted(set(words), key=str.lower)


def test_the_glossary_explains_what_people_mix_up(words):
    assert set(words) >= {"Step", "Turn", "Run", "Session", "Steer", "Follow-up", "Inject"}
