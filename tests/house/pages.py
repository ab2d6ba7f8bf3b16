"""Reads the fenced blocks of a page, in order."""

import re
from dataclasses import dataclass

FENCE = re.compile(r"^```(\w+)((?: \w+=\S+)*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, the file that it is said to be, if any, and its first line's number."""

    language: str
    file: str
    text: str
    line: int


def blocks(path):
    """Every block of a page that names its language."""
    page = path.read_text("utf-8")
    out = []
    for found in FENCE.finditer(page):
        said = dict(each.split("=", 1) for each in found[2].split())
        out.append(Block(found[1], said.get("file", ""), found[3], page[: found.start()].count("\n") + 2))
    return out


def write_files(path, folder):
    """Write the files that a page shows, as its reader is told to."""
    for block in blocks(path):
        if block.file:
            target = folder / block.file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.text, encoding="utf-8")
