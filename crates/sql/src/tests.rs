//! The engine on small tables.

use crate::testing::TestDb;
use base::SqlState;

#[test]
fn keys_find_rows_and_writes_change_them() {
    let db = TestDb::new();
    db.run("CREATE TABLE t (id int PRIMARY KEY, v text, n bigint DEFAULT 7)")
        .unwrap();
    assert_eq!(
        db.run("INSERT INTO t VALUES (1, 'a', DEFAULT), (2, 'b', 9), (3, NULL, NULL)")
            .unwrap()
            .affected,
        3
    );
    assert_eq!(
        db.rows("SELECT * FROM t ORDER BY id"),
        ["1|a|7", "2|b|9", "3|NULL|NULL"]
    );
    assert_eq!(db.rows("SELECT v FROM t WHERE id = 2"), ["b"]);
    assert_eq!(
        db.run("UPDATE t SET n = n + 1, v = v || 'x' WHERE id = 2")
            .unwrap()
            .affected,
        1
    );
    assert_eq!(db.rows("SELECT v, n FROM t WHERE id = 2"), ["bx|10"]);
    assert_eq!(
        db.rows("DELETE FROM t WHERE id IN (1, 3, 3) RETURNING id, v"),
        ["1|a", "3|NULL"]
    );
    assert_eq!(db.rows("SELECT count(*) FROM t"), ["1"]);
    assert_eq!(
        db.fails("INSERT INTO t VALUES (2)"),
        SqlState::UNIQUE_VIOLATION
    );
    assert_eq!(db.fails("SELECT nope FROM t"), SqlState::UNDEFINED_COLUMN);
    assert_eq!(db.fails("SELECT * FROM nope"), SqlState::UNDEFINED_TABLE);
}

/// Every statement once as a short range and once through operators.
#[test]
fn short_ranges_give_what_operators_give() {
    let db = TestDb::new();
    db.run(
        "CREATE TABLE r (id int PRIMARY KEY, k int, c char(12) NOT NULL, t text, b bigint, d date);
         CREATE INDEX r_k ON r (k);
         INSERT INTO r SELECT i, i % 7, 'c' || (i * 7919 % 40), CASE WHEN i % 5 > 0 THEN 't' || (i % 9) END, i * i, \
         date '2020-01-01' + i % 11 FROM generate_series(1, 300) i;
         DELETE FROM r WHERE id % 10 = 3",
    )
    .unwrap();
    let statements = [
        "SELECT c FROM r WHERE id BETWEEN 20 AND 119",
        "SELECT t, id FROM r WHERE id > 290",
        "SELECT id FROM r WHERE id BETWEEN 5 AND 4",
        "SELECT id, t FROM r WHERE k = 3",
        "SELECT id FROM r WHERE k > 4 AND k < 6",
        "SELECT id FROM r WHERE id BETWEEN 20 AND 60 ORDER BY id DESC",
        "SELECT sum(k), count(*), min(t), max(d), avg(b) FROM r WHERE id BETWEEN 20 AND 119",
        "SELECT count(t), sum(b) FROM r WHERE id > 1000",
        "SELECT c FROM r WHERE id BETWEEN 20 AND 119 ORDER BY c",
        "SELECT DISTINCT c FROM r WHERE id BETWEEN 20 AND 119 ORDER BY c",
        "SELECT DISTINCT t FROM r WHERE id BETWEEN 20 AND 119 ORDER BY t DESC",
        "SELECT DISTINCT t, k FROM r WHERE id < 150 ORDER BY k DESC, t NULLS FIRST",
        "SELECT id, t FROM r WHERE id < 90 ORDER BY t, d DESC, b DESC",
        "SELECT t FROM r WHERE id BETWEEN 1 AND 299 ORDER BY t",
        "SELECT added FROM r WHERE id BETWEEN 100 AND 310 ORDER BY added",
        "SELECT sum(added), count(added) FROM r WHERE id BETWEEN 100 AND 310",
    ];
    db.run("ALTER TABLE r ADD COLUMN added int DEFAULT 5; INSERT INTO r VALUES (301, 1, 'x', 'y', 2, '2020-01-01', 6)")
        .unwrap();
    let mut txn = db.begin();
    for own in [
        "UPDATE r SET k = 3, t = 'own' WHERE id IN (21, 33, 44, 55)",
        "DELETE FROM r WHERE id IN (22, 60)",
        "INSERT INTO r VALUES (23, 3, 'own', NULL, 1, '2030-01-01')",
    ] {
        for sql in statements {
            let stmt = crate::testing::parse(sql).unwrap();
            txn.begin_statement().unwrap();
            let p = db.prepare_in(&txn, &stmt[0], sql, &[]).unwrap();
            assert!(p.plan.short.is_some(), "{sql}");
            let short = db.execute_all(&mut txn, &p, &[]).unwrap();
            let long = db.execute_slowly(&mut txn, &p, &[]).unwrap();
            assert_eq!(short.rows, long.rows, "{sql}");
            assert_eq!(short.affected, long.affected, "{sql}");
        }
        let stmt = crate::testing::parse(own).unwrap();
        db.run_in(&mut txn, &stmt[0], own, &[]).unwrap();
    }
}

