//! Tables whose split values have further records, beside plain tables: every place of SQL where a value can be read or written answers alike.

use crate::testing::{TestDb, parse};
use base::{Isolation, SqlState};
use txn::{Stop, Txn};
use workload::rng::Rng;

const COLUMNS: &str = "id int PRIMARY KEY, qty int NOT NULL CHECK (qty >= 0), sold int8 NOT NULL DEFAULT 0, \
     worth numeric(12,2) NOT NULL DEFAULT 0, note text";

/// `s` is split and `p` is not; both hold the same, and the values of `s` have `records` further records with shares of all kinds.
fn pair(records: u16) -> TestDb {
    pair_in("escrow", records)
}

/// The same in the mode of this name.
fn pair_in(mode: &str, records: u16) -> TestDb {
    let db = TestDb::new();
    db.run(&format!(
        "CREATE TABLE s ({COLUMNS}) WITH (split = 'qty, sold, worth'); CREATE TABLE p ({COLUMNS})"
    ))
    .unwrap();
    for column in ["qty", "sold", "worth"] {
        db.split_in("s", column, mode);
    }
    let both = |sql: &str| {
        for table in ["s", "p"] {
            db.run(&sql.replace("TABLE", table)).unwrap();
        }
    };
    both("INSERT INTO TABLE (id, qty) SELECT i, 10 * i FROM generate_series(1, 8) i");
    db.spread("s", records);
    for n in 1..=12 {
        both(&format!(
            "UPDATE TABLE SET qty = qty + {n}, sold = sold + 2, worth = worth - 0.25 WHERE id <> {}",
            n % 9
        ));
        both("UPDATE TABLE SET qty = qty - 7 WHERE qty >= 7");
    }
    db
}

/// The same text for both tables gives the same rows. Whether it gave any error.
fn same(db: &TestDb, sql: &str) -> Option<SqlState> {
    let of = |table| {
        let sql = sql.replace("TABLE", table);
        db.run(&sql)
            .map(|a| (a.rows, a.affected))
            .map_err(|e| e.code())
    };
    let (split, plain) = (of("s"), of("p"));
    assert_eq!(split, plain, "{sql}");
    split.err()
}

/// The statement is one that works.
fn works(db: &TestDb, sql: &str) {
    assert_eq!(same(db, sql), None, "{sql}");
}

