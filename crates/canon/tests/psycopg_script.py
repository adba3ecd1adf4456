"""What psycopg 3 does with a server: run with its connection string; says "all done" at the end."""

import datetime as dt
import decimal
import sys
import uuid

import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

url = sys.argv[1]


def same(got, wanted):
    assert got == wanted, f"{got!r} is not {wanted!r}"


with psycopg.connect(url) as conn:
    conn.execute(
        """CREATE TABLE t (id serial PRIMARY KEY, i2 int2, i8 int8, f8 float8, n numeric, s text,
           b bytea, u uuid, d date, tm time, ts timestamp, tz timestamptz, iv interval, j jsonb,
           flag bool, ints int[], words text[])"""
    )
    conn.commit()
    row = (
        -5,
        2**62,
        1.5,
        decimal.Decimal("12345678901234567890.123456789"),
        "grün, 'quoted' \\ and\nmore",
        b"\x00\xff\x10",
        uuid.UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        dt.date(2020, 2, 29),
        dt.time(10, 11, 12, 345678),
        dt.datetime(2020, 2, 29, 10, 11, 12, 345678),
        dt.datetime(2020, 2, 29, 10, 11, 12, 345678, dt.timezone.utc),
        dt.timedelta(days=3, seconds=4, microseconds=5),
        {"a": [1, 2, {"b": None}], "c": "ü"},
        True,
        [1, 2, None, 3],
        ["a", None, 'with "quotes"', "NULL", ""],
    )
    columns = "i2, i8, f8, n, s, b, u, d, tm, ts, tz, iv, j, flag, ints, words"
    marks = ", ".join(["%s"] * len(row))
    for binary in (False, True):
        with conn.cursor(binary=binary) as cur:
            sent = [Jsonb(v) if isinstance(v, dict) else v for v in row]
            cur.execute(f"INSERT INTO t ({columns}) VALUES ({marks}) RETURNING id", sent)
            (key,) = cur.fetchone()
            cur.execute(f"SELECT {columns} FROM t WHERE id = %s", (key,))
            same(cur.fetchone(), row)
            cur.execute(f"INSERT INTO t ({columns}) VALUES ({marks}) RETURNING {columns}", [None] * len(row))
            same(cur.fetchone(), (None,) * len(row))
    conn.commit()

    # Binary parameters of each type that has them.
    with conn.cursor() as cur:
        for value in row[:12] + row[13:]:
            cur.execute("SELECT %b" if not isinstance(value, str) else "SELECT %b::text", (value,))
            same(cur.fetchone()[0], value)

    with conn.cursor(row_factory=dict_row) as cur:
        cur.execute("SELECT 1 AS one, 'x' AS x")
        same(cur.fetchone(), {"one": 1, "x": "x"})
        same([c.name for c in cur.description], ["one", "x"])

    # Prepared automatically after five executions.
    for i in range(20):
        same(conn.execute("SELECT %s::int + 1", (i,)).fetchone()[0], i + 1)

    # executemany, rowcount, RETURNING from many.
    with conn.cursor() as cur:
        cur.execute("CREATE TABLE m (id int PRIMARY KEY, v text)")
        cur.executemany("INSERT INTO m VALUES (%s, %s)", [(i, f"v{i}") for i in range(100)])
        same(cur.rowcount, 100)
        cur.execute("UPDATE m SET v = 'x' WHERE id < 10")
        same(cur.rowcount, 10)
        cur.executemany("DELETE FROM m WHERE id = %s RETURNING id", [(98,), (99,)], returning=True)
        same(cur.fetchone(), (98,))

    # Transactions and savepoints.
    with conn.transaction():
        conn.execute("INSERT INTO m VALUES (1000, 'kept')")
        try:
            with conn.transaction():
                conn.execute("INSERT INTO m VALUES (1001, 'undone')")
                conn.execute("INSERT INTO m VALUES (1000, 'twice')")
        except psycopg.errors.UniqueViolation as error:
            same(error.diag.constraint_name, "m_pkey")
            same(error.diag.table_name, "m")
            same(error.sqlstate, "23505")
        else:
            raise AssertionError("no UniqueViolation")
    same(conn.execute("SELECT count(*) FROM m WHERE id >= 1000").fetchone(), (1,))
    conn.commit()

    # A server-side cursor: DECLARE, FETCH, CLOSE.
    with conn.cursor(name="server side") as cur:
        cur.itersize = 7
        cur.execute("SELECT id FROM m WHERE id < 50 ORDER BY id")
        same([r[0] for r in cur], list(range(50)))
    with conn.cursor(name="with values") as cur:
        cur.execute("SELECT id FROM m WHERE id >= %s AND id < %s ORDER BY id", (7, 12))
        same([r[0] for r in cur], list(range(7, 12)))
    conn.commit()

    # Streaming row by row.
    with conn.cursor() as cur:
        same(sum(r[0] for r in cur.stream("SELECT g FROM generate_series(1, 100) g")), 5050)
    conn.commit()

    # COPY in and out.
    with conn.cursor() as cur:
        with cur.copy("COPY m (id, v) FROM STDIN") as copy:
            for i in range(2000, 2100):
                copy.write_row((i, None if i % 10 == 0 else f"tab\t{i}"))
        same(cur.rowcount, 100)
        with cur.copy("COPY (SELECT id, v FROM m WHERE id BETWEEN 2000 AND 2001 ORDER BY id) TO STDOUT") as copy:
            same(list(copy.rows()), [("2000", None), ("2001", "tab\t2001")])
    conn.commit()

    # Pipeline mode, with an error in the middle.
    with conn.pipeline():
        cursors = [conn.execute("SELECT %s::int * 2", (i,)) for i in range(50)]
        same([c.fetchone()[0] for c in cursors], [i * 2 for i in range(50)])
    conn.commit()
    try:
        with conn.pipeline():
            conn.execute("SELECT 1")
            conn.execute("SELECT 1 / 0")
            conn.execute("SELECT 2")
    except psycopg.errors.DivisionByZero:
        pass
    else:
        raise AssertionError("no DivisionByZero")
    conn.rollback()

    # Notices, parameters of the server, cancel.
    notices = []
    conn.add_notice_handler(lambda d: notices.append(d.message_primary))
    conn.execute("DROP TABLE IF EXISTS nowhere")
    same(len(notices), 1)
    conn.commit()
    assert conn.info.server_version // 10000 == 15, conn.info.server_version
    same(conn.info.encoding, "utf-8")
    same(conn.info.parameter_status("standard_conforming_strings"), "on")
    same(conn.info.parameter_status("integer_datetimes"), "on")

    import threading

    timer = threading.Timer(0.3, conn.cancel)
    timer.start()
    try:
        conn.execute("SELECT pg_sleep(30)")
    except psycopg.errors.QueryCanceled:
        pass
    else:
        raise AssertionError("no QueryCanceled")
    conn.rollback()

# Isolation, read only, autocommit.
with psycopg.connect(url, autocommit=True) as conn:
    conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    conn.autocommit = False
    same(conn.execute("SHOW transaction_isolation").fetchone(), ("repeatable read",))
    conn.rollback()
    conn.read_only = True
    try:
        conn.execute("DELETE FROM m")
    except psycopg.errors.ReadOnlySqlTransaction:
        conn.rollback()
    else:
        raise AssertionError("no ReadOnlySqlTransaction")

print("all done")