fn shop() -> TestDb {
    let db = TestDb::new();
    db.run(
        "CREATE TABLE item (id int PRIMARY KEY, name varchar(20) NOT NULL, price numeric(8,2), stock int CHECK (stock >= 0));
         CREATE TABLE sale (item_id int, day date, n int, note text, PRIMARY KEY (item_id, day, n));
         CREATE INDEX item_name ON item (name);
         CREATE INDEX sale_day ON sale (day DESC, n);
         CREATE TABLE heap (a int, b text)",
    )
    .unwrap();
    db
}

#[test]
fn plans_use_keys_ranges_and_orders() {
    let db = shop();
    let mut out = String::new();
    for sql in [
        "SELECT name FROM item WHERE id = 5",
        "SELECT name FROM item WHERE id = 5::bigint AND price > 3",
        "SELECT * FROM item WHERE id IN (3, 1, 2)",
        "SELECT * FROM item WHERE id = ANY (ARRAY[1, 2]) ORDER BY id DESC",
        "SELECT * FROM item WHERE name = 'x' ORDER BY id LIMIT 3",
        "SELECT * FROM item WHERE price > 3",
        "SELECT * FROM item ORDER BY id DESC LIMIT 2",
        "SELECT * FROM item ORDER BY name LIMIT 2",
        "SELECT * FROM sale WHERE item_id = 1 AND day BETWEEN '2020-01-01' AND '2020-02-01' ORDER BY day",
        "SELECT * FROM sale WHERE day = '2020-01-01' ORDER BY n",
        "SELECT * FROM sale WHERE day > '2020-01-01' ORDER BY day, n DESC LIMIT 1",
        "SELECT min(id), count(*) FROM item",
        "SELECT max(id) FROM item WHERE id < 100",
        "SELECT i.name, s.n FROM sale s JOIN item i ON i.id = s.item_id WHERE s.day = '2020-01-01'",
        "SELECT i.name, s.n FROM item i LEFT JOIN sale s ON s.item_id = i.id AND s.n > 2",
        "SELECT * FROM item i LEFT JOIN sale s ON s.item_id = i.id WHERE s.n = 3",
        "SELECT * FROM heap h JOIN item i ON h.b = i.note || ''",
        "SELECT h.a FROM heap h JOIN heap g ON h.a = g.a AND h.b < g.b",
        "SELECT h.a FROM heap h, heap g",
        "SELECT * FROM item WHERE id IN (SELECT a FROM heap)",
        "SELECT * FROM item i WHERE EXISTS (SELECT 1 FROM sale s WHERE s.item_id = i.id)",
        "SELECT day, sum(n) FROM sale GROUP BY day HAVING sum(n) > 1 ORDER BY 2 DESC",
        "SELECT a FROM heap UNION SELECT id FROM item ORDER BY 1 LIMIT 5",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT * FROM r",
        "SELECT * FROM item WHERE id = 1 FOR UPDATE",
        "UPDATE item SET stock = stock - 1 WHERE id = 1 AND stock > 0",
        "DELETE FROM sale USING item WHERE sale.item_id = item.id AND item.name = 'x'",
        "INSERT INTO item VALUES (1, 'a', 2, 3) ON CONFLICT (id) DO UPDATE SET stock = item.stock + excluded.stock",
    ] {
        let shown = match db.run(&format!("EXPLAIN (COSTS OFF) {sql}")) {
            Ok(a) => a
                .rows
                .iter()
                .map(|r| r.concat())
                .collect::<Vec<_>>()
                .join("\n"),
            Err(e) => e.to_string(),
        };
        out.push_str(&format!("{sql}\n{shown}\n\n"));
    }
    golden("plans.txt", &out);
}

