//! What is shown, kept and told when nodes start again, fail over and come back: each server a process of its own.

mod common;
#[path = "replication/helpers.rs"]
#[allow(dead_code)]
mod helpers;

use common::{PATIENCE, Server, connect_to, free_port, sqlstate};
use helpers::*;
use std::time::{Duration, Instant};
use tokio_postgres::Client;

/// A session that is let in before the server serves.
async fn maintenance(s: &Server, user: &str) -> Result<Client, tokio_postgres::Error> {
    let mut config = s.config();
    config.user(user).options("-c canon.maintenance=on");
    connect_to(&config).await
}

/// Writes about 3 MB, in ten commits.
async fn write_much(c: &Client, round: usize) {
    for part in 0..10 {
        let first = round * 1000 + part * 100;
        let sql = format!(
            "INSERT INTO bulk SELECT {first} + n, repeat('x', 3000) FROM generate_series(1, 100) n"
        );
        rows(c, &sql).await;
    }
}

/// A commit that no replica has: it is in the primary's log, and nobody is told.
async fn leave_unconfirmed(p: &Server, sum: i32) {
    let c = p.connect().await;
    let before = one(&c, "SELECT pg_current_wal_flush_lsn()").await;
    let w = p.connect().await;
    tokio::spawn(async move {
        let sql = format!("INSERT INTO moves (sum) VALUES ({sum})");
        _ = w.batch_execute(&sql).await;
    });
    let deadline = Instant::now() + PATIENCE;
    while one(&c, "SELECT pg_current_wal_flush_lsn()").await == before {
        assert!(Instant::now() < deadline, "nothing is flushed");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(one(&c, &count(sum)).await, "0", "not published");
}

fn count(sum: i32) -> String {
    format!("SELECT count(*) FROM moves WHERE sum = {sum}")
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_start_nothing_is_shown_before_the_replicas_have_it() {
    if skip() {
        return;
    }
    let http = free_port();
    let address = format!("127.0.0.1:{http}");
    let mut p = Server::start_with(&[
        ("CANON_SYNCHRONOUS_REPLICAS", "1"),
        ("CANON_HTTP", &address),
    ])
    .await;
    let mut r = replica(&p, "only").await;
    let c = p.connect().await;
    bank(&c).await;
    c.batch_execute("CREATE ROLE plain LOGIN")
        .await
        .expect("a role");
    r.kill();
    leave_unconfirmed(&p, 777).await;
    p.kill();

    p.launch();
    let told = p.not_serving().await;
    assert!(told.contains("1 replicas"), "{told}");
    assert_eq!(get(http, "/healthz").0, 200);
    let (status, why) = get(http, "/readyz");
    assert!(status == 503 && why.contains("1 replicas"), "{why}");
    // Only a superuser is let in, and sees what is in the log; he writes nothing.
    let inside = maintenance(&p, "canon").await.expect("let in");
    assert_eq!(one(&inside, &count(777)).await, "1");
    let refused = refused(&inside, "INSERT INTO moves (sum) VALUES (1)").await;
    assert_eq!(refused.0, "57P03");
    let refused = maintenance(&p, "plain").await.expect_err("refused");
    assert_eq!(sqlstate(&refused), "42501");

    // Its replica comes back and has it: it serves, and both show it.
    r.launch();
    p.ready().await;
    let c = p.connect().await;
    assert_eq!(one(&c, &count(777)).await, "1");
    assert_eq!(get(http, "/readyz").0, 200);
    r.ready().await;
    assert_equal(&c, &r).await;

    // Another one that nobody has; the replica is promoted meanwhile, so the old primary must never have shown it.
    r.kill();
    leave_unconfirmed(&p, 888).await;
    p.kill();
    r.launch();
    r.ready().await;
    promote(&r, &["--force", "--old-primary-is-down"]);
    p.launch();
    p.not_serving().await;
    p.kill();
    let of = format!("{}:{}", r.host, r.port);
    p.set_env(&[("CANON_REPLICA_OF", &of), ("CANON_NODE_NAME", "old")]);
    p.launch();
    p.ready().await;
    let w = r.connect().await;
    assert_eq!(one(&w, &count(888)).await, "0");
    assert_equal(&w, &p).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_shows_its_own_log_only_where_one_replica_is_enough() {
    if skip() {
        return;
    }
    let two = [("CANON_SYNCHRONOUS_REPLICAS", "2")];
    let mut p = Server::start_with(&two).await;
    let mut a = replica_with(&p, "a", &two).await;
    let mut b = replica_with(&p, "b", &two).await;
    let c = p.connect().await;
    bank(&c).await;
    p.kill();
    a.kill();
    // Nobody can say whether the other has what it has.
    a.launch();
    let told = a.not_serving().await;
    assert!(told.contains("waits for its primary"), "{told}");
    // It can be promoted there, and then waits for others to follow it.
    let report = promote(&a, &["--force", "--old-primary-is-down"]);
    assert!(report.contains("Promoted"), "{report}");
    a.not_serving().await;
    let of = format!("{}:{}", a.host, a.port);
    for (node, name) in [(&mut b, "b"), (&mut p, "p")] {
        node.kill();
        node.set_env(&[("CANON_REPLICA_OF", &of), ("CANON_NODE_NAME", name), two[0]]);
        node.launch();
    }
    a.ready().await;
    let w = a.connect().await;
    assert_eq!(
        one(&w, "SELECT sum(balance) FROM accounts").await,
        TOTAL.to_string()
    );
    for node in [&mut b, &mut p] {
        node.ready().await;
    }
    assert_equal(&w, &b).await;
    assert_equal(&w, &p).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_primary_has_let_go_is_served_from_the_archive() {
    if skip() {
        return;
    }
    let scratch = tempfile::tempdir().expect("a directory");
    let file = scratch.path().join("canon.toml");
    std::fs::write(&file, "segment_bytes = \"1MB\"\nwal_keep_bytes = \"1MB\"\n").expect("written");
    let archive = format!("file://{}/archive", scratch.path().display());
    let http = free_port();
    let address = format!("127.0.0.1:{http}");
    let p = Server::start_with(&[
        ("CANON_CONFIG", &file.display().to_string()),
        ("CANON_ARCHIVE", &archive),
        ("CANON_HTTP", &address),
    ])
    .await;
    let c = p.connect().await;
    bank(&c).await;
    rows(&c, "CREATE TABLE bulk (id int PRIMARY KEY, v text)").await;
    let mut r = replica(&p, "away").await;
    assert_equal(&c, &r).await;
    let copies = |r: &Server| {
        let log = std::fs::read_to_string(r.scratch().join("log")).expect("a log");
        log.matches("copying the primary's database").count()
    };
    // Numbers of the segments below a folder, with their paths.
    let segments = |folder: std::path::PathBuf| {
        let (mut found, mut folders) = (Vec::new(), vec![folder]);
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).into_iter().flatten() {
                let path = entry.expect("an entry").path();
                let name = path.file_name().expect("a name").to_string_lossy();
                let number = name.strip_suffix(".wal").and_then(|n| n.split_once('-'));
                match number.map(|n| u64::from_str_radix(n.0, 16)) {
                    Some(Ok(number)) => found.push((number, path)),
                    _ if path.is_dir() => folders.push(path),
                    _ => {}
                }
            }
        }
        found.sort();
        found
    };
    let own = || segments(p.data_dir().join("wal"));
    let archived = || segments(scratch.path().join("archive"));
    for round in 0..2 {
        r.kill();
        for n in 0..4 {
            write_much(&c, round * 4 + n).await;
        }
        // Everything finished is archived, and the directory lets it go.
        let deadline = Instant::now() + PATIENCE;
        let last = own().last().expect("a log").0;
        while archived().last().is_none_or(|a| a.0 + 1 < last) {
            assert!(Instant::now() < deadline, "not archived\n{}", p.log_tail());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        rows(&c, "CHECKPOINT").await;
        assert!(own()[0].0 + 5 > last, "{:?}", own());
        if round == 1 {
            // The archive is damaged: that is said, and the replica is filled anew.
            let all = archived();
            for (_, path) in &all[all.len() - 6..] {
                let f = std::fs::OpenOptions::new().write(true).open(path);
                f.expect("opened").set_len(200_000).expect("cut short");
            }
        }
        r.launch();
        r.ready().await;
        let deadline = Instant::now() + PATIENCE;
        while copies(&r) < 1 + round {
            assert!(
                Instant::now() < deadline,
                "not filled anew\n{}",
                r.log_tail()
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        r.ready().await;
        assert_equal(&c, &r).await;
        assert_eq!(copies(&r), 1 + round, "{}", r.log_tail());
    }
    let metrics = get(http, "/metrics").1;
    assert!(
        metrics.contains("canon_archive_segments_total "),
        "{metrics}"
    );
    assert!(
        !metrics.contains("canon_archive_failures_total 0"),
        "{metrics}"
    );
    let log = std::fs::read_to_string(p.scratch().join("log")).expect("a log");
    assert!(log.contains("reading log from the archive"), "{log}");
    assert!(log.contains("the archive cannot be read"), "{log}");
}
