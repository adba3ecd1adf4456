//! How fresh reads at a replica are, over real sockets: what every level of `canon.read_consistency` shows and what it waits for, when
//! links are slow and when replay stands still; tokens; WAIT FOR LSN.

#[path = "replica_reads/helpers.rs"]
mod helpers;

use helpers::*;
use tokio_postgres::NoTls;

#[test]
fn what_one_session_has_committed_any_other_sees_at_once() {
    let t = Test::start(TABLES);
    let (p, r, s) = (t.primary(), t.replica(), t.replica());
    t.run(&s, "SET default_transaction_isolation = 'read committed'");
    let read = r.prepare("SELECT v FROM a WHERE id = $1");
    let read = t.runtime.block_on(read).expect("a statement");
    for round in 1..=60 {
        if round == 41 {
            t.cluster.delay(t.cluster.replicas()[0], SLOW);
        }
        let id = round % 7 + 1;
        t.run(&p, &format!("UPDATE a SET v = {round} WHERE id = {id}"));
        let text = round.to_string();
        // By key and by range, by both protocols, alone and in blocks, by cursor, joined with what has not changed.
        let prepared = t.runtime.block_on(r.query_one(&read, &[&id]));
        assert_eq!(prepared.expect("a row").get::<_, i32>(0), round);
        assert_eq!(t.one(&r, &format!("SELECT v FROM a WHERE id = {id}")), text);
        assert_eq!(t.one(&r, "SELECT max(v) FROM a"), text);
        let joined = "SELECT max(a.v + b.v) FROM a JOIN b USING (id)";
        assert_eq!(t.one(&r, joined), text);
        let alone = "SELECT (SELECT max(v) FROM a) FROM b WHERE id = 5";
        assert_eq!(t.one(&r, alone), text);
        // READ COMMITTED: each statement of a block; the higher levels: the block's first.
        for (c, later) in [(&s, round + 1000), (&r, round)] {
            t.run(c, "BEGIN");
            assert_eq!(t.one(c, "SELECT max(v) FROM a"), text);
            t.run(
                &p,
                &format!("UPDATE a SET v = {} WHERE id = {id}", round + 1000),
            );
            assert_eq!(t.one(c, "SELECT max(v) FROM a"), later.to_string());
            let cursor = "DECLARE c CURSOR FOR SELECT max(v) FROM a; FETCH c";
            assert_eq!(t.one(c, cursor), later.to_string());
            t.run(c, "COMMIT");
            t.run(&p, &format!("UPDATE a SET v = {round} WHERE id = {id}"));
        }
    }
}

