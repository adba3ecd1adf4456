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
        // Its own number: those of the sequence are logged before, and would move the log, too.
        let sql = format!("INSERT INTO moves (id, sum) VALUES (-{sum}, {sum})");
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
        // A copy that breaks off on a slow disk is begun again.
        assert!(round > 0 || copies(&r) == 1, "{}", r.log_tail());
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

/// A replica that the log no longer reaches needs a copy, for which its disk has no room: it goes on with what it has, ends nobody's session
/// again and again for it, and takes the copy when there is room.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_whose_disk_is_full_serves_what_it_has() {
    if skip() {
        return;
    }
    let scratch = tempfile::tempdir().expect("a directory");
    let file = scratch.path().join("canon.toml");
    std::fs::write(&file, "segment_bytes = \"1MB\"\nwal_keep_bytes = \"1MB\"\n").expect("written");
    let p = Server::start_with(&[("CANON_CONFIG", &file.display().to_string())]).await;
    let c = p.connect().await;
    rows(&c, "CREATE TABLE bulk (id int PRIMARY KEY, v text)").await;
    let full = scratch.path().join("full");
    let fault = format!("wal.switch.copying:while={}", full.display());
    let mut r = replica_with(&p, "full", &[("CANON_FAULT", &fault)]).await;
    assert_equal(&c, &r).await;
    r.kill();
    std::fs::write(&full, "").expect("written");
    for round in 0..4 {
        write_much(&c, round).await;
    }
    rows(&c, "CHECKPOINT").await;
    r.launch();
    r.ready().await;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let log = std::fs::read_to_string(r.scratch().join("log")).expect("a log");
        if log.contains("until the next is begun") {
            assert!(log.contains("no space left"), "{log}");
            break;
        }
        assert!(Instant::now() < deadline, "{log}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let reader = r.connect().await;
    rows(&reader, "SET canon.read_consistency = 'eventual'").await;
    assert_eq!(one(&reader, "SELECT count(*) FROM bulk").await, "0");
    r.kill();
    std::fs::remove_file(&full).expect("removed");
    r.launch();
    r.ready().await;
    assert_equal(&c, &r).await;
}

/// The last line of the only report under `set-aside`.
fn set_aside(s: &Server) -> String {
    let folder = s.data_dir().join("set-aside");
    let reports = std::fs::read_dir(folder).expect("set aside");
    let reports = reports.map(|e| e.expect("an entry").path());
    let mut reports = reports.filter(|p| p.extension().is_some_and(|e| e == "txt"));
    let report = std::fs::read_to_string(reports.next().expect("a report")).expect("readable");
    report.lines().last().expect("lines").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forced_promotion_says_what_may_be_lost_and_the_old_primary_what_was() {
    if skip() {
        return;
    }
    let http = free_port();
    let address = format!("127.0.0.1:{http}");
    let mut p = Server::start_with(&[("CANON_HTTP", &address)]).await;
    let mut r = replica(&p, "heir").await;
    let c = p.connect().await;
    bank(&c).await;
    assert_equal(&c, &r).await;
    on_disk(&c, "heir").await;
    r.kill();
    // Three commits of seven rows, and one that writes nothing, which nobody else has.
    rows(&c, "INSERT INTO moves (sum) VALUES (1), (2)").await;
    rows(&c, "UPDATE accounts SET branch = 5 WHERE id <= 4").await;
    rows(&c, "DELETE FROM accounts WHERE id = 7").await;
    p.kill();
    r.launch();
    r.ready().await;
    let report = promote(&r, &["--force", "--old-primary-is-down"]);
    assert!(
        report.contains("never heard since this node started"),
        "{report}"
    );
    let of = format!("{}:{}", r.host, r.port);
    p.set_env(&[
        ("CANON_REPLICA_OF", &of),
        ("CANON_NODE_NAME", "old"),
        ("CANON_HTTP", &address),
    ]);
    p.launch();
    p.ready().await;
    let w = r.connect().await;
    assert_equal(&w, &p).await;
    let told = set_aside(&p);
    // A serial's numbers are logged ahead: a commit without rows of its own.
    assert!(told.contains(" commits of 7 rows in "), "{told}");
    let metrics = get(http, "/metrics").1;
    assert!(metrics.contains("canon_set_aside_rows 7"), "{metrics}");

    // One that hears its primary to the end knows what it has.
    rows(&w, "INSERT INTO moves (sum) VALUES (3)").await;
    assert_equal(&w, &p).await;
    r.kill();
    let report = promote(&p, &["--force", "--old-primary-is-down"]);
    assert!(report.contains("was last heard"), "{report}");
    assert!(
        report.contains("All that it had said to have by then"),
        "{report}"
    );
}

/// A promotion that fails half-way leaves no node that neither leads nor follows: it starts again, and may be promoted then.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_could_not_be_promoted_follows_again() {
    if skip() {
        return;
    }
    // Before its term is on the disk, and after.
    for fault in ["dir.add_term:full", "node.before_flusher:error"] {
        could_not_be_promoted(fault).await;
    }
}

