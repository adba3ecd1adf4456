"""pg_dump and pg_restore: out of the server and into it, plain and custom, with jobs; into PostgreSQL 15; the rows are the same everywhere."""
import os
import subprocess
import sys

BIN = os.environ["CANON_PG_BIN"]
CANON, POSTGRES = sys.argv[1:3]
SCHEMA = """
CREATE SCHEMA app;
CREATE TYPE app.mood AS ENUM ('sad', 'glad');
CREATE DOMAIN app.positive AS int CHECK (value > 0);
CREATE TYPE app.pair AS (a int, b text);
CREATE TABLE app.author (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name varchar(20) NOT NULL UNIQUE, mood app.mood DEFAULT 'sad');
CREATE TABLE app.book (
    id serial PRIMARY KEY, author int REFERENCES app.author ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED, title text,
    pages app.positive, twice int GENERATED ALWAYS AS (id * 2) STORED, tags text[], more jsonb, made timestamptz, price numeric(10,2), code uuid,
    raw bytea, CONSTRAINT sane CHECK (length(title) > 0));
CREATE INDEX by_title ON app.book (lower(title)) WHERE pages > 10;
CREATE INDEX covering ON app.book (author) INCLUDE (title);
CREATE VIEW app.titles AS SELECT a.name, b.title FROM app.author a LEFT JOIN app.book b ON b.author = a.id;
COMMENT ON TABLE app.book IS 'books';
COMMENT ON COLUMN app.book.title IS 'on the cover';
CREATE ROLE reader;
GRANT USAGE ON SCHEMA app TO reader;
GRANT SELECT ON app.book TO reader;
INSERT INTO app.author (name, mood) SELECT 'a' || i, CASE i % 2 WHEN 0 THEN 'glad'::app.mood END FROM generate_series(1, 50) i;
INSERT INTO app.book (author, title, pages, tags, more, made, price, code, raw)
    SELECT 1 + i % 50, E'line\\n\\t' || i, i, ARRAY['x', NULL, '{"' || i], jsonb_build_object('i', i), '2024-01-01 UTC'::timestamptz + i * interval '1 hour',
        i / 7.0, md5(i::text)::uuid, decode(md5(i::text), 'hex') FROM generate_series(1, 1000) i;
SELECT setval('app.book_id_seq', 5000);
"""
ROWS = [
    "SELECT * FROM app.author ORDER BY id",
    "SELECT * FROM app.book ORDER BY id",
    "SELECT * FROM app.titles ORDER BY 1, 2",
    "SELECT nextval('app.book_id_seq')",
    "SELECT conname, contype, condeferred, confdeltype FROM pg_constraint WHERE connamespace = 'app'::regnamespace ORDER BY 1",
    "SELECT relname, relkind FROM pg_class WHERE relnamespace = 'app'::regnamespace ORDER BY 1",
    "SELECT obj_description('app.book'::regclass), col_description('app.book'::regclass, 3)",
    "SELECT has_table_privilege('reader', 'app.book', 'SELECT')",
]
# PostgreSQL prints these with its own casts and brackets.
DEFINITIONS = [
    "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = 'app'::regnamespace ORDER BY 1",
    "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'app' ORDER BY 1",
]


def run(program, port, *arguments):
    place = ["-h", "127.0.0.1", "-p", port, "-U", "canon"]
    said = subprocess.run([f"{BIN}/{program}", *place, *arguments], capture_output=True, text=True)
    if said.returncode:
        sys.exit(f"{program} {arguments}: {said.stdout[-2000:]}{said.stderr[-2000:]}")
    return said.stdout


def sql(port, text):
    return run("psql", port, "-XAtq", "-d", "canon", "-v", "ON_ERROR_STOP=1", "-c", "SET timezone = 'UTC'", "-c", text)


def rows(port):
    found = [sql(port, query) for query in ROWS]
    sql(port, "SELECT setval('app.book_id_seq', 5000)")
    return found


def empty(port):
    sql(port, "DROP SCHEMA app CASCADE")


sql(CANON, SCHEMA)
sql(POSTGRES, "CREATE ROLE reader")
wanted = rows(CANON)
definitions = [sql(CANON, query) for query in DEFINITIONS]
for form in "plain", "custom":
    run("pg_dump", CANON, "-d", "canon", "-F", form, "-f", form)
run("pg_dump", CANON, "-d", "canon", "--schema-only", "-f", "schema")
run("pg_dump", CANON, "-d", "canon", "--data-only", "--inserts", "-t", "app.author", "-f", "inserts")


def load(port):
    run("psql", port, "-Xq", "-d", "canon", "-v", "ON_ERROR_STOP=1", "-f", "plain")
    assert rows(port) == wanted, ("plain", port)
    empty(port)
    run("pg_restore", port, "-d", "canon", "-j", "2", "--exit-on-error", "custom")
    assert rows(port) == wanted, ("custom", port)


load(POSTGRES)
empty(CANON)
load(CANON)
assert [sql(CANON, query) for query in DEFINITIONS] == definitions
# And a dump of PostgreSQL's, of the same schema.
run("pg_dump", POSTGRES, "-d", "canon", "-F", "custom", "-f", "back")
empty(CANON)
run("pg_restore", CANON, "-d", "canon", "-j", "2", "--exit-on-error", "back")
assert rows(CANON) == wanted, "PostgreSQL's dump"
