//! Validation with conditions against the conditions themselves: what a transaction read is read again by another one after a change, and
//! the commit must agree.

use crate::testing::{TestDb, parse};
use base::{SqlState, Value};
use proptest::prelude::*;
use txn::Spared;

const TABLES: &str = "CREATE TABLE t (k int PRIMARY KEY, v int, w int NOT NULL, s text);
    CREATE INDEX t_w ON t (w);
    CREATE TABLE u (id int PRIMARY KEY, x int);
    CREATE TABLE done (n int);
    INSERT INTO u VALUES (1, 0), (2, 2), (3, NULL)";

/// Conditions that can be asked again whole; `{}` is a small number, here or as a parameter.
const EXACT: [&str; 16] = [
    "v = {}",
    "v <> {}",
    "v IS NULL",
    "v IS DISTINCT FROM {}",
    "k BETWEEN 2 AND 9 AND v = {}",
    "w = {} AND v > 1",
    "w IN (1, {}) AND s LIKE 'a%'",
    "6 / v = {}",
    "v > 0 AND 6 / v = {}",
    "CASE v WHEN 1 THEN w > {} WHEN 2 THEN s IS NULL ELSE false END",
    "coalesce(v, 7) IN (7, {})",
    "length(s) + v = {}",
    "NOT (v = {} OR s = 'ab')",
    "v = {}::int + 1",
    "w + 0 = {} AND now() IS NOT NULL AND v < 3",
    "(v = {}) IS NOT TRUE AND k > 3",
];

/// Conditions of which something is left out, or that are asked of more than one table: they may lose where they need not.
const COARSE: [&str; 6] = [
    "v IN (SELECT x FROM u WHERE id <= {})",
    "v = {} AND EXISTS (SELECT 1 FROM u WHERE u.x = t.v)",
    "EXISTS (SELECT 1 FROM u WHERE u.x = t.v) AND w = {}",
    "random() >= 0 AND v = {}",
    "v = (SELECT max(x) FROM u) AND w < {}",
    "ROW(v, w)::text LIKE '(%' AND v = {}",
];

const CHANGES: [&str; 8] = [
    "UPDATE t SET v = {} WHERE k = {k}",
    "UPDATE t SET v = NULL WHERE k = {k}",
    "UPDATE t SET w = {} WHERE k = {k}",
    "UPDATE t SET s = 'ab' WHERE k = {k}",
    "DELETE FROM t WHERE k = {k}",
    "INSERT INTO t VALUES ({k}, {}, 1, 'abc')",
    "INSERT INTO t VALUES ({k}, NULL, {}, NULL)",
    "UPDATE t SET v = v + 1, w = w WHERE w = {}",
];

/// The rows of a query as another transaction has them now; none where it fails.
fn now(db: &TestDb, sql: &str, params: &[Value]) -> Option<Vec<Vec<String>>> {
    db.run_with(sql, params).ok().map(|a| a.rows)
}

struct Case {
    condition: usize,
    number: i32,
    reader: usize,
    prepared: bool,
    rows: Vec<(i32, Option<i32>, i32, Option<&'static str>)>,
    changes: Vec<(usize, i32, i32)>,
}

fn cases() -> impl Strategy<Value = Case> {
    let text = prop_oneof![
        Just(None),
        Just(Some("a")),
        Just(Some("ab")),
        Just(Some("b"))
    ];
    let row = (0..12, prop::option::of(0..4), 0..4, text);
    let change = (0..CHANGES.len(), 0..12, 0..4);
    (
        (
            0..EXACT.len() + COARSE.len(),
            0..4,
            0..7usize,
            any::<bool>(),
        ),
        prop::collection::vec(row, 0..10),
        prop::collection::vec(change, 1..3),
    )
        .prop_map(
            |((condition, number, reader, prepared), rows, changes)| Case {
                condition,
                number,
                reader,
                prepared,
                rows,
                changes,
            },
        )
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (sql, _, _) = self.statements();
        write!(f, "{sql} ({}) on {:?}, then", self.number, self.rows)?;
        self.changes().iter().try_for_each(|c| write!(f, " {c};"))
    }
}

