//! Every node takes every statement: what a replica may not run goes on at the primary, and the session is the same on both sides.

mod common;
#[path = "replication/helpers.rs"]
#[allow(dead_code)]
mod helpers;

use bytes::Bytes;
use common::{Server, sqlstate};
use futures::{SinkExt, StreamExt, pin_mut};
use helpers::*;
use std::time::Duration;
use tokio_postgres::{Client, SimpleQueryMessage};

/// A primary with a table, and a replica; a session on each.
async fn pair() -> (Server, Server, Client, Client) {
    let p = Server::start().await;
    let r = replica(&p, "taker").await;
    let (c, w) = (p.connect().await, r.connect().await);
    rows(
        &w,
        "CREATE TABLE t (id int PRIMARY KEY, v int NOT NULL, note text)",
    )
    .await;
    (p, r, c, w)
}

/// The tag's number of the last statement.
async fn affected(c: &Client, sql: &str) -> u64 {
    let all = c.simple_query(sql).await;
    let all = all.unwrap_or_else(|e| panic!("{sql}: {e} {:?}", e.as_db_error()));
    match all.last() {
        Some(SimpleQueryMessage::CommandComplete(n)) => *n,
        m => panic!("{sql}: {m:?}"),
    }
}

/// Keys that are looked at when the transaction ends, of a session at a replica.
#[tokio::test(flavor = "multi_thread")]
async fn deferred_keys_are_looked_at_at_the_primary() {
    if skip() {
        return;
    }
    let (_p, _r, c, w) = pair().await;
    rows(
        &w,
        "CREATE TABLE late (k int PRIMARY KEY DEFERRABLE, u int UNIQUE DEFERRABLE INITIALLY DEFERRED);
         INSERT INTO late VALUES (1, 1), (2, 2);
         UPDATE late SET k = 3 - k",
    )
    .await;
    rows(&w, "BEGIN").await;
    assert_eq!(one(&w, "SELECT u FROM late WHERE k = 1").await, "2");
    rows(&w, "INSERT INTO late VALUES (3, 2)").await;
    assert_eq!(one(&w, "SELECT count(*) FROM late WHERE u = 2").await, "2");
    assert_eq!(
        refused(&w, "SET CONSTRAINTS ALL IMMEDIATE").await.0,
        "23505"
    );
    rows(&w, "ROLLBACK; BEGIN; SET CONSTRAINTS late_pkey DEFERRED").await;
    rows(&w, "INSERT INTO late VALUES (2, 3)").await;
    assert_eq!(refused(&w, "COMMIT").await.0, "23505");
    for s in [&c, &w] {
        let all = "SELECT string_agg(k || ' ' || u, ',' ORDER BY k) FROM late";
        assert_eq!(one(s, all).await, "1 2,2 1");
    }
}

