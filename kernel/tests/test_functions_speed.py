"""What decoding a call costs beside msgspec alone. Run with `-m slow -s`."""

import dataclasses
import timeit
from typing import Literal

import msgspec
import pytest

from treadle.functions import tool


@dataclasses.dataclass
class Order:
    sku: str
    qty: int = 1


class FlatAlone(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    city: str
    days: int
    unit: Literal["c", "f"] = "c"


class NestedAlone(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    name: str
    items: list[Order]


@tool
def flat(city: str, days: int, unit: Literal["c", "f"] = "c"): ...


@tool
def nested(name: str, items: list[Order]): ...


def microseconds(function) -> float:
    return min(timeit.repeat(function, number=10_000, repeat=9)) / 10_000 * 1e6


@pytest.mark.slow
def test_decoding_costs_a_few_times_msgspec_alone():
    small = {"city": "Bern", "days": 3}
    # msgspec fills a dataclass without its constructor; ours is called, which is most of the difference.
    orders = {"name": "x", "items": [{"sku": "a", "qty": 2}] * 10}
    pairs = {
        "flat": (lambda: msgspec.structs.asdict(msgspec.convert(small, FlatAlone)), lambda: flat.decode(small)),
        "ten dataclasses": (lambda: msgspec.convert(orders, NestedAlone), lambda: nested.decode(orders)),
        "ten constructors alone": (lambda: [Order("a", 2) for _ in range(10)], lambda: nested.decode(orders)),
    }
    ratios = {}
    for name, (alone, ours) in pairs.items():
        base, cost = microseconds(alone), microseconds(ours)
        ratios[name] = cost / base
        print(f"{name}: {base:.2f} us alone, {cost:.2f} us decoded, {ratios[name]:.1f} times")
