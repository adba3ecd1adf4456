"""psycopg 3: both kinds of binding, binary results, pipelines, COPY, named cursors, types made by CREATE TYPE, notifications, asyncio."""
import asyncio
import datetime
import sys
import uuid

import psycopg
from psycopg.rows import dict_row
from psycopg.types.composite import CompositeInfo, register_composite
from psycopg.types.enum import EnumInfo, register_enum
from psycopg.types.json import Jsonb

PLACE = f"host=127.0.0.1 port={sys.argv[1]} user=canon dbname=canon"

with psycopg.connect(PLACE) as c:
    c.execute("CREATE TABLE p3 (id int PRIMARY KEY, v text, a int[], j jsonb, t timestamptz, u uuid, d date[])")
    day = datetime.date(2024, 2, 29)
    row = (1, "x", [1, 2], {"k": [1]}, datetime.datetime.now(datetime.timezone.utc), uuid.uuid4(), [day])
    c.execute("INSERT INTO p3 VALUES (%s, %s, %s, %s, %s, %s, %s)", row[:3] + (Jsonb(row[3]),) + row[4:])
    for binary in False, True:
        assert c.execute("SELECT * FROM p3", binary=binary).fetchone() == row
    k = c.cursor(row_factory=dict_row)
    k.executemany("INSERT INTO p3 (id, v) VALUES (%s, %s)", [(i, str(i)) for i in range(2, 1000)])
    with k.copy("COPY p3 (id, v) FROM STDIN (FORMAT BINARY)") as copy:
        copy.set_types(["int4", "text"])
        for i in range(1000, 1010):
            copy.write_row((i, "copied"))
    with k.copy("COPY (SELECT id, v FROM p3 WHERE id >= 1000 ORDER BY id) TO STDOUT") as copy:
        assert len(list(copy.rows())) == 10
    with c.cursor("named", scrollable=True, withhold=True) as named:
        named.execute("SELECT id FROM p3 ORDER BY id")
        c.commit()
        named.scroll(500)
        assert named.fetchone() == (501,)
    with c.pipeline():
        for i in range(20):
            k.execute("UPDATE p3 SET v = 'piped' WHERE id = %s", (i,))
    assert c.execute("SELECT count(*) FROM p3 WHERE v = 'piped'").fetchone() == (19,)
    try:
        with c.transaction():
            c.execute("INSERT INTO p3 (id) VALUES (1)")
    except psycopg.errors.UniqueViolation as e:
        assert e.diag.constraint_name == "p3_pkey"
    c.execute("CREATE TYPE mood AS ENUM ('sad', 'glad'); CREATE TYPE pair AS (a int, b text)")
    register_enum(EnumInfo.fetch(c, "mood"), c)
    register_composite(CompositeInfo.fetch(c, "pair"), c)
    assert c.execute("SELECT 'glad'::mood", binary=True).fetchone()[0].name == "glad"
    assert c.execute("SELECT row(1, 'x')::pair", binary=True).fetchone()[0] == (1, "x")
    assert sum(1 for _ in c.cursor().stream("SELECT id FROM p3")) == 1009


async def main():
    async with await psycopg.AsyncConnection.connect(PLACE, autocommit=True) as c:
        heard = []
        c.add_notify_handler(lambda n: heard.append((n.channel, n.payload)))
        await c.execute("LISTEN news")
        await c.execute("SELECT pg_notify('news', 'hello')")
        await c.execute("SELECT 1")
        assert heard == [("news", "hello")]


asyncio.run(main())