#[test]
fn what_has_not_changed_is_read_at_once_and_what_has_is_waited_for() {
    let t = Test::start(TABLES);
    let (p, r) = (t.primary(), t.replica());
    t.run(&r, "SET statement_timeout = '60s'");
    let by_key = r.prepare("SELECT v FROM a WHERE id = $1");
    let by_key = t.runtime.block_on(by_key).expect("a statement");
    t.hold(true);
    t.run(&p, "UPDATE a SET v = 1 WHERE id = 1");
    t.run(&p, "INSERT INTO a VALUES (101, 0)");
    t.run(&p, "DELETE FROM a WHERE id = 101");

    // None of these can wait: replay stands still.
    assert_eq!(t.one(&r, "SELECT count(*) FROM b"), "100");
    assert_eq!(t.one(&r, "SELECT v FROM a WHERE id = 2"), "0");
    let other = t.runtime.block_on(r.query_one(&by_key, &[&3]));
    assert_eq!(other.expect("a row").get::<_, i32>(0), 0);
    assert_eq!(
        t.one(&r, "SELECT count(*) FROM pg_class WHERE relname = 'a'"),
        "1"
    );
    assert_eq!(t.one(&r, "SELECT 1"), "1");
    t.run(&r, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
    assert_eq!(t.one(&r, "SELECT sum(v) FROM b"), "0");
    assert_eq!(t.one(&r, "SELECT v FROM a WHERE id = 4"), "0");
    t.run(&r, "COMMIT");

    // What has changed, its table as a whole, and whatever reads it in any part.
    t.run(&r, "SET canon.read_timeout = '50ms'");
    for sql in [
        "SELECT v FROM a WHERE id = 1",
        "SELECT v FROM a WHERE id = 101",
        "SELECT count(*) FROM a",
        "SELECT v FROM a WHERE id BETWEEN 2 AND 3",
        "SELECT count(*) FROM b JOIN a USING (id)",
        "SELECT * FROM b WHERE v IN (SELECT v FROM a)",
        "WITH x AS (SELECT * FROM a) SELECT count(*) FROM b, x",
        "EXPLAIN ANALYZE SELECT * FROM a",
        "BEGIN; DECLARE c CURSOR FOR SELECT * FROM a; FETCH c",
    ] {
        assert_eq!(t.refused(&r, sql), "57014", "{sql}");
        t.run(&r, "ROLLBACK");
    }
    let changed = t.runtime.block_on(r.query_one(&by_key, &[&1]));
    assert_eq!(code(&changed.expect_err("it has changed")), "57014");
    // A block that has failed in the wait says so, and the next one is good.
    t.run(&r, "BEGIN");
    assert_eq!(t.refused(&r, "SELECT count(*) FROM a"), "57014");
    assert_eq!(t.refused(&r, "SELECT count(*) FROM b"), "25P02");
    t.run(&r, "ROLLBACK");
    t.run(&r, "RESET canon.read_timeout");
    assert_eq!(t.one(&r, "SELECT count(*) FROM b"), "100");
    t.run(&r, "SET canon.read_timeout = '50ms'");

    // The primary has it all.
    t.run(&r, "SET canon.stale_action = 'forward'");
    assert_eq!(t.one(&r, "SELECT v FROM a WHERE id = 1"), "1");
    let changed = t.runtime.block_on(r.query_one(&by_key, &[&1]));
    assert_eq!(changed.expect("a row").get::<_, i32>(0), 1);
    let same = t.runtime.block_on(r.query_one(&by_key, &[&2]));
    assert_eq!(same.expect("a row").get::<_, i32>(0), 0);
    t.run(&r, "BEGIN ISOLATION LEVEL REPEATABLE READ");
    assert_eq!(t.one(&r, "SELECT count(*) FROM b"), "100");
    let changed = t.runtime.block_on(r.query_one(&by_key, &[&1]));
    assert_eq!(changed.expect("a row").get::<_, i32>(0), 1);
    assert_eq!(t.one(&r, "SELECT v FROM a WHERE id = 1"), "1");
    assert_eq!(t.one(&r, "SELECT count(*) FROM a"), "100");
    t.run(&r, "COMMIT");
    // One that only reads remembers nothing: it moves while nobody has been told of anything.
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        t.run(&r, &format!("BEGIN ISOLATION LEVEL {level} READ ONLY"));
        assert_eq!(t.one(&r, "SELECT v FROM a WHERE id = 1"), "1", "{level}");
        assert_eq!(t.one(&r, "SELECT count(*) FROM b"), "100", "{level}");
        assert_eq!(t.refused(&r, "DELETE FROM b"), "25006", "{level}");
        t.run(&r, "ROLLBACK");
        t.run(&r, &format!("BEGIN ISOLATION LEVEL {level} READ ONLY"));
        assert_eq!(t.one(&r, "SELECT count(*) FROM b"), "100", "{level}");
        let late = t.refused(&r, "SELECT v FROM a WHERE id = 1");
        assert_eq!(late, "40001", "{level}");
        t.run(&r, "ROLLBACK");
    }
    // Other ways to end a wait.
    t.run(
        &r,
        "SET canon.stale_action = 'wait'; SET statement_timeout = '200ms'",
    );
    assert_eq!(t.refused(&r, "SELECT count(*) FROM a"), "57014");
    t.run(&r, "RESET statement_timeout");
    let cancel = r.cancel_token();
    let waiting = t.runtime.spawn(async move {
        let outcome = r.simple_query("SELECT count(*) FROM a").await;
        (r, outcome.map(|_| ()).map_err(|e| code(&e)))
    });
    t.until_somebody_waits();
    t.runtime
        .block_on(cancel.cancel_query(NoTls))
        .expect("a cancel");
    let (r, outcome) = t.runtime.block_on(waiting).expect("a task");
    assert_eq!(outcome, Err("57014".to_owned()));

    // And the end that is wanted: what was committed before the read came, and nothing of what was later.
    let waiting = t.runtime.spawn(async move {
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT v FROM a WHERE id = 1";
        let seen = r.simple_query(begin).await.map(|m| first(&m)).expect(begin);
        (r, seen)
    });
    t.until_somebody_waits();
    t.run(&p, "UPDATE a SET v = 2");
    t.hold(false);
    let (r, seen) = t.runtime.block_on(waiting).expect("a task");
    assert_eq!(seen.as_deref(), Some("1"));
    t.cluster.catch_up().expect("caught up");
    assert_eq!(t.one(&r, "SELECT sum(v) FROM a"), "1");
    t.run(&r, "COMMIT");
    assert_eq!(t.one(&r, "SELECT sum(v) FROM a"), "200");
}