/// BenchBase's SEATS: the index of the third relation begins with the column of the one that would be joined last.
#[test]
fn a_constant_reaches_a_relation_that_two_others_are_tied_to() {
    let db = shop();
    db.run(
        "CREATE TABLE guest (id int PRIMARY KEY, name text); CREATE TABLE flight (id int PRIMARY KEY, left_over int);
         CREATE TABLE seat (flight int, n int, guest int, UNIQUE (flight, n))",
    )
    .unwrap();
    let sql = "SELECT g.name, f.left_over, s.n FROM guest g, flight f, seat s WHERE g.id = 5 AND g.id = s.guest AND f.id = 7 AND f.id = s.flight";
    let plan = db.rows(&format!("EXPLAIN (COSTS OFF) {sql}")).join("\n");
    assert!(!plan.contains("Seq Scan"), "{plan}");
    db.run("INSERT INTO guest VALUES (5, 'a'), (6, 'b'); INSERT INTO flight VALUES (7, 3), (8, 4); INSERT INTO seat VALUES (7, 1, 5), (7, 2, 6), (8, 1, 5)")
        .unwrap();
    assert_eq!(db.rows(sql).len(), 1);
}

#[test]
fn explain_has_costs_and_the_keys_of_postgres() {
    let db = shop();
    let mut out = String::new();
    for (options, sql) in [
        ("", "SELECT name FROM item WHERE id = 5"),
        (
            "",
            "SELECT * FROM item i LEFT JOIN heap h ON h.a = i.stock WHERE i.name > 'a' ORDER BY h.b LIMIT 3",
        ),
        ("", "INSERT INTO heap SELECT id, name FROM item"),
        ("(FORMAT JSON)", "SELECT name FROM item WHERE id = 5"),
        (
            "(FORMAT JSON, COSTS OFF)",
            "SELECT * FROM item i LEFT JOIN heap h ON h.a = i.stock AND h.b <> i.name ORDER BY h.b DESC, 1",
        ),
        (
            "(FORMAT JSON, COSTS OFF)",
            "SELECT stock, count(*) FROM item WHERE id IN (SELECT a FROM heap) GROUP BY 1",
        ),
        (
            "(FORMAT JSON, COSTS OFF)",
            "DELETE FROM item x WHERE id > 3",
        ),
    ] {
        let rows = db.rows(&format!("EXPLAIN {options} {sql}")).join("\n");
        if !options.is_empty() {
            serde_json::from_str::<serde_json::Value>(&rows).expect("a JSON document");
        }
        out.push_str(&format!("EXPLAIN {options} {sql}\n{rows}\n\n"));
    }
    golden("explain.txt", &out);
    let line =
        db.rows("EXPLAIN (ANALYZE, TIMING OFF, COSTS OFF) SELECT name FROM item WHERE id = 2");
    assert_eq!(
        line[0],
        "Index Scan using item_pkey on item (actual rows=0 loops=1)"
    );
    assert!(
        line[line.len() - 2].starts_with("Planning Time: "),
        "{line:?}"
    );
    assert!(
        line[line.len() - 1].starts_with("Execution Time: "),
        "{line:?}"
    );
    let e = db.run("EXPLAIN (TIMING) SELECT 1").unwrap_err();
    assert_eq!(e.code().to_string(), "22023");
}

/// A subquery that runs for each outer row makes the table of its join once, where the side reads nothing of the outer row.
#[test]
fn the_table_of_a_join_inside_of_a_subquery_is_made_once() {
    let db = shop();
    db.run("CREATE TABLE l (id int PRIMARY KEY, k int)")
        .unwrap();
    db.run("CREATE TABLE r (k int)").unwrap();
    db.run("INSERT INTO l SELECT g, g % 3 FROM generate_series(1, 20) g")
        .unwrap();
    db.run("INSERT INTO r VALUES (0), (1), (1)").unwrap();
    let loops = |more: &str| {
        let sql = format!(
            "EXPLAIN (ANALYZE, TIMING OFF, COSTS OFF, SUMMARY OFF) SELECT * FROM l o \
             WHERE EXISTS (SELECT 1 FROM l i LEFT JOIN r ON i.k = r.k {more} WHERE i.id = o.id)"
        );
        let plan = db.rows(&sql);
        let scan = plan.iter().find(|l| l.contains("Seq Scan on r"));
        scan.unwrap_or_else(|| panic!("{plan:?}")).clone()
    };
    let once = loops("");
    assert!(once.contains("rows=3 loops=1)"), "{once}");
    let each = loops("AND r.k < o.k");
    assert!(each.contains("loops=20)"), "{each}");
}

