//! Changes of the schema as a replica shows them: one that was acknowledged counts for what comes after it, in every way to ask.

#[allow(dead_code)]
#[path = "replica_reads/helpers.rs"]
mod helpers;

use futures::StreamExt;
use helpers::*;
use tokio_postgres::{Client, SimpleQueryMessage};

/// Makes a change while the replica stands still, and lets it go on when what runs meanwhile waits for the change. What that gives.
fn meanwhile<T: Send>(t: &Test, change: &str, runs: impl FnOnce() -> T + Send) -> T {
    t.hold(true);
    t.run(&t.primary(), change);
    std::thread::scope(|s| {
        let runs = s.spawn(runs);
        t.until_somebody_waits();
        t.hold(false);
        runs.join().expect("it ends")
    })
}

/// Number of fields of the first row, by the simple protocol.
fn width(t: &Test, c: &Client, sql: &str) -> usize {
    let all = t.runtime.block_on(c.simple_query(sql));
    let all = all.unwrap_or_else(|e| panic!("{sql}: {e} {:?}", e.as_db_error()));
    let row = all.iter().find_map(|m| match m {
        SimpleQueryMessage::Row(r) => Some(r.len()),
        _ => None,
    });
    row.expect(sql)
}

/// What COPY … TO STDOUT sends.
fn copied(t: &Test, c: &Client, sql: &str) -> String {
    t.runtime.block_on(async {
        let stream = c.copy_out(sql).await;
        let stream = stream.unwrap_or_else(|e| panic!("{sql}: {e} {:?}", e.as_db_error()));
        let pieces: Vec<_> = stream.collect().await;
        let pieces = pieces.into_iter().map(|p| p.expect("a piece"));
        String::from_utf8(pieces.flatten().collect()).expect("text")
    })
}

/// A wait that fails leaves nothing behind in a transaction that a savepoint keeps: no schema, and no place to stand.
#[test]
fn a_wait_that_failed_leaves_no_schema_behind() {
    let t = Test::start(TABLES);
    let (p, r) = (t.primary(), t.replica());
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        for (n, change) in [
            "TRUNCATE a",
            "DROP TABLE a; CREATE TABLE a (id int PRIMARY KEY, v int NOT NULL)",
        ]
        .into_iter()
        .enumerate()
        {
            let sum = "SELECT sum(v) FROM a";
            let before = t.one(&p, sum);
            assert_eq!(t.one(&r, sum), before);
            let begin = format!("BEGIN ISOLATION LEVEL {level}; SAVEPOINT s");
            t.run(&r, &format!("SET canon.read_timeout = '50ms'; {begin}"));
            t.hold(true);
            t.run(&p, &format!("{change}; INSERT INTO a VALUES (5, {n} + 7)"));
            assert_eq!(t.refused(&r, sum), "57014");
            t.hold(false);
            t.cluster.catch_up().expect("caught up");
            t.run(&r, "ROLLBACK TO s; RESET canon.read_timeout");
            assert_eq!(t.one(&r, sum), (n + 7).to_string(), "{level}: {change}");
            t.run(&r, "COMMIT");
        }
    }
}

/// A transaction may write rows into a table that it makes, and then drop, truncate or rewrite the table: the replica goes on.
#[test]
fn rows_of_storage_that_came_to_nothing_do_not_stop_a_replica() {
    let t = Test::start(TABLES);
    let (p, r) = (t.primary(), t.replica());
    for (then, rows) in [
        ("DROP TABLE z; CREATE TABLE z (a int)", "0"),
        ("TRUNCATE z", "0"),
        ("ALTER TABLE z ADD COLUMN s serial", "2"),
        ("CREATE INDEX ON z ((a + 1)) WHERE a > 1", "2"),
    ] {
        t.run(
            &p,
            &format!("CREATE TABLE z (a int); INSERT INTO z VALUES (1), (2); {then}"),
        );
        assert_eq!(t.one(&r, "SELECT count(*) FROM z"), rows, "{then}");
        t.run(&p, "DROP TABLE z");
    }
}

