//! Changes of the schema as a replica shows them: one that was acknowledged counts for what comes after it, in every way to ask.

#[allow(dead_code)]
#[path = "replica_reads/helpers.rs"]
mod helpers;

use helpers::*;

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
