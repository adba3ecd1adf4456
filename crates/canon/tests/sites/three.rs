//! Three sites and their primary: histories of lists and of registers, a hot split value, clients that exist, sessions that move on.

use super::common::{Server, connect_to, sqlstate};
use super::helpers::{one, replica, rows, skip};
use super::history;
use super::programs::{pg_program, run};
use super::{ready, site};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;
use tokio_postgres::Client;
use workload::list_append::Level;
use workload::registers::{Kind, Layout, Tally, Watch};
use workload::rng::Rng;

/// The primary, then its three sites.
async fn three() -> [Arc<Server>; 4] {
    let primary = Server::start().await;
    let (a, b) = (site(&primary, "a").await, site(&primary, "b").await);
    let c = site(&primary, "c").await;
    [primary, a, b, c].map(Arc::new)
}

async fn lists(level: &'static str, keeps: &[Level]) {
    if skip() {
        return;
    }
    let servers = three().await;
    let (report, failed) = history::run_at_sites(&servers, level, 3).await;
    for keeps in keeps {
        history::assert_keeps(level, *keeps, (report.clone(), failed));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn histories_at_three_sites_are_serializable() {
    lists("SERIALIZABLE", &[Level::Serializable]).await;
}

/// Parallel snapshot isolation is what the level promises at sites, with the order of each site. That the whole cluster keeps snapshot isolation is
/// more.
#[tokio::test(flavor = "multi_thread")]
async fn histories_at_three_sites_are_snapshot_isolation() {
    let keeps = [Level::ParallelSnapshot, Level::Snapshot];
    lists("REPEATABLE READ", &keeps).await;
}

const LAYOUT: Layout = Layout { tables: 2, rows: 4 };

/// A session that runs its statements where it is, in this level.
async fn at(server: &Server, level: &str) -> Client {
    let c = server.connect().await;
    let set = format!(
        "SET canon.forward = off; SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {level}"
    );
    rows(&c, &set).await;
    c
}

/// Adds one to a register in a block, until that is not lost to another transaction.
async fn add(c: &Client, register: usize) -> u64 {
    for _ in 0..1000 {
        let done = async {
            c.batch_execute("BEGIN").await?;
            let row = c.query_one(&LAYOUT.add(register), &[]).await?;
            c.batch_execute("COMMIT").await?;
            Ok::<_, tokio_postgres::Error>(row.get::<_, i64>(0) as u64)
        };
        match done.await {
            Ok(value) => return value,
            Err(e) => assert_eq!(sqlstate(&e), "40001", "{e:?}"),
        }
        c.batch_execute("ROLLBACK").await.expect("it is undone");
    }
    panic!("register {register} is lost again and again");
}

/// Two sessions of each node: one adds, one reads at `consistency`.
async fn registers(level: &'static str, consistency: &str) -> Tally {
    let servers = three().await;
    let p = servers[0].connect().await;
    for sql in LAYOUT.setup() {
        rows(&p, &sql).await;
    }
    ready(&p, &[&servers[1], &servers[2], &servers[3]]).await;
    let watch = Arc::new(Watch::new(&LAYOUT));
    let begun = Instant::now();
    let mut writers = Vec::new();
    let mut readers = Vec::new();
    for (n, server) in servers.iter().enumerate() {
        let (watch_of, c) = (watch.clone(), at(server, level).await);
        writers.push(tokio::spawn(async move {
            let mut rng = Rng::new(n as u64 + 1);
            for _ in 0..60 {
                let register = LAYOUT.draw(&mut rng, 0.3);
                watch_of.begin(register);
                let value = add(&c, register).await;
                watch_of.note(register, value, begun.elapsed().as_micros() as u64);
            }
        }));
        let (watch, c) = (watch.clone(), server.connect().await);
        rows(&c, &format!("SET canon.read_consistency = '{consistency}'")).await;
        readers.push(tokio::spawn(async move {
            let (mut rng, mut tally) = (Rng::new(n as u64 + 11), Tally::default());
            for i in 0..150 {
                let register = LAYOUT.draw(&mut rng, 0.3);
                let read = LAYOUT.read(register, Kind::ALL[i % Kind::ALL.len()]);
                let expected: Vec<_> = read.registers.iter().map(|r| watch.expected(*r)).collect();
                let seen = c.query(&read.sql, &[]).await.expect("a read");
                let value = |r: usize| {
                    let row = |row: &&tokio_postgres::Row| {
                        LAYOUT.register(register, row.get::<_, i32>(0) as usize) == r
                    };
                    Some(seen.iter().find(row)?.get::<_, i64>(1) as u64)
                };
                let shown = read.registers.iter().zip(expected);
                tally.read(&watch, shown.map(|(r, e)| (*r, e, value(*r))));
            }
            tally
        }));
    }
    for w in writers {
        w.await.expect("a writer ends");
    }
    let mut all = Tally::default();
    for r in readers {
        all += r.await.expect("a reader ends");
    }
    // Each addition counts once, at each node.
    for server in &servers {
        let c = server.connect().await;
        rows(&c, "SET canon.read_consistency = strong").await;
        let sum = "SELECT (SELECT sum(v) FROM registers_0) + (SELECT sum(v) FROM registers_1)";
        assert_eq!(one(&c, sum).await, "240");
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn strong_reads_at_sites_show_what_was_acknowledged_at_others() {
    if skip() {
        return;
    }
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let found = registers(level, "strong").await;
        println!("{level}: {found:?}");
        assert_eq!((found.stale, found.wrong), (0, 0), "{found:?}");
        assert_eq!(found.reads, 600);
    }
}

/// Its additions travel as deltas: no transaction loses to another one, at whichever site.
#[tokio::test(flavor = "multi_thread")]
async fn a_hot_split_value_costs_three_sites_no_aborts() {
    if skip() {
        return;
    }
    let servers = three().await;
    let p = servers[0].connect().await;
    let table = "CREATE TABLE hits (id int PRIMARY KEY, n bigint NOT NULL) WITH (split = 'n')";
    rows(&p, table).await;
    rows(&p, "INSERT INTO hits VALUES (1, 0)").await;
    ready(&p, &[&servers[1], &servers[2], &servers[3]]).await;
    let mut clients = Vec::new();
    for server in &servers {
        for _ in 0..3 {
            let c = at(server, "REPEATABLE READ").await;
            clients.push(tokio::spawn(async move {
                for _ in 0..25 {
                    let add = "BEGIN; UPDATE hits SET n = n + 1 WHERE id = 1; COMMIT";
                    // An abort is an error here, and ends the test.
                    rows(&c, add).await;
                }
            }));
        }
    }
    for c in clients {
        c.await.expect("no transaction is lost");
    }
    for server in &servers {
        let c = server.connect().await;
        rows(&c, "SET canon.read_consistency = strong").await;
        assert_eq!(one(&c, "SELECT n FROM hits").await, "300");
    }
}

/// TPC-B as it comes: at the default level its blocks go to the primary; above it they are certified, and nothing is forwarded.
#[tokio::test(flavor = "multi_thread")]
async fn pgbench_runs_at_a_site() {
    if skip() {
        return;
    }
    let primary = Server::start().await;
    let here = site(&primary, "bench").await;
    let mut init = Command::new(pg_program("pgbench"));
    init.args(["-i", "-s", "1", "-q", &here.url()]);
    run(init).await;
    let option = |o: &str| format!("?options={o}");
    let stays = "-c%20canon.forward%3Doff%20-c%20default_transaction_isolation%3D";
    let ways = [
        ("simple", String::new()),
        ("extended", option(&format!("{stays}repeatable%5C%20read"))),
        ("prepared", option(&format!("{stays}serializable"))),
    ];
    for (mode, options) in ways {
        let mut bench = Command::new(pg_program("pgbench"));
        bench.args(["-n", "-c", "4", "-j", "1", "-t", "25", "-M", mode]);
        bench.args(["--max-tries", "100", &format!("{}{options}", here.url())]);
        let said = run(bench).await;
        assert!(said.contains("100/100"), "{mode}: {said}");
    }
    let c = primary.connect().await;
    assert_eq!(one(&c, "SELECT count(*) FROM pgbench_history").await, "300");
    let sums = "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history)
                   AND (SELECT sum(tbalance) FROM pgbench_tellers) = (SELECT sum(bbalance) FROM pgbench_branches)";
    assert_eq!(one(&c, sums).await, "t");
}

/// sysbench's tests at two levels: the default, at which blocks go to the primary, and one at which blocks are certified and none is forwarded.
#[tokio::test(flavor = "multi_thread")]
async fn sysbench_runs_at_a_site() {
    if skip() {
        return;
    }
    let primary = Server::start().await;
    let here = site(&primary, "bench").await;
    let sysbench = |test: &str, verb: &str| {
        let program = std::env::var_os("CANON_SYSBENCH").unwrap_or("sysbench".into());
        let mut command = Command::new(program);
        command.args([test, "--db-driver=pgsql"]);
        command.arg(format!("--pgsql-host={}", here.host));
        command.arg(format!("--pgsql-port={}", here.port));
        command.arg(format!("--pgsql-user={}", here.user));
        command.arg(format!("--pgsql-db={}", here.database));
        command.args(["--tables=2", "--table-size=500", "--threads=4"]);
        command.args(["--events=40", "--time=60", verb]);
        command
    };
    run(sysbench("oltp_read_write", "prepare")).await;
    let c = primary.connect().await;
    let database = &here.database;
    for (level, forward) in [("read committed", "on"), ("repeatable read", "off")] {
        // The programs know nothing of levels: the database has them.
        for (name, value) in [
            ("default_transaction_isolation", level),
            ("canon.forward", forward),
        ] {
            let set = format!("ALTER DATABASE {database} SET {name} = '{value}'");
            rows(&c, &set).await;
        }
        ready(&c, &[&here]).await;
        for test in [
            "oltp_point_select",
            "oltp_read_only",
            "oltp_read_write",
            "oltp_write_only",
            "oltp_update_index",
            "oltp_update_non_index",
            "oltp_insert",
            "oltp_delete",
        ] {
            let said = run(sysbench(test, "run")).await;
            assert!(said.contains("total number of events:"), "{test}: {said}");
        }
    }
    rows(&c, &format!("ALTER DATABASE {database} RESET ALL")).await;
    let count = one(&c, "SELECT count(*) FROM sbtest1").await;
    ready(&c, &[&here]).await;
    let here = here.connect().await;
    assert_eq!(one(&here, "SELECT count(*) FROM sbtest1").await, count);
}

#[tokio::test(flavor = "multi_thread")]
async fn psql_works_at_a_site() {
    if skip() {
        return;
    }
    let primary = Server::start().await;
    let here = site(&primary, "shell").await;
    let mut psql = Command::new(pg_program("psql"));
    psql.args(["-X", "-q", "-At", "-v", "ON_ERROR_STOP=1", &here.url()]);
    for line in [
        "CREATE TABLE t (id serial PRIMARY KEY, note text)",
        "INSERT INTO t (note) VALUES ('a'), ('b') RETURNING id",
        "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t; UPDATE t SET note = 'c' WHERE id = 1; COMMIT",
        "DELETE FROM t WHERE id = 2 RETURNING note",
        "SELECT note FROM t ORDER BY id",
        "\\d t",
    ] {
        psql.args(["-c", line]);
    }
    let said = run(psql).await;
    assert!(said.starts_with("1\n2\n2\nb\nc\n"), "{said}");
    assert!(said.contains("nextval("), "{said}");
}

/// A session takes its token along to a replica, and waits there for what it wrote at the site; without the token it need not see that.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_moves_from_a_site_to_a_replica_waits_for_its_token() {
    if skip() {
        return;
    }
    let primary = Server::start().await;
    let p = primary.connect().await;
    rows(&p, "CREATE TABLE t (k int PRIMARY KEY, v int)").await;
    rows(&p, "INSERT INTO t VALUES (1, -1)").await;
    let (here, near) = (
        site(&primary, "here").await,
        replica(&primary, "near").await,
    );
    ready(&p, &[&here, &near]).await;
    let c = at(&here, "SERIALIZABLE").await;
    for i in 0..40 {
        let block = format!("BEGIN; UPDATE t SET v = {i} WHERE k = 1; COMMIT");
        rows(&c, &block).await;
        let token = one(&c, "SHOW canon.commit_token").await;
        let mut config = near.config();
        config.options(format!(
            "-c canon.min_token={token} -c canon.read_consistency=session"
        ));
        let moved = connect_to(&config).await.expect("the replica");
        let found = one(&moved, "SELECT v FROM t WHERE k = 1").await;
        assert_eq!(found, i.to_string());
    }
}