#[test]
fn windows_show_their_sort_and_look_for_a_cancel() {
    let db = shop();
    let plan = |sql: &str| db.rows(&format!("EXPLAIN (COSTS OFF) {sql}")).join("\n");
    // The rows come in the window's order, and leave in it.
    let one = plan("SELECT id, rank() OVER (ORDER BY id) FROM item ORDER BY id");
    assert_eq!(one, "WindowAgg\n  ->  Seq Scan on item");
    let two = plan("SELECT id, rank() OVER (ORDER BY id) FROM item ORDER BY name");
    assert_eq!(
        two,
        "Sort\n  Sort Key: name\n  ->  WindowAgg\n        ->  Seq Scan on item"
    );
    // Two windows, two operators; two calls over one window, one.
    let many = plan(
        "SELECT rank() OVER w, sum(id) OVER w, sum(id) OVER (ORDER BY stock) FROM item WINDOW w AS (ORDER BY name)",
    );
    assert_eq!(many.matches("WindowAgg").count(), 2, "{many}");
    // A frame that slides is computed anew for each row, with looks for a cancel as it goes.
    let before = base::cancel::looks();
    let slow = "SELECT max(s) FROM (SELECT sum(x) OVER (ORDER BY x ROWS 300 PRECEDING EXCLUDE CURRENT ROW) s FROM generate_series(1, 600) x) y";
    assert_eq!(db.rows(slow), ["134850"]);
    let looked = (base::cancel::looks() - before) as usize;
    assert!(
        looked >= 64 * 300 * 300 / base::cancel::STEP,
        "{looked} looks"
    );
}

/// Compares with a file of expected text; `UPDATE_GOLDEN=1` writes it.
fn golden(name: &str, got: &str) {
    let path = format!("{}/tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, got).unwrap();
    }
    let want = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(got == want, "{path} differs from:\n{got}");
}

#[test]
fn parameters_take_types_from_where_they_stand() {
    let db = shop();
    let types = |sql: &str| -> Vec<String> {
        let p = db
            .prepare(sql, &[])
            .unwrap_or_else(|e| panic!("{sql}: {e}"));
        p.params.iter().map(|t| t.ty.typname().to_owned()).collect()
    };
    assert_eq!(
        types("SELECT * FROM item WHERE id = $1 AND name LIKE $2"),
        ["int4", "text"]
    );
    assert_eq!(
        types("INSERT INTO item VALUES ($1, $2, $3, $4)"),
        ["int4", "varchar", "numeric", "int4"]
    );
    assert_eq!(
        types("INSERT INTO item (id, name) SELECT $1, $2"),
        ["int4", "varchar"]
    );
    assert_eq!(
        types("UPDATE item SET stock = stock + $1 WHERE id = $2"),
        ["int4", "int4"]
    );
    assert_eq!(types("SELECT $1::date, $2"), ["date", "text"]);
    assert_eq!(
        types("SELECT * FROM item WHERE id = ANY($1) LIMIT $2"),
        ["_int4", "int8"]
    );
    assert_eq!(
        types("SELECT * FROM item WHERE id IN ($1, $2)"),
        ["int4", "int4"]
    );
    assert_eq!(
        types("SELECT CASE WHEN $1 THEN $2 ELSE 1 END"),
        ["bool", "int4"]
    );
    let code = |sql: &str| db.prepare(sql, &[]).map(|_| ()).unwrap_err().code();
    assert_eq!(code("SELECT $2"), SqlState::INDETERMINATE_DATATYPE);
    assert_eq!(code("SELECT $0"), SqlState::UNDEFINED_PARAMETER);
}

