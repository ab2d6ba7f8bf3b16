"""A plugin-based, hookable agent kernel: a treadle turns steps into turns.

stack = Stack.discover()
print(stack.run_sync(Agent(model="local:smollm2"), "Hello").text)
"""

from .agent import Agent, Limits
from .context import Allow, Answer, CallContext, Defer, Deny, Halt, Retry, ToolAnswer, TurnContext
from .driver import Driver
from .errors import ProviderError, TreadleError
from .events import Event
from .functions import ToolSet, agent_tool, tool
from .hooks import Delta, hookimpl
from .messages import Document, Image, Message, Text, Usage
from .results import Receipt, Result
from .stack import VERSION, Stack, Stream
from .tools import Tool

__version__ = VERSION

__all__ = [
    "Agent", "Allow", "Answer", "CallContext", "Defer", "Delta", "Deny", "Document", "Driver", "Event", "Halt",
    "Image", "Limits", "Message", "ProviderError", "Receipt", "Result", "Retry", "Stack", "Stream", "Text", "Tool",
    "ToolAnswer", "ToolSet", "TreadleError", "TurnContext", "Usage", "agent_tool", "hookimpl", "tool",
]  # fmt: skip