#[test]
fn a_key_that_changes_is_waited_for_under_both_its_names() {
    let t = Test::start(TABLES);
    let (p, r) = (t.primary(), t.replica());
    t.hold(true);
    t.run(&p, "UPDATE a SET id = 1000 WHERE id = 1");
    t.run(&r, "SET canon.read_timeout = '50ms'");
    let row = |id: i32| format!("SELECT v FROM a WHERE id = {id}");
    let there = |id: i32| first(&t.runtime.block_on(r.simple_query(&row(id))).expect("read"));
    for id in [1, 1000] {
        assert_eq!(t.refused(&r, &row(id)), "57014", "{id}");
    }
    assert_eq!(there(2).as_deref(), Some("0"), "another row");
    t.run(&r, "SET canon.stale_action = 'forward'");
    assert_eq!((there(1), there(1000).as_deref()), (None, Some("0")));
    t.run(&r, "RESET canon.stale_action; RESET canon.read_timeout");
    t.hold(false);
    assert_eq!((there(1000).as_deref(), there(1)), (Some("0"), None));
}

/// A cursor and a portal stay where they were opened, also when the transaction moves, and nobody else can read for them.
#[test]
fn what_is_open_here_is_not_read_elsewhere() {
    let t = Test::start(TABLES);
    let (p, mut r) = (t.primary(), t.replica());
    let read = "SELECT v FROM a WHERE id = 1";
    let prepared = t.runtime.block_on(r.prepare(read)).expect("a statement");
    let sets = "SET canon.read_timeout = '50ms'; SET canon.stale_action = 'forward'";
    t.run(&r, sets);
    t.hold(true);
    t.run(&p, "UPDATE a SET v = 1 WHERE id = 1");
    for moves in [false, true] {
        t.run(&r, &format!("BEGIN; DECLARE c CURSOR FOR {read}"));
        if moves {
            t.run(&r, "UPDATE b SET v = 1 WHERE id = 1");
        }
        assert_eq!(t.refused(&r, "FETCH c"), "57014", "{moves}");
        t.run(&r, "ROLLBACK");
        assert_eq!(t.one(&p, "SELECT sum(v) FROM b"), "0");
        // It goes on: this is read at the primary.
        assert_eq!(t.one(&r, read), "1");
    }
    t.runtime.block_on(async {
        let x = r.transaction().await.expect("begun");
        let portal = x.bind(&prepared, &[]).await.expect("bound here");
        let moves = x.batch_execute("UPDATE b SET v = 1 WHERE id = 1").await;
        moves.expect("it has moved");
        let e = x.query_portal(&portal, 0).await.expect_err("not fresh");
        assert_eq!(code(&e), "57014");
        x.rollback().await.expect("over");
    });
    assert_eq!(t.one(&r, read), "1");
    assert_eq!(t.one(&p, "SELECT sum(v) FROM b"), "0");
    t.hold(false);
}

