"""What a person reads in the recorded answers of Chat Completions."""

from __future__ import annotations

import json
import re
from typing import Any

from wire_tables import C, Failed, R, Said, T, U

from treadle_http.profiles import Profile
from treadle_http.wires.chat import Chat

WIRE = Chat()
PROFILE = Profile(name="any")

BERLIN = '{"latitude": "52.5200", "longitude": "13.4050"}'
BERLIN_TIGHT = '{"latitude":"52.5200","longitude":"13.4050"}'
TWO_AND_THREE = '{"a": 2, "b": 3}'
UPSTREAM = "is temporarily rate-limited upstream"
RING = '{"author":{"name":"J.R.R. Tolkien","nationality":"British"},"genres":'

EXPECTED: dict[str, tuple[Said | Failed, ...]] = {
    "anthropic-compat-tool-stream": (
        Said("calls", (T("Reading it."), C("read_file", '{"path": "a.txt"}', "toolu_sanitized"))),
    ),
    "azure-content-filter": (Said("refused", (), U(15, 19)),),
    "azure-model-router-stream": (Said("end", (T("Capital of Denmark."),), U(15, 78, thought=64)),),
    "azure-text-stream": (Said("end", (T("Oi!"),), U(19, 76, thought=64)),),
    "azure-tool-loop-stream": (
        Said(
            "calls",
            (C("weather", '{"location":"Florence, Italy"}', "call_tWA8BJziGlCyhQEXhEHn6eXK"),),
            U(145, 154, thought=128),
        ),
        Said(
            "end",
            (T("Right now in Florence it's about 40 °C (104 °F) — very hot.", "or the next few days?"),),
            U(176, 192, thought=128),
        ),
    ),
    "cerebras-reasoning": (
        Said("end", (R('The user asks: "What is 2+2?', "no extra text."), T("4")), U(80, 45, thought=34)),
    ),
    "deepseek-401": (Failed("auth", 401, "Authentication Fails"),),
    "deepseek-reasoning-tools-loop": (
        Said(
            "calls",
            (
                R("The user wants to play a dice game.", "Let me load the capability first."),
                T("Let me load the dice rolling capability!"),
                C("load_capability", '{"id": "DICE_ROLL"}', "call_00_sXqYgMESDht75NCLLZtt9804"),
            ),
            U(563, 116, cached=512, thought=60),
        ),
        Said(
            "calls",
            (
                R("Great, now I have access to the dice roll tool.", "and then roll the die."),
                T("Let me get your name and roll the die!"),
                C("get_player_name", "{}", "call_00_6edlnw3Z1MgeMfey687g8451"),
                C("roll_dice", "{}", "call_01_km02sac7sHxNDPATKLZy7705"),
            ),
            U(875, 79, thought=26),
        ),
        Said(
            "end",
            (
                R("The player's name is Anne, and the die rolled a 4. The user guessed 4, so they win!"),
                T("🎉 **Congratulations, Anne!** You're a winner! 🎉", "Lucky you! 🎲"),
            ),
            U(976, 61, cached=896, thought=25),
        ),
    ),
    "deepseek-text-stream": (
        Said("end", (T("1, 2, 3."),), U(11, 8)),
        Said("end", (T("1, 2, 3."),), U(11, 8)),
    ),
    "gateway-502-html": (Failed("server", 502, "502 Bad Gateway"),),
    "gpustack-vllm-tool-loop": (
        Said(
            "calls",
            (
                R("\nOkay, the user is asking for the weather in Berlin", "format the tool call correctly.\n"),
                C("weather", BERLIN_TIGHT, "call-3UQAmYZ1YZQLNmFfsQvePVDTQR4H6qoB"),
            ),
            U(269, 137, cached=66, thought=99),
        ),
        Said(
            "end",
            (
                R("\nOkay, the user asked for the weather in Berlin", "that should cover it.\n"),
                T("\n\nThe current weather in Berlin (52.5200, 13.4050) is 15°C with wind speeds at 10 km/h."),
            ),
            U(312, 148, cached=268, thought=107),
        ),
    ),
    "groq-400-tool-use-failed": (
        Failed("tool_use_failed", 400, "Tool call validation failed"),
        Said(
            "calls",
            (
                R('We need to call with correct param: name field. Use some name, e.g., "test".'),
                C("get_something_by_name", '{"name":"test"}', "fc_311ba17b-89f9-48d3-8fd9-7e74a1264855"),
            ),
            U(301, 52, thought=22),
        ),
        Said(
            "end",
            (
                R("We need to respond to user request.", "Use regular quotes."),
                T("The first call failed due to missing", 'and returned: "Something with name: test".'),
            ),
            U(336, 96, cached=256, thought=59),
        ),
    ),
    "groq-404-model": (Failed("not_found", 404, "does not exist"),),
    "groq-midstream-error": (
        Failed(
            "tool_use_failed",
            400,
            "Tool choice is required, but model did not call a tool",
            partial=(R('The user says: "dont make a tool call', "So just plain text: maybe."), T("maybe")),
        ),
        Said(
            "calls",
            (
                R("We need to comply with tool usage now.", 'with response "no".'),
                C("final_result", '{"response":"no"}', "fc_299e8414-9e94-4d9c-bd06-c096f8919768"),
            ),
            U(343, 180, thought=153),
        ),
    ),
    "groq-parallel-tools-stream": (
        Said(
            "calls",
            (
                T("I'll perform both addition and multiplication on the numbers 2 and 3 for you."),
                C("add", '{"a":2,"b":3}', "functions.add:0"),
                C("multiply", '{"a":2,"b":3}', "functions.multiply:1"),
            ),
            U(201, 58),
        ),
        Said("end", (T("Here are the results:\n- Addition: 2 + 3 = 5\n- Multiplication: 2 \u00d7 3 = 6"),), U(296, 30)),
    ),
    "groq-reasoning": (
        Said("end", (R('The user asks "What is 2+2?', "No extra text."), T("4")), U(84, 58, thought=48)),
    ),
    "llamacpp-400-bad-messages": (Failed("bad_request", 400, "Expected 'messages' to be an array"),),
    "llamacpp-400-context": (Failed("context_overflow", 400, "exceeds the available context size"),),
    "llamacpp-smollm2-tool-loop-stream": (
        Said("calls", (C("add", TWO_AND_THREE, "Fp744DChiekSS5lvWDSrPQtKYL8Y3ksG"),), U(443, 34, cached=442)),
        Said("end", (T("It is 5."),), U(491, 6, cached=476)),
    ),
    "llamacpp-tool-loop-stream": (
        Said(
            "calls",
            (
                R("User wants weather in Florence, Italy. We can use the weather function."),
                C("weather", '{"location":"Florence, Italy"}', "g2KOIWzn722hzEaZQmNVP4roUPEiYafL"),
            ),
            U(139, 41),
        ),
        Said("end", (T("The current weather in Florence, Italy is **40\u202f°C**."),), U(196, 18)),
    ),
    "llamacpp-tool-loop": (
        Said(
            "calls",
            (
                R('The user asks: "What\'s the weather in Florence, Italy?"', "We should call it."),
                C("weather", '{"location":"Florence,Italy"}', "mvVq65j66dyGRizURhbdNCEnSO56GhXx"),
            ),
            U(139, 58),
        ),
        Said("end", (T("The current weather in Florence, Italy is **40\u202f°C**."),), U(213, 18)),
    ),
    "mistral-content-array-stream": (
        Said(
            "end",
            (
                R("Okay, the user is asking how to cross the street.", "a clear and concise response."),
                T("To cross the street safely, follow these steps:\n\n1. Look", "you can ensure a safe crossing."),
            ),
            U(10, 232),
        ),
    ),
    "mistral-content-array": (
        Said("end", (R("The user is asking for the result of 2+2.", 'respond with "4".'), T("4")), U(28, 35)),
    ),
    "mistral-incremental-tool-stream": (
        Said(
            "calls",
            (C("webSearchTool", '{"query": "current Berlin weather"}', "chatcmpl-tool-9f149c74c42f265b"),),
            U(171, 14, cached=128),
        ),
    ),
    "mistral-three-tools": (
        Said("calls", tuple(C("dice_roll", "{}", id) for id in ("vAKGXGFZD", "n9P3tR143", "tXj57CGus")), U(109, 19)),
        Said("end", (T("Here are the results of rolling the dice 3 times: [1, 2, 3]."),), U(149, 22)),
    ),
    "mistral-tools-multiturn-stream": (
        Said("calls", (C("weather", BERLIN, "g6fVbXS8K"),), U(159, 28, cached=128)),
        Said(
            "end",
            (
                T(
                    "The current weather in Berlin at coordinates (52.5200, 13.4050) is **15°C** with a wind speed "
                    "of **10 km/h**."
                ),
            ),
            U(222, 43, cached=192),
        ),
    ),
    "ollama-400-context": (Failed("context_overflow", 400, "prompt too long"),),
    "ollama-401": (Failed("auth", 401, "Unauthorized"),),
    "ollama-json-schema": (
        Said(
            "end",
            (
                R("Okay, the user is asking for the capital of France.", "answer is Paris.\n"),
                T('{ "city": "Paris", "country": "France" }'),
            ),
            U(136, 15),
        ),
    ),
    "ollama-three-tools": (
        Said(
            "calls",
            (
                R("Okay, the user wants me to roll the dice three times.", "each roll individually.\n"),
                *(C("dice_roll", "{}", f"call_{id}") for id in ("2qwy5kxj", "bpkrefyu", "7t3hvz5k")),
            ),
            U(152, 134),
        ),
        Said(
            "end",
            (
                R("Okay, let me process this.", "time to format the answer neatly.\n"),
                T("The dice rolls resulted in:\n1. Roll 1: 1", "Total sum: 1 + 2 + 3 = 6"),
            ),
            U(323, 157),
        ),
    ),
    "ollama-tools-multiturn-stream": (
        Said(
            "calls",
            (
                R("We need to call weather function with latitude and longitude. Provide as strings."),
                C("weather", BERLIN_TIGHT, "call_x7rn5sl5"),
            ),
            U(169, 55),
        ),
        Said("end", (T("The current weather in Berlin (at\u202f52.5200\u202fN", "of **10\u202fkm/h**."),), U(252, 45)),
        Said(
            "calls",
            (
                R("We need to fetch weather for Paris coordinates. Use function."),
                C("weather", '{"latitude":"48.8575","longitude":"2.3514"}', "call_5zat23rg"),
            ),
            U(300, 45),
        ),
        Said("end", (T("The current weather in Paris (at\u202f48.8575\u202fN", "of **10\u202fkm/h**."),), U(380, 45)),
    ),
    "openai-400-stop-param": (
        Failed("bad_request", 400, "Unsupported parameter: 'stop'"),
        Said("end", (T("4242"),), U(15, 11)),
    ),
    "openai-400-system-role": (Failed("bad_request", 400, "does not support 'developer'"),),
    "openai-400-unpaired-tool-call": (Failed("bad_request", 400, "did not have response messages: call_1"),),
    "openai-400-unsupported-parameter": (Failed("bad_request", 400, "Use 'max_completion_tokens' instead"),),
    "openai-401": (Failed("auth", 401, "Incorrect API key provided"),),
    "openai-404-model": (Failed("not_found", 404, "does not exist"),),
    "openai-429-retry-after": (Failed("rate_limit", 429, "Rate limit reached", retry_after_seconds=0.976),),
    "openai-500": (Failed("server", 500, "had an error while processing"),),
    "openai-cached-tokens": (
        Said(
            "end",
            (T("**OpenLLMetry Launches to Enhance Monitoring", "higher accuracy for logical and nuanced tasks."),),
            U(1149, 315),
        ),
        Said(
            "end",
            (T("1. **Open-Source Library OpenLLMetry", "challenges previously deemed unsolvable."),),
            U(1149, 353, cached=1024),
        ),
    ),
    "openai-chain-of-two-calls": (
        Said("calls", (C("lookup_population", '{"country":"Crumpet"}', "call_TTY8UFNo7rNCaOBUNtlRSvMG"),), U(92, 17)),
        Said("calls", (C("can_have_dragons", '{"population":123124}', "call_aq9UyiSFkzX6W8Ydc33DoI9Y"),), U(118, 18)),
        Said("end", (T("YES"),), U(146, 3)),
    ),
    "openai-document-input": (
        Said("end", (T('The document contains the text "Dummy PDF file" on its single page.'),), U(235, 16)),
    ),
    "openai-gpt5-stream-reasoning-tokens": (Said("end", (T("Olá!"),), U(19, 75, thought=64)),),
    "openai-image-input": (Said("end", (T("A tiny blue cartoon character."),), U(22, 719, thought=704)),),
    "openai-interleaved-deltas": (
        Said(
            "calls",
            (
                C("add", TWO_AND_THREE, "call_cclGbjTQkZDEnnHrRiU0n7NO"),
                C("multiply", TWO_AND_THREE, "call_Nob2SzTcxIjro1HvSBPQS6XG"),
            ),
            U(106, 50),
        ),
    ),
    "openai-json-schema": (Said("end", (T(RING, '"title":"The Lord of the Rings"}'),), U(160, 43)),),
    "openai-json-schema-stream": (Said("end", (T('{"age":30,"city":"Paris","name":"Alice"}'),), U(99, 13)),),
    "openai-length": (Said("length", (T("Certainly! Here is a list of all 50", "9. Florida"),), U(14, 50)),),
    "openai-length-stream": (
        Said("length", (T("Here is a list of all 50 U.S. states:", "9. Florida\n10"),), U(14, 50)),
    ),
    "openai-parallel-tools-loop": (
        Said(
            "calls",
            (
                C("add", TWO_AND_THREE, "call_2wt6qUGrlxczUadZYf3qXyH0"),
                C("multiply", TWO_AND_THREE, "call_vZOWZaH7tzu0rLZeogtafvrf"),
            ),
            U(110, 50),
        ),
        Said("end", (T("The sum of 2 and 3 is 5, and the product of 2 and 3 is 6."),), U(176, 26)),
    ),
    "openai-parallel-tools-loop-stream": (
        Said(
            "calls",
            (
                C("add", TWO_AND_THREE, "call_cclGbjTQkZDEnnHrRiU0n7NO"),
                C("multiply", TWO_AND_THREE, "call_Nob2SzTcxIjro1HvSBPQS6XG"),
            ),
            U(106, 50),
        ),
        Said("end", (T("The sum of 2 and 3 is 5, and the product of 2 and 3 is 6."),), U(172, 26)),
    ),
    "openai-refusal": (Said("refused", (T("I'm very sorry, but I can't assist with that request."),), U(64, 13)),),
    "openai-refusal-stream": (Said("refused", (T("I'm sorry, I can\u2019t assist with that request."),), U(64, 12)),),
    "openai-text": (Said("end", (T("Olá!"),), U(20, 2)),),
    "openai-text-stream": (Said("end", (T("Olá!"),), U(20, 2)),),
    "openai-tool-loop": (
        Said("calls", (C("weather", '{"location":"Florence, Italy"}', "call_15X0Q2MmkK1IeFfiol9LFlqb"),), U(61, 16)),
        Said("end", (T("The current weather in Florence, Italy is 40°C."),), U(86, 13)),
    ),
    "openai-tool-loop-stream": (
        Said("calls", (C("weather", '{"location":"Florence,Italy"}', "call_qLFv8oQOs68qRuEVmG8TuEJp"),), U(61, 16)),
        Said("end", (T("The current temperature in Florence, Italy is 40°C."),), U(86, 13)),
    ),
    "openrouter-400-context": (Failed("context_overflow", 400, "maximum context length is 200000 tokens"),),
    "openrouter-429": (Failed("rate_limit", 429, UPSTREAM),) * 3,
    "openrouter-args-null": (
        Said("calls", (C("llm_version", "{}", "llm_version:0"),), U(56, 12)),
        Said("end", (T("The installed version of LLM on this system is 0.fixed-version."),), U(105, 16)),
    ),
    "openrouter-midstream-error": (
        Failed(
            "bad_request",
            400,
            "Token limit reached",
            partial=(R("We need to respond to a greeting. The user"),),
        ),
    ),
    "openrouter-novita-tool-id-repeated": (
        Said("calls", (C("llm_version", "{}", "0"),), U(57, 17)),
        Said("end", (T("The current version of *llm* is **0.fixed-version**."),), U(107, 15)),
    ),
    "openrouter-reasoning-details-loop": (
        Said(
            "calls",
            (
                R("The user is asking for the weather in Berlin", "with Berlin as the city parameter."),
                C("reasoning_weather", '{"city": "Berlin"}', "toolu_bdrk_01ADw53o3uvrGvccVaVYUX4G"),
            ),
            U(626, 113, thought=61),
        ),
        Said("end", (T("The current weather in Berlin is **15°C (59°F) and", "overcast day in Berlin."),), U(762, 34)),
        Said(
            "end",
            (
                R("The user is asking if they should bring an umbrella", "answer briefly as requested."),
                T(
                    "Yes, bring an umbrella. The cloudy conditions suggest rain is possible, and it's better to be "
                    "prepared."
                ),
            ),
            U(751, 100, thought=73),
        ),
    ),
    "openrouter-reasoning-details-stream": (
        Said(
            "calls",
            (
                R("The user is asking for the weather in Berlin and specifically", "function with this parameter."),
                C("reasoning_weather", '{"city": "Berlin"}', "toolu_bdrk_01L9pX1Wp4FAEq9TT2Z6UAe7"),
            ),
            U(626, 106, thought=54),
        ),
        Said(
            "end",
            (T("The current weather in Berlin is **15°C and cloudy**. It's a mild day with overcast conditions."),),
            U(754, 28),
        ),
    ),
    "openrouter-text-stream-comments": (Said("end", (T("Hello!"),), U(254, 5)),),
    "perplexity-401": (Failed("auth", 401, "Invalid API key provided"),),
    "perplexity-crlf-no-done": (Said("end", (T("1 2 3"),), U(8, 5)),),
    "vllm-length-stream": (Said("length", (T("<|im_end|>doctor\n<|im_end|>supervisor\n<"),)),),
    "vllm-text": (
        Said("end", (T("Why did the OpenTelemetry metric go to therapy?", 'release" its stress.'),), U(43, 36)),
    ),
    # xAI alone counts reasoning beside the output: 496 + 77 + 121 is its total of 694.
    "xai-reasoning-tool-stream": (
        Said(
            "calls",
            (
                R("The user asked to generate information about 'The Lord", "and publication year 1954.\n"),
                C(
                    "Book",
                    RING + '["fantasy","adventure"],"published_year":1954,"title":"The Lord of the Rings"}',
                    "call_82293478",
                ),
            ),
            (496 - 448, 448, 0, 77, 121),
        ),
    ),
    "zai-preserved-thinking": (
        Said(
            "end",
            (
                R("\nThe user is asking for the product of 17 and 19.", "instructions or chain of thought."),
                T("17 * 19 is 323.\n\nHere is one way", "the result is $324 - 1 = 323$."),
            ),
            U(17, 172, thought=49),
        ),
        Said(
            "end",
            (R("\nThe user wants to multiply the previous result", "Final Answer: 646."), T("323 * 2 is 646.")),
            U(198, 134, thought=122),
        ),
    ),
}

