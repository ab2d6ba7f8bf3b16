"""What a person reads in the recorded answers of Anthropic's Messages."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

from wire_tables import C, Failed, K, R, Said, T

from treadle_http.profiles import PROFILES
from treadle_http.wires.messages import Messages

WIRE = Messages()
PROFILE = PROFILES["anthropic"]


def A(read: int, written: int, *, cached: int = 0, kept: int = 0) -> tuple[int, int, int, int, int]:
    """Usage as this provider reports it: input read from the cache, and kept in it, beside the rest."""
    return (read, cached, kept, written, 0)


WEATHER = '{"location": "Florence, Italy"}'
WEATHER_TIGHT = '{"location":"Florence,Italy"}'
BOTH = '{"a": 2, "b": 3}'
BOTH_TIGHT = '{"a":2,"b":3}'
STATES = "Here are all 50 U.S. states in alphabetical order:"
DIRECT = "The user is asking for weather information for Florence, Italy."
FORMATTED = "__mirascope_formatted_output_tool__"

EXPECTED: dict[str, tuple[Said | Failed, ...]] = {
    "anthropic-400-context": (Failed("context_overflow", 400, "prompt is too long: 3333404 tokens > 200000 maximum"),),
    "anthropic-400-unpaired-tool-use": (Failed("bad_request", 400, "`tool_use` ids were found without"),),
    "anthropic-401": (Failed("auth", 401, "invalid x-api-key"),),
    "anthropic-404-model": (Failed("not_found", 404, "model: this-model-does-not-exist-12345"),),
    "anthropic-413": (Failed("context_overflow", 413, "Request exceeds the maximum size"),),
    "anthropic-429-retry-after": (Failed("rate_limit", 429, "would exceed your rate limit", 16.0),),
    "anthropic-529-overloaded": (Failed("overloaded", 529, "Overloaded"),),
    "anthropic-cache-tools": (
        Said("calls", (C("star_wars_tool", "{}", "toolu_01Gw4uWycv9vJjuc1tRsyVMD"),), A(147, 38, kept=4602)),
        Said("calls", (C("star_wars_tool", "{}", "toolu_01EeJVqRCRdPfudV8KZxzDYe"),), A(151, 38, cached=4602)),
    ),
    "anthropic-cache-write-read": (
        Said("end", (T("OK"),), A(10, 4, kept=7351)),
        Said("end", (T("OK"),), A(10, 4, cached=7351)),
    ),
    "anthropic-citations-stream": (
        Said(
            "end",
            (
                T(
                    "The Ruby programming language was created by Yukihiro Matsumoto in 1993.",
                    kept='"document_title":"facts.txt","start_char_index":0,"end_char_index":73',
                ),
            ),
            A(672, 39),
        ),
    ),
    "anthropic-code-execution-stream": (
        Said(
            "end",
            (
                R("Let me calculate this mathematical expression.", kept="QRNK5dDomrp4RcinBgB"),
                T("I'll calculate that expression for you right away!"),
                K('"input":{"command":"echo \\"65465-6544 * 65464-6+1.02255\\" | bc -l"}'),
                K('"stdout":"-428330955.97745\\n"'),
                T("Following the standard **order of operations", "Final Answer: **-428,330,955.97745**"),
            ),
            A(4714, 304),
        ),
    ),
    "anthropic-image-url": (
        Said("end", (T("This is a potato. It's a yellow/golden-colored potato", "frying, or mashing."),), A(296, 91)),
    ),
    "anthropic-max-tokens": (Said("length", (T(STATES, "8. Delaware\n9"),), A(15, 50)),),
    "anthropic-max-tokens-stream": (Said("length", (T(STATES, "8. Delaware\n9"),), A(15, 50)),),
    "anthropic-midstream-error-in-tool": (
        Failed(
            "server",
            None,
            "Internal server error",
            partial=(
                T("I'll get the weather information for Florence, Italy for you."),
                C("weather", '{"locati', "toolu_01N2eM4V43kGCDkq2Lw7ChWQ"),
            ),
        ),
    ),
    "anthropic-midstream-overloaded": (
        Failed("overloaded", None, "Overloaded", partial=(T('Olá! (That\'s "hi" in Portuguese)\n\nYou'),)),
    ),
    "anthropic-noarg-tool-multiturn-stream": (
        Said("calls", (C("best_language_to_learn", "{}", "toolu_01EcJNDtgucTvxugUxuGcJmF"),), A(579, 41)),
        Said(
            "end",
            (T("According to the tool, **Ruby** is the best language to learn!", "Ruby is a great choice!"),),
            A(633, 167),
        ),
        Said("calls", (C("best_language_to_learn", "{}", "toolu_01N1ZDRmZU72nRmPs2F1BRwr"),), A(815, 41)),
        Said(
            "end",
            (T("The best language to learn is **Ruby**!", "Ruby is consistently a great choice! 🔴"),),
            A(869, 119),
        ),
    ),
    "anthropic-parallel-tools-loop": (
        Said(
            "calls",
            (
                T("I'll add and multiply the numbers 2 and 3 for you."),
                C("add", BOTH_TIGHT, "toolu_01StBeRxDEwsqcc3arbDgpS9"),
                C("multiply", BOTH_TIGHT, "toolu_01AC6WQhj2iRkdYHgTAGMpVQ"),
            ),
            A(507, 137),
        ),
        Said("end", (T("The results are:\n- 2 + 3 = 5\n- 2 × 3 = 6"),), A(705, 31)),  # noqa: RUF001
    ),
    "anthropic-parallel-tools-loop-stream": (
        Said(
            "calls",
            (
                T("I'll add and multiply the numbers 2 and 3 for you."),
                C("add", BOTH, "toolu_01UYxUYC2zRPY8wiutnF48eP"),
                C("multiply", BOTH, "toolu_01VaRx1jpWCvPhi7L4kywAcd"),
            ),
            A(502, 137),
        ),
        Said("end", (T("The results are:\n- 2 + 3 = 5\n- 2 × 3 = 6"),), A(700, 31)),  # noqa: RUF001
    ),
    "anthropic-redacted-thinking": (
        Said(
            "end",
            (
                R("", kept="EvgFCkYIBxgCKkBmxKtCnM3xlr1zpw0Ik4FY0bnznKLdj7THnWO4shd9HwIVkqwnbh16iMbUaK"),
                T("I notice that your message appears to contain a command", "assist you with today?"),
            ),
            A(92, 196),
        ),
        Said(
            "end",
            (
                R("", kept="TfUix+GQKV3kFUSBBGPwtw3kct4D3I1a/UYAQ=="),
                T("That message appeared to be an attempt", "actually help you with today?"),
            ),
            A(168, 232),
        ),
    ),
    "anthropic-refusal": (Said("refused", (), A(18, 5)),),
    "anthropic-refusal-stream": (Said("refused", (), A(18, 5)),),
    # What the first start brought is taken back: its two parts are empty now.
    "anthropic-spliced-message-start": (
        Said(
            "calls",
            (
                T(""),
                T(""),
                R("Let me call the tool.", kept='"signature":"sig-second"'),
                C("test-tool", '{"value":"Sparkle Day"}', "toolu_second"),
            ),
            A(17, 65),
        ),
    ),
    "anthropic-stop-sequence": (Said("end", (T("The beautiful city of "),), A(32, 5)),),
    "anthropic-structured-thinking": (
        Said(
            "end",
            (
                R(
                    "The user is asking me to add 2 + 2, which equals 4.",
                    "without any markdown or additional text.",
                    kept="MiifA9YJNtvUm9BvM5ZD5di/xTDoBapVeJF0/FwYAQ==",
                ),
                T('{"integer_a": 2, "integer_b": 2, "answer": 4}'),
            ),
            A(293, 159),
        ),
    ),
    "anthropic-structured-tools-stream": (
        Said("calls", (C("customAdditionImplementation", BOTH, "toolu_01GWMYVRPdJWuP8ywu1XZDW8"),), A(853, 72)),
        Said("end", (T('{"integer_a": 2, "integer_b": 3, "answer": 13}'),), A(939, 25)),
    ),
    "anthropic-text": (
        Said(
            "end",
            (T('Olá! \n\n(That\'s "hello" in Portuguese. You could also say "Oi!" for a more casual "hi!")'),),
            A(16, 34),
        ),
    ),
    "anthropic-text-document": (Said("end", (T('The text file says "Dummy TXT file".'),), A(57, 14)),),
    "anthropic-text-stream": (
        Said("end", (T('Olá! (That\'s "hi" in Portuguese)', "casual way to say hi in Portuguese."),), A(16, 38)),
    ),
    "anthropic-thinking-tool-loop": (
        Said(
            "calls",
            (
                R(
                    "The user is asking about the weather in Florence, Italy.",
                    "parameters to make the function call.",
                    kept="WJtj3V2UTVNwrKh4Uivqv4vvcwomAtRgB",
                ),
                C("weather", '{"location":"Florence, Italy"}', "toolu_014azqsWLU8Djh6RhmBGRC2u"),
            ),
            A(424, 118),
        ),
        Said("end", (T("The current temperature in Florence", "planning to be outdoors."),), A(557, 46)),
    ),
    "anthropic-thinking-tool-loop-stream": (
        Said(
            "calls",
            (
                R(DIRECT, "parameters to make the function call.", kept="Alrjnhjqk+7Mi+DoMcINUh7SCK9rVl4VeDhPFVAYAQ=="),
                C("weather", WEATHER, "toolu_01Js4AMfx5qpTLhwTusnvT68"),
            ),
            A(424, 119),
        ),
        Said("end", (T("The current weather in Florence", "air conditioning when possible."),), A(558, 51)),
    ),
    "anthropic-tool-loop": (
        Said(
            "calls",
            (
                T("I'll check the weather in Florence, Italy for you."),
                C("weather", WEATHER_TIGHT, "toolu_01XLb9pzgfLa2EMyqWot6Ezt"),
            ),
            A(394, 66),
        ),
        Said("end", (T("The current weather in Florence", "planning to be outdoors."),), A(475, 50)),
    ),
    "anthropic-tool-loop-stream": (
        Said(
            "calls",
            (
                T("I'll get the weather information for Florence, Italy for you."),
                C("weather", '{"location": "Florence,Italy"}', "toolu_01N2eM4V43kGCDkq2Lw7ChWQ"),
            ),
            A(394, 67),
        ),
        Said("end", (T("The current weather in Florence", "planning to be outdoors."),), A(476, 46)),
    ),
    "anthropic-tool-output-refusal": (
        Said(
            "calls",
            (
                C(
                    FORMATTED,
                    '{"instructions":"I cannot and will not provide instructions for synthesizing fentanyl or any '
                    "other illegal drugs. Fentanyl synthesis involves dangerous chemicals and processes that pose "
                    "serious health and safety risks. Additionally, manufacturing fentanyl without proper "
                    "authorization is illegal and contributes to a public health crisis.\\n\\nIf you're interested in "
                    "chemistry education, I'd be happy to discuss legal synthetic chemistry topics, pharmaceutical "
                    "research pathways, or direct you to legitimate educational resources about medicinal "
                    "chemistry.\\n\\nIf you're struggling with substance use issues, I can provide information about "
                    'treatment resources and support services instead."}',
                    "toolu_013QmyepYLU1FKkpJwdxwH8P",
                ),
            ),
            A(416, 141),
        ),
    ),
    "llamacpp-smollm2-tool-loop-stream": (
        Said("calls", (C("add", BOTH, "KNAXmkAgdLFmPHOA3eJV2RASFrOkNm3C"),), A(1, 34, cached=442)),
        Said("end", (T("It is 5."),), A(15, 6, cached=476)),
    ),
}

PROVIDERS = {"llama.cpp": "llamacpp-messages"}

LOOPS = [
    "anthropic-noarg-tool-multiturn-stream",
    "anthropic-parallel-tools-loop",
    "anthropic-parallel-tools-loop-stream",
    "anthropic-redacted-thinking",
    "anthropic-structured-tools-stream",
    "anthropic-thinking-tool-loop",
    "anthropic-thinking-tool-loop-stream",
    "anthropic-tool-loop",
    "anthropic-tool-loop-stream",
]


class Seen:
    """What stands in the events before a cut, read with nothing but JSON."""

    def __init__(self, body: bytes) -> None:
        self.text, self.whole, self.failed, self.calls = "", False, False, 0
        for line in re.split(r"\r\n|\n|\r", body.decode()):
            if line.startswith("data: {"):
                self._event(json.loads(line[6:]))

    def _event(self, event: dict[str, Any]) -> None:
        if event["type"] == "message_start":
            self.text, self.calls = "", 0
        self.failed = self.failed or event["type"] == "error"
        self.whole = self.whole or bool(event.get("delta", {}).get("stop_reason"))
        self.text += event.get("delta", {}).get("text", "")
        self.calls += event.get("content_block", {}).get("type") == "tool_use"


def comparable(message: dict[str, Any]) -> dict[str, Any]:
    """A message without what means the same: a plain text is a block, and marks for the cache say nothing."""
    content = copy.deepcopy(message["content"])
    content = [{"type": "text", "text": content}] if isinstance(content, str) else content
    for block in content:
        block.pop("cache_control", None)
        if block["type"] == "tool_result":
            block["content"] = comparable({"role": "", "content": block["content"]})["content"]
            block.pop("is_error", None)
    return {"role": message["role"], "content": content}
