"""What an agent's step costs at the least: a loop by hand over plain dicts, on bare asyncio.

It validates nothing, recovers nothing and guards nothing. It is frozen: every ratio of the benchmark stands on it, so
its SHA-256 is printed with the table, and a test holds it. Change it only together with all published numbers.
"""

import asyncio
import json
import sqlite3

ARGUMENTS = {"add": '{"a": 1, "b": 2}', "nap": '{"seconds": 0.01}'}


class Script:
    """Says what the model answers. `steps` None is a turn of two steps, told by the last message alone."""

    def __init__(self, steps=None, calls=1, tool="add"):
        self.steps, self.calls, self.tool = steps, calls, tool
        self.asked = 0

    def answer(self, after_tool):
        self.asked += 1
        more = not after_tool if self.steps is None else self.asked % self.steps != 0
        if not more:
            return {"role": "assistant", "content": "The sum is 3."}
        calls = [
            {"id": f"call-{self.asked}-{each}", "name": self.tool, "arguments": ARGUMENTS[self.tool]}
            for each in range(self.calls)
        ]
        return {"role": "assistant", "content": "", "tool_calls": calls}


async def add(a, b):
    return str(a + b)


async def nap(seconds):
    await asyncio.sleep(seconds)
    return "rested"


TOOLS = {"add": add, "nap": nap}


async def ask(script, messages):
    return script.answer(messages[-1]["role"] == "tool")


async def work(call):
    content = await TOOLS[call["name"]](**json.loads(call["arguments"]))
    return {"role": "tool", "tool_call_id": call["id"], "content": content}


async def watch(subject):
    return None


async def turn(script, messages, hooks=()):
    """Steps until the model asks for no tool. Four hook points in each step."""
    while True:
        for hook in hooks:
            await hook(messages)
        reply = await ask(script, messages)
        messages.append(reply)
        for hook in hooks:
            await hook(reply)
        calls = reply.get("tool_calls")
        if not calls:
            return reply["content"]
        for hook in hooks:
            await hook(calls)
        if len(calls) == 1:
            messages.append(await work(calls[0]))
        else:
            messages.extend(await asyncio.gather(*[work(call) for call in calls]))
        for hook in hooks:
            await hook(messages)


# --- the tasks -------------------------------------------------------------------------------------------------


def turns(steps=None, calls=1, tool="add", plugins=0):
    """A coroutine function that takes one turn, and a function that says how often the model was asked."""
    script, hooks = Script(steps, calls, tool), [watch] * plugins

    async def run():
        await turn(script, [{"role": "user", "content": "What is 1 plus 2? Use the tool."}], hooks)

    return run, lambda: script.asked


async def many(count):
    """Turns of two steps at once; returns how often the model was asked."""
    run, asked = turns()
    await asyncio.gather(*[run() for _ in range(count)])
    return asked()


def deltas(count):
    """A coroutine function that streams a reply to its caller and returns how many characters arrived."""

    async def model():
        for _ in range(count):
            yield "word"

    async def reply():
        parts = []
        async for delta in model():
            parts.append(delta)
            yield delta
        "".join(parts)

    async def run():
        seen = 0
        async for text in reply():
            seen += len(text)
        return seen

    return run


def opened(path):
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = normal")
    connection.execute("create table if not exists message (id integer primary key, body text)")
    return connection


async def session(path, count):
    """Turns of two steps into one session on disk, one commit a step; yields after each turn."""
    connection = opened(path)
    script, messages, kept = Script(), [], 0

    def commit():
        nonlocal kept
        connection.execute("begin immediate")
        rows = [(json.dumps(message),) for message in messages[kept:]]
        connection.executemany("insert into message (body) values (?)", rows)
        connection.execute("commit")
        kept = len(messages)

    async def commit_step(subject):
        if subject is messages and messages[-1]["role"] == "tool":
            commit()

    for number in range(count):
        messages.append({"role": "user", "content": f"What is 1 plus 2? Use the tool. ({number})"})
        await turn(script, messages, [commit_step])
        commit()
        yield
    connection.close()


async def resume(path):
    """How many messages a new process finds."""
    connection = opened(path)
    rows = connection.execute("select body from message order by id").fetchall()
    connection.close()
    return len([json.loads(body) for (body,) in rows])
