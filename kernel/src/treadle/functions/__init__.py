"""Functions into tools, and types into structured answers. Needs treadle[tools] (msgspec), loaded on first use.

A tool's schema and its decoder come from the function's signature and docstring, once, when it is decorated. What
has no JSON form, or would be decoded otherwise than written, is refused then and there, with the reason.
"""

from .agents import agent_tool
from .decorator import tool
from .outputs import decode_output, output_schema, output_tool, wanted_output
from .reading import read_result
from .toolset import ToolSet, tools_of

__all__ = [
    "ToolSet", "agent_tool", "decode_output", "output_schema", "output_tool", "read_result", "tool", "tools_of",
    "wanted_output",
]  # fmt: skip