/// Partial indexes and those over expressions are kept by rows that are written here and there, and found by the planner at both.
#[test]
fn indexes_over_expressions_are_the_same_at_a_replica() {
    let t = Test::start(TABLES);
    let (p, r) = (t.primary(), t.replica());
    t.run(
        &p,
        "CREATE TABLE u (id int PRIMARY KEY, mail text, gone boolean);
         INSERT INTO u SELECT g, 'M' || g, g % 2 = 0 FROM generate_series(1, 40) g;
         CREATE UNIQUE INDEX u_mail ON u (lower(mail)) WHERE NOT gone",
    );
    let found = "SELECT id FROM u WHERE lower(mail) = 'm7' AND NOT gone";
    for c in [&p, &r] {
        assert_eq!(t.one(c, found), "7");
        let plan = t.one(c, &format!("EXPLAIN (COSTS OFF) {found}"));
        assert_eq!(plan, "Index Scan using u_mail on u");
    }
    assert_eq!(
        t.refused(&r, "INSERT INTO u VALUES (50, 'm7', false)"),
        "23505"
    );
    t.run(
        &r,
        "INSERT INTO u VALUES (50, 'm8', false), (51, 'm8', true)",
    );
    assert_eq!(
        t.refused(&p, "UPDATE u SET gone = false WHERE id = 8"),
        "23505"
    );
    t.run(&p, "UPDATE u SET mail = 'other' WHERE id = 7");
    for c in [&p, &r] {
        assert_eq!(
            t.one(
                c,
                "SELECT count(*) FROM u WHERE lower(mail) = 'm7' AND NOT gone"
            ),
            "0"
        );
        assert_eq!(
            t.one(c, "SELECT id FROM u WHERE lower(mail) = 'm8' AND NOT gone"),
            "50"
        );
    }
    t.run(&r, "DROP INDEX u_mail");
    t.run(&p, "UPDATE u SET gone = false");
    assert_eq!(t.one(&r, "SELECT count(*) FROM u WHERE NOT gone"), "42");
}

/// The version of a row is the same at both, and a row's place means the same row; what stands in `pg_default_acl` and is NOT VALID, too.
#[test]
fn system_columns_and_loose_constraints_are_the_same_at_a_replica() {
    let t = Test::start(TABLES);
    let (p, r) = (t.primary(), t.replica());
    t.run(
        &p,
        "CREATE TABLE u (id int PRIMARY KEY, v text); CREATE TABLE d (a int);
         INSERT INTO u VALUES (1, 'a'), (2, 'b'); INSERT INTO d VALUES (1), (1), (2);
         ALTER TABLE u ADD CONSTRAINT late CHECK (id > 1) NOT VALID;
         CREATE ROLE reader; ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO reader",
    );
    for query in [
        "SELECT xmin FROM u WHERE id = 1",
        "SELECT string_agg(ctid::text, ' ' ORDER BY a, ctid) FROM d",
        "SELECT convalidated FROM pg_constraint WHERE conname = 'late'",
        "SELECT defaclacl::text FROM pg_default_acl",
    ] {
        assert_eq!(t.one(&p, query), t.one(&r, query), "{query}");
    }
    let old = t.one(&r, "SELECT xmin FROM u WHERE id = 2");
    let change = format!("UPDATE u SET v = 'c' WHERE id = 2 AND xmin = '{old}' RETURNING xmin");
    let new = t.one(&r, &change);
    assert_ne!(old, new);
    assert_eq!(t.one(&p, "SELECT xmin FROM u WHERE id = 2"), new);
    let again = format!("WITH w AS ({change}) SELECT count(*) FROM w");
    assert_eq!(t.one(&p, &again), "0");
    t.run(
        &r,
        "DELETE FROM d x USING d y WHERE x.a = y.a AND x.ctid > y.ctid",
    );
    assert_eq!(t.one(&p, "SELECT count(*) FROM d"), "2");
    let place = t.one(&r, "SELECT ctid FROM d WHERE a = 2");
    t.run(&p, &format!("DELETE FROM d WHERE ctid = '{place}'"));
    assert_eq!(t.one(&r, "SELECT string_agg(a::text, ',') FROM d"), "1");
    assert_eq!(t.refused(&r, "INSERT INTO u VALUES (0, 'x')"), "23514");
    assert_eq!(
        t.refused(&r, "ALTER TABLE u VALIDATE CONSTRAINT late"),
        "23514"
    );
    t.run(
        &r,
        "DELETE FROM u WHERE id = 1; ALTER TABLE u VALIDATE CONSTRAINT late; CREATE TABLE born (a int)",
    );
    let granted = "SELECT has_table_privilege('reader', 'born', 'SELECT')";
    assert_eq!(
        (t.one(&p, granted), t.one(&r, granted)),
        ("t".into(), "t".into())
    );
}