const READS: &[&str] = &[
    "SELECT * FROM TABLE ORDER BY id",
    "SELECT qty FROM TABLE WHERE id = 3",
    "SELECT worth, sold FROM TABLE WHERE id = 4",
    "SELECT id FROM TABLE WHERE qty > 60 ORDER BY id",
    "SELECT id FROM TABLE WHERE qty = 52",
    "SELECT sum(qty), min(sold), max(worth), avg(qty), count(*) FROM TABLE",
    "SELECT sum(qty) FROM TABLE WHERE id BETWEEN 2 AND 5",
    "SELECT id, qty FROM TABLE WHERE id BETWEEN 2 AND 5 ORDER BY qty DESC",
    "SELECT DISTINCT sold FROM TABLE WHERE id BETWEEN 1 AND 8 ORDER BY sold",
    "SELECT sold, count(*) FROM TABLE GROUP BY sold ORDER BY sold",
    "SELECT a.id, b.id FROM TABLE a JOIN TABLE b ON a.qty < b.qty ORDER BY 1, 2",
    "SELECT a.id, b.qty FROM TABLE a JOIN TABLE b ON a.id = b.id - 1 ORDER BY 1",
    "SELECT a.id, b.id FROM TABLE a JOIN TABLE b ON a.sold = b.sold ORDER BY 1, 2",
    "SELECT id FROM TABLE WHERE qty IN (SELECT qty FROM TABLE WHERE id > 6) ORDER BY id",
    "SELECT (SELECT t.qty FROM TABLE t WHERE t.id = u.id) FROM TABLE u ORDER BY u.id",
    "SELECT id, sum(qty) OVER (ORDER BY id) FROM TABLE ORDER BY id",
    "SELECT id, qty FROM TABLE ORDER BY qty LIMIT 3",
    "SELECT id, qty FROM TABLE WHERE id = 2 FOR UPDATE",
    "SELECT CASE WHEN qty > 50 THEN 'much' ELSE 'little' END FROM TABLE ORDER BY id",
    "WITH x AS (SELECT qty, id FROM TABLE) SELECT x.qty - y.qty FROM x JOIN x y ON x.id = y.id + 1 ORDER BY x.id",
    "SELECT qty::text || '/' || worth FROM TABLE UNION SELECT note FROM TABLE ORDER BY 1",
    "SELECT id FROM TABLE WHERE EXISTS (SELECT 1 FROM TABLE t WHERE t.qty > TABLE.qty) ORDER BY id",
    "SELECT id FROM TABLE GROUP BY id, qty HAVING sum(qty) > 50 ORDER BY id",
    "SELECT DISTINCT ON (sold) sold, qty FROM TABLE ORDER BY sold, qty DESC",
    "SELECT array_agg(qty ORDER BY qty DESC), string_agg(worth::text, ',' ORDER BY id) FROM TABLE",
    "SELECT count(*) FILTER (WHERE qty > 50), sum(sold) FILTER (WHERE worth < 0) FROM TABLE",
    "SELECT sold, id, sum(qty) FROM TABLE GROUP BY GROUPING SETS ((sold), (id), ()) ORDER BY 1, 2",
    "SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY qty) FROM TABLE",
    "SELECT id, rank() OVER (ORDER BY qty), lag(worth) OVER (ORDER BY id) FROM TABLE ORDER BY id",
    "SELECT id, sum(sold) OVER (ORDER BY qty RANGE BETWEEN 20 PRECEDING AND CURRENT ROW) FROM TABLE ORDER BY id",
    "SELECT a.id, l.q FROM TABLE a, LATERAL (SELECT max(b.qty) AS q FROM TABLE b WHERE b.qty < a.qty) l ORDER BY 1",
    "SELECT a.id, b.id FROM TABLE a FULL JOIN TABLE b ON a.qty = b.qty + 10 ORDER BY 1, 2",
    "SELECT a.id, b.qty FROM TABLE a LEFT JOIN TABLE b ON b.id = a.id + 4 AND b.qty > 50 ORDER BY 1",
    "SELECT qty FROM TABLE INTERSECT SELECT sold FROM TABLE ORDER BY 1",
    "SELECT qty FROM TABLE WHERE id < 5 EXCEPT SELECT qty FROM TABLE WHERE id > 3 ORDER BY 1",
    "SELECT id FROM TABLE WHERE qty = ANY (ARRAY(SELECT qty FROM TABLE WHERE id > 5)) ORDER BY id",
    "SELECT id FROM TABLE WHERE qty > ALL (SELECT qty FROM TABLE WHERE id < 3) ORDER BY id",
    "SELECT id FROM TABLE WHERE (qty, id) < (60, 4) ORDER BY id",
    "SELECT coalesce(nullif(qty, 0), -1), greatest(qty, sold), qty BETWEEN 10 AND 60 FROM TABLE ORDER BY id",
    "SELECT to_jsonb(qty), jsonb_build_object('n', worth) FROM TABLE ORDER BY id",
    "SELECT x.n FROM (SELECT qty AS n FROM TABLE ORDER BY id OFFSET 2) x ORDER BY 1",
    "WITH RECURSIVE r AS (SELECT id, qty FROM TABLE WHERE id = 2 UNION ALL SELECT t.id, t.qty + r.qty FROM TABLE t JOIN r ON t.id = r.id + 1) SELECT * FROM r ORDER BY id",
    "VALUES ((SELECT qty FROM TABLE WHERE id = 3), (SELECT sum(worth) FROM TABLE))",
    "SELECT id, qty FROM TABLE WHERE id = 2 FOR SHARE",
    "SELECT id FROM TABLE ORDER BY qty % 10, id OFFSET 1 FETCH FIRST 3 ROWS ONLY",
    "SELECT generate_series(1, qty / 40), id FROM TABLE ORDER BY id, 1",
];

