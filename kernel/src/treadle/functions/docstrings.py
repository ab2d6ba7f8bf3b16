"""What a docstring says: the description, and a text for each parameter.

Google, NumPy, reST and Epydoc styles are read by docstring-parser, a part of treadle[tools]. Without it, or where it
finds no section, the whole docstring is the description.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from inspect import cleandoc
from textwrap import indent

import attrs


@attrs.frozen
class Docs:
    """A description, and texts by parameter name. Names that are no parameter are the reader's to ignore."""

    text: str = ""
    parameters: Mapping[str, str] = attrs.field(factory=dict)


_OPENS_WITH_SECTION = re.compile(r"(Args|Arguments|Parameters|Params|Attributes|Returns|Raises)(:\s*$|\n-{3,})", re.M)
_STAND_IN = "-"


def _with_summary(whole: str) -> str:
    # A section that opens the docstring would be taken for its summary, so it gets one. Where it is all there is, its
    # lines have lost their indentation, because a docstring's first line does not count when the margin is found.
    title, _, rest = whole.partition("\n")
    if title.endswith(":") and not rest.startswith((" ", "\n")):
        rest = indent(rest, "    ")
    return f"{_STAND_IN}\n\n{title}\n{rest}"


def read_docs(docstring: str | None) -> Docs:
    """The description (summary and the paragraphs after it) and the parameters' texts.

    Sections such as Returns, Raises and Examples are for people and left out, once a parameter section was found.
    Never raises: a docstring that cannot be read is a description as a whole.
    """
    whole = cleandoc(docstring or "")
    if not whole:
        return Docs()
    try:
        from docstring_parser import ParseError, parse
    except ImportError:
        return Docs(whole)
    try:
        found = parse(_with_summary(whole) if _OPENS_WITH_SECTION.match(whole) else whole)
    except ParseError:
        return Docs(whole)
    texts = {each.arg_name: each.description or "" for each in found.params}
    if not texts:
        return Docs(whole)
    paragraphs = (found.short_description, found.long_description)
    return Docs("\n\n".join(each for each in paragraphs if each and each != _STAND_IN), texts)