/// Where a replica does not know in time what a statement is about, the primary does.
#[test]
fn what_is_not_known_here_in_time_is_read_elsewhere() {
    let t = Test::start(TABLES);
    let (p, r) = (t.primary(), t.replica());
    t.run(&r, "SET canon.read_timeout = '50ms'");
    t.hold(true);
    t.run(&p, "CREATE TABLE n (id int); INSERT INTO n VALUES (7)");
    let read = "SELECT id FROM n";
    assert_eq!(t.refused(&r, read), "57014");
    t.run(&r, "SET canon.stale_action = 'forward'");
    assert_eq!(t.one(&r, read), "7");
    assert_eq!(t.one(&r, "TABLE n"), "7");
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let begin = format!("BEGIN ISOLATION LEVEL {level}");
        t.run(&r, &begin);
        assert_eq!(t.one(&r, read), "7", "{level}");
        assert_eq!(t.one(&r, "SELECT id + 1 FROM n WHERE id = 7"), "8");
        t.run(&r, "COMMIT");
        assert_eq!(t.one(&r, &format!("{begin} READ ONLY; {read}")), "7");
        t.run(&r, "COMMIT");
    }
    t.run(&r, "PREPARE q AS SELECT id FROM n");
    assert_eq!(t.one(&r, "EXECUTE q"), "7");
    t.run(&r, "BEGIN; DECLARE c CURSOR FOR SELECT id FROM n");
    assert_eq!(t.one(&r, "FETCH c"), "7");
    t.run(&r, "COMMIT");
    // What is not there is not there.
    assert_eq!(t.refused(&r, "SELECT id FROM m"), "42P01");
    // The client is to be told of columns, here.
    let e = t
        .runtime
        .block_on(r.prepare(read))
        .expect_err("not in time");
    assert_eq!(code(&e), "57014");
    t.hold(false);
    t.run(&r, "RESET canon.stale_action; RESET canon.read_timeout");
    assert_eq!(t.one(&r, read), "7");
    assert_eq!(t.one(&r, "EXECUTE q"), "7");
}

#[test]
fn every_level_shows_what_it_promises() {
    let t = Test::start(TABLES);
    let (p, r) = (t.primary(), t.replica());
    let read = "SELECT v FROM a WHERE id = 1";
    assert_eq!(t.one(&r, read), "0");
    t.hold(true);
    t.run(&p, "UPDATE a SET v = 1 WHERE id = 1");
    let token = t.one(&p, "SHOW canon.commit_token");
    t.run(&r, "SET canon.read_timeout = '50ms'");
    for (sets, seen) in [
        ("canon.read_consistency = strong", None),
        ("canon.read_consistency = session", Some("0")),
        ("canon.read_consistency = eventual", Some("0")),
        (
            "canon.read_consistency = bounded; SET canon.max_staleness = '1 hour'",
            Some("0"),
        ),
        ("canon.max_staleness = '1ms'", None),
        ("canon.read_policy = stale", Some("0")),
        ("canon.read_consistency = strong", Some("0")),
        ("canon.read_policy = 'commit-wait'", Some("0")),
        ("canon.read_policy = 'read-wait'", None),
        ("canon.read_policy = lamport", None),
    ] {
        t.run(&r, &format!("SET {sets}"));
        match seen {
            Some(v) => assert_eq!(t.one(&r, read), v, "{sets}"),
            None => assert_eq!(t.refused(&r, read), "57014", "{sets}"),
        }
    }
    // Without the tracker everything waits for everything.
    assert_eq!(t.refused(&r, "SELECT count(*) FROM b"), "57014");
    t.run(&r, "SET canon.read_policy = 'lamport+tracker'");
    t.run(&r, "RESET canon.read_timeout");
    assert_eq!(t.one(&r, "SELECT count(*) FROM b"), "100");
    // What a session has read or been given it does not go behind, at any level that is not eventual without a token.
    for level in ["session", "eventual"] {
        let s = t.replica();
        t.run(
            &s,
            &format!("SET canon.read_timeout = '50ms'; SET canon.read_consistency = {level}"),
        );
        assert_eq!(t.one(&s, read), "0");
        t.run(&s, &format!("SET canon.min_token = '{token}'"));
        assert_eq!(t.refused(&s, read), "57014", "{level}");
    }
    t.hold(false);
    let s = t.connect(
        t.cluster.replicas()[0],
        &format!("-c canon.read_consistency=session -c canon.min_token={token}"),
    );
    assert_eq!(t.one(&s, read), "1");
    // The writer's side of commit-wait: its commit waits for those who read.
    t.run(&p, "SET canon.read_policy = 'commit-wait'");
    t.run(&r, "SET canon.read_consistency = eventual");
    for i in 2..20 {
        t.run(&p, &format!("UPDATE a SET v = {i} WHERE id = 1"));
        assert_eq!(t.one(&r, read), i.to_string());
    }
}