const WRITES: [&str; 16] = [
    "UPDATE TABLE SET note = 'x' WHERE id = 3",
    "UPDATE TABLE SET note = qty::text WHERE qty > 40",
    "UPDATE TABLE SET qty = 5 WHERE id = 2 RETURNING qty, sold",
    "UPDATE TABLE SET qty = qty - 1 WHERE id = 4 RETURNING *",
    "UPDATE TABLE SET qty = qty - 3, note = 'y' WHERE id = 5",
    "UPDATE TABLE SET sold = qty WHERE id = 6 RETURNING sold",
    "UPDATE TABLE SET qty = qty + 1, sold = sold + 1, worth = worth + 0.5",
    "UPDATE TABLE SET qty = qty - 100000 WHERE id = 7",
    "UPDATE TABLE SET qty = qty - 40 WHERE id = 7 AND qty >= 40",
    "UPDATE TABLE SET id = id + 100 WHERE id = 8 RETURNING *",
    "DELETE FROM TABLE WHERE qty > 90 RETURNING id, qty",
    "DELETE FROM TABLE WHERE id = 1 RETURNING *",
    "INSERT INTO TABLE (id, qty) VALUES (1, 3) ON CONFLICT (id) DO UPDATE SET qty = TABLE.qty + excluded.qty",
    "INSERT INTO TABLE (id, qty) VALUES (2, 3) ON CONFLICT (id) DO UPDATE SET qty = excluded.qty RETURNING *",
    "INSERT INTO TABLE (id, qty) SELECT max(id) + 1, 4 FROM TABLE RETURNING id",
    "UPDATE TABLE SET qty = t.qty FROM TABLE t WHERE t.id = TABLE.id + 1",
];

#[test]
fn reads_and_writes_of_sums_are_those_of_a_plain_table() {
    for (mode, records) in [("escrow", 1), ("escrow", 3), ("rows", 1), ("rows", 3)] {
        let db = pair_in(mode, records);
        assert_eq!(db.spread_values(), 8 * 3);
        READS.iter().for_each(|sql| works(&db, sql));
        for sql in WRITES {
            let refused = same(&db, sql);
            assert_eq!(
                refused.is_some(),
                sql.contains("100000"),
                "{sql}: {refused:?}"
            );
            READS.iter().for_each(|sql| works(&db, sql));
        }
        // Exact writes have taken back some.
        assert!(db.spread_values() < 8 * 3);
    }
}

#[test]
fn statements_in_any_order_are_those_of_a_plain_table() {
    for seed in 0..24 {
        let mut rng = Rng::new(seed);
        let db = pair_in(["escrow", "rows"][(seed % 2) as usize], 2);
        for _ in 0..40 {
            match rng.below(9) {
                0 => db.spread("s", rng.below(5) as u16),
                1 => db.balance("s", rng.below(4) as u16),
                2..=4 => works(&db, READS[rng.below(READS.len() as u64) as usize]),
                _ => drop(same(&db, WRITES[rng.below(WRITES.len() as u64) as usize])),
            }
        }
        works(&db, READS[0]);
    }
}

/// More of them, that meet the deltas of their own transaction.
const ADDS: [&str; 9] = [
    "UPDATE TABLE SET qty = qty - 2 WHERE id = 3 AND qty >= 2",
    "UPDATE TABLE SET qty = qty + 5, sold = sold - 1 WHERE id = 3",
    "UPDATE TABLE SET qty = qty - 1 WHERE worth < 0 AND qty > 3",
    "UPDATE TABLE SET worth = worth + 0.25 WHERE qty >= 30 AND id < 6",
    "UPDATE TABLE SET sold = sold + 1 WHERE qty % 2 = 0",
    "INSERT INTO TABLE (id, qty) VALUES (3, 2) ON CONFLICT (id) DO UPDATE SET qty = TABLE.qty - excluded.qty",
    "DELETE FROM TABLE WHERE id = 3",
    "INSERT INTO TABLE (id, qty) VALUES (3, 40)",
    "UPDATE TABLE SET id = 3 WHERE id = 108",
];

/// What a statement of an open transaction gives.
fn said(db: &TestDb, t: &mut Txn, sql: &str) -> Result<(Vec<Vec<String>>, u64), SqlState> {
    let statements = parse(sql).unwrap();
    loop {
        match db.run_in(t, &statements[0], sql, &[]) {
            Ok(a) => return Ok((a.rows, a.affected)),
            Err(Stop::Restart) => {}
            Err(Stop::Error(e)) => return Err(e.code()),
            Err(Stop::Blocked) => panic!("{sql} waits"),
        }
    }
}

