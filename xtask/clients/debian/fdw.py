"""postgres_fdw: PostgreSQL 15 with foreign tables that are the server's: reads with pushed-down joins, writes, estimates, imports."""
import os
import subprocess
import sys

BIN = os.environ["CANON_PG_BIN"]
CANON, POSTGRES = sys.argv[1:3]


def sql(port, text):
    place = ["-h", "127.0.0.1", "-p", port, "-U", "canon", "-d", "canon"]
    said = subprocess.run([f"{BIN}/psql", *place, "-XAtq", "-v", "ON_ERROR_STOP=1", "-c", text], capture_output=True, text=True)
    if said.returncode:
        sys.exit(f"{text}: {said.stderr}")
    return said.stdout.strip()


sql(CANON, "CREATE TABLE far (id int PRIMARY KEY, v text, n numeric, t timestamptz DEFAULT '2024-01-01 UTC'); CREATE TABLE nokey (v int)")
sql(CANON, "INSERT INTO far (id, v, n) SELECT i, 'v' || i, i / 4.0 FROM generate_series(1, 1000) i; INSERT INTO nokey SELECT generate_series(1, 10)")
sql(
    POSTGRES,
    f"""CREATE EXTENSION postgres_fdw;
    CREATE SERVER canon FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '127.0.0.1', port '{CANON}', dbname 'canon', use_remote_estimate 'true');
    CREATE USER MAPPING FOR canon SERVER canon OPTIONS (user 'canon', password_required 'false');
    IMPORT FOREIGN SCHEMA public FROM SERVER canon INTO public""",
)
assert sql(POSTGRES, "SELECT count(*), sum(n) FROM far WHERE id BETWEEN 10 AND 20") == "11|41.2500000000000000"
assert sql(POSTGRES, "SELECT a.v FROM far a JOIN far b ON a.id = b.id + 1 WHERE b.id = 5") == "v6"
assert "Foreign Scan" in sql(POSTGRES, "EXPLAIN (VERBOSE) SELECT * FROM far WHERE id = 7")
sql(POSTGRES, "ANALYZE far")
sql(POSTGRES, "INSERT INTO far VALUES (2000, 'new', 1, DEFAULT); UPDATE far SET v = v || '!' WHERE id = 7; DELETE FROM far WHERE id = 8")
# The condition is PostgreSQL's own, so that the rows go by their ctid.
sql(POSTGRES, "UPDATE far SET v = 'random' WHERE id <= 6 AND random() < 2; DELETE FROM nokey WHERE v > 5 AND random() < 2")
assert sql(CANON, "SELECT string_agg(v, ',' ORDER BY id) FROM far WHERE id IN (1, 6, 7, 8, 9, 2000)") == "random,random,v7!,v9,new"
assert sql(CANON, "SELECT count(*) FROM nokey") == "5"
sql(POSTGRES, "BEGIN; DELETE FROM far; SAVEPOINT s; INSERT INTO far VALUES (1); ROLLBACK TO s; ROLLBACK")
assert sql(POSTGRES, "SELECT count(*) FROM far") == "1000"
sql(POSTGRES, "TRUNCATE far")
assert sql(CANON, "SELECT count(*) FROM far") == "0"