#[test]
fn point_statements_are_recognised() {
    let db = shop();
    let p = |sql: &str| db.prepare(sql, &[]).unwrap();
    assert!(
        p("SELECT stock FROM item WHERE id = $1")
            .plan
            .point
            .is_some()
    );
    assert!(
        p("SELECT stock, name FROM item WHERE $1 = id")
            .plan
            .point
            .is_some()
    );
    assert!(p("SELECT * FROM item").plan.point.is_none());
    assert!(p("SELECT 1").read_only && !p("SELECT 1 FROM item FOR SHARE").read_only);
}

#[test]
fn a_point_read_gives_the_stored_row() {
    let db = shop();
    db.run("INSERT INTO item VALUES (7, 'seven', 7.5, 70)")
        .unwrap();
    let sql = "SELECT stock, name FROM item WHERE id = $1";
    let p = db.prepare(sql, &[]).unwrap();
    let mut txn = db.begin();
    txn.begin_statement().unwrap();
    let a = db.execute(&mut txn, &p, &[base::Value::Int4(7)]).unwrap();
    assert_eq!(a.rows, [["70", "seven"]]);
    let a = db.execute(&mut txn, &p, &[base::Value::Int4(8)]).unwrap();
    assert!(a.rows.is_empty());
    let a = db.execute(&mut txn, &p, &[base::Value::Null]).unwrap();
    assert!(a.rows.is_empty());
}

#[test]
fn checks_and_conflicts() {
    let db = shop();
    db.run("INSERT INTO item VALUES (1, 'a', 1, 5)").unwrap();
    assert_eq!(
        db.fails("UPDATE item SET stock = stock - 6 WHERE id = 1"),
        SqlState::CHECK_VIOLATION
    );
    let up = "INSERT INTO item VALUES (1, 'b', 2, 3), (2, 'c', 2, 4) ON CONFLICT (id) DO UPDATE SET stock = item.stock + excluded.stock WHERE item.stock < 100 RETURNING id, stock";
    assert_eq!(db.rows(up), ["1|8", "2|4"]);
    let twice = "INSERT INTO item VALUES (9, 'b', 2, 3), (9, 'c', 2, 4) ON CONFLICT (id) DO UPDATE SET stock = 1";
    assert_eq!(db.fails(twice), SqlState::CARDINALITY_VIOLATION);
    assert_eq!(db.run("INSERT INTO item VALUES (1, 'z', 2, 3), (3, 'y', 2, 3), (3, 'x', 1, 1) ON CONFLICT DO NOTHING").unwrap().affected, 1);
    assert_eq!(
        db.fails("INSERT INTO item VALUES (1, 'z') ON CONFLICT (name) DO NOTHING"),
        SqlState::INVALID_COLUMN_REFERENCE
    );
    assert_eq!(
        db.fails("INSERT INTO item VALUES (4, 'a name that is longer than twenty')"),
        SqlState::STRING_DATA_RIGHT_TRUNCATION
    );
}

#[test]
fn a_statement_does_not_see_its_own_writes() {
    let db = shop();
    db.run("INSERT INTO heap VALUES (1, 'a'), (2, 'b')")
        .unwrap();
    assert_eq!(
        db.run("INSERT INTO heap SELECT a + 10, b FROM heap")
            .unwrap()
            .affected,
        2
    );
    assert_eq!(db.run("UPDATE heap SET a = a + 1").unwrap().affected, 4);
    assert_eq!(
        db.rows("SELECT a FROM heap ORDER BY a"),
        ["2", "3", "12", "13"]
    );
    let twice = "UPDATE heap SET b = g.b FROM heap g WHERE heap.a < g.a RETURNING heap.a";
    assert_eq!(db.run(twice).unwrap().affected, 3);
    assert_eq!(
        db.run("DELETE FROM heap USING heap g WHERE heap.a <> g.a")
            .unwrap()
            .affected,
        4
    );
}

