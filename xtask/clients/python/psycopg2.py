"""psycopg2: transactions, named cursors, COPY, arrays and JSON, notifications, advisory locks, errors by SQLSTATE."""
import io
import select
import sys

import psycopg2
import psycopg2.errors
import psycopg2.extras

DSN = f"host=127.0.0.1 port={sys.argv[1]} user=canon dbname=canon"
with psycopg2.connect(DSN) as c:
    with c.cursor() as k:
        k.execute("CREATE TABLE p2 (id serial PRIMARY KEY, v text NOT NULL, a int[], j jsonb)")
        k.execute("INSERT INTO p2 (v, a, j) VALUES (%s, %s, %s) RETURNING id", ("x", [1, 2], psycopg2.extras.Json({"k": [1]})))
        assert k.fetchone() == (1,)
        psycopg2.extras.execute_values(k, "INSERT INTO p2 (v) VALUES %s", [(str(i),) for i in range(2000)])
        k.copy_expert("COPY p2 (v) FROM STDIN", io.StringIO("a\nb\n"))
with psycopg2.connect(DSN) as c:
    with c.cursor("named", cursor_factory=psycopg2.extras.RealDictCursor) as k:
        k.itersize = 100
        k.execute("SELECT * FROM p2 ORDER BY id")
        rows = list(k)
    assert len(rows) == 2003 and rows[0]["a"] == [1, 2] and rows[0]["j"] == {"k": [1]}
    try:
        with c.cursor() as k:
            k.execute("INSERT INTO p2 (v) VALUES (NULL)")
    except psycopg2.errors.NotNullViolation as e:
        assert e.diag.column_name == "v"
        c.rollback()
ear, mouth = psycopg2.connect(DSN), psycopg2.connect(DSN)
for c in ear, mouth:
    c.autocommit = True
with ear.cursor() as k:
    k.execute("LISTEN news")
with mouth.cursor() as k:
    k.execute("SELECT pg_notify('news', 'hello'), pg_advisory_lock(1)")
assert select.select([ear], [], [], 30)[0]
ear.poll()
assert [(n.channel, n.payload) for n in ear.notifies] == [("news", "hello")]
with ear.cursor() as k:
    k.execute("SELECT pg_try_advisory_lock(1)")
    assert k.fetchone() == (False,)