#[test]
fn schema_changes_are_seen_at_once() {
    let t = Test::start(TABLES);
    let (p, r) = (t.primary(), t.replica());
    t.cluster.delay(t.cluster.replicas()[0], SLOW);
    for i in 0..5 {
        t.run(
            &p,
            &format!("CREATE TABLE n{i} (id int PRIMARY KEY); INSERT INTO n{i} VALUES ({i})"),
        );
        let there = format!("SELECT to_regclass('n{i}') IS NOT NULL");
        assert_eq!(t.one(&r, &there), "t", "a statement without tables");
        t.run(&p, &format!("CREATE OR REPLACE VIEW w AS SELECT {i} AS x"));
        assert_eq!(t.one(&r, "SELECT x FROM w"), i.to_string());
        t.run(&p, "CREATE SEQUENCE IF NOT EXISTS q; SELECT nextval('q')");
        // What is reserved, as at a standby of PostgreSQL.
        let last = format!("SELECT pg_sequence_last_value('q'::regclass) > {i}");
        assert_eq!(t.one(&r, &last), "t");
        assert_eq!(t.one(&r, &format!("SELECT id FROM n{i}")), i.to_string());
        t.run(&p, &format!("ALTER TABLE n{i} ADD COLUMN v int DEFAULT 7"));
        let row = t
            .runtime
            .block_on(r.query_one(&format!("SELECT id, v FROM n{i}"), &[]));
        assert_eq!(row.expect("a row").get::<_, i32>(1), 7);
        t.run(&p, &format!("INSERT INTO n{i} VALUES (99)"));
        t.run(&p, &format!("TRUNCATE n{i}"));
        assert_eq!(t.one(&r, &format!("SELECT count(*) FROM n{i}")), "0");
        t.run(&p, &format!("ALTER TABLE n{i} RENAME TO m{i}"));
        assert_eq!(t.one(&r, &format!("TABLE m{i} UNION ALL SELECT 1, 2")), "1");
        t.run(&p, &format!("ALTER TABLE m{i} ADD COLUMN w int"));
        assert_eq!(
            t.one(&r, &format!("TABLE m{i} UNION ALL SELECT 1, 2, 3")),
            "1"
        );
        t.run(&r, &format!("PREPARE p{i} AS SELECT count(*) FROM m{i}"));
        assert_eq!(t.one(&r, &format!("EXECUTE p{i}")), "0");
        assert_eq!(t.refused(&r, &format!("SELECT * FROM n{i}")), "42P01");
        t.run(&p, &format!("DROP TABLE m{i}"));
        let gone = format!("SELECT count(*) FROM pg_class WHERE relname = 'm{i}'");
        assert_eq!(t.one(&r, &gone), "0");
    }
}

