"""What a log says of its parent."""

from treadle.testing.stores import numbered


async def test_a_log_names_the_session_it_was_forked_from(opened):
    async with opened() as store:
        parent = await store.open("parent", write=True)
        await parent.append(numbered(1, 2), 0)
        await store.fork("parent", 2, "child")
        await store.fork("child", 1, "grandchild")
        assert parent.forked_from is None
        assert (await store.open("child", write=False)).forked_from == ("parent", 2)
        assert (await store.open("grandchild", write=True)).forked_from == ("child", 1)