PROVIDERS = {"llama.cpp": "llamacpp", "gpustack-vllm": "vllm", "ollama-cloud": "ollama", "anthropic-compat": ""}

LOOPS = [
    "azure-tool-loop-stream",
    "deepseek-reasoning-tools-loop",
    "gpustack-vllm-tool-loop",
    "groq-parallel-tools-stream",
    "llamacpp-tool-loop",
    "llamacpp-tool-loop-stream",
    "mistral-three-tools",
    "mistral-tools-multiturn-stream",
    "ollama-three-tools",
    "ollama-tools-multiturn-stream",
    "openai-chain-of-two-calls",
    "openai-parallel-tools-loop",
    "openai-parallel-tools-loop-stream",
    "openai-tool-loop",
    "openai-tool-loop-stream",
    "openrouter-novita-tool-id-repeated",
    "openrouter-reasoning-details-loop",
    "openrouter-reasoning-details-stream",
    "zai-preserved-thinking",
]


class Seen:
    """What stands in the events before a cut, read with nothing but JSON."""

    def __init__(self, body: bytes) -> None:
        self.text, self.finished, self.done, self.failed, self.calls = "", False, False, False, 0
        for line in re.split(r"\r\n|\n|\r", body.decode()):
            if line == "data: [DONE]":
                self.done = True
            elif line.startswith("data: {"):
                self._chunk(json.loads(line[6:]))

    @property
    def whole(self) -> bool:
        return self.finished or bool(self.done and (self.text or self.calls))

    def _chunk(self, chunk: dict[str, Any]) -> None:
        self.failed = self.failed or "error" in chunk
        for choice in chunk.get("choices", ()):
            self.finished = self.finished or bool(choice.get("finish_reason"))
            content = choice["delta"].get("content") or choice["delta"].get("refusal") or ""
            if isinstance(content, list):
                content = "".join(item.get("text", "") for item in content if item["type"] == "text")
            self.text += content
            self.calls += len({c["id"] for c in choice["delta"].get("tool_calls") or () if c.get("id")})