/// A replica reads the labels of an enum that the primary has made, added, moved and renamed; a write through it may use the newest.
#[test]
fn enums_are_the_same_at_a_replica() {
    let t = Test::start(TABLES);
    let (p, r) = (t.primary(), t.replica());
    let all = "SELECT string_agg(e::text, ' ' ORDER BY s, id) FROM e";
    for (change, want) in [
        (
            "CREATE TYPE state AS ENUM ('open', 'shut');
             CREATE TABLE e (id int PRIMARY KEY, s state, past state[]);
             CREATE INDEX e_s ON e (s);
             INSERT INTO e VALUES (1, 'shut', '{open}'), (2, 'open', NULL)",
            "(2,open,) (1,shut,{open})",
        ),
        (
            "ALTER TYPE state ADD VALUE 'ajar' BEFORE 'shut'; INSERT INTO e VALUES (3, 'ajar', '{ajar,shut}')",
            "(2,open,) (3,ajar,\"{ajar,shut}\") (1,shut,{open})",
        ),
        (
            "ALTER TYPE state RENAME VALUE 'shut' TO 'closed'",
            "(2,open,) (3,ajar,\"{ajar,closed}\") (1,closed,{open})",
        ),
    ] {
        t.run(&p, change);
        assert_eq!(t.one(&r, all), want, "{change}");
        assert_eq!(t.one(&p, all), want, "{change}");
    }
    t.run(&r, "ALTER TYPE state ADD VALUE 'wide' BEFORE 'open'");
    t.run(&r, "INSERT INTO e VALUES (4, 'wide')");
    for c in [&p, &r] {
        let low = "SELECT string_agg(id::text, ' ' ORDER BY s) FROM e WHERE s < 'ajar'";
        assert_eq!(t.one(c, low), "4 2");
    }
    // A label that the replica does not know yet is waited for, and no other value that is none of its type.
    let huge = meanwhile(&t, "ALTER TYPE state ADD VALUE 'huge'", || {
        t.one(&r, "SELECT 'huge'::state")
    });
    assert_eq!(huge, "huge");
    t.run(&r, "SET canon.read_timeout = '100ms'");
    t.hold(true);
    t.run(&p, "ALTER TYPE state ADD VALUE 'vast'");
    assert_eq!(t.refused(&r, "SELECT 'vast'::int"), "22P02");
    assert_eq!(t.refused(&r, "SELECT 'vast'::state"), "57014");
    t.hold(false);
    t.run(&r, "RESET canon.read_timeout");
    assert_eq!(t.one(&r, "SELECT 'vast'::state"), "vast");
    t.run(
        &p,
        "CREATE DOMAIN few AS int CHECK (VALUE < 9); ALTER TABLE e ADD COLUMN n few DEFAULT 1",
    );
    assert_eq!(t.refused(&r, "SELECT 9::few"), "23514");
    assert_eq!(t.refused(&r, "UPDATE e SET n = 9"), "23514");
    t.run(&r, "ALTER DOMAIN few ADD CONSTRAINT some CHECK (VALUE > 0)");
    assert_eq!(t.refused(&p, "UPDATE e SET n = 0"), "23514");
    assert_eq!(t.refused(&r, "SELECT 0::few"), "23514");
    t.run(&p, "DROP DOMAIN few CASCADE");
    assert_eq!(t.refused(&p, "DROP TYPE state"), "2BP01");
    t.run(&p, "DROP TYPE state CASCADE");
    for c in [&p, &r] {
        assert_eq!(
            t.one(c, "SELECT string_agg(e::text, ' ' ORDER BY id) FROM e"),
            "(1) (2) (3) (4)"
        );
    }
}