#[test]
fn recursion_is_lazy_and_lateral_sees_its_left_side() {
    let db = shop();
    let endless =
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n FROM r LIMIT 3";
    assert_eq!(db.rows(endless), ["1", "2", "3"]);
    db.run("INSERT INTO heap VALUES (1, 'a'), (3, 'b')")
        .unwrap();
    assert_eq!(
        db.rows(
            "SELECT h.a, g FROM heap h, LATERAL generate_series(1, h.a) g WHERE g > 1 ORDER BY 2"
        ),
        ["3|2", "3|3"]
    );
    assert_eq!(
        db.rows("SELECT h.b, x.m FROM heap h LEFT JOIN LATERAL (SELECT max(g.a) AS m FROM heap g WHERE g.a > h.a) x ON true ORDER BY 1"),
        ["a|3", "b|NULL"]
    );
    assert_eq!(
        db.rows("WITH x AS (SELECT a FROM heap), y AS (SELECT a FROM x) SELECT x.a + y.a FROM x, y ORDER BY 1"),
        ["2", "4", "4", "6"]
    );
    assert_eq!(
        db.rows("SELECT * FROM unnest(ARRAY[1, 2], ARRAY['x']) u(n, t)"),
        ["1|x", "2|NULL"]
    );
}

#[test]
fn deep_and_long_expressions_run() {
    let db = shop();
    let sum = |n: usize| format!("SELECT {}", vec!["1"; n].join(" + "));
    assert_eq!(db.rows(&sum(900)), ["900"]);
    let long = vec!["id = 1"; 4000].join(" OR ");
    assert_eq!(
        db.rows(&format!("SELECT count(*) FROM item WHERE {long}")),
        ["0"]
    );
}

#[test]
fn an_order_over_a_join_is_not_given_by_one_side() {
    let db = shop();
    db.run("INSERT INTO item VALUES (1, 'a', 1, 1), (2, 'b', 1, 0)")
        .unwrap();
    db.run("INSERT INTO heap VALUES (1, 'z'), (2, 'y'), (1, 'x')")
        .unwrap();
    let sql = "SELECT i.id, h.b FROM item i JOIN heap h ON h.a = i.id ORDER BY i.id, h.b";
    assert_eq!(db.rows(sql), ["1|x", "1|z", "2|y"]);
    let sql =
        "SELECT h.b FROM item i JOIN heap h ON h.a >= i.id WHERE i.id = 1 ORDER BY h.b LIMIT 2";
    assert_eq!(db.rows(sql), ["x", "y"]);
}

#[test]
fn in_over_a_query_looks_keys_up() {
    let db = shop();
    db.run("INSERT INTO item SELECT g, 'n' || g, g, g FROM generate_series(1, 200) g")
        .unwrap();
    db.run("INSERT INTO heap VALUES (7, 'a'), (NULL, 'b'), (7, 'c'), (900, 'd'), (3, 'e')")
        .unwrap();
    let sql = "SELECT id FROM item WHERE id IN (SELECT a FROM heap) ORDER BY id DESC";
    assert_eq!(db.rows(sql), ["7", "3"]);
    let plan = db.rows(&format!("EXPLAIN {sql}")).join("\n");
    assert!(
        plan.contains("Index Scan Backward using item_pkey"),
        "{plan}"
    );
    assert_eq!(
        db.rows("SELECT count(*) FROM item WHERE id NOT IN (SELECT a FROM heap)"),
        ["0"]
    );
    assert_eq!(db.rows("SELECT id FROM item i WHERE stock < 4 AND EXISTS (SELECT 1 FROM heap h WHERE h.a = i.id)"), ["3"]);
}

#[test]
fn rows_are_locked_after_filters_and_before_limits() {
    let db = shop();
    db.run("INSERT INTO item VALUES (1, 'a', 1, 1), (2, 'b', 1, 0), (3, 'c', 1, 3)")
        .unwrap();
    for clause in [
        "FOR UPDATE",
        "FOR NO KEY UPDATE",
        "FOR SHARE",
        "FOR KEY SHARE SKIP LOCKED",
        "FOR UPDATE OF i NOWAIT",
    ] {
        let sql = format!("SELECT id FROM item i WHERE stock > 0 ORDER BY id LIMIT 1 {clause}");
        assert_eq!(db.rows(&sql), ["1"], "{clause}");
    }
    assert_eq!(
        db.fails("SELECT count(*) FROM item FOR UPDATE"),
        SqlState::FEATURE_NOT_SUPPORTED
    );
    assert_eq!(
        db.fails("SELECT 1 FROM item FOR UPDATE OF nope"),
        SqlState::UNDEFINED_TABLE
    );
}