impl Case {
    /// What the transaction runs, what it depends on at most, and its parameters.
    fn statements(&self) -> (String, String, Vec<Value>) {
        let condition = match EXACT.get(self.condition) {
            Some(c) => c,
            None => COARSE[self.condition - EXACT.len()],
        };
        let (text, params) = match self.prepared {
            true => ("$1".to_owned(), vec![Value::Int4(self.number)]),
            false => (self.number.to_string(), vec![]),
        };
        let condition = condition.replace("{}", &text);
        let reads = match self.reader {
            0 => format!("SELECT k FROM t WHERE {condition} ORDER BY k"),
            1 => format!("SELECT count(*), sum(w) FROM t WHERE {condition}"),
            2 => format!("SELECT k, s FROM t WHERE {condition} ORDER BY k DESC LIMIT 2"),
            3 => format!(
                "SELECT u.id, t.k FROM u LEFT JOIN t ON t.w = u.id AND ({condition}) ORDER BY 1, 2"
            ),
            4 => format!("DELETE FROM t WHERE {condition} RETURNING k"),
            5 => format!("SELECT s FROM t WHERE k = {text}"),
            _ => format!("SELECT w FROM t WHERE k IN (3, {text}) AND ({condition})"),
        };
        let whole = format!("SELECT * FROM t WHERE {condition} ORDER BY k");
        (reads, whole, params)
    }

    fn changes(&self) -> Vec<String> {
        let text = |(c, k, n): &(usize, i32, i32)| {
            let sql = CHANGES[*c].replace("{k}", &k.to_string());
            sql.replace("{}", &n.to_string())
        };
        self.changes.iter().map(text).collect()
    }

    fn run(&self, db: &TestDb) {
        db.run("DELETE FROM t").unwrap();
        for (k, v, w, s) in &self.rows {
            let v = v.map_or("NULL".into(), |v| v.to_string());
            let s = s.map_or("NULL".into(), |s| format!("'{s}'"));
            // A key may be there already.
            _ = db.run(&format!("INSERT INTO t VALUES ({k}, {v}, {w}, {s})"));
        }
        let (reads, whole, params) = self.statements();
        let before = now(db, &whole, &params);
        let mut t = db.begin();
        let Ok(saw) = db.run_in(&mut t, &parse(&reads).unwrap()[0], &reads, &params) else {
            return;
        };
        let found = !saw.rows.is_empty();
        let mark = "INSERT INTO done VALUES (1)";
        db.run_in(&mut t, &parse(mark).unwrap()[0], mark, &[])
            .unwrap();
        for c in self.changes() {
            // What waits for a lock does not happen.
            _ = db.run(&c);
        }
        let after = now(db, &whole, &params);
        // What is deleted by another transaction is not there twice.
        let again = match reads.strip_prefix("DELETE FROM t") {
            Some(rest) => {
                let rest = rest.replace("RETURNING k", "ORDER BY k");
                let mut saw = saw.rows.clone();
                saw.sort_by_key(|r| r[0].parse::<i32>().unwrap());
                now(db, &format!("SELECT k FROM t{rest}"), &params) == Some(saw)
            }
            None => now(db, &reads, &params) == Some(saw.rows),
        };
        let outcome = db.commit(t);
        // A row that was read by key, and is the same in what was looked at.
        let point = self.reader == 5 && found;
        if !again {
            let e = outcome.expect_err("what it read is not so any more");
            assert_eq!(e.code(), SqlState::SERIALIZATION_FAILURE);
        } else if point || before.is_some() && before == after && self.is_exact() {
            outcome.expect("every row that it took is as it was");
        }
    }

    fn is_exact(&self) -> bool {
        // A join may read the table in another way; rows that are read by key are compared as they are.
        self.condition < EXACT.len() && !matches!(self.reader, 3 | 5 | 6)
    }
}

#[test]
fn commits_agree_with_reading_again() {
    let db = TestDb::new();
    db.run(TABLES).unwrap();
    proptest!(ProptestConfig::with_cases(800), |(case in cases())| case.run(&db));
    assert!(db.spared(Spared::Predicate) > 20, "the cases are dull");
}

/// The error of a row that came in is one that the statement would have raised.
#[test]
fn a_row_that_raises_an_error_counts() {
    let db = TestDb::new();
    db.run(TABLES).unwrap();
    db.run("INSERT INTO t VALUES (1, 1, 1, 'a')").unwrap();
    for (reads, change, lost) in [
        ("SELECT k FROM t WHERE 6 / v = 5", "(2, 0, 1)", true),
        (
            "SELECT k FROM t WHERE w + 0 = 7 AND 6 / v = 5",
            "(3, 0, 1)",
            false,
        ),
        (
            "SELECT k FROM t WHERE 6 / v = 5 AND w + 0 = 7",
            "(4, 0, 1)",
            true,
        ),
        ("SELECT k FROM t WHERE v = 5", "(5, 0, 1)", false),
        // The first condition is left out, so the second is not asked.
        (
            "SELECT k FROM t WHERE v = random() AND w + 0 = 7",
            "(6, 8, 1)",
            true,
        ),
    ] {
        let mut t = db.begin();
        let mark = "INSERT INTO done VALUES (1)";
        db.run("DELETE FROM t WHERE k > 1").unwrap();
        for sql in [reads, mark] {
            db.run_in(&mut t, &parse(sql).unwrap()[0], sql, &[])
                .unwrap();
        }
        db.run(&format!("INSERT INTO t (k, v, w) VALUES {change}"))
            .unwrap();
        assert_eq!(db.commit(t).is_err(), lost, "{reads}");
    }
}

