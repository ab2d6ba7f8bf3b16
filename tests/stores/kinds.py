"""The kinds of stores that need no server."""

KINDS = ("memory", "jsonl", "sqlite")