#[cfg(feature = "faults")]
async fn could_not_be_promoted(fault: &str) {
    let p = Server::start().await;
    let r = replica_with(&p, "heir", &[("CANON_FAULT", fault)]).await;
    let c = p.connect().await;
    bank(&c).await;
    assert_equal(&c, &r).await;
    let refused = std::process::Command::new(env!("CARGO_BIN_EXE_canon"))
        .args(["promote", "--server", &format!("{}:{}", r.host, r.port)])
        .args(["--force", "--old-primary-is-down"])
        .output()
        .expect("canon runs");
    assert!(!refused.status.success(), "{refused:?}");
    rows(&c, "INSERT INTO moves (sum) VALUES (77)").await;
    let deadline = Instant::now() + PATIENCE;
    let arrived = async || {
        let Ok(c) = connect_to(&r.config()).await else {
            return false;
        };
        let found = c.query("SELECT 1 FROM moves WHERE sum = 77", &[]).await;
        found.is_ok_and(|rows| rows.len() == 1)
    };
    while !arrived().await {
        assert!(Instant::now() < deadline, "{}", r.log_tail());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    promote(&r, &[]);
    rows(&r.connect().await, "INSERT INTO moves (sum) VALUES (78)").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_whose_successor_was_lost_leads_again() {
    if skip() {
        return;
    }
    let mut p = Server::start().await;
    let r = replica(&p, "other").await;
    let c = p.connect().await;
    bank(&c).await;
    // It was handed over to a node that is no more.
    p.kill();
    std::fs::write(p.data_dir().join("CANON_SEALED"), "lost").expect("written");
    p.launch();
    p.ready().await;
    let c = p.connect().await;
    assert_eq!(
        refused(&c, "INSERT INTO moves (sum) VALUES (1)").await.0,
        "25006"
    );
    assert_eq!(
        refused(&r.connect().await, "SELECT canon_unseal()").await.0,
        "55000"
    );
    let report = promote(&p, &["--unseal", "--successor-is-down"]);
    assert!(
        report.contains("Leading again") && report.contains("lost"),
        "{report}"
    );
    let c = p.connect().await;
    rows(&c, "INSERT INTO moves (sum) VALUES (1)").await;
    // The other replica follows the new term, and so does a start.
    assert_equal(&c, &r).await;
    p.kill();
    p.launch();
    p.ready().await;
    let c = p.connect().await;
    rows(&c, "INSERT INTO moves (sum) VALUES (2)").await;
    assert_equal(&c, &r).await;
    assert_eq!(refused(&c, "SELECT canon_unseal()").await.0, "55000");
}

/// Commits at this level until it is told to stop; how many were acknowledged.
async fn commits(
    s: &Server,
    level: &str,
    sum: i32,
) -> (
    tokio::task::JoinHandle<u64>,
    std::sync::Arc<std::sync::atomic::AtomicU64>,
) {
    use std::sync::atomic::{AtomicU64, Ordering};
    let c = s.connect().await;
    rows(&c, &format!("SET synchronous_commit = {level}")).await;
    let done = std::sync::Arc::new(AtomicU64::new(0));
    let counter = done.clone();
    let task = tokio::spawn(async move {
        let sql = format!("INSERT INTO moves (sum) VALUES ({sum})");
        while c.batch_execute(&sql).await.is_ok() {
            counter.fetch_add(1, Ordering::SeqCst);
        }
        counter.load(Ordering::SeqCst)
    });
    (task, done)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_survives_what_its_level_promises() {
    if skip() {
        return;
    }
    use std::sync::atomic::Ordering;
    const LEVELS: [(&str, i32); 5] = [
        ("off", 10),
        ("local", 20),
        ("remote_write", 30),
        ("on", 40),
        ("remote_apply", 50),
    ];
    // One of one, and two of three.
    for (needed, names) in [("1", &["a"][..]), ("2", &["a", "b", "c"])] {
        let policy = [("CANON_SYNCHRONOUS_REPLICAS", needed)];
        let mut p = Server::start_with(&policy).await;
        let mut replicas = Vec::new();
        for name in names {
            replicas.push(replica_with(&p, name, &policy).await);
        }
        let c = p.connect().await;
        bank(&c).await;
        let mut running = Vec::new();
        for (level, sum) in LEVELS {
            running.push((sum, commits(&p, level, sum).await));
        }
        let deadline = Instant::now() + PATIENCE;
        while running
            .iter()
            .any(|(_, (_, n))| n.load(Ordering::SeqCst) < 20)
        {
            assert!(
                Instant::now() < deadline,
                "{needed}: the load does not move\n{}",
                p.log_tail()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // The primary dies, and its disk with it. The replicas' processes live.
        p.kill();
        let mut acknowledged = Vec::new();
        for (sum, (task, _)) in running {
            acknowledged.push((sum, task.await.expect("a client")));
        }
        std::fs::rename(p.data_dir(), p.scratch().join("lost")).expect("taken away");
        // Of the replicas the one with most is promoted, as the manual says.
        let mut best = (String::new(), 0);
        for (i, r) in replicas.iter().enumerate() {
            let at = one(&r.connect().await, "SELECT pg_last_wal_receive_lsn()").await;
            best = best.max((at, i));
        }
        let heir = replicas.swap_remove(best.1);
        promote(&heir, &["--force", "--old-primary-is-down"]);
        let of = format!("{}:{}", heir.host, heir.port);
        for (i, r) in replicas.iter_mut().enumerate() {
            r.kill();
            let name = format!("again-{i}");
            r.set_env(&[
                ("CANON_REPLICA_OF", &of),
                ("CANON_NODE_NAME", &name),
                policy[0],
            ]);
            r.launch();
        }
        let w = heir.connect().await;
        if names.len() == 1 {
            // What only this node holds now is shown when another has it, too.
            p.set_env(&[
                ("CANON_REPLICA_OF", &of),
                ("CANON_NODE_NAME", "new"),
                policy[0],
            ]);
            p.launch();
        }
        // Acknowledged when all before it is published.
        rows(&w, "INSERT INTO moves (sum) VALUES (60)").await;
        for (sum, n) in acknowledged {
            let found: u64 = one(&w, &count(sum)).await.parse().expect("a number");
            // Above `local` nothing that was acknowledged is lost, and of the rest a prefix is there.
            assert!(
                sum < 30 || found >= n,
                "{needed}: {found} of {n} at level {sum}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_takes_nothing_that_was_acknowledged_at_local() {
    if skip() {
        return;
    }
    use std::sync::atomic::Ordering;
    let mut p = Server::start().await;
    let c = p.connect().await;
    bank(&c).await;
    let (local, done) = commits(&p, "local", 20).await;
    let (off, _) = commits(&p, "off", 10).await;
    let deadline = Instant::now() + PATIENCE;
    while done.load(Ordering::SeqCst) < 50 {
        assert!(Instant::now() < deadline, "the load does not move");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    p.kill();
    let (local, off) = (local.await.expect("a client"), off.await.expect("a client"));
    p.launch();
    p.ready().await;
    let c = p.connect().await;
    let found: u64 = one(&c, &count(20)).await.parse().expect("a number");
    assert!(found >= local, "{found} of {local}");
    // Of those at `off` the newest may be gone, never one in the middle: the serial numbers of what is left have no gap but
    // those of commits that were not acknowledged.
    let found: u64 = one(&c, &count(10)).await.parse().expect("a number");
    assert!(found <= off + 1, "{found} of {off}");
    let (first, last): (u64, u64) = (
        one(&c, "SELECT min(id) FROM moves")
            .await
            .parse()
            .expect("a number"),
        one(&c, "SELECT max(id) FROM moves")
            .await
            .parse()
            .expect("a number"),
    );
    let all: u64 = one(&c, "SELECT count(*) FROM moves")
        .await
        .parse()
        .expect("a number");
    assert!(last - first < all + 2, "{first} to {last}, {all} rows");
}

/// Two lead, by force, and the older one hears of the other.
#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_has_heard_of_a_newer_one_does_not_lead_after_a_start() {
    if skip() {
        return;
    }
    let mut p = Server::start().await;
    let mut r = replica(&p, "other").await;
    let c = p.connect().await;
    bank(&c).await;
    assert_equal(&c, &r).await;
    promote(&r, &["--force", "--old-primary-is-down"]);
    r.kill();
    // As a replica of the old one, of which it is no part any more.
    r.launch();
    let insert = "INSERT INTO moves (sum) VALUES (1)";
    let deadline = Instant::now() + PATIENCE;
    loop {
        match c.batch_execute(insert).await {
            Err(e) if sqlstate(&e) == "25006" => break,
            _ => assert!(Instant::now() < deadline, "it takes writes still"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    r.kill();
    p.kill();
    p.launch();
    p.ready().await;
    let c = p.connect().await;
    assert_eq!(refused(&c, insert).await.0, "25006");
    assert_eq!(refused(&c, "SELECT canon_unseal()").await.0, "55000");
}

/// It holds commits that the cluster does not have, in its checkpoint, too; and the copy that would replace them does not come.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_holds_what_the_cluster_does_not_have_shows_none_of_it() {
    if skip() {
        return;
    }
    let scratch = tempfile::tempdir().expect("a directory");
    let full = scratch.path().join("full");
    let fault = format!("wal.switch.copying:while={}", full.display());
    let mut p = Server::start().await;
    let mut r = replica(&p, "other").await;
    let c = p.connect().await;
    bank(&c).await;
    assert_equal(&c, &r).await;
    // The replica is away, so that it has not got this commit.
    r.kill();
    rows(&c, "INSERT INTO moves (id, sum) VALUES (-777, 777)").await;
    rows(&c, "CHECKPOINT").await;
    p.kill();
    r.launch();
    r.ready().await;
    promote(&r, &["--force", "--old-primary-is-down"]);
    std::fs::write(&full, "").expect("written");
    let of = format!("{}:{}", r.host, r.port);
    p.set_env(&[
        ("CANON_REPLICA_OF", &of),
        ("CANON_NODE_NAME", "old"),
        ("CANON_FAULT", &fault),
    ]);
    let log = |p: &Server| std::fs::read_to_string(p.scratch().join("log")).expect("a log");
    for round in 0..2 {
        p.launch();
        if round == 0 {
            let deadline = Instant::now() + PATIENCE;
            while !log(&p).contains("no copy of") {
                assert!(Instant::now() < deadline, "{}", log(&p));
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            r.kill();
        }
        let told = p.not_serving().await;
        assert!(told.contains("does not have"), "{told}");
        // The next life has not heard so of anybody.
        if round == 0 {
            p.kill();
        }
    }
    let report = promote(&p, &["--force", "--old-primary-is-down"]);
    assert!(report.contains("Promoted"), "{report}");
    p.ready().await;
    assert_eq!(one(&p.connect().await, &count(777)).await, "1");
}