/// The same within transactions: their own deltas stand beside the further records, and are undone by savepoints. Workers fail none of them.
#[test]
fn statements_of_one_transaction_are_those_of_a_plain_table() {
    let levels = [
        Isolation::ReadCommitted,
        Isolation::RepeatableRead,
        Isolation::Serializable,
    ];
    let (mut committed, mut undone) = (0, 0);
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let db = pair_in(["escrow", "rows"][(seed % 2) as usize], 2);
        for _ in 0..8 {
            let level = levels[rng.index(3)];
            let mut open = ["s", "p"].map(|table| {
                let mut t = db.begin();
                t.set_isolation(level);
                (table, t)
            });
            let (mut saved, mut failed) = (false, false);
            for _ in 0..rng.between(2, 10) {
                let sql = match rng.below(14) {
                    0 => {
                        open.iter_mut().for_each(|(_, t)| t.savepoint("a"));
                        saved = true;
                        continue;
                    }
                    1 | 2 if saved => {
                        for (_, t) in &mut open {
                            t.rollback_to_savepoint("a").unwrap();
                        }
                        undone += 1;
                        continue;
                    }
                    3 => {
                        db.spread("s", 1 + rng.below(4) as u16);
                        continue;
                    }
                    4 => {
                        db.balance("s", rng.below(4) as u16);
                        continue;
                    }
                    5..=7 => READS[rng.index(READS.len())],
                    8 | 9 => WRITES[rng.index(WRITES.len())],
                    _ => ADDS[rng.index(ADDS.len())],
                };
                let of = |(table, t): &mut (&str, Txn)| said(&db, t, &sql.replace("TABLE", table));
                let [split, plain] = open.each_mut().map(of);
                assert_eq!(split, plain, "seed {seed}, {level:?}: {sql}");
                failed = split.is_err();
                if failed {
                    break;
                }
            }
            if !failed && rng.below(4) != 0 {
                for (table, t) in open {
                    let done = db.commit(t);
                    assert!(done.is_ok(), "seed {seed}, {level:?}, {table}: {done:?}");
                }
                committed += 1;
            }
            works(&db, READS[0]);
        }
    }
    assert!(
        committed > 100 && undone > 40,
        "only {committed} and {undone}"
    );
}

#[test]
fn changes_of_the_schema_take_all_records_along() {
    for sql in [
        "alter table TABLE ADD COLUMN more int DEFAULT 3",
        "alter table TABLE DROP COLUMN note",
        "alter table TABLE DROP COLUMN sold",
        "alter table TABLE ALTER COLUMN note TYPE varchar(40)",
        "alter table TABLE ALTER COLUMN qty TYPE int8",
        // Rows stay as they stand: their bytes are the same.
        "alter table TABLE ALTER COLUMN worth TYPE numeric(14,2)",
        "alter table TABLE ALTER COLUMN qty TYPE int4",
        "alter table TABLE ADD CHECK (qty <= 1000)",
        "alter table TABLE ADD CHECK (qty <= 60)",
        "alter table TABLE ADD CHECK (worth > 0)",
        "alter table TABLE DROP CONSTRAINT TABLE_pkey",
        "alter table TABLE DROP CONSTRAINT TABLE_pkey; alter table TABLE ADD PRIMARY KEY (id)",
        "alter table TABLE RENAME COLUMN qty TO stock; alter table TABLE RENAME COLUMN stock TO qty",
        "TRUNCATE TABLE",
        "CREATE INDEX ON TABLE (note)",
    ] {
        let db = pair(3);
        let refused = same(&db, sql);
        let should = sql.contains("<= 60") || sql.contains("worth > 0)");
        assert_eq!(refused.is_some(), should, "{sql}: {refused:?}");
        works(&db, READS[0]);
        works(&db, "UPDATE TABLE SET qty = qty + 1 WHERE id = 3");
        works(
            &db,
            "UPDATE TABLE SET qty = qty - 1 WHERE id = 4 AND qty >= 1",
        );
        works(&db, "DELETE FROM TABLE WHERE id = 5");
        db.spread("s", 2);
        works(&db, "UPDATE TABLE SET qty = qty + 1");
        works(&db, READS[0]);
    }
    let db = pair(3);
    db.run("DROP TABLE s").unwrap();
    assert_eq!(db.spread_values(), 0);
}