/// Writing through a view with a split column behind it, and locks on tables, which are the primary's.
#[tokio::test(flavor = "multi_thread")]
async fn views_are_written_and_tables_locked_at_the_primary() {
    if skip() {
        return;
    }
    let (_p, _r, c, w) = pair().await;
    rows(
        &w,
        "CREATE TABLE s (id int PRIMARY KEY, n bigint NOT NULL) WITH (split = 'n');
         CREATE VIEW low AS SELECT id AS key, n FROM s WHERE id < 10;
         CREATE VIEW kept AS SELECT * FROM low WHERE n < 100 WITH CHECK OPTION",
    )
    .await;
    assert_eq!(
        affected(&w, "INSERT INTO kept VALUES (1, 5), (2, 6)").await,
        2
    );
    assert_eq!(affected(&w, "INSERT INTO low VALUES (3, 500)").await, 1);
    // By deltas where nothing is to be asked of the new row, exactly where something is.
    assert_eq!(
        affected(&w, "UPDATE low SET n = n + 1 WHERE n >= 1").await,
        3
    );
    assert_eq!(
        affected(&w, "UPDATE kept SET n = n + 1 WHERE key = 1").await,
        1
    );
    for sql in [
        "INSERT INTO kept VALUES (11, 1)",
        "INSERT INTO kept VALUES (4, 100)",
        "UPDATE kept SET n = n + 99 WHERE key = 1",
        "UPDATE kept SET key = 12 WHERE key = 1",
    ] {
        for s in [&c, &w] {
            assert_eq!(refused(s, sql).await.0, "44000", "{sql}");
        }
    }
    let upsert = "INSERT INTO kept VALUES (2, 1) ON CONFLICT (key) DO UPDATE SET n = kept.n + excluded.n RETURNING n";
    assert_eq!(one(&w, upsert).await, "8");
    for s in [&c, &w] {
        let all = "SELECT string_agg(id || ' ' || n, ',' ORDER BY id) FROM s";
        assert_eq!(one(s, all).await, "1 7,2 8,3 501");
    }
    let is_updatable = "SELECT string_agg(is_updatable, ',') FROM information_schema.views WHERE table_schema = 'public'";
    assert_eq!(one(&w, is_updatable).await, "YES,YES");
    // A lock that a session at the replica takes keeps off those at the primary, until its transaction ends.
    rows(&w, "BEGIN; LOCK TABLE t IN EXCLUSIVE MODE").await;
    rows(&c, "SET lock_timeout = '10ms'").await;
    assert_eq!(one(&c, "SELECT count(*) FROM t").await, "0");
    assert_eq!(refused(&c, "INSERT INTO t VALUES (1, 1)").await.0, "55P03");
    let nowait = "BEGIN; LOCK TABLE t IN ROW SHARE MODE NOWAIT";
    assert_eq!(refused(&c, nowait).await.0, "55P03");
    rows(&c, "ROLLBACK").await;
    assert_eq!(affected(&w, "INSERT INTO t VALUES (1, 1)").await, 1);
    rows(&w, "COMMIT").await;
    rows(&c, "SET lock_timeout = 0").await;
    assert_eq!(affected(&c, "INSERT INTO t VALUES (2, 1)").await, 1);
    // So does one of a session at the primary, those that work there for others.
    rows(&c, "BEGIN; LOCK TABLE t IN SHARE MODE").await;
    rows(&w, "SET lock_timeout = '10ms'").await;
    assert_eq!(refused(&w, "DELETE FROM t").await.0, "55P03");
    rows(&c, "COMMIT").await;
    rows(&w, "SET lock_timeout = 0").await;
    assert_eq!(affected(&w, "DELETE FROM t").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_on_their_own_run_at_the_primary_and_are_seen_at_once() {
    if skip() {
        return;
    }
    let (_p, _r, c, w) = pair().await;
    assert_eq!(one(&w, "SELECT pg_is_in_recovery()").await, "t");
    for n in 0..50 {
        assert_eq!(
            affected(&w, &format!("INSERT INTO t VALUES ({n}, 0)")).await,
            1
        );
        assert_eq!(one(&w, "SELECT count(*) FROM t").await, (n + 1).to_string());
    }
    // The extended protocol: parameters, rows of a statement that writes, numbers of rows.
    let insert = "INSERT INTO t VALUES ($1, $2, $3) RETURNING id, v * 2, note";
    let insert = w.prepare(insert).await.expect("prepared here");
    let row = w
        .query_one(&insert, &[&100i32, &21i32, &Some("x")])
        .await
        .expect("inserted there");
    let found: (i32, i32, String) = (row.get(0), row.get(1), row.get(2));
    assert_eq!(found, (100, 42, "x".to_owned()));
    let update = w
        .prepare("UPDATE t SET v = v + $1 WHERE id < $2")
        .await
        .unwrap();
    assert_eq!(w.execute(&update, &[&1i32, &10i32]).await.unwrap(), 10);
    let v: i64 = w
        .query_one("SELECT sum(v) FROM t WHERE id < $1", &[&50i32])
        .await
        .unwrap()
        .get(0);
    assert_eq!(v, 10);
    assert_eq!(one(&c, "SELECT count(*) FROM t").await, "51");
    // MERGE, with what it inserts and what it updates.
    let merge = "MERGE INTO t USING generate_series($1::int, $2::int) g ON t.id = g
         WHEN MATCHED THEN UPDATE SET note = 'merged' WHEN NOT MATCHED THEN INSERT VALUES (g, 0, 'merged')";
    let merge = w.prepare(merge).await.expect("prepared here");
    assert_eq!(w.execute(&merge, &[&100i32, &102i32]).await.unwrap(), 3);
    for s in [&c, &w] {
        let merged = one(s, "SELECT count(*) FROM t WHERE note = 'merged'").await;
        assert_eq!(merged, "3");
    }
    assert_eq!(affected(&w, "DELETE FROM t WHERE id > 100").await, 2);
    // Locking reads, sequences, several statements of one text.
    rows(&w, "SELECT * FROM t WHERE id = 1 FOR UPDATE").await;
    rows(&w, "CREATE SEQUENCE s").await;
    assert_eq!(one(&w, "SELECT nextval('s')").await, "1");
    assert_eq!(one(&w, "SELECT nextval('s')").await, "2");
    assert_eq!(one(&w, "SELECT currval('s')").await, "2");
    assert_eq!(one(&w, "SELECT lastval()").await, "2");
    rows(
        &w,
        "INSERT INTO t VALUES (200, 0); INSERT INTO t VALUES (201, 0)",
    )
    .await;
    let (code, _) = refused(
        &w,
        "INSERT INTO t VALUES (202, 0); INSERT INTO t VALUES (1, 0)",
    )
    .await;
    assert_eq!(code, "23505");
    assert_eq!(one(&w, "SELECT count(*) FROM t WHERE id >= 200").await, "2");
    // Found out only when it runs.
    rows(&w, "CREATE VIEW next AS SELECT nextval('s') AS n").await;
    assert_eq!(one(&w, "SELECT n FROM next").await, "3");
    let n: i64 = w.query_one("SELECT n FROM next", &[]).await.unwrap().get(0);
    assert_eq!(n, 4);
    rows(&w, "BEGIN").await;
    let n: i64 = w.query_one("SELECT n FROM next", &[]).await.unwrap().get(0);
    assert_eq!((n, one(&w, "SELECT currval('s')").await.as_str()), (5, "5"));
    rows(&w, "COMMIT").await;
    // Off: as a standby of PostgreSQL.
    rows(&w, "SET canon.forward = off").await;
    assert_eq!(refused(&w, "DELETE FROM t").await.0, "25006");
    rows(&w, "SET canon.forward = on").await;
    assert_eq!(affected(&w, "DELETE FROM t WHERE id >= 200").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_and_notices_come_with_all_their_fields() {
    if skip() {
        return;
    }
    let (_p, _r, c, w) = pair().await;
    rows(&w, "INSERT INTO t VALUES (1, 1)").await;
    for sql in [
        "INSERT INTO t VALUES (1, 1)",
        "INSERT INTO t VALUES (2, NULL)",
        "INSERT INTO t VALUES (2, 'x')",
    ] {
        let field = |e: &tokio_postgres::Error| {
            let d = e.as_db_error().expect("from the server");
            format!(
                "{:?} {:?} {} {:?} {:?} {:?} {:?} {:?} {:?} {:?}",
                d.severity(),
                d.code(),
                d.message(),
                d.detail(),
                d.hint(),
                d.position(),
                d.schema(),
                d.table(),
                d.column(),
                d.constraint(),
            )
        };
        let here = w.execute(sql, &[]).await.expect_err(sql);
        let there = c.execute(sql, &[]).await.expect_err(sql);
        assert_eq!(field(&here), field(&there), "{sql}");
        let here = w.simple_query(sql).await.expect_err(sql);
        assert_eq!(field(&here), field(&there), "{sql}");
    }
    assert_eq!(one(&w, "SELECT 1").await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_goes_on_at_the_primary_and_sees_its_own_writes() {
    if skip() {
        return;
    }
    let (_p, _r, c, w) = pair().await;
    rows(
        &w,
        "INSERT INTO t SELECT n, 0 FROM generate_series(1, 10) n",
    )
    .await;
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let before: i64 = one(&w, "SELECT sum(v) FROM t").await.parse().unwrap();
        rows(&w, &format!("BEGIN ISOLATION LEVEL {level}")).await;
        let seen = one(&w, "SELECT sum(v) FROM t WHERE id <= 5").await;
        let started = one(&w, "SELECT now()").await;
        assert_eq!(affected(&w, "UPDATE t SET v = v + 1 WHERE id = 1").await, 1);
        let now = one(&w, "SELECT sum(v) FROM t WHERE id <= 5").await;
        let plus = |s: &str| s.parse::<i64>().unwrap() + 1;
        assert_eq!(plus(&seen), now.parse::<i64>().unwrap(), "{level}");
        assert_eq!(
            one(&w, "SELECT now()").await,
            started,
            "one time for one transaction"
        );
        assert_eq!(
            one(&w, "SHOW transaction_isolation").await,
            level.to_lowercase()
        );
        assert_eq!(one(&c, "SELECT sum(v) FROM t").await, before.to_string());
        rows(&w, "COMMIT").await;
        assert_eq!(
            one(&w, "SELECT sum(v) FROM t").await,
            (before + 1).to_string()
        );
    }
    // Rolled back, by ROLLBACK and by an error.
    rows(&w, "BEGIN; DELETE FROM t").await;
    assert_eq!(one(&w, "SELECT count(*) FROM t").await, "0");
    rows(&w, "ROLLBACK").await;
    assert_eq!(one(&w, "SELECT count(*) FROM t").await, "10");
    rows(&w, "BEGIN").await;
    rows(&w, "DELETE FROM t WHERE id = 3").await;
    assert_eq!(refused(&w, "SELECT 1 / 0").await.0, "22012");
    assert_eq!(refused(&w, "SELECT 1").await.0, "25P02");
    rows(&w, "COMMIT").await;
    assert_eq!(one(&w, "SELECT count(*) FROM t").await, "10");
    // READ ONLY stays here.
    rows(&w, "BEGIN READ ONLY").await;
    let (code, message) = refused(&w, "INSERT INTO t VALUES (99, 0)").await;
    assert_eq!(
        (code.as_str(), message.as_str()),
        ("25006", "cannot execute INSERT in a read-only transaction")
    );
    rows(&w, "ROLLBACK").await;
    // A whole transaction in one text, and a block that spans texts with statements after its end.
    rows(&w, "BEGIN; INSERT INTO t VALUES (50, 0); COMMIT").await;
    rows(&w, "BEGIN; INSERT INTO t VALUES (51, 0)").await;
    rows(&w, "COMMIT; INSERT INTO t VALUES (52, 0)").await;
    assert_eq!(one(&w, "SELECT count(*) FROM t WHERE id >= 50").await, "3");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_read_must_stand_at_serializable_and_may_change_at_read_committed() {
    if skip() {
        return;
    }
    let (_p, _r, c, w) = pair().await;
    rows(
        &w,
        "INSERT INTO t SELECT n, 0 FROM generate_series(1, 10) n",
    )
    .await;
    let read = [
        "SELECT v FROM t WHERE id = 1",
        "SELECT count(*) FROM t",
        "SELECT v FROM t WHERE id = 77",
    ];
    let change = [
        "UPDATE t SET v = v + 1 WHERE id = 1",
        "DELETE FROM t WHERE id = 9",
        "INSERT INTO t VALUES (77, 0)",
    ];
    for (read, change) in read.iter().zip(change) {
        rows(&w, "BEGIN").await;
        rows(&w, read).await;
        rows(&c, change).await;
        let (code, _) = refused(&w, "UPDATE t SET v = v + 1 WHERE id = 5").await;
        assert_eq!(code, "40001", "{read} and {change}");
        assert_eq!(refused(&w, "SELECT 1").await.0, "25P02");
        rows(&w, "ROLLBACK").await;

        rows(&w, "BEGIN ISOLATION LEVEL READ COMMITTED").await;
        rows(&w, read).await;
        rows(&c, "UPDATE t SET v = v + 1 WHERE id IN (1, 77)").await;
        rows(&w, "UPDATE t SET v = v + 1 WHERE id = 5").await;
        rows(&w, "COMMIT").await;
        rows(&w, "SELECT 1").await;
        rows(
            &c,
            "DELETE FROM t WHERE id = 77; INSERT INTO t VALUES (9, 0) ON CONFLICT DO NOTHING",
        )
        .await;
        // The next round begins from what is there now.
        rows(&w, "UPDATE t SET v = v WHERE id = 2").await;
    }
    // What changed elsewhere does not matter; a change after the move is found by the commit.
    rows(&w, "BEGIN").await;
    rows(&w, "SELECT v FROM t WHERE id = 1").await;
    rows(&c, "UPDATE t SET v = v + 1 WHERE id = 2").await;
    rows(&w, "UPDATE t SET v = v + 1 WHERE id = 3").await;
    rows(&c, "UPDATE t SET v = v + 1 WHERE id = 4").await;
    rows(&w, "COMMIT").await;
    rows(&w, "BEGIN").await;
    rows(&w, "SELECT v FROM t WHERE id = 1").await;
    rows(&w, "UPDATE t SET v = v + 1 WHERE id = 3").await;
    rows(&c, "UPDATE t SET v = v + 1 WHERE id = 1").await;
    assert_eq!(refused(&w, "COMMIT").await.0, "40001");
    assert_eq!(one(&w, "SELECT 1").await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_session_is_the_same_on_both_sides() {
    if skip() {
        return;
    }
    let (_p, r, _c, w) = pair().await;
    rows(&w, "CREATE ROLE worker LOGIN; GRANT ALL ON t TO worker").await;
    rows(&w, "SET DateStyle = 'German'; SET my.own = 'x'").await;
    rows(&w, "INSERT INTO t VALUES (1, 1, current_setting('my.own'))").await;
    assert_eq!(
        one(
            &w,
            "INSERT INTO t VALUES (2, 1, date '2026-11-22') RETURNING note"
        )
        .await,
        "22.11.2026"
    );
    assert_eq!(one(&w, "SELECT note FROM t WHERE id = 1").await, "x");
    // SET and SET LOCAL before and after the move; savepoints before it.
    rows(&w, "BEGIN").await;
    rows(&w, "SET lock_timeout = '5s'").await;
    rows(&w, "SAVEPOINT a").await;
    rows(&w, "SET LOCAL statement_timeout = '50s'").await;
    rows(&w, "SAVEPOINT b").await;
    rows(&w, "UPDATE t SET v = 7 WHERE id = 1").await;
    assert_eq!(one(&w, "SHOW lock_timeout").await, "5s");
    assert_eq!(one(&w, "SHOW statement_timeout").await, "50s");
    rows(&w, "SET my.own = 'y'").await;
    rows(&w, "ROLLBACK TO b").await;
    assert_eq!(one(&w, "SHOW my.own").await, "x");
    assert_eq!(one(&w, "SELECT v FROM t WHERE id = 1").await, "1");
    rows(&w, "ROLLBACK TO a").await;
    assert_eq!(one(&w, "SHOW statement_timeout").await, "0");
    rows(
        &w,
        "SET application_name = 'moved'; UPDATE t SET v = 8 WHERE id = 1; RELEASE a; COMMIT",
    )
    .await;
    for (name, wanted) in [
        ("lock_timeout", "5s"),
        ("application_name", "moved"),
        ("statement_timeout", "0"),
        ("my.own", "x"),
        ("DateStyle", "German, DMY"),
    ] {
        assert_eq!(one(&w, &format!("SHOW {name}")).await, wanted);
    }
    rows(&w, "BEGIN; SET my.own = 'z'; DELETE FROM t; ROLLBACK").await;
    assert_eq!(one(&w, "SHOW my.own").await, "x");
    rows(&w, "RESET ALL").await;
    assert_eq!(
        one(
            &w,
            "INSERT INTO t VALUES (3, 1, date '2026-11-22') RETURNING note"
        )
        .await,
        "2026-11-22"
    );
    // Prepared on either side, used on both; unknown where it was deallocated.
    rows(&w, "PREPARE get AS SELECT v FROM t WHERE id = $1").await;
    rows(&w, "BEGIN").await;
    rows(&w, "UPDATE t SET v = 9 WHERE id = 1").await;
    assert_eq!(one(&w, "EXECUTE get(1)").await, "9");
    rows(&w, "PREPARE put AS UPDATE t SET v = $2 WHERE id = $1").await;
    rows(&w, "EXECUTE put(1, 10)").await;
    let of_driver = w
        .prepare("SELECT v FROM t WHERE id = $1")
        .await
        .expect("prepared there");
    rows(&w, "DEALLOCATE get; COMMIT").await;
    let v: i32 = w
        .query_one(&of_driver, &[&1i32])
        .await
        .expect("and used here")
        .get(0);
    assert_eq!(v, 10);
    assert_eq!(refused(&w, "EXECUTE get(1)").await.0, "26000");
    rows(&w, "EXECUTE put(1, 11)").await;
    assert_eq!(one(&w, "SELECT v FROM t WHERE id = 1").await, "11");
    // The rights are the client's, not those of the connection between the nodes.
    let mut config = r.config();
    let worker = common::connect_to(config.user("worker"))
        .await
        .expect("worker");
    rows(&worker, "INSERT INTO t VALUES (40, 0, current_user)").await;
    assert_eq!(
        one(&worker, "SELECT note FROM t WHERE id = 40").await,
        "worker"
    );
    assert_eq!(refused(&worker, "CREATE ROLE another").await.0, "42501");
    assert_eq!(refused(&worker, "DROP TABLE t").await.0, "42501");
    rows(&w, "SET ROLE worker").await;
    assert_eq!(refused(&w, "DROP TABLE t").await.0, "42501");
    rows(&w, "RESET ROLE; SET SESSION AUTHORIZATION worker").await;
    assert_eq!(
        one(
            &w,
            "INSERT INTO t VALUES (41, 0, session_user) RETURNING note"
        )
        .await,
        "worker"
    );
    rows(&w, "RESET SESSION AUTHORIZATION").await;
    rows(&w, "DROP TABLE t").await;
}

/// What an open cursor has not read yet counts as read when the transaction moves: else two transactions could each miss the other.
#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_is_inside_the_transaction_that_moved() {
    if skip() {
        return;
    }
    let (p, _r, _c, w) = pair().await;
    let other = p.connect().await;
    rows(&w, "CREATE TABLE u (id int PRIMARY KEY, v int)").await;
    rows(
        &w,
        "INSERT INTO t VALUES (1, 0); INSERT INTO u VALUES (1, 0)",
    )
    .await;
    for write in ["UPDATE t SET v = 1", "INSERT INTO t VALUES (2, 0)"] {
        // What changed after the move.
        rows(&w, "BEGIN; DECLARE c CURSOR FOR SELECT sum(v) FROM t").await;
        rows(&w, "UPDATE u SET v = v + 1").await;
        rows(&other, write).await;
        assert_eq!(one(&w, "FETCH c").await, "0");
        assert_eq!(refused(&w, "COMMIT").await.0, "40001");
        rows(&other, "DELETE FROM t; INSERT INTO t VALUES (1, 0)").await;
        // And before it.
        rows(&w, "BEGIN; DECLARE c CURSOR FOR SELECT sum(v) FROM t").await;
        rows(&other, write).await;
        assert_eq!(refused(&w, "UPDATE u SET v = v + 1").await.0, "40001");
        rows(&w, "ROLLBACK").await;
        rows(&other, "DELETE FROM t; INSERT INTO t VALUES (1, 0)").await;
    }
    assert_eq!(one(&w, "SELECT v FROM u").await, "0");
}

/// So does a portal that was bound and has not been run.
#[tokio::test(flavor = "multi_thread")]
async fn a_portal_that_was_bound_is_inside_the_transaction_that_moved() {
    use tokio_postgres::IsolationLevel::*;
    if skip() {
        return;
    }
    let (p, _r, _c, mut w) = pair().await;
    let other = p.connect().await;
    rows(&w, "CREATE TABLE u (id int PRIMARY KEY, v int)").await;
    let sums = "SELECT (SELECT sum(v) FROM t), (SELECT sum(v) FROM u)";
    for level in [ReadCommitted, RepeatableRead, Serializable] {
        for read in ["SELECT 1", "SELECT sum(v) FROM u"] {
            rows(&other, "DELETE FROM t; INSERT INTO t VALUES (1, 0)").await;
            rows(&other, "DELETE FROM u; INSERT INTO u VALUES (1, 0)").await;
            let x = w.build_transaction().isolation_level(level).start().await;
            let x = x.expect("begun");
            let portal = x.bind("SELECT sum(v) FROM t", &[]).await.expect("bound");
            x.batch_execute("UPDATE u SET v = v + 1")
                .await
                .expect("it moves");
            // Each misses what the other writes.
            let writes = format!("BEGIN; {read}; UPDATE t SET v = 1; COMMIT");
            rows(&other, &writes).await;
            let seen = x.query_portal(&portal, 0).await.expect("it is here");
            assert_eq!(seen[0].get::<_, i64>(0), 0, "{level:?}: as it was bound");
            let code = x.commit().await.map_err(|e| sqlstate(&e));
            let found = rows(&other, sums).await;
            let both = match level {
                Serializable => {
                    assert_eq!(code, Err("40001".into()), "{read}");
                    "0"
                }
                _ => "1",
            };
            let wanted = ["1", both].map(|s| Some(s.to_owned()));
            assert_eq!(found, [wanted], "{level:?}");
        }
    }
}

/// Whether a transaction only reads is said when it begins.
#[tokio::test(flavor = "multi_thread")]
async fn settings_do_not_take_a_transaction_away_without_what_it_has_read() {
    if skip() {
        return;
    }
    let (_p, _r, _c, w) = pair().await;
    rows(&w, "INSERT INTO t VALUES (1, 0)").await;
    for setting in ["default_transaction_read_only", "canon.forward"] {
        let (only, not) = match setting {
            "canon.forward" => ("off", "on"),
            _ => ("on", "off"),
        };
        rows(&w, &format!("SET {setting} = {only}")).await;
        rows(&w, "BEGIN; SELECT v FROM t").await;
        rows(&w, &format!("SET {setting} = {not}")).await;
        assert_eq!(refused(&w, "UPDATE t SET v = 1").await.0, "25006");
        rows(&w, "ROLLBACK").await;
        rows(&w, &format!("SET {setting} = {not}")).await;
    }
    rows(&w, "BEGIN; SELECT v FROM t").await;
    rows(&w, "SET default_transaction_read_only = on").await;
    rows(&w, "UPDATE t SET v = 2; COMMIT").await;
    assert_eq!(one(&w, "SELECT v FROM t").await, "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn cursors_stay_where_they_were_opened() {
    if skip() {
        return;
    }
    let (_p, _r, c, w) = pair().await;
    rows(
        &w,
        "INSERT INTO t SELECT n, 0 FROM generate_series(1, 10) n",
    )
    .await;
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        rows(&w, &format!("BEGIN ISOLATION LEVEL {level}")).await;
        rows(
            &w,
            "DECLARE here CURSOR FOR SELECT id, v FROM t ORDER BY id",
        )
        .await;
        assert_eq!(one(&w, "FETCH here").await, "1");
        rows(&w, "UPDATE t SET v = v + 1").await;
        rows(&w, "DECLARE there CURSOR FOR SELECT v FROM t ORDER BY id").await;
        let row = &rows(&w, "FETCH here").await[0];
        let old: i32 = row[1].as_ref().unwrap().parse().unwrap();
        let new: i32 = one(&w, "FETCH there").await.parse().unwrap();
        assert_eq!((row[0].as_deref(), new), (Some("2"), old + 1), "{level}");
        rows(&w, "CLOSE here").await;
        assert_eq!(refused(&w, "FETCH here").await.0, "34000");
        rows(&w, "ROLLBACK").await;
    }
    // ROLLBACK TO ends those that are younger than the savepoint, wherever they are; a savepoint of the same name that was made later
    // hides the first one.
    rows(
        &w,
        "BEGIN; DECLARE zero CURSOR FOR SELECT id FROM t ORDER BY id; SAVEPOINT s",
    )
    .await;
    rows(
        &w,
        "DECLARE one CURSOR FOR SELECT id FROM t ORDER BY id; SAVEPOINT gone; RELEASE gone",
    )
    .await;
    rows(
        &w,
        "SAVEPOINT u; DECLARE two CURSOR FOR SELECT id FROM t ORDER BY id",
    )
    .await;
    rows(
        &w,
        "UPDATE t SET v = -1; SAVEPOINT s; UPDATE t SET v = -2; ROLLBACK TO s",
    )
    .await;
    for name in ["zero", "one", "two"] {
        assert_eq!(one(&w, &format!("FETCH {name}")).await, "1", "{name}");
    }
    assert_eq!(refused(&w, "SELECT 1 / 0").await.0, "22012");
    rows(&w, "ROLLBACK TO u").await;
    assert_eq!(one(&w, "FETCH one").await, "2");
    rows(&w, "SAVEPOINT again").await;
    assert_eq!(refused(&w, "FETCH two").await.0, "34000");
    rows(&w, "ROLLBACK TO SAVEPOINT s").await;
    assert_eq!(one(&w, "FETCH zero").await, "2");
    assert_eq!(one(&w, "SELECT count(*) FROM t WHERE v < 0").await, "0");
    assert_eq!(refused(&w, "FETCH one").await.0, "34000");
    rows(&w, "ROLLBACK").await;
    // Portals of the protocol.
    let mut w = w;
    let t = w.transaction().await.unwrap();
    let portal = t.bind("SELECT id FROM t ORDER BY id", &[]).await.unwrap();
    assert_eq!(t.query_portal(&portal, 3).await.unwrap().len(), 3);
    t.execute("UPDATE t SET v = 100 WHERE id = 1", &[])
        .await
        .unwrap();
    let later = t.bind("SELECT v FROM t WHERE id = 1", &[]).await.unwrap();
    assert_eq!(t.query_portal(&portal, 0).await.unwrap().len(), 7);
    assert_eq!(
        t.query_portal(&later, 0).await.unwrap()[0].get::<_, i32>(0),
        100
    );
    t.commit().await.unwrap();
    assert_eq!(one(&c, "SELECT v FROM t WHERE id = 1").await, "100");
}

/// The values of Bind are those of the cursor's query.
#[tokio::test(flavor = "multi_thread")]
async fn cursors_with_hold_outlive_their_transaction_on_both_sides() {
    if skip() {
        return;
    }
    let (_p, _r, _c, w) = pair().await;
    rows(&w, "INSERT INTO t SELECT g, g FROM generate_series(1, 5) g").await;
    let declare = |name: &str| {
        format!("DECLARE {name} CURSOR WITH HOLD FOR SELECT id * 10 + v FROM t ORDER BY id")
    };
    rows(&w, &declare("here")).await;
    // In a transaction that has moved it is the primary's, and the session's connection there with it.
    for sql in ["BEGIN", "UPDATE t SET v = 7", &declare("there"), "COMMIT"] {
        rows(&w, sql).await;
    }
    assert_eq!(one(&w, "SELECT pg_is_in_recovery()").await, "f");
    rows(&w, "DELETE FROM t").await;
    for n in 1..=5 {
        let (here, there) = (n * 11, n * 10 + 7);
        assert_eq!(one(&w, "FETCH 1 FROM here").await, here.to_string());
        assert_eq!(one(&w, "FETCH 1 FROM there").await, there.to_string());
    }
    rows(&w, "CLOSE there").await;
    assert_eq!(one(&w, "SELECT pg_is_in_recovery()").await, "t");
    let (code, _) = refused(&w, "FETCH 1 FROM there").await;
    assert_eq!(code, "34000");
    rows(&w, "CLOSE here").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_with_a_temporary_table_is_at_the_primary() {
    if skip() {
        return;
    }
    let (_p, _r, c, w) = pair().await;
    rows(&w, "CREATE TEMP TABLE own (id serial, v int)").await;
    rows(&w, "INSERT INTO own (v) VALUES (10), (20)").await;
    assert_eq!(one(&w, "SELECT pg_is_in_recovery()").await, "f");
    let row = w
        .query_one("SELECT sum(v + id)::int FROM own WHERE v > $1", &[&10i32])
        .await
        .expect("read there");
    assert_eq!(row.get::<_, i32>(0), 22);
    // It is beside permanent rows, in transactions that commit and that do not.
    for sql in [
        "BEGIN",
        "INSERT INTO t SELECT id, v FROM own",
        "DELETE FROM own WHERE id = 1",
        "COMMIT",
        "BEGIN",
        "DELETE FROM own",
        "ROLLBACK",
    ] {
        rows(&w, sql).await;
    }
    assert_eq!(one(&w, "SELECT count(*) FROM own").await, "1");
    assert_eq!(one(&w, "SELECT sum(v) FROM t").await, "30");
    let prepared = w.prepare("SELECT v FROM own WHERE id = $1").await.unwrap();
    let got = w.query_one(&prepared, &[&2i32]).await.unwrap();
    assert_eq!(got.get::<_, i32>(0), 20);
    rows(&w, "PREPARE by_text AS SELECT max(v) FROM own").await;
    assert_eq!(one(&w, "EXECUTE by_text").await, "20");
    // Other sessions see nothing of it, at either node.
    let (code, _) = refused(&c, "SELECT * FROM own").await;
    assert_eq!(code, "42P01");
    assert_eq!(
        one(
            &c,
            "SELECT count(*) FROM pg_class WHERE relpersistence = 't'"
        )
        .await,
        "0"
    );
    // Back here once there is none.
    rows(&w, "DROP TABLE own").await;
    assert_eq!(one(&w, "SELECT pg_is_in_recovery()").await, "t");
    rows(&w, "CREATE TEMP TABLE own (id int)").await;
    rows(&w, "DISCARD TEMP").await;
    assert_eq!(one(&w, "SELECT pg_is_in_recovery()").await, "t");
    let (code, _) = refused(&w, "SELECT * FROM own").await;
    assert_eq!(code, "42P01");
}

#[tokio::test(flavor = "multi_thread")]
async fn cursors_get_the_values_of_their_bind() {
    if skip() {
        return;
    }
    let (_p, _r, c, w) = pair().await;
    rows(&w, "INSERT INTO t SELECT n, 0 FROM generate_series(1, 9) n").await;
    for c in [&c, &w] {
        rows(c, "BEGIN").await;
        for more in ["", " FOR UPDATE"] {
            let declare = format!("DECLARE c CURSOR FOR SELECT id FROM t WHERE id > $1{more}");
            c.execute(&declare, &[&7i32]).await.expect("declared");
            assert_eq!(rows(c, "FETCH ALL c").await.len(), 2, "{more}");
            rows(c, "CLOSE c").await;
        }
        let e = refused(c, "DECLARE c CURSOR FOR SELECT id FROM t WHERE id > $1").await;
        assert_eq!(e.0, "42P02");
        rows(c, "ROLLBACK").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_and_cancel_go_through() {
    if skip() {
        return;
    }
    let (_p, _r, c, w) = pair().await;
    let sink = w
        .copy_in::<_, Bytes>("COPY t (id, v) FROM STDIN")
        .await
        .expect("a sink");
    pin_mut!(sink);
    for n in 0..2000 {
        sink.send(Bytes::from(format!("{n}\t{n}\n")))
            .await
            .expect("sent");
    }
    assert_eq!(sink.finish().await.expect("loaded"), 2000);
    let stream = w
        .copy_out("COPY (DELETE FROM t WHERE id < 10 RETURNING id) TO STDOUT")
        .await
        .unwrap();
    pin_mut!(stream);
    let mut n = 0;
    while let Some(piece) = stream.next().await {
        n += piece.unwrap().iter().filter(|b| **b == b'\n').count();
    }
    assert_eq!(n, 10);
    // An error in the middle of the data leaves the session as it should be.
    let sink = w
        .copy_in::<_, Bytes>("COPY t (id, v) FROM STDIN")
        .await
        .expect("a sink");
    pin_mut!(sink);
    sink.send(Bytes::from("1\tone\n")).await.expect("sent");
    let e = sink.finish().await.expect_err("no number");
    assert_eq!(sqlstate(&e), "22P02");
    assert_eq!(one(&w, "SELECT count(*) FROM t").await, "1990");

    // A cancel request for a statement that waits at the primary.
    rows(&c, "BEGIN; UPDATE t SET v = 0 WHERE id = 100").await;
    let cancel = w.cancel_token();
    let waiting = w.simple_query("UPDATE t SET v = 1 WHERE id = 100");
    let asked = async {
        until(
            &c,
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'",
            "1",
        )
        .await;
        cancel
            .cancel_query(tokio_postgres::NoTls)
            .await
            .expect("asked");
    };
    let (done, ()) = tokio::join!(waiting, asked);
    assert_eq!(sqlstate(&done.expect_err("cancelled")), "57014");
    rows(&c, "COMMIT").await;
    assert_eq!(affected(&w, "UPDATE t SET v = 1 WHERE id = 100").await, 1);
    // Time limits that were set here hold there.
    rows(&c, "BEGIN; UPDATE t SET v = 0 WHERE id = 100").await;
    rows(&w, "SET lock_timeout = '50ms'").await;
    assert_eq!(
        refused(&w, "UPDATE t SET v = 1 WHERE id = 100").await.0,
        "55P03"
    );
    rows(&c, "COMMIT").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_find_out_what_kind_of_server_it_is() {
    if skip() {
        return;
    }
    let (_p, r, _c, w) = pair().await;
    for (sql, wanted) in [
        ("SHOW transaction_read_only", "off"),
        ("SHOW default_transaction_read_only", "off"),
        ("SHOW in_hot_standby", "on"),
        ("SELECT pg_is_in_recovery()", "t"),
    ] {
        assert_eq!(one(&w, sql).await, wanted, "{sql}");
    }
    let mut config = r.config();
    config.target_session_attrs(tokio_postgres::config::TargetSessionAttrs::ReadWrite);
    let writer = common::connect_to(&config).await.expect("it takes writes");
    rows(&writer, "INSERT INTO t VALUES (1, 1)").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_is_gone_costs_an_error_and_not_the_session() {
    if skip() {
        return;
    }
    let (mut p, _r, _c, w) = pair().await;
    rows(&w, "INSERT INTO t VALUES (1, 1)").await;
    rows(&w, "BEGIN; UPDATE t SET v = 2").await;
    p.kill();
    // In the middle of a transaction: it is lost, and has to be ended.
    assert_eq!(refused(&w, "UPDATE t SET v = 3").await.0, "08006");
    assert_eq!(refused(&w, "SELECT 1").await.0, "25P02");
    rows(&w, "ROLLBACK").await;
    // Nothing can be begun; reads go on.
    assert_eq!(refused(&w, "UPDATE t SET v = 3").await.0, "57P03");
    let prepared = w.execute("UPDATE t SET v = $1", &[&4i32]).await;
    assert_eq!(sqlstate(&prepared.expect_err("no primary")), "57P03");
    p.launch();
    p.ready().await;
    let deadline = std::time::Instant::now() + common::PATIENCE;
    while w.simple_query("UPDATE t SET v = 5").await.is_err() {
        assert!(std::time::Instant::now() < deadline, "it does not go on");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    until(&w, "SELECT v FROM t", "5").await;
}

/// Deltas of split columns go on at the primary as statements do, beside others' deltas, and the session at the replica reads its own.
#[tokio::test(flavor = "multi_thread")]
async fn deltas_of_split_columns_go_on_at_the_primary() {
    if skip() {
        return;
    }
    let (_p, _r, c, w) = pair().await;
    rows(
        &w,
        "CREATE TABLE stock (id int PRIMARY KEY, qty int NOT NULL CHECK (qty >= 0)) WITH (split = 'qty')",
    )
    .await;
    rows(&w, "INSERT INTO stock VALUES (1, 9)").await;
    let sell = "UPDATE stock SET qty = qty - 2 WHERE id = 1 AND qty >= 2";
    let qty = "SELECT qty FROM stock WHERE id = 1";
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let before: i32 = one(&w, qty).await.parse().unwrap();
        rows(&w, &format!("BEGIN ISOLATION LEVEL {level}")).await;
        assert_eq!(affected(&w, sell).await, 1, "{level}");
        // Neither waits for the other.
        let other = "UPDATE stock SET qty = qty - 1 WHERE id = 1 AND qty >= 1";
        assert_eq!(affected(&c, other).await, 1, "{level}");
        rows(&w, "COMMIT").await;
        let expected = (before - 3).to_string();
        assert_eq!(
            one(&w, qty).await,
            expected,
            "{level}: its own at the replica"
        );
        rows(&w, "BEGIN").await;
        rows(&w, "SET LOCAL canon.read_consistency = 'strong'").await;
        assert_eq!(one(&w, qty).await, expected, "{level}: a strong read");
        rows(&w, "COMMIT").await;
    }
    assert_eq!(affected(&w, sell).await, 0, "nothing is left");
    let add = "INSERT INTO stock VALUES (1, 3) ON CONFLICT (id) DO UPDATE SET qty = stock.qty + excluded.qty";
    assert_eq!(affected(&w, add).await, 1);
    assert_eq!(one(&w, qty).await, "3");
}