/// Runs the house's SQL logic tests on the engine alone; a development aid, not a gate: statements that are the session's own
/// business (BEGIN, SET …) make a file stop early there.
#[test]
fn slt_files_run_as_far_as_the_engine_goes() {
    let Ok(filter) = std::env::var("CANON_SLT") else {
        return;
    };
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../canon/tests/slt");
    let mut names: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    names.sort();
    for path in names {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if filter != "all" && !filter.split(',').any(|f| f == name) {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let db = TestDb::new();
        let (mut good, mut bad) = (0, 0);
        for block in text.split("\n\n") {
            let lines: Vec<&str> = block.lines().filter(|l| !l.starts_with('#')).collect();
            let Some((head, rest)) = lines.split_first() else {
                continue;
            };
            let cut = rest.iter().position(|l| *l == "----");
            let sql = rest[..cut.unwrap_or(rest.len())].join("\n");
            let want: Vec<&str> = cut.map_or(vec![], |c| rest[c + 1..].to_vec());
            let got = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| db.run(&sql)));
            let ok = match (&got, head.split(' ').next()) {
                (Err(_), _) => false,
                (Ok(Ok(_)), Some("statement")) => head.contains("ok") || head.contains("count"),
                (Ok(Err(e)), Some("statement")) => head.contains(e.code().code()),
                (Ok(Ok(a)), Some("query")) => {
                    let mut rows: Vec<String> = a.rows.iter().map(|r| r.join("|")).collect();
                    let mut want: Vec<String> = want.iter().map(|s| s.to_string()).collect();
                    if head.contains("rowsort") {
                        rows.sort();
                        want.sort();
                    }
                    rows == want
                }
                _ => false,
            };
            if ok {
                good += 1;
            } else {
                bad += 1;
                let shown = match got {
                    Err(_) => "panic".into(),
                    Ok(Ok(a)) => a
                        .rows
                        .iter()
                        .map(|r| r.join("|"))
                        .collect::<Vec<_>>()
                        .join("\n    "),
                    Ok(Err(e)) => e.to_string(),
                };
                println!(
                    "-- {name}: {head}\n{sql}\n  want {}\n  got  {shown}",
                    want.join("\n    ")
                );
            }
        }
        println!("== {name}: {good} good, {bad} bad");
    }
}

/// Rows move to numbers of their own, and what they were kept under is free.
#[test]
fn a_primary_key_with_rows_can_go() {
    let db = TestDb::new();
    for drop in [
        "ALTER TABLE k DROP COLUMN id",
        "ALTER TABLE k DROP CONSTRAINT k_pkey",
        "ALTER TABLE k DROP CONSTRAINT k_pkey CASCADE",
    ] {
        for pending in [false, true] {
            db.run(
                "CREATE TABLE k (id int PRIMARY KEY, n int UNIQUE);
                 INSERT INTO k VALUES (3, 1), (2, 2), (1, 3); DELETE FROM k WHERE id = 2",
            )
            .unwrap();
            let mut txn = db.begin();
            let mut run = |sql: &str| {
                let stmt = crate::testing::parse(sql).unwrap();
                db.run_in(&mut txn, &stmt[0], sql, &[]).unwrap();
            };
            if pending {
                run("INSERT INTO k VALUES (4, 4)");
            }
            run(drop);
            db.commit(txn).unwrap();
            if drop.contains("CONSTRAINT") {
                db.run("ALTER TABLE k ALTER COLUMN id DROP NOT NULL")
                    .unwrap();
            }
            assert_eq!(
                db.fails("INSERT INTO k (n) VALUES (3)"),
                SqlState::UNIQUE_VIOLATION
            );
            db.run("INSERT INTO k (n) VALUES (5), (6); UPDATE k SET n = 7 WHERE n = 1")
                .unwrap();
            db.run("DELETE FROM k WHERE n = 5 OR n = 4").unwrap();
            assert_eq!(
                db.rows("SELECT n FROM k ORDER BY n"),
                ["3", "6", "7"],
                "{drop}"
            );
            db.run("DROP TABLE k").unwrap();
        }
    }
}

