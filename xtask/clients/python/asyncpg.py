"""asyncpg: types, prepared statements, cursors, COPY, codecs, listeners, the pool's reset."""
import asyncio
import datetime
import decimal
import io
import json
import sys
import uuid

import asyncpg

PLACE = dict(host="127.0.0.1", port=int(sys.argv[1]), user="canon", database="canon")


async def main():
    c = await asyncpg.connect(**PLACE)
    await c.execute(
        "CREATE TABLE things (id int PRIMARY KEY, v text, a int[], j jsonb, n numeric, t timestamptz, u uuid, b bytea)"
    )
    now = datetime.datetime.now(datetime.timezone.utc)
    row = (1, "x", [1, 2], '{"a": 1}', decimal.Decimal("1.5"), now, uuid.uuid4(), b"\x00x")
    await c.execute("INSERT INTO things VALUES ($1, $2, $3, $4, $5, $6, $7, $8)", *row)
    assert tuple(await c.fetchrow("SELECT * FROM things")) == row
    await c.executemany("INSERT INTO things (id, v) VALUES ($1, $2)", [(i, str(i)) for i in range(2, 500)])
    seen = 0
    async with c.transaction():
        async for _ in c.cursor("SELECT id FROM things"):
            seen += 1
    assert seen == 499
    async with c.transaction(isolation="serializable", readonly=True):
        assert await c.fetchval("SELECT count(*) FROM things") == 499
    try:
        async with c.transaction():
            await c.execute("DELETE FROM things")
            await c.execute("INSERT INTO things (id) VALUES (1), (1)")
    except asyncpg.UniqueViolationError:
        pass
    statement = await c.prepare("SELECT $1::int + 1 AS x")
    assert [p.name for p in statement.get_parameters()] == ["int4"]
    assert await statement.fetchval(4) == 5
    await c.copy_records_to_table("things", records=[(1000, "c"), (1001, "d")], columns=["id", "v"])
    out = io.BytesIO()
    await c.copy_from_query("SELECT id, v FROM things WHERE id >= 1000 ORDER BY id", output=out)
    assert out.getvalue() == b"1000\tc\n1001\td\n"
    await c.set_type_codec("jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
    assert await c.fetchval("SELECT j FROM things WHERE id = 1") == {"a": 1}
    heard = asyncio.Queue()
    await c.add_listener("news", lambda *n: heard.put_nowait(n[2:]))
    await c.execute("NOTIFY news, 'hello'")
    assert await asyncio.wait_for(heard.get(), 30) == ("news", "hello")
    await c.close()
    async with asyncpg.create_pool(**PLACE, min_size=2, max_size=4) as pool:
        for _ in range(3):
            async with pool.acquire() as c:
                assert await c.fetchval("SELECT count(*) FROM things") == 501


asyncio.run(main())