/// A replica reads composite values by the attributes that the primary has added, dropped and renamed, and writes through it use them; the
/// same for addresses, bit strings and what an extension brings.
#[test]
fn composite_types_and_extensions_are_the_same_at_a_replica() {
    let t = Test::start(TABLES);
    let (p, r) = (t.primary(), t.replica());
    let all = "SELECT string_agg(c::text, ' ' ORDER BY id) FROM c";
    for (change, want) in [
        (
            "CREATE TYPE tone AS ENUM ('low'); CREATE TYPE pair AS (n int, s tone);
             CREATE TABLE c (id int PRIMARY KEY, p pair, ps pair[]);
             INSERT INTO c VALUES (1, '(1,low)', '{\"(2,)\"}'), (2, NULL, NULL)",
            "(1,\"(1,low)\",\"{\"\"(2,)\"\"}\") (2,,)",
        ),
        (
            "ALTER TYPE pair ADD ATTRIBUTE b bit(2); UPDATE c SET p.b = '10', ps = NULL WHERE id = 1",
            "(1,\"(1,low,10)\",) (2,,)",
        ),
        (
            "ALTER TYPE tone ADD VALUE 'high'; UPDATE c SET p.s = 'high' WHERE id = 2",
            "(1,\"(1,low,10)\",) (2,\"(,high,)\",)",
        ),
        (
            "ALTER TYPE pair DROP ATTRIBUTE n, DROP ATTRIBUTE b",
            "(1,\"(low)\",) (2,\"(high)\",)",
        ),
    ] {
        t.run(&p, change);
        assert_eq!(t.one(&r, all), want, "{change}");
        assert_eq!(t.one(&p, all), want, "{change}");
    }
    t.run(&r, "ALTER TYPE pair RENAME ATTRIBUTE s TO tone");
    t.run(&r, "UPDATE c SET p.tone = 'low' WHERE id = 2");
    t.run(
        &r,
        "CREATE EXTENSION citext; CREATE EXTENSION \"uuid-ossp\"",
    );
    t.run(
        &r,
        "CREATE TABLE k (m citext PRIMARY KEY, ip inet, id uuid DEFAULT uuid_generate_v4())",
    );
    t.run(&r, "INSERT INTO k (m, ip) VALUES ('Ann', '10.1.2.3/8')");
    assert_eq!(t.refused(&p, "INSERT INTO k (m) VALUES ('aNN')"), "23505");
    for c in [&p, &r] {
        assert_eq!(t.one(c, "SELECT (p).tone::text FROM c WHERE id = 2"), "low");
        let found = "SELECT m || ' ' || ip || ' ' || (id IS NOT NULL) FROM k WHERE m = 'ANN'";
        assert_eq!(t.one(c, found), "Ann 10.1.2.3/8 true");
    }
    let ids = "SELECT id::text FROM k";
    assert_eq!(t.one(&p, ids), t.one(&r, ids));
    assert_eq!(t.refused(&p, "DROP EXTENSION citext"), "2BP01");
}