#[test]
fn tokens_are_reported_and_outlive_a_promotion() {
    let mut t = Test::start_with(TABLES, 2);
    let config: tokio_postgres::Config = t.cluster.url(0).parse().expect("a URL");
    let (told, p) = t.runtime.block_on(async {
        let mut config = config;
        config.options("-c canon.report_token=on");
        let (client, mut connection) = config.connect(NoTls).await.expect("a session");
        let mut told = Vec::new();
        for sql in [
            "SELECT 1",
            "UPDATE a SET v = 1 WHERE id = 1",
            "BEGIN; UPDATE a SET v = 2 WHERE id = 1; COMMIT",
        ] {
            let mut query = Box::pin(client.simple_query(sql));
            tokio::select! {
                r = &mut query => drop(r.expect(sql)),
                r = &mut connection => panic!("{r:?}"),
            }
            told.push(
                connection
                    .parameter("canon.commit_token")
                    .map(str::to_owned),
            );
        }
        tokio::spawn(connection);
        (told, client)
    });
    let told: Vec<String> = told.into_iter().skip(1).flatten().collect();
    assert_eq!(told.len(), 2);
    assert!(told[0] < told[1], "{told:?}");
    assert_eq!(t.one(&p, "SHOW canon.commit_token"), told[1]);
    t.cluster.catch_up().expect("caught up");

    t.cluster.fail_over(1).expect("a fail-over");
    let (whose, at) = told[1].rsplit_once(':').expect("a position");
    let q = t.primary();
    // What both histories have is good; what came after it in the old term is not here, whatever has that position now.
    t.run(&q, &format!("SET canon.min_token = '{}'", told[0]));
    t.run(&q, &format!("SET canon.min_token = '{}'", told[1]));
    assert_eq!(t.one(&q, "SELECT v FROM a WHERE id = 1"), "2");
    t.run(&q, "UPDATE a SET v = 3 WHERE id = 1");
    let new = t.one(&q, "SHOW canon.commit_token");
    let position = new.rsplit_once(':').expect("a position").1;
    let lost = format!("SET canon.min_token = '{whose}:{position}'");
    assert_eq!(t.refused(&q, &lost), "55000");
    assert!(position > at);
    let options = format!("-c canon.min_token={whose}:{position}");
    assert_eq!(t.try_connect(1, &options).err().as_deref(), Some("55000"));
    // The same at a replica that follows the new primary, at any level: also when it was handed in before it knew.
    for level in LEVELS {
        let r = t.connect(2, &format!("-c canon.read_consistency={level}"));
        t.run(&r, &format!("SET canon.min_token = '{}'", told[1]));
        assert_eq!(t.one(&r, "SELECT v FROM a WHERE id = 1 AND v > 1").len(), 1);
        assert_eq!(t.refused(&r, &lost), "55000", "{level}");
    }
}

/// Cluster, term and position of a token.
fn parts(token: &str) -> (&str, u64, u64) {
    let mut p = token.split(':');
    let (cluster, term) = (p.next().expect("a cluster"), p.next().expect("a term"));
    let position = p.next().expect("a position").replace('/', "");
    let position = u64::from_str_radix(&position, 16).expect("a number");
    (cluster, term.parse().expect("a number"), position)
}

fn token(cluster: &str, term: u64, position: u64) -> String {
    let (high, low) = (position >> 32, position as u32);
    format!("{cluster}:{term}:{high:08X}/{low:08X}")
}

const LEVELS: [&str; 4] = ["strong", "session", "bounded", "eventual"];

/// A transaction that stands before the token of its session shows nothing older than that: it shows nothing.
#[test]
fn a_token_counts_also_inside_of_a_transaction() {
    let t = Test::start(TABLES);
    let (p, r, other) = (t.primary(), t.replica(), t.primary());
    let read = "SELECT v FROM a WHERE id = 1";
    let mut v = 0;
    for c in [&p, &r] {
        for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
            t.run(c, &format!("BEGIN ISOLATION LEVEL {level}"));
            assert_eq!(t.one(c, read), v.to_string());
            let seen = t.one(c, "SHOW canon.commit_token");
            v += 1;
            t.run(&other, &format!("UPDATE a SET v = {v} WHERE id = 1"));
            let token = t.one(&other, "SHOW canon.commit_token");
            t.run(c, &format!("SET canon.min_token = '{seen}'"));
            t.one(c, read);
            t.run(c, "SAVEPOINT s");
            t.one(
                c,
                &format!("SELECT set_config('canon.min_token', '{token}', false)"),
            );
            if level == "READ COMMITTED" {
                assert_eq!(t.one(c, read), v.to_string());
            } else {
                assert_eq!(t.refused(c, read), "55000", "{level}");
                // The token goes with what set it.
                t.run(c, "ROLLBACK TO s");
                assert_eq!(t.one(c, read), (v - 1).to_string());
            }
            t.run(c, "ROLLBACK; RESET canon.min_token");
        }
    }
}

