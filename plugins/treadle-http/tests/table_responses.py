"""What a person reads in the recorded answers of OpenAI's Responses."""

from __future__ import annotations

import json
import re
from typing import Any

from wire_tables import C, Failed, K, R, Said, T, U

from treadle_http.profiles import PROFILES
from treadle_http.wires.responses import Responses

WIRE = Responses()
PROFILE = PROFILES["openai-responses"]


def W(read: int, written: int, *, kept: int = 0, thought: int = 0) -> tuple[int, int, int, int, int]:
    """Usage of a request whose prefix was written into the cache: kept stands inside what was read."""
    return (read - kept, 0, kept, written - thought, thought)


BOTH = '{"a":2,"b":3}'
FLORENCE = '{"location":"Florence, Italy"}'
BERLIN = '{"latitude":"52.5200","longitude":"13.4050"}'
QUOTA = "You exceeded your current quota"
SORRY = "I'm sorry, I can't assist with that."

EXPECTED: dict[str, tuple[Said | Failed, ...]] = {
    "bedrock-mantle-stream": (
        Said(
            "end",
            (
                R("We simply count: 1, 2, 3, 4, 5.", kept='"id":"msg_bcd53e89d22ebc75"'),
                T("Sure! Here’s a quick count:\n\n1  \n2  \n3  \n4  \n5"),  # noqa: RUF001
            ),
            U(75, 46, thought=20),
        ),
    ),
    "deepseek-tool-loop-stream": (
        Said(
            "calls",
            (
                R("The user asks about temperature in Tokyo. I'll call the tool.", kept="fa6f3a83-5d25-46e8"),
                C("get_temperature", '{"city": "Tokyo"}', "call_00_xjY8Z2BvSlzgEmmw0DtH0464"),
            ),
            U(366, 59, cached=256, thought=14),
        ),
        Said(
            "end", (T("The current temperature in Tokyo is **21.0°C**.", kept="final_answer"),), U(440, 14, cached=384)
        ),
    ),
    "llamacpp-smollm2-tool-loop-stream": (
        Said(
            "calls",
            (C("add", '{"a": 2, "b": 3}', "call_crRnY9t427kU1TPxO1jLISs6dmswTRCs"),),
            U(443, 34, cached=442),
        ),
        Said("end", (T("It is 5."),), U(491, 6, cached=476)),
    ),
    "lmstudio-tool-stream": (
        Said(
            "calls",
            (
                R("The user is asking for the weather in San Francisco.", "to make the function call."),
                T("I'll get the current weather information for San Francisco for you."),
                C("weather", '{"location":"San Francisco"}', "call_2025306790300011"),
            ),
            U(182, 61, cached=2, thought=48),
        ),
    ),
    "openai-400-context": (Failed("context_overflow", 400, "Your input exceeds the context window of this model."),),
    "openai-400-encrypted-invalid": (
        Said(
            "end",
            (
                R("**Considering perspectives on meaning**", "thoughts would be great!", kept="L6NVf5ggBw6AJR9Fu"),
                T("A single, final answer doesn’t exist", "meaning statement or plan."),  # noqa: RUF001
            ),
            U(13, 248, thought=64),
        ),
        Failed("bad_request", 400, "was provided without its required following item"),
        Said(
            "end",
            (
                R("**Expanding on life’s meaning**", "what resonates with them.", kept="gAAAAABoxC3p_JDft5mZApHvSNX"),  # noqa: RUF001
                T("Plenty.\n\nA few quick lenses:", "I can tailor this to you."),
            ),
            U(142, 355, thought=128),
        ),
    ),
    "openai-400-model": (Failed("not_found", 400, "does not exist"),),
    "openai-400-temperature": (Failed("bad_request", 400, "Invalid 'temperature'"),),
    "openai-401": (Failed("auth", 401, "Incorrect API key provided"),),
    "openai-429-quota": (Failed("quota", 429, QUOTA),),
    "openai-document": (Said("end", (T('The document contains the text "Dummy PDF file."'),), U(51, 11)),),
    "openai-encrypted-reasoning-loop": (
        Said(
            "calls",
            (
                R("", kept='"encrypted_content":"gAAAAABp-rIaNe6WknTMnPCTW6JIYUOsrQbNUvTkE_mV0UapEUw4P056qF39Vaxp'),
                C("lookup_population", '{"country":"Pundora"}', "call_uy7tfNVokIN7NjFF6k7OtLyl", "fc_0f4809b2746"),
            ),
            U(94, 85, thought=63),
        ),
        Said("calls", (C("can_have_dragons", '{"population":123124}', "call_jwY8kllWAsnoSXtjXZQ5KR6i"),), U(192, 21)),
        Said(
            "end",
            (T("Pundora has a population of 123,124 — and yes, it can have dragons.", kept="final_answer"),),
            U(227, 24),
        ),
    ),
    "openai-encrypted-reasoning-parallel-tools": (
        Said(
            "calls",
            (
                R("", kept="bwKzMOcD_6fot6EsWx"),
                C("weather", BERLIN, "call_NeNP7bv8VH3cJTxFagvafR2L"),
                C("best_language_to_learn", "{}", "call_oAtUHJKdNzt8gEH4M6P3Grd3"),
            ),
            U(112, 284, thought=192),
        ),
        Said(
            "end",
            (
                R("", kept="gAAAAABqhb9y1KHLhC_1Sg5"),
                T("- Weather in Berlin (52.5200, 13.4050): 1", "data science, etc.), I can adjust."),
            ),
            U(426, 385, thought=256),
        ),
    ),
    "openai-image-url": (
        Said(
            "end",
            (T("Hello! I see you've shared an image of a potato. How can I assist you today?"),),
            U(663, 20),
        ),
    ),
    "openai-incomplete": (
        Said("length", (T("Sure! Here is a list of all 50 U.S. state", "8. Delaware\n9. Florida"),), U(14, 50)),
    ),
    "openai-incomplete-stream": (
        Said("length", (T("Sure! Here is a list of all 50 U.S. state", "8. Delaware\n9. Florida"),), U(14, 50)),
    ),
    "openai-interleaved-reasoning-tools": (
        Said(
            "calls",
            (
                R("", kept="rs_0429c1fcf5cbfa350169fabfe62a9c8197914677ea9a2424a0"),
                C("db_lookup", '{"key":"start"}', "call_I670mAzR6AYszdoqaI96qg0k"),
            ),
            U(88, 65, thought=45),
        ),
        Said(
            "calls",
            (
                R("", kept="rs_0429c1fcf5cbfa350169fabfe83488819788888aaafb2ab1fd"),
                C("db_lookup", '{"key":"7"}', "call_Uj506iEKjBZWrHPq2C3GDtgr"),
            ),
            U(171, 118, thought=98),
        ),
        Said(
            "calls",
            (
                R("", kept="rs_0429c1fcf5cbfa350169fabfeb569481978703af8553a073b9"),
                C("db_lookup", '{"key":"step1"}', "call_Vik9mkNli8KsnSbHOShapdmG"),
            ),
            U(302, 217, thought=196),
        ),
        Said(
            "calls",
            (
                R("", kept="rs_0429c1fcf5cbfa350169fabfeff8708197a93aabe0257d06a5"),
                C("db_lookup", '{"key":"begin"}', "call_WbWwKw4J6EXQ7Sn93fgmuZe3"),
                C("db_lookup", '{"key":"value"}', "call_et3hsNc1ipjCfuBylmAwqkEy"),
                C("db_lookup", '{"key":"the value 7"}', "call_J4rpPS0QEz4CIdsVGKEKG6k3"),
                C("db_lookup", '{"key":"Begin with the value 7."}', "call_gd2cYY61KkICSgB6qNd7ZC66"),
                C("db_lookup", '{"key":"start2"}', "call_nInKAmdZObYpqc3OR3WC61K3"),
            ),
            U(532, 119, thought=17),
        ),
    ),
    "openai-json-schema-tools": (
        Said("calls", (C("get_user_country", "{}", "call_tTAThu8l2S9hNky2krdwijGP"),), U(66, 12)),
        Said("end", (T('{"city":"Mexico City","country":"Mexico"}'),), U(89, 16)),
    ),
    "openai-midstream-error": (Failed("quota", None, QUOTA),),
    "openai-parallel-tools-loop": (
        Said(
            "calls",
            (C("add", BOTH, "call_4duuhyRqgE5yacjdB7N3qLs3"), C("multiply", BOTH, "call_R9NaXdicUFYsl6ROHrFdxe2A")),
            U(108, 51),
        ),
        Said("end", (T("The results are as follows:\n- **Addition**: 2 + 3 = 5", "3 = 6"),), U(154, 36)),
    ),
    "openai-parallel-tools-loop-stream": (
        Said(
            "calls",
            (C("add", BOTH, "call_ZckkKeJQwcJPC27VXT61xFLf"), C("multiply", BOTH, "call_M9h2AZgoLEv6q5gkex1QMtm2")),
            U(104, 51),
        ),
        Said("end", (T("The sum of 2 and 3 is **5**, and the product of 2 and 3 is **6**."),), U(150, 28)),
    ),
    "openai-phase-stream-loop": (
        Said(
            "calls",
            (
                R("", kept="rs_0fabc13af1ee0049006a691dfe60b081a1baa444d3cf19afba"),
                T("I’ll check the capital lookup tool for “PotatoLand.”", kept='"phase":"commentary"'),  # noqa: RUF001
                C("get_capital", '{"country":"PotatoLand"}', "call_LabG58Uhrq9kZvR52BYKjToD"),
            ),
            U(63, 69, thought=26),
        ),
        Said("end", (T("The capital of PotatoLand is **Potato City**."),), U(147, 16)),
    ),
    "openai-previous-response-id": (
        Said("end", (T("Hello"),), U(40, 3)),
        Said("calls", (C("get_weather", '{"city":"New York"}', "call_P1vN20XNjvNyIm0VshHYzmSA"),), U(56, 16)),
        Said("calls", (C("get_weather", '{"city":"NYC"}', "call_N2BikjqNxghwNIwHl2XKfb0F"),), U(110, 16)),
        Said("end", (T("The weather in New York is sunny and 72°F."),), U(139, 14)),
    ),
    "openai-prompt-cache": (
        Said("end", (T("OK"),), W(4020, 5, kept=4012)),
        Said("end", (T("OK"),), U(4020, 5, cached=4012)),
    ),
    "openai-reasoning-tool-stream-usage": (
        Said(
            "calls",
            (
                R("", kept="rs_0050471a34b36ae60068c97bac4dcc819595fd0f80d6b3c405"),
                C("final_result", '{"result":6666}', "call_CWXgs68YprAjp6t0371hiPOI"),
            ),
            U(53, 469, thought=448),
        ),
    ),
    "openai-refusal": (Said("refused", (T("I'm very sorry, but I can't assist with that."),), U(54, 13)),),
    "openai-refusal-stream": (Said("refused", (T(SORRY),), U(54, 11)),),
    "openai-text": (Said("end", (T("Olá!"),), U(20, 3)),),
    "openai-text-stream": (Said("end", (T('Hi in Portuguese is "Oi!"'),), U(20, 8)),),
    "openai-tool-loop": (
        Said("calls", (C("weather", FLORENCE, "call_XX4zIshrJWNnM1Z3n6XsaSxP"),), U(58, 17)),
        Said("end", (T("The weather in Florence, Italy, is currently 40°C."),), U(81, 15)),
    ),
    "openai-tool-loop-stream": (
        Said("calls", (C("weather", FLORENCE, "call_4TL7SrUyTg60nSUcfgeWLFXO"),), U(58, 17)),
        Said("end", (T("The current temperature in Florence, Italy, is 40°C.", "forecasts, let me know!"),), U(81, 27)),
    ),
    "openai-web-search": (
        Said(
            "end",
            (
                K('"query":"latest stable Ruby version"'),
                T(
                    "The latest stable Ruby",
                    "(https://www.ruby-lang.org/en/downloads/?utm_source=openai))",
                    kept='"type":"url_citation","end_index":138,"start_index":62',
                ),
            ),
            U(8614, 95, thought=48),
        ),
        Said("end", (T("OK"),), U(4565, 5, cached=4352)),
    ),
    "openrouter-raw-cot-interleaved": (
        Said(
            "end",
            (
                R('The user asks: "What is 2+2?" They expect a straightforward answer: 4. Just answer 4.'),
                T("4"),
            ),
            U(78, 37, thought=22),
        ),
    ),
    "xai-encrypted-parallel-tools": (
        Said(
            "calls",
            (
                R(
                    "The question is: \"What's the weather in Berlin",
                    'best language to learn?"\n',
                    kept="pyiW6kc5",
                ),
                C("weather", BERLIN, "call-2287d3de-269c-416e-a172-6e4ecc95e9ec-0"),
                C("best_language_to_learn", "{}", "call-2287d3de-269c-416e-a172-6e4ecc95e9ec-1"),
            ),
            U(396, 240, cached=192, thought=210),
        ),
        Said(
            "end",
            (
                R("The tools returned:\n\nWeather:", "Wind: 10 km/h\n", kept="d9uV5CsL2tVLmFYbcnZfTr4SmztihNQMjzB"),
                T("The weather in Berlin (52.5200, 13.4050) is currently 15°C", "language to learn is Ruby."),
            ),
            U(671, 97, cached=192, thought=60),
        ),
    ),
}