/// What a table computes, what another table was made like, and rows that a change of the schema wrote anew are the same at a replica.
/// A write that is forwarded from there computes, too.
#[test]
fn computed_columns_are_the_same_at_a_replica() {
    let t = Test::start(TABLES);
    let (p, r) = (t.primary(), t.replica());
    let all = "SELECT string_agg(g::text, ' ' ORDER BY id) FROM g";
    for (change, want) in [
        (
            "CREATE TABLE g (id int PRIMARY KEY, n int, twice int GENERATED ALWAYS AS (n * 2) STORED);
             INSERT INTO g VALUES (1, 10), (2, NULL)",
            "(1,10,20) (2,,)",
        ),
        ("UPDATE g SET n = id", "(1,1,2) (2,2,4)"),
        (
            "ALTER TABLE g ADD COLUMN sum int GENERATED ALWAYS AS (id + n) STORED",
            "(1,1,2,2) (2,2,4,4)",
        ),
        ("ALTER TABLE g DROP COLUMN sum", "(1,1,2) (2,2,4)"),
        (
            "ALTER TABLE g ADD COLUMN a date[];
             UPDATE g SET a[2] = date '2020-01-01' + id;
             ALTER TABLE g ALTER COLUMN a TYPE text USING array_to_string(a, '+')",
            "(1,1,2,2020-01-02) (2,2,4,2020-01-03)",
        ),
    ] {
        t.run(&p, change);
        assert_eq!(t.one(&r, all), want, "{change}");
        assert_eq!(t.one(&p, all), want, "{change}");
    }
    t.run(&r, "CREATE TABLE l (LIKE g INCLUDING ALL)");
    t.run(&r, "INSERT INTO l (id, n) VALUES (7, 8)");
    for c in [&p, &r] {
        assert_eq!(t.one(c, "SELECT l::text FROM l"), "(7,8,16,)");
    }
}

/// What a statement that was only parsed has fetched is not what one reads at that comes later.
#[test]
fn a_statement_is_as_fresh_as_its_own_message() {
    let t = Test::start(TABLES);
    let (p, r) = (t.primary(), t.replica());
    t.run(&r, "BEGIN ISOLATION LEVEL READ COMMITTED; SAVEPOINT s");
    assert_eq!(t.one(&r, "SELECT sum(v) FROM a"), "0");
    t.hold(true);
    t.run(&p, "CREATE TABLE c (id int)");
    let c = &r;
    let prepared = std::thread::scope(|s| {
        let prepares = s.spawn(|| t.runtime.block_on(c.prepare("SELECT count(*) FROM c")));
        t.until_somebody_waits();
        t.run(&p, "UPDATE b SET v = 1");
        t.hold(false);
        prepares.join().expect("it ends").expect("prepared")
    });
    t.run(&p, "INSERT INTO c VALUES (1); UPDATE a SET v = 1");
    assert_eq!(t.one(&r, "SELECT sum(v) FROM a"), "100");
    let n = t.runtime.block_on(r.query_one(&prepared, &[]));
    assert_eq!(n.expect("a row").get::<_, i64>(0), 1);
    t.run(&r, "COMMIT");
}

#[test]
fn copy_has_the_columns_of_an_acknowledged_change() {
    let t = Test::start(TABLES);
    let (p, r) = (t.primary(), t.replica());
    t.run(&p, "DELETE FROM a WHERE id > 1");
    let copy = "COPY a TO STDOUT (FORMAT csv, HEADER)";
    let c = &r;
    assert_eq!(copied(&t, c, copy), "id,v\n1,0\n");
    let add = "ALTER TABLE a ADD COLUMN w int DEFAULT 7";
    let found = meanwhile(&t, add, || copied(&t, c, copy));
    assert_eq!(found, "id,v,w\n1,0,7\n");
    let add = "ALTER TABLE a ADD COLUMN x int DEFAULT 8";
    let found = meanwhile(&t, add, || copied(&t, c, "COPY a (x, id) TO STDOUT"));
    assert_eq!(found, "8\t1\n");
    let drop = "ALTER TABLE a DROP COLUMN v";
    let found = meanwhile(&t, drop, || copied(&t, c, copy));
    assert_eq!(found, "id,w,x\n1,7,8\n");
    let create = "CREATE TABLE n (id int); INSERT INTO n VALUES (3)";
    let found = meanwhile(&t, create, || copied(&t, c, "COPY n TO STDOUT"));
    assert_eq!(found, "3\n");
    t.run(&r, "BEGIN ISOLATION LEVEL READ COMMITTED; SAVEPOINT s");
    let add = "ALTER TABLE a ADD COLUMN y int DEFAULT 9";
    let found = meanwhile(&t, add, || copied(&t, c, copy));
    assert_eq!(found, "id,w,x,y\n1,7,8,9\n");
    t.run(&r, "COMMIT");
}

