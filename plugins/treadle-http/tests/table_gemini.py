"""What a person reads in the recorded answers of Gemini's generateContent."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

from wire_tables import C, Failed, K, R, Said, T

from treadle_http.profiles import PROFILES
from treadle_http.wires.gemini import Gemini

WIRE = Gemini()
PROFILE = PROFILES["gemini"]


def G(read: int, written: int, *, thought: int = 0, cached: int = 0, tools: int = 0) -> tuple[int, int, int, int, int]:
    """Usage as this provider reports it: cached inside what was read, thoughts beside what was written."""
    return (read - cached + tools, cached, 0, written, thought)


BOTH = '{"a":2,"b":3}'
FLORENCE = '{"location":"Florence,Italy"}'
BERLIN = '{"latitude":"52.5200","longitude":"13.4050"}'

EXPECTED: dict[str, tuple[Said | Failed, ...]] = {
    "gemini-400-key": (Failed("auth", 400, "API key not valid"),),
    "gemini-404-model": (Failed("not_found", 404, "models/gemini-3.6-flahs is not found"),),
    "gemini-404-model-stream": (Failed("not_found", 404, "this-model-does-not-exist-12345"),),
    "gemini-429-retry-info": (Failed("rate_limit", 429, "You exceeded your current quota", 48.0),),
    "gemini-503-unavailable": (Failed("overloaded", 503, "The model is overloaded."),),
    "gemini-cached-content": (
        Said("end", (T("Paris."),), G(3520, 2, thought=42, cached=3512)),
        Said("end", (T("Paris."),), G(3520, 2, thought=51, cached=3512)),
    ),
    "gemini-code-execution-stream": (
        Said(
            "end",
            (
                K('"thoughtSignature":"EqADCp0DAQw51sctaTt62vj/AeY+J46HScGMG01KQ'),
                K('"output":"-428330955.97745\\n"'),
                T("The result of $65465 - 6544 \\times 65464 - 6 + 1.02255$ is **-428,330,955.97745**."),
                T("", kept='"thoughtSignature":"EoECCv4BAQw51segR8LGndTf8Iwu2QYvjZg3wHjXGTJ8'),
            ),
            G(147, 108, thought=168, tools=360),
        ),
    ),
    "gemini-document-url": (
        Said("end", (T("The URL points to a technical report", "learning of new languages."),), G(19875, 103)),
    ),
    "gemini-image-url": (
        Said("end", (T("The URL's main content is the landing page", "other Wikimedia projects."),), G(2589, 33)),
    ),
    "gemini-max-tokens": (Said("length", (T("The capital of France is"),), G(15, 5)),),
    "gemini-max-tokens-empty": (Said("length", (), G(15, 0, thought=2)),),
    "gemini-max-tokens-stream": (Said("length", (T("Here are all 50 U.S."),), G(9, 10, thought=38)),),
    "gemini-native-json": (
        Said("end", (T('{\n  "city": "London",\n  "country": "UK",\n  "population": 9000000\n}'),), G(11, 32)),
        Said("end", (T('{\n  "city": "Paris",\n  "country": "France",\n  "population": 2141000\n}'),), G(7, 32)),
    ),
    "gemini-parallel-tools-loop": (
        Said(
            "calls",
            (C("add", BOTH, "", '"CuwBAb4+9vtZI+lrRvvljZUdJ6DU'), C("multiply", BOTH, "")),
            G(125, 36, thought=73),
        ),
        Said("end", (T("The sum of 2 and 3 is 5. The product of 2 and 3 is 6."),), G(185, 24)),
    ),
    "gemini-parallel-tools-loop-stream": (
        Said(
            "calls",
            (C("add", '{"b":3,"a":2}', "", '"CloBvj72+4/aTlyeodvVsF6WQseQ'), C("multiply", BOTH, "")),
            G(121, 36, thought=38),
        ),
        Said("end", (T("The sum of 2 and 3 is 5. The product of 2 and 3 is 6."),), G(218, 22)),
    ),
    "gemini-partial-args-stream": (
        Said(
            "calls",
            (
                C("getWeather", '{"location":"Boston"}', "", "CiMBjz1rX25KieIB4d4AwFn8/WbsHTRNHBXso88PtemwfsSfRAp6"),
                C("getWeather", '{"location":"San Francisco"}', ""),
            ),
            G(26, 23, thought=132),
        ),
    ),
    "gemini-prompt-blocked": (Said("refused", ()),),
    "gemini-safety": (Said("refused", (), G(14, 0)),),
    "gemini-schema-tool": (
        Said(
            "calls",
            (
                C(
                    "final_result",
                    '{"address":{"city":"London","street":"12 Baker Street"},"name":"Ada Lovelace"}',
                    "",
                    "CrwDARFNMg+GWhZyeEjBIhhzRZFhD+yIV91eb",
                ),
            ),
            G(154, 34, thought=117),
        ),
    ),
    "gemini-text": (Said("end", (T("Olá!"),), G(11, 2, thought=24)),),
    "gemini-text-stream": (Said("end", (T("Olá!"),), G(11, 2, thought=21)),),
    "gemini-tool-loop": (
        Said("calls", (C("weather", FLORENCE, "", "CvMBAb4+9vvZC/KtDBiEfP1WF+wUiObd"),), G(54, 15, thought=48)),
        Said("end", (T("The weather in Florence, Italy is 40 C."),), G(84, 12)),
    ),
    "gemini-tool-loop-stream": (
        Said("calls", (C("weather", FLORENCE, "", "CiQBvj72+xCKZ6n2ewHIHg3nIWfu6zy4"),), G(54, 15, thought=43)),
        Said("end", (T("The weather in Florence,Italy is 40 C."),), G(127, 12)),
    ),
    "gemini-tool-loop-with-ids": (
        Said(
            "calls",
            (C("load_capability", '{"id":"refunds"}', "g98os1Jf", "EpYCCpMCARFNMg/SsdjZFu2ihVT0jb7fb9cL3YcbP"),),
            G(168, 17, thought=72),
        ),
        Said(
            "calls",
            (C("lookup_refund_policy", '{"order_id":"A-4417"}', "grBScFvZ", "EqMBCqABARFNMg9F+fnPF2zVdBk6ZU2Rj"),),
            G(341, 25, thought=40),
        ),
        Said(
            "end",
            (T("A-4417: refund allowed", kept="EtACCs0CARFNMg/UFSuVoCkT+LbBUqae+ZJcaPbq6FXInuQ"),),
            G(432, 9, thought=84),
        ),
    ),
    "gemini-tools-multiturn-stream": (
        Said("calls", (C("weather", BERLIN, "", "CiQBEU0yD1hCYiUoRFyerO7xltRNYWnI"),), G(103, 30, thought=43)),
        Said("end", (T("The weather in Berlin is 15°C with a wind of 10 km/h."),), G(233, 21)),
        Said("calls", (C("weather", '{"longitude":"2.3514","latitude":"48.8575"}', ""),), G(238, 29)),
        Said(
            "end",
            (T("The weather in Paris is 15°C with a wind of 10 km/h.", kept="CnQBEU0yD8pMLy5tIkha3Ek0u0Xd6WiQo"),),
            G(323, 21, thought=74),
        ),
    ),
    "gemini-unexpected-tool-call": (
        Failed(
            "tool_use_failed",
            None,
            "Unexpected tool call: Model tried to call an undeclared function: list_files",
            partial=(C("list_files", "{}", "", "CtAEAY89a19PnUfUJ55Ta5yURztfq"),),
        ),
    ),
    "gemini3-parallel-tools-loop-stream": (
        Said(
            "calls",
            (
                C("add", BOTH, "8hd01vsf", "EsINCr8NAb4+9vvezzPlSWg3IND7j7dwH2JkUoR3rZt"),
                C("multiply", '{"b":3,"a":2}', "k0srpqrc"),
            ),
            G(157, 32, thought=438),
        ),
        Said(
            "end",
            (
                T("The sum of 2 and 3 is 5, and their product is 6."),
                T("", kept='"thoughtSignature":"EpEBCo4BAb4+9vueD6qXh+z6U+4AqU940Oj5Cdxb85BS4kZ2qdo/Y9VJG'),
            ),
            G(646, 19, thought=20),
        ),
    ),
    "gemini3-thinking-stream": (
        Said(
            "end",
            (
                R("**Pondering Mirror Queries**\n\nI'm wrestling", "might show pity, amusement, or warning.\n\n\n"),
                T("To see your future self in such a mirror, you must", "simply by choosing to change their mind."),
                T("", kept='"thoughtSignature":"ErAhCq0hARFNMg8xRu5xMoqUomdv+VZjg+8p36ulZ8kTSuQ6n348fCj3dJvf'),
            ),
            G(44, 608, thought=902),
        ),
    ),
    "gemini3-thoughts-tool-loop": (
        Said(
            "calls",
            (
                R("**My Analysis of the User's Weather Query**", "get the information back to the user.\n\n\n"),
                C("weather", BERLIN, "call_883098", "ErkECrYEARFNMg/Gnu1BQ9C5UNlOEGKgSDsUBOuIwQ3NdbmqoA4VS6r"),
            ),
            G(120, 32, thought=132),
        ),
        Said(
            "end",
            (
                R("Okay, here's my take on those thoughts", "wind. No need for fluff.\n\n\n"),
                T(
                    "The current weather in Berlin is 15°C with a wind speed of 10 km/h.",
                    kept="ErYCCrMCARFNMg9d2fQyhGoN74r+0Fcw1mKj+kAng+ajYCPEdbhA8SbIM3kg",
                ),
            ),
            G(339, 23, thought=51),
        ),
    ),
    "gemini3-tool-stream-signature": (
        Said("calls", (C("get_country", "{}", "", "EpwICpkIAXLI2nxlU6gsWZaZHR"),), G(29, 10, thought=202)),
        Said("end", (T("The capital of Mexico is Mexico City."),), G(257, 8)),
    ),
    "vertex-400-context": (Failed("context_overflow", 400, "exceeds the maximum number of tokens allowed"),),
}

PROVIDERS = {"google": "gemini", "google-vertex": "gemini"}

LOOPS = [
    "gemini-parallel-tools-loop",
    "gemini-parallel-tools-loop-stream",
    "gemini-tool-loop",
    "gemini-tool-loop-stream",
    "gemini-tool-loop-with-ids",
    "gemini-tools-multiturn-stream",
    "gemini3-parallel-tools-loop-stream",
    "gemini3-thoughts-tool-loop",
    "gemini3-tool-stream-signature",
]


class Seen:
    """What stands in the events before a cut, read with nothing but JSON."""

    def __init__(self, body: bytes) -> None:
        self.text, self.whole, self.failed, self.calls = "", False, False, 0
        for line in re.split(r"\r\n|\n|\r", body.decode()):
            if line.startswith("data: {"):
                self._event(json.loads(line[6:]))

    def _event(self, event: dict[str, Any]) -> None:
        self.failed = self.failed or "error" in event
        for candidate in event.get("candidates", ()):
            self.whole = self.whole or bool(candidate.get("finishReason"))
            for part in candidate.get("content", {}).get("parts", ()):
                self.text += "" if part.get("thought") else part.get("text", "")
                self.calls += "functionCall" in part


def comparable(content: dict[str, Any]) -> dict[str, Any]:
    """A content without what means the same.

    Recorded clients made up ids, or left them out; some wrote signatures in the other alphabet of base64; the words
    of a result stand under a name of their choice.
    """
    out = copy.deepcopy(content)
    for part in out["parts"]:
        if "thoughtSignature" in part:
            part["thoughtSignature"] = part["thoughtSignature"].translate({ord("-"): "+", ord("_"): "/"})
        for name in ("functionCall", "functionResponse"):
            part.get(name, {}).pop("id", None)
        if "functionResponse" in part:
            part["functionResponse"]["response"] = words(part["functionResponse"]["response"])
    return out


def words(response: dict[str, Any]) -> str:
    found = response.get("content", next(iter(response.values()))) if response else ""
    return str(found[0]["text"] if isinstance(found, list) else found)