#[test]
fn a_token_that_stands_for_nothing_is_refused_at_every_level() {
    let t = Test::start(TABLES);
    let p = t.primary();
    t.run(&p, "UPDATE a SET v = 1 WHERE id = 1");
    let good = t.one(&p, "SHOW canon.commit_token");
    let (cluster, term, position) = parts(&good);
    let (far, next) = (token(cluster, term, position + (1 << 40)), position + 1);
    // At the primary at once, at a replica with the first read, which does not wait for what cannot come.
    assert_eq!(
        t.refused(&p, &format!("SET canon.min_token = '{far}'")),
        "55000"
    );
    t.hold(true);
    for level in LEVELS {
        for policy in ["lamport+tracker", "read-wait", "stale"] {
            let r = t.replica();
            t.run(
                &r,
                &format!(
                    "SET canon.read_consistency = {level}; SET canon.read_policy = '{policy}'"
                ),
            );
            for (bad, what) in [
                (far.clone(), "future"),
                (token(cluster, term, next), "future"),
                (token(cluster, term + 1, position + 1), "term"),
                (token(cluster, term + 1, 1), "term"),
            ] {
                t.run(&r, &format!("SET canon.min_token = '{bad}'"));
                let read = "SELECT v FROM a WHERE id = 1";
                let e = t.runtime.block_on(r.simple_query(read));
                let e = e.expect_err("the token stands for nothing");
                let said = e.as_db_error().map_or(String::new(), |e| {
                    format!(
                        "{} {} {}",
                        e.code().code(),
                        e.message(),
                        e.detail().unwrap_or("")
                    )
                });
                assert!(
                    said.starts_with("55000 ") && said.contains("token"),
                    "{level} {policy} {bad}: {said}"
                );
                assert!(said.contains(what), "{level} {policy} {bad}: {said}");
            }
            // The session goes on.
            t.run(
                &r,
                &format!("SET canon.min_token = '{good}'; SET canon.read_timeout = '50ms'"),
            );
            assert_eq!(t.one(&r, "SELECT 1"), "1");
            t.run(&r, "RESET canon.min_token");
        }
    }
    let r = t.replica();
    let other = token(&"0".repeat(32), term, 1);
    assert_eq!(
        t.refused(&r, &format!("SET canon.min_token = '{other}'")),
        "22023"
    );
    t.hold(false);
    for level in LEVELS {
        t.run(&r, &format!("SET canon.read_consistency = {level}"));
        t.run(&r, &format!("SET canon.min_token = '{good}'"));
        assert_eq!(t.one(&r, "SELECT v FROM a WHERE id = 1"), "1", "{level}");
    }
}

#[test]
fn a_token_of_a_term_that_is_still_to_be_heard_of_is_waited_for() {
    let mut t = Test::start_with(TABLES, 2);
    let late = t.connect(2, "-c canon.read_consistency=eventual");
    assert_eq!(t.one(&late, "SELECT v FROM a WHERE id = 1"), "0");
    let before = t.one(&t.primary(), "SHOW canon.commit_token");
    t.cluster.cut(2);
    t.cluster.switch_over(1).expect("a switch-over");
    let p = t.primary();
    // One that this replica shows already, and one of what it has not got.
    let old = t.one(&p, "SELECT v FROM a WHERE id = 1");
    assert_eq!(old, "0");
    let seen = t.one(&p, "SHOW canon.commit_token");
    t.run(&p, "UPDATE a SET v = 1 WHERE id = 1");
    let new = t.one(&p, "SHOW canon.commit_token");
    assert!(parts(&new).1 > parts(&before).1, "{before} {new}");
    for (token, expected) in [(seen, "0"), (new, "1")] {
        t.run(
            &late,
            &format!("SET canon.min_token = '{token}'; SET canon.read_timeout = '50ms'"),
        );
        assert_eq!(
            t.refused(&late, "SELECT v FROM a WHERE id = 1"),
            "57014",
            "{expected}"
        );
    }
    t.run(&late, "SET canon.read_timeout = 0");
    t.cluster.heal(2);
    assert_eq!(t.one(&late, "SELECT v FROM a WHERE id = 1"), "1");
}

