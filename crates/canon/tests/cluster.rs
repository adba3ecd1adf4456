//! `canon::Cluster`: a cluster in this process, as a test of an application would use it: delays, silences, cuts, changes of role,
//! and who gets in where.

use canon::{Cluster, Options};
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio_postgres::{Client, NoTls};

const PATIENCE: Duration = Duration::from_secs(60);

fn quiet() -> Options {
    Options {
        log_level: Some("error".into()),
        settings: vec!["default_transaction_isolation=serializable".into()],
        ..Options::default()
    }
}

struct Db(tokio::runtime::Runtime);

impl Db {
    fn new() -> Db {
        let r = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build();
        Db(r.expect("a runtime"))
    }

    fn connect(&self, cluster: &Cluster, member: usize) -> Client {
        let url = cluster.url(member);
        self.0.block_on(async {
            let (client, connection) = tokio_postgres::connect(&url, NoTls).await.expect(&url);
            tokio::spawn(connection);
            client
        })
    }

    /// A session that reads what the member shows, however old.
    fn connect_to_what_is_shown(&self, cluster: &Cluster, member: usize) -> Client {
        let c = self.connect(cluster, member);
        self.run(&c, "SET canon.read_consistency = 'eventual'");
        c
    }

    /// Whether this role gets in at the member.
    fn log_in(
        &self,
        cluster: &Cluster,
        member: usize,
        role: &str,
        password: Option<&str>,
    ) -> Result<(), String> {
        let url = cluster.url(member);
        let mut config: tokio_postgres::Config = url.parse().expect("a URL");
        config.user(role);
        password.map(|p| config.password(p));
        let entered = self.0.block_on(config.connect(NoTls));
        let code = |e: tokio_postgres::Error| {
            let code = e.code().map(|c| c.code().to_owned());
            code.unwrap_or_else(|| e.to_string())
        };
        entered.map(drop).map_err(code)
    }

    fn run(&self, c: &Client, sql: &str) {
        self.0.block_on(c.batch_execute(sql)).expect(sql);
    }

    fn refused(&self, c: &Client, sql: &str) -> String {
        let e = self.0.block_on(c.batch_execute(sql)).expect_err(sql);
        e.code().expect(sql).code().to_owned()
    }

    fn count(&self, c: &Client) -> i64 {
        let row = self.0.block_on(c.query_one("SELECT count(*) FROM t", &[]));
        row.expect("a count").get(0)
    }
}

