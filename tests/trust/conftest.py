"""Trust is tested on both event loops, with real processes and real files."""

import pytest


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param