#[test]
fn wait_for_lsn_as_postgresql_has_it() {
    let t = Test::start(TABLES);
    let (p, r) = (t.primary(), t.replica());
    t.hold(true);
    t.run(&p, "UPDATE a SET v = 1 WHERE id = 1");
    let at = t.one(&p, "SELECT pg_current_wal_lsn()");
    let wait = |options: &str| format!("WAIT FOR LSN '{at}'{options}");
    assert_eq!(t.refused(&r, &wait(" WITH (TIMEOUT '20ms')")), "57014");
    assert_eq!(t.one(&r, &wait(" WITH (TIMEOUT 20, NO_THROW)")), "timeout");
    assert_eq!(t.one(&r, "WAIT FOR LSN '0/1'"), "success");
    assert_eq!(
        t.refused(&r, &wait(" WITH (MODE 'primary_flush')")),
        "55000"
    );
    assert_eq!(t.refused(&p, &wait("")), "55000");
    assert_eq!(t.one(&p, &wait(" WITH (NO_THROW)")), "not in recovery");
    assert_eq!(t.one(&p, &wait(" WITH (MODE 'primary_flush')")), "success");
    t.run(&r, "BEGIN");
    t.run(&r, "SELECT count(*) FROM b");
    assert_eq!(t.refused(&r, &wait("")), "55000", "it stands at a snapshot");
    t.run(&r, "ROLLBACK");
    let (sql, flush) = (
        wait(""),
        wait(" WITH (MODE 'standby_flush', TIMEOUT '60s')"),
    );
    let waiting = t.runtime.spawn(async move {
        let row = r.query_one(&sql, &[]).await.expect(&sql);
        (r, row.get::<_, String>("status"))
    });
    t.hold(false);
    let (r, status) = t.runtime.block_on(waiting).expect("a task");
    assert_eq!(status, "success");
    t.run(&r, "SET canon.read_consistency = eventual");
    assert_eq!(t.one(&r, "SELECT v FROM a WHERE id = 1"), "1");
    assert_eq!(t.one(&r, &flush), "success");
}

#[test]
fn the_settings_are_shown() {
    let t = Test::start("");
    let r = t.connect(
        t.cluster.replicas()[0],
        "-c canon.read_timeout=1500 -c canon.stale_action=wait",
    );
    for (name, value, kind) in [
        ("canon.read_consistency", "strong", "enum"),
        ("canon.max_staleness", "1000", "integer"),
        ("canon.read_timeout", "1500", "integer"),
        ("canon.stale_action", "wait", "enum"),
        ("canon.read_policy", "lease", "enum"),
        ("canon.min_token", "", "string"),
        ("canon.report_token", "off", "bool"),
    ] {
        let found =
            format!("SELECT setting || '/' || vartype FROM pg_settings WHERE name = '{name}'");
        assert_eq!(t.one(&r, &found), format!("{value}/{kind}"), "{name}");
    }
    assert_eq!(t.one(&r, "SHOW canon.read_timeout"), "1500ms");
    for bad in [
        "canon.read_consistency = 'fresh'",
        "canon.max_staleness = 'soon'",
        "canon.max_staleness = '-5 minutes'",
        "canon.read_timeout = 'never'",
        "canon.min_token = 'x:1:0/1'",
    ] {
        assert_eq!(t.refused(&r, &format!("SET {bad}")), "22023", "{bad}");
    }
}