/// A scan of a unique key ends at its one row, which it may not take; the next one with that key stands elsewhere.
#[test]
fn a_unique_key_changes_hands() {
    let db = TestDb::new();
    db.run("CREATE TABLE t (k int PRIMARY KEY, name text UNIQUE, v int); INSERT INTO t VALUES (1, 'a', 0); CREATE TABLE done (n int)")
        .unwrap();
    let mut t = db.begin();
    for sql in [
        "SELECT k FROM t WHERE name = 'a' AND v = 7",
        "INSERT INTO done VALUES (1)",
    ] {
        db.run_in(&mut t, &parse(sql).unwrap()[0], sql, &[])
            .unwrap();
    }
    db.run("DELETE FROM t; INSERT INTO t VALUES (2, 'a', 7)")
        .unwrap();
    let e = db.commit(t).unwrap_err();
    assert_eq!(e.code(), SqlState::SERIALIZATION_FAILURE);
}

/// What stood fixed while the scan ran is asked with what it was then: an outer row's column, a parameter, what is computed once.
#[test]
fn values_are_those_of_the_scan() {
    let db = TestDb::new();
    db.run(TABLES).unwrap();
    db.run("INSERT INTO t VALUES (1, 1, 1, 'a'), (2, 2, 2, 'b')")
        .unwrap();
    let joined = "SELECT u.id, t.k FROM u JOIN t ON t.w = u.id AND t.v = u.x WHERE u.id < 3";
    for (change, lost) in [
        ("UPDATE t SET v = 0 WHERE k = 1", true),
        ("UPDATE t SET v = 5 WHERE k = 1", false),
        ("UPDATE t SET v = 5 WHERE k = 2", true),
    ] {
        db.run("UPDATE t SET v = k").unwrap();
        let mut t = db.begin();
        for sql in [joined, "INSERT INTO done VALUES (1)"] {
            db.run_in(&mut t, &parse(sql).unwrap()[0], sql, &[])
                .unwrap();
        }
        db.run(change).unwrap();
        assert_eq!(db.commit(t).is_err(), lost, "{change}");
    }
}

/// The snapshot moves over a change that an earlier statement's condition does not take, and not over one that it does.
#[test]
fn snapshots_move_over_what_does_not_matter() {
    let db = TestDb::new();
    db.run(TABLES).unwrap();
    for (change, moves) in [(3, true), (1, false)] {
        db.run("DELETE FROM t; INSERT INTO t VALUES (1, 0, 0), (2, 0, 0)")
            .unwrap();
        let mut t = db.begin();
        let reads = "SELECT k FROM t WHERE v = 1";
        db.run_in(&mut t, &parse(reads).unwrap()[0], reads, &[])
            .unwrap();
        db.run(&format!(
            "UPDATE t SET v = {change} WHERE k = 1; UPDATE u SET x = 9 WHERE id = 1"
        ))
        .unwrap();
        let writes = "UPDATE u SET x = x + 1 WHERE id = 1 RETURNING x";
        let stmt = &parse(writes).unwrap()[0];
        let e = db.run_in(&mut t, stmt, writes, &[]).unwrap_err();
        assert!(matches!(e, txn::Stop::Restart));
        let before = db.spared(Spared::Predicate);
        match db.run_in(&mut t, stmt, writes, &[]) {
            Ok(a) => {
                assert!(moves && a.rows == [["10"]]);
                db.commit(t).unwrap();
                assert_eq!(db.spared(Spared::Predicate), before + 1);
            }
            Err(e) => assert!(
                !moves && e.error().expect("an error").code() == SqlState::SERIALIZATION_FAILURE
            ),
        }
    }
}

/// Whoever changes the table himself has its rows compared as they are.
#[test]
fn own_schema_changes_make_it_coarse() {
    let db = TestDb::new();
    db.run(TABLES).unwrap();
    db.run("INSERT INTO t VALUES (1, 0, 0)").unwrap();
    for (own, lost) in [
        ("ALTER TABLE u ADD COLUMN y int", false),
        ("ALTER TABLE t ADD COLUMN y int", true),
    ] {
        let mut t = db.begin();
        let reads = "SELECT k FROM t WHERE v = 1";
        db.run_in(&mut t, &parse(reads).unwrap()[0], reads, &[])
            .unwrap();
        db.run("UPDATE t SET v = v + 2").unwrap();
        let done = db.run_in(&mut t, &parse(own).unwrap()[0], own, &[]);
        assert_eq!(done.and_then(|_| Ok(db.commit(t)?)).is_err(), lost, "{own}");
    }
}