PROVIDERS = {
    "openai": "openai-responses",
    "xai": "xai-responses",
    "llama.cpp": "llamacpp-responses",
    "deepseek": "llamacpp-responses",
    "lmstudio": "llamacpp-responses",
    "openrouter": "llamacpp-responses",
    "aws-bedrock-mantle": "llamacpp-responses",
}

LOOPS = [
    "deepseek-tool-loop-stream",
    "openai-encrypted-reasoning-loop",
    "openai-encrypted-reasoning-parallel-tools",
    "openai-interleaved-reasoning-tools",
    "openai-json-schema-tools",
    "openai-parallel-tools-loop",
    "openai-parallel-tools-loop-stream",
    "openai-phase-stream-loop",
    "openai-tool-loop",
    "openai-tool-loop-stream",
    "openai-web-search",
    "xai-encrypted-parallel-tools",
]


class Seen:
    """What stands in the events before a cut, read with nothing but JSON."""

    def __init__(self, body: bytes) -> None:
        self.text, self.whole, self.failed, self.calls = "", False, False, 0
        for line in re.split(r"\r\n|\n|\r", body.decode()):
            if line.startswith("data: {"):
                self._event(json.loads(line[6:]))

    def _event(self, event: dict[str, Any]) -> None:
        kind = event["type"]
        self.failed = self.failed or kind in ("error", "response.failed")
        self.whole = self.whole or kind in ("response.completed", "response.incomplete")
        if kind in ("response.output_text.delta", "response.refusal.delta"):
            self.text += event["delta"]
        self.calls += kind == "response.output_item.added" and event["item"]["type"] == "function_call"


def comparable(item: dict[str, Any]) -> dict[str, Any]:
    """An item without what means the same to the provider.

    A plain text is a part, a status says nothing, empty lists and null are nothing. Recorded clients left out ids of
    calls, some of them those of reasoning, and logprobs; one wrote plain quotes for typographic ones.
    """
    out = {name: value for name, value in item.items() if name not in ("status", "id") and value not in (None, [])}
    out.setdefault("type", "message")
    if "arguments" in out:
        out["arguments"] = json.loads(out["arguments"])
    if out["type"] == "message":
        content = out.get("content")
        parts = [{"text": content}] if isinstance(content, str) else list(content or ())
        out["content"] = [part["text"].translate({0x2019: "'", 0x201C: '"', 0x201D: '"'}) for part in parts]
    return out