/// Only who knows what the columns were before the change is told that they are others now.
#[test]
fn results_have_the_columns_of_an_acknowledged_change() {
    let t = Test::start(TABLES);
    let (p, r) = (t.primary(), t.replica());
    let c = &r;
    let rows = |rows: Result<Vec<tokio_postgres::Row>, tokio_postgres::Error>| {
        let rows = rows.unwrap_or_else(|e| panic!("{e} {:?}", e.as_db_error()));
        rows[0].len()
    };
    let simple = |sql: &'static str| -> Box<dyn Fn() -> usize + Send + Sync> {
        let t = &t;
        Box::new(move || {
            let n = width(t, c, sql);
            t.run(c, "COMMIT; DEALLOCATE ALL");
            n
        })
    };
    let fields = || {
        let all = copied(&t, c, "COPY (SELECT * FROM a ORDER BY id) TO STDOUT");
        all.lines().next().expect("a line").split('\t').count()
    };
    let ways: Vec<Box<dyn Fn() -> usize + Send + Sync>> = vec![
        simple("SELECT * FROM a"),
        simple("SELECT * FROM a WHERE id = 1"),
        simple("BEGIN; SELECT * FROM a"),
        simple("BEGIN; DECLARE c CURSOR FOR SELECT * FROM a; FETCH c"),
        simple("BEGIN READ ONLY; DECLARE c SCROLL CURSOR FOR SELECT * FROM a; FETCH c"),
        simple("PREPARE q AS SELECT * FROM a; EXECUTE q"),
        Box::new(fields),
        Box::new(|| rows(t.runtime.block_on(c.query("SELECT * FROM a", &[])))),
        Box::new(|| rows(t.runtime.block_on(c.query_typed("SELECT * FROM a", &[])))),
    ];
    let mut columns = 2;
    for (n, way) in ways.iter().enumerate() {
        assert_eq!(way(), columns, "{n}");
        columns += 1;
        let add = format!("ALTER TABLE a ADD COLUMN c{n} int");
        assert_eq!(meanwhile(&t, &add, way), columns, "{n}");
        // The same columns of another table.
        let again =
            "CREATE TABLE other AS SELECT * FROM a; DROP TABLE a; ALTER TABLE other RENAME TO a";
        assert_eq!(meanwhile(&t, again, way), columns, "{n}");
    }
    // Who has been told.
    let known = t.runtime.block_on(r.prepare("SELECT * FROM a"));
    let known = known.expect("prepared");
    t.run(&p, "ALTER TABLE a ADD COLUMN more int");
    let e = t.runtime.block_on(r.query(&known, &[]));
    assert_eq!(code(&e.expect_err("others")), "0A000");
    let again = t.runtime.block_on(r.prepare("SELECT * FROM a"));
    let again = again.expect("prepared");
    assert_eq!(again.columns().len(), columns + 1);
    assert_eq!(rows(t.runtime.block_on(r.query(&again, &[]))), columns + 1);
}