/// A column of the key gets a wider type under which the rows stay where they are. The further records are kept under that key.
#[test]
fn a_key_of_a_wider_type_takes_all_records_along() {
    for sql in [
        "alter table TABLE ALTER COLUMN name TYPE varchar(20)",
        "alter table TABLE ALTER COLUMN name TYPE text",
        "alter table TABLE ALTER COLUMN part TYPE numeric(9,1)",
    ] {
        let db = TestDb::new();
        for (table, with) in [("s", " WITH (split = 'qty')"), ("p", "")] {
            let columns = "name varchar(10), part numeric(6,1), qty int NOT NULL CHECK (qty >= 0), PRIMARY KEY (name, part)";
            db.run(&format!("CREATE TABLE {table} ({columns}){with}"))
                .unwrap();
            db.run(&format!(
                "INSERT INTO {table} SELECT 'n' || i, 1.5, 10 FROM generate_series(1, 4) i"
            ))
            .unwrap();
        }
        db.spread("s", 3);
        let sell = "UPDATE TABLE SET qty = qty - 1 WHERE qty >= 3";
        let all = "SELECT name, part, qty FROM TABLE ORDER BY 1, 2";
        (0..9).for_each(|_| works(&db, sell));
        works(&db, sql);
        works(&db, all);
        works(&db, sell);
        db.spread("s", 2);
        works(&db, sell);
        works(&db, all);
        works(&db, "DELETE FROM TABLE WHERE name = 'n2'");
        works(&db, "UPDATE TABLE SET name = 'm' WHERE name = 'n3'");
        works(&db, all);
    }
}

/// Deltas as large as the types, whose shares come to lie far outside of them: 22003 where the plain column says so, and the same values.
#[test]
fn at_the_limits_of_a_type_a_value_is_that_of_a_plain_column() {
    let nines = "9".repeat(36);
    let limits = [
        ("int2", "32768", "32767"),
        ("int4", "2147483648", "2147483647"),
        ("int8", "9223372036854775808", "9223372036854775807"),
        ("numeric(36,0)", nines.as_str(), nines.as_str()),
        ("numeric(5,2)", "999.99", "999.99"),
    ];
    for (seed, (ty, low, high)) in limits.into_iter().enumerate() {
        for mode in ["escrow", "rows"] {
            let mut rng = Rng::new(seed as u64);
            let db = TestDb::new();
            for (table, with) in [("s", " WITH (split = 'v')"), ("p", "")] {
                let columns = format!("id int PRIMARY KEY, v {ty} NOT NULL");
                db.run(&format!("CREATE TABLE {table} ({columns}){with}"))
                    .unwrap();
                db.run(&format!("INSERT INTO {table} VALUES (1, 0)"))
                    .unwrap();
            }
            db.split_in("s", "v", mode);
            let (mut done, mut refused) = (0, 0);
            for turn in 0..80 {
                if turn % 8 == 0 {
                    db.spread("s", 3);
                }
                let sign = ["+", "-"][rng.index(2)];
                let amount = match rng.below(4) {
                    0 => "1",
                    1 if sign == "-" => low,
                    _ => high,
                };
                let guard = match rng.below(3) {
                    0 => format!(" AND v >= -{high}"),
                    1 => " AND v > 0".into(),
                    _ => String::new(),
                };
                let sql = format!("UPDATE TABLE SET v = v {sign} {amount} WHERE id = 1{guard}");
                match same(&db, &sql) {
                    None => done += 1,
                    Some(code) => {
                        assert_eq!(code, SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "{sql}");
                        refused += 1;
                    }
                }
                works(&db, "SELECT v FROM TABLE");
            }
            assert!(
                done > 10 && refused > 10,
                "{ty}: {done} done, {refused} refused"
            );
        }
    }
}

#[test]
fn hidden_tables_have_no_name() {
    let db = pair(1);
    for sql in [
        "SELECT * FROM canon_split.records_1_1",
        "DROP TABLE canon_split.x",
    ] {
        let code = db.run(sql).unwrap_err().code();
        assert!(
            [SqlState::UNDEFINED_TABLE, SqlState::INVALID_SCHEMA_NAME].contains(&code),
            "{sql}: {code:?}"
        );
    }
    let seen = db
        .run("SELECT relname FROM pg_class WHERE relname LIKE 'records%'")
        .unwrap();
    assert!(seen.rows.is_empty(), "{seen:?}");
}
