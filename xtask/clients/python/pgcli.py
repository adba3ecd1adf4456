"""pgcli: what it asks for when it starts, to complete names, and its backslash commands."""
import sys

from pgcli.pgexecute import PGExecute
from pgspecial.main import PGSpecial

execute = PGExecute("canon", "canon", None, "127.0.0.1", sys.argv[1], None)
special = PGSpecial()


def run(sql):
    rows = []
    for title, found, headers, status, *rest in execute.run(sql, pgspecial=special):
        assert rest[1], (sql, status)
        rows += list(found or [])
    return rows


run("CREATE TABLE first (v text PRIMARY KEY); CREATE TABLE second (id serial PRIMARY KEY, v text REFERENCES first); CREATE VIEW third AS SELECT v FROM second")
assert {("public", "first"), ("public", "second")} <= set(execute.tables())
assert ("public", "third") in set(execute.views())
assert ("public", "second", "v", "text", False, None) in set(execute.table_columns())
assert [f.parenttable for f in execute.foreignkeys()] == ["first"]
assert "canon" in execute.databases() and "public" in execute.schemata() and "public" in execute.search_path()
for kind in execute.datatypes, execute.casing, execute.view_columns, execute.functions:
    list(kind())
for command in r"\d", r"\dt", r"\d second", r"\d+ third", r"\di", r"\dv", r"\ds", r"\du", r"\dn", r"\df", r"\dT", r"\dx", r"\l", r"\dp", r"\ddp", r"\dD":
    run(command)