/// A cursor that is declared while an acknowledged change of its table is on its way reads the table that there is after the change, and
/// counts as having read it when its transaction moves.
#[test]
fn a_cursor_is_inside_the_transaction_whatever_became_of_its_table() {
    let t = Test::start(TABLES);
    let (p, r) = (t.primary(), t.replica());
    let c = &r;
    let count = "SELECT count(*) FROM a";
    for (n, change) in [
        "TRUNCATE a",
        "DROP TABLE a; CREATE TABLE a (id int PRIMARY KEY, v int NOT NULL)",
        "ALTER TABLE a ALTER v TYPE bigint",
    ]
    .into_iter()
    .enumerate()
    {
        let before = t.one(&p, count);
        assert_eq!(t.one(&r, count), before);
        let declare = format!("BEGIN ISOLATION LEVEL SERIALIZABLE; DECLARE c CURSOR FOR {count}");
        meanwhile(&t, change, || t.run(c, &declare));
        t.run(&r, "UPDATE b SET v = v + 1 WHERE id = 1");
        let seen = t.one(&r, "FETCH c");
        assert_eq!(t.one(&p, count), seen, "{change}");
        // Each misses what the other writes.
        let read = "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT v FROM b WHERE id = 1";
        assert_eq!(t.one(&p, read), "0");
        t.run(&p, &format!("INSERT INTO a VALUES ({n} + 1000, 0); COMMIT"));
        assert_eq!(t.refused(&r, "COMMIT"), "40001", "{change}");
    }
}

/// What `regclass` shows and finds are look-ups, too.
#[test]
fn names_of_relations_are_as_new_as_what_is_read() {
    let t = Test::start(TABLES);
    let (p, r) = (t.primary(), t.replica());
    let c = &r;
    let mut name = "a".to_owned();
    for (n, way) in ["", "::text", "format", "typed"].into_iter().enumerate() {
        let number = format!("SELECT '{name}'::regclass::oid");
        let old = t.one(&r, &number);
        assert_eq!(old, t.one(&p, &number));
        let again = format!("DROP TABLE {name}; CREATE TABLE {name} (id int)");
        let new = meanwhile(&t, &again, || t.one(c, &number));
        assert_ne!(new, old);
        assert_eq!(new, t.one(&p, &number));
        let next = format!("a{n}");
        let rename = format!("ALTER TABLE {name} RENAME TO {next}");
        let shown = match way {
            "format" => format!("SELECT format('%s', {new}::regclass)"),
            way => format!("SELECT {new}::regclass{}", way.trim_start_matches("typed")),
        };
        let found = meanwhile(&t, &rename, || match way {
            "typed" => {
                let sql = "SELECT $1::oid::regclass::text";
                let number: u32 = new.parse().expect("a number");
                let rows = t.runtime.block_on(c.query(sql, &[&number]));
                rows.expect(sql)[0].get(0)
            }
            _ => t.one(c, &shown),
        });
        assert_eq!(found, next, "{shown}");
        name = next;
    }
    let number = "SELECT to_regnamespace('later') IS NOT NULL AND 'later'::regnamespace::oid > 0";
    let found = meanwhile(&t, "CREATE SCHEMA later", || t.one(c, number));
    assert_eq!(found, "t");
}

/// What is told of the schema and reads no table.
#[test]
fn what_is_told_of_the_schema_is_as_new_as_what_is_read() {
    let t = Test::start(TABLES);
    let r = t.replica();
    let c = &r;
    t.run(c, "SET search_path = later, public");
    assert_eq!(t.one(c, "SELECT current_schema()"), "public");
    let found = meanwhile(&t, "CREATE SCHEMA later", || {
        t.one(c, "SELECT current_schema")
    });
    assert_eq!(found, "later");
    let gone = meanwhile(&t, "DROP SCHEMA later", || {
        t.one(c, "SELECT current_schemas(false)")
    });
    assert_eq!(gone, "{public}");
    let explain = "EXPLAIN (COSTS OFF) SELECT id FROM a WHERE v = 5";
    assert_eq!(t.one(c, explain), "Seq Scan on a");
    let index = "CREATE INDEX by_v ON a (v)";
    let plan = meanwhile(&t, index, || t.one(c, explain));
    assert_eq!(plan, "Index Scan using by_v on a");
}