fn until(what: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn links_can_be_slow_silent_and_broken_and_heal() {
    let db = Db::new();
    let cluster = Cluster::start(quiet(), 2).expect("a cluster");
    let c = db.connect(&cluster, cluster.primary());
    db.run(&c, "CREATE TABLE t (a int PRIMARY KEY)");
    cluster.catch_up().expect("caught up");
    let one = db.connect_to_what_is_shown(&cluster, 1);
    let two = db.connect_to_what_is_shown(&cluster, 2);

    cluster.delay(1, Duration::from_millis(30));
    db.run(&c, "INSERT INTO t VALUES (1)");
    cluster.catch_up().expect("caught up, slowly");
    assert_eq!((db.count(&one), db.count(&two)), (1, 1));

    // A replica that hears nothing shows what it had, and knows that it is old.
    cluster.stall(1);
    db.run(&c, "INSERT INTO t VALUES (2)");
    until("the other one goes on", || db.count(&two) == 2);
    assert_eq!(db.count(&one), 1);
    let old = || {
        cluster
            .lag(1)
            .and_then(|l| l.seconds)
            .is_some_and(|s| s > 0.2)
    };
    until("its age grows", old);
    cluster.heal(1);
    cluster.catch_up().expect("caught up after the silence");

    cluster.cut(2);
    until("it notices", || !cluster.is_connected(2));
    db.run(&c, "INSERT INTO t VALUES (3)");
    until("the other one goes on", || db.count(&one) == 3);
    assert_eq!(db.count(&two), 2);
    cluster.heal(2);
    cluster.catch_up().expect("caught up after the cut");
    assert_eq!(db.count(&two), 3);
}

#[test]
fn roles_change_and_everybody_follows() {
    let db = Db::new();
    let mut cluster = Cluster::start(quiet(), 2).expect("a cluster");
    let c = db.connect(&cluster, 0);
    db.run(
        &c,
        "CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1)",
    );

    let report = cluster.switch_over(1).expect("a switch-over");
    assert!(report.contains("nothing is lost"), "{report}");
    assert_eq!((cluster.primary(), cluster.replicas()), (1, vec![0, 2]));
    let c = db.connect(&cluster, 1);
    db.run(&c, "INSERT INTO t VALUES (2)");
    cluster.catch_up().expect("caught up");
    assert_eq!(db.count(&db.connect(&cluster, 0)), 2);

    let report = cluster.fail_over(2).expect("a fail-over");
    assert!(report.contains("term"), "{report}");
    let c = db.connect(&cluster, 2);
    db.run(&c, "INSERT INTO t VALUES (3)");
    cluster.start_member(1).expect("the old primary comes back");
    cluster.catch_up().expect("caught up");
    for i in [0, 1] {
        assert_eq!(db.count(&db.connect(&cluster, i)), 3, "member {i}");
    }
}

#[test]
fn a_replica_that_was_away_resumes_and_acknowledgements_wait_for_it() {
    let db = Db::new();
    let options = Options {
        synchronous_replicas: Some(1),
        ..quiet()
    };
    let mut cluster = Cluster::start(options, 1).expect("a cluster");
    let c = db.connect(&cluster, 0);
    db.run(&c, "CREATE TABLE t (a int PRIMARY KEY)");
    cluster.stop_member(1).expect("stopped");
    // Nobody can hold it: the commit waits, and is acknowledged when the replica is back.
    let waiting = {
        let insert = async move { c.batch_execute("INSERT INTO t VALUES (1)").await };
        db.0.spawn(insert)
    };
    std::thread::sleep(Duration::from_millis(300));
    assert!(!waiting.is_finished(), "acknowledged without a replica");
    cluster.start_member(1).expect("started");
    db.0.block_on(waiting)
        .expect("a task")
        .expect("acknowledged");
    cluster.catch_up().expect("caught up");
    assert_eq!(db.count(&db.connect(&cluster, 1)), 1);
}

/// What this process logs.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no writer panics").extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A replica that is given more than it has room for says so, reads again what it has lost, and gets to where the others are.
#[test]
fn a_replica_that_is_too_slow_says_so_and_loses_nothing() {
    let log = Log::default();
    let to = log.clone();
    _ = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_ansi(false)
        .with_writer(move || to.clone())
        .try_init();
    let db = Db::new();
    let cluster = Cluster::start(quiet(), 1).expect("a cluster");
    let c = db.connect(&cluster, cluster.primary());
    db.run(&c, "CREATE TABLE t (a serial PRIMARY KEY, b text)");
    cluster.catch_up().expect("caught up");
    let r = db.connect_to_what_is_shown(&cluster, 1);
    cluster.hold_replay(1, true).expect("a replica");
    // More than the ring of 64 MiB.
    for _ in 0..9 {
        let rows =
            "INSERT INTO t (b) SELECT repeat(chr(97 + g), 1000000) FROM generate_series(1, 10) g";
        db.run(&c, rows);
    }
    assert_eq!(db.count(&r), 0, "it stands still");
    cluster.hold_replay(1, false).expect("a replica");
    cluster.catch_up().expect("caught up");
    let said = || String::from_utf8_lossy(&log.0.lock().expect("no writer panics")).into_owned();
    until("it says that it is too slow", || {
        said().contains("this replica is too slow")
    });
    let all = "SELECT count(*), sum(length(b)), string_agg(left(b, 1), '' ORDER BY a) FROM t";
    let of = |c: &Client| -> (i64, i64, String) {
        let row = db.0.block_on(c.query_one(all, &[])).expect(all);
        (row.get(0), row.get(1), row.get(2))
    };
    assert_eq!(of(&r), of(&c));
    assert_eq!(of(&c).1, 90_000_000);
}

#[test]
fn who_was_just_let_in_at_the_primary_is_let_in_at_a_replica() {
    for shared_memory in [false, true] {
        let options = Options {
            shared_memory: Some(shared_memory),
            ..quiet()
        };
        let db = Db::new();
        let cluster = Cluster::start(options, 1).expect("a cluster");
        let p = db.connect(&cluster, 0);
        let r = db.connect(&cluster, 1);
        let log_in = |role: &str, password| db.log_in(&cluster, 1, role, password);
        cluster.delay(1, Duration::from_millis(5));
        for i in 0..5 {
            let (free, safe) = (format!("free{i}"), format!("safe{i}"));
            db.run(&p, &format!("CREATE ROLE {free} LOGIN"));
            assert_eq!(log_in(&free, None), Ok(()));
            for (j, sql) in [
                "SET ROLE x",
                "SET SESSION AUTHORIZATION x",
                "SET role = 'x'",
            ]
            .iter()
            .enumerate()
            {
                let name = format!("played{i}{j}");
                db.run(&p, &format!("CREATE ROLE {name}"));
                db.run(&r, &sql.replace('x', &name));
                db.run(&r, "RESET SESSION AUTHORIZATION; RESET ROLE");
            }
            db.run(&p, &format!("CREATE ROLE {safe} LOGIN PASSWORD 'one'"));
            assert_eq!(log_in(&safe, Some("one")), Ok(()));
            db.run(&p, &format!("ALTER ROLE {free} NOLOGIN"));
            db.run(&p, &format!("ALTER ROLE {free} LOGIN"));
            assert_eq!(log_in(&free, None), Ok(()));
            // Whoever comes, new passwords count and old ones do not.
            db.run(&p, &format!("ALTER ROLE {safe} PASSWORD 'two'"));
            assert_eq!(log_in(&safe, Some("one")), Err("28P01".into()));
            db.run(&p, &format!("ALTER ROLE {safe} PASSWORD 'three'"));
            assert_eq!(log_in(&safe, Some("three")), Ok(()));
            db.run(&p, &format!("ALTER ROLE {safe} PASSWORD 'two'"));
            assert_eq!(log_in(&safe, Some("two")), Ok(()));
            db.run(&p, &format!("ALTER ROLE {safe} NOLOGIN"));
            assert_eq!(log_in(&safe, Some("two")), Err("28000".into()));
            db.run(&p, &format!("ALTER ROLE {safe} LOGIN"));
            let gone = format!("gone{i}");
            db.run(&p, &format!("CREATE ROLE {gone} LOGIN"));
            assert_eq!(log_in(&gone, None), Ok(()));
            db.run(&p, &format!("DROP ROLE {gone}"));
            assert_eq!(log_in(&gone, None), Err("28000".into()));
            // Nor may anybody become who is gone, or whoever ceased to be a superuser.
            db.run(
                &p,
                &format!("CREATE ROLE {gone} SUPERUSER; CREATE ROLE more{i}"),
            );
            db.run(&r, &format!("SET SESSION AUTHORIZATION {gone}"));
            db.run(&p, &format!("DROP ROLE more{i}"));
            assert_eq!(db.refused(&r, &format!("SET ROLE more{i}")), "22023");
            db.run(&p, &format!("ALTER ROLE {gone} NOSUPERUSER"));
            assert_eq!(db.refused(&r, "SET ROLE canon"), "42501");
            db.run(&r, "RESET SESSION AUTHORIZATION");
        }
        if !shared_memory {
            continue;
        }
        // A schema that does not come is not waited for without end, nor is an answer.
        assert_eq!(log_in("nobody", None), Err("28000".into()));
        cluster.hold_replay(1, true).expect("a replica");
        db.run(&p, "CREATE ROLE late LOGIN");
        assert_eq!(log_in("late", None), Err("28000".into()));
        assert_eq!(log_in("free0", None), Ok(()), "what is here is enough");
        cluster.hold_replay(1, false).expect("a replica");
        assert_eq!(log_in("late", None), Ok(()));
        cluster.cut(1);
        assert_eq!(log_in("nobody", None), Err("28000".into()));
        assert_eq!(log_in("safe0", Some("one")), Err("28P01".into()));
        assert_eq!(log_in("safe0", Some("two")), Ok(()));
    }
}

/// Who does not wait any more for a promotion has not taken it back: the old primary has been asked, and may lead no more by now.
#[test]
fn a_promotion_goes_on_when_nobody_waits_for_it() {
    let cluster = Cluster::start(quiet(), 1).expect("a cluster");
    let db = Db::new();
    let replica = cluster.replicas()[0];
    let c = db.connect_to_what_is_shown(&cluster, replica);
    let first = |sql: &str| {
        let row = db.0.block_on(c.query_one(sql, &[]));
        row.map(|r| r.get::<_, bool>(0))
    };
    // What is asked comes to the primary after this, and its answer after twice this.
    cluster.delay(replica, Duration::from_millis(1500));
    assert!(!first("SELECT pg_promote(true, 1)").expect("an answer"));
    db.run(&c, "SET statement_timeout = '100ms'");
    let e = first("SELECT pg_promote()").expect_err("no time");
    let e = e.as_db_error().expect("an answer");
    assert_eq!(e.code().code(), "57014", "{e}");
    assert_eq!(e.detail(), Some("The promotion goes on."));
    db.run(&c, "RESET statement_timeout");
    let deadline = Instant::now() + PATIENCE;
    while first("SELECT pg_is_in_recovery()").expect("an answer") {
        assert!(Instant::now() < deadline, "nobody leads");
        std::thread::sleep(Duration::from_millis(20));
    }
    db.run(&c, "CREATE TABLE here (id int)");
}