/// PostgreSQL asks the arbiter first, and no other index where it skips or updates.
#[test]
fn arbiters_are_asked_first() {
    let db = TestDb::new();
    db.run("CREATE TABLE o (id int PRIMARY KEY, u int UNIQUE, w int UNIQUE); INSERT INTO o VALUES (1, 1, 1), (2, 2, 2)")
        .unwrap();
    let n = |sql: &str| db.run(sql).unwrap().affected;
    assert_eq!(
        n("INSERT INTO o VALUES (1, 2, 9) ON CONFLICT (u) DO NOTHING"),
        0
    );
    assert_eq!(
        n("INSERT INTO o VALUES (9, 1, 2) ON CONFLICT (w) DO NOTHING"),
        0
    );
    assert_eq!(
        n("INSERT INTO o VALUES (1, 2, 9) ON CONFLICT (u) DO UPDATE SET w = 7"),
        1
    );
    assert_eq!(db.rows("SELECT * FROM o ORDER BY id"), ["1|1|1", "2|2|7"]);
    let taken = "INSERT INTO o VALUES (1, 9, 9) ON CONFLICT (u) DO NOTHING";
    assert_eq!(db.fails(taken), SqlState::UNIQUE_VIOLATION);
}

#[test]
fn what_overflows_is_an_error() {
    let db = TestDb::new();
    let code = |sql: &str| db.fails(sql).to_string();
    assert_eq!(
        code("SELECT width_bucket('Infinity'::float8, 5e-324, 0.1, 2147483647)"),
        "22003"
    );
    assert_eq!(
        code("SELECT width_bucket(5::float8, 'Infinity'::float8, 0::float8, 10)"),
        "2201G"
    );
    assert_eq!(
        db.rows("SELECT width_bucket(1e308::float8, -1e308::float8, 1.7e308::float8, 10), width_bucket(5::float8, 10::float8, 0::float8, 10)"),
        ["8|6"]
    );
    assert_eq!(code("SELECT '30 days'::interval / 5e-324::float8"), "22008");
    assert_eq!(
        code("SELECT '1000000 days'::interval * 1e10::float8"),
        "22008"
    );
}

/// Each assignment to a part of a column is over the one before it: many of them are as many expressions, and not twice as many with each.
#[test]
fn parts_of_a_column_may_be_set_many_times_but_not_without_end() {
    let db = TestDb::new();
    db.run("CREATE TYPE place AS (x int, y int); CREATE TYPE item AS (at place, n int)")
        .unwrap();
    db.run("CREATE TABLE p (id int PRIMARY KEY, c item, a int[]); INSERT INTO p VALUES (1)")
        .unwrap();
    let set = |parts: &str, n| {
        let all = vec![parts; n].join(", ");
        format!("UPDATE p SET {all} WHERE id = 1")
    };
    db.run(&set("c.at.x = id + 6, c.at.y = 8, c.n = 9", 40))
        .unwrap();
    assert_eq!(db.rows("SELECT c FROM p"), ["(\"(7,8)\",9)"]);
    db.run(&set("c.at.x = NULL, a[2] = 5", 40)).unwrap();
    assert_eq!(db.rows("SELECT c, a FROM p"), ["(\"(,8)\",9)|[2:2]={5}"]);
    for parts in ["c.n = 1", "c.at.x = 1", "a[1] = 1"] {
        assert_eq!(
            db.fails(&set(parts, 5_000)),
            SqlState::STATEMENT_TOO_COMPLEX
        );
    }
}

#[test]
fn a_with_of_too_many_queries_is_refused() {
    let db = TestDb::new();
    let with = |n: usize| {
        let ctes: Vec<String> = (0..n).map(|i| format!("c{i} AS (SELECT {i})")).collect();
        format!("WITH {} SELECT 1", ctes.join(", "))
    };
    assert_eq!(db.rows(&with(20)), ["1"]);
    assert_eq!(db.fails(&with(2_000)), SqlState::STATEMENT_TOO_COMPLEX);
}

#[test]
fn a_from_of_too_many_relations_is_refused() {
    let db = TestDb::new();
    db.run("CREATE TABLE j (id int PRIMARY KEY); INSERT INTO j VALUES (1)")
        .unwrap();
    for (join, on) in [
        (",", ""),
        ("JOIN", "ON true"),
        ("LEFT JOIN", "ON true"),
        ("FULL JOIN", "USING (id)"),
    ] {
        let text = |n: usize| {
            let all: String = (1..n).map(|i| format!(" {join} j j{i} {on}")).collect();
            format!("SELECT count(*) FROM j{all}")
        };
        assert_eq!(db.rows(&text(5)), ["1"], "{join}");
        let refused = db.fails(&text(1_001));
        assert_eq!(refused, SqlState::STATEMENT_TOO_COMPLEX, "{join}");
    }
}
