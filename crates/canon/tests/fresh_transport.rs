//! How replicas read what their primary has published: over a connection, and in memory that both map. Each way a read sees what was
//! acknowledged before it, many share a fetch, a dead primary answers nothing, and its successor does. What was published and is lost, no
//! replica waits for.

mod common;
#[path = "replication/helpers.rs"]
#[allow(dead_code)]
mod helpers;

use common::peer::{Proof, RawPeer};
use common::{PATIENCE, Server, free_port};
use helpers::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A primary and a replica with this transport, and the replica's port for metrics.
async fn pair(shared: &str) -> (Server, Server, u16) {
    let mut p = Server::canon(&[("CANON_SHARED_MEMORY", shared)]);
    p.launch();
    p.ready().await;
    let port = free_port();
    let http = format!("127.0.0.1:{port}");
    let env = [
        ("CANON_HTTP", http.as_str()),
        ("CANON_SHARED_MEMORY", shared),
    ];
    let r = replica_with(&p, "fresh", &env).await;
    (p, r, port)
}

/// A metric of the replica: the sum over its labels.
fn metric(port: u16, name: &str) -> u64 {
    let (status, body) = get(port, "/metrics");
    assert_eq!(status, 200);
    let all = body.lines().filter_map(|l| l.strip_prefix(name));
    all.filter_map(|l| l.rsplit_once(' ')?.1.parse::<u64>().ok())
        .sum()
}

fn reaches(port: u16, name: &str, wanted: u64) {
    let deadline = Instant::now() + PATIENCE;
    while metric(port, name) != wanted {
        assert!(Instant::now() < deadline, "{name} is not {wanted}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

async fn sees_what_was_acknowledged(shared: &str) {
    if skip() {
        return;
    }
    let (p, r, port) = pair(shared).await;
    let w = p.connect().await;
    rows(&w, "CREATE TABLE t (id int PRIMARY KEY, v bigint NOT NULL)").await;
    rows(&w, "INSERT INTO t VALUES (1, 0), (2, 0)").await;
    reaches(port, "canon_strong_reads_connected", 1);
    // Who logged in before that had asked, too.
    let of = |how: &str| metric(port, &format!("canon_read_timestamps_total{how}"));
    let looked = || of("{how=\"looked\"}");
    let others = of("") - looked();
    let (acked, done) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut readers = Vec::new();
    for n in 0..12 {
        let (c, acked, done) = (r.connect().await, acked.clone(), done.clone());
        readers.push(tokio::spawn(async move {
            rows(&c, "SET canon.read_timeout = '60s'").await;
            // By key, by table, by a key that does not change.
            let sql = [
                "SELECT v FROM t WHERE id = 1",
                "SELECT max(v) FROM t",
                "SELECT v FROM t WHERE id = 2",
            ][n % 3];
            while done.load(Ordering::SeqCst) == 0 {
                let least = acked.load(Ordering::SeqCst);
                let v: i64 = one(&c, sql).await.parse().expect("a number");
                assert!(
                    v >= least || n % 3 == 2,
                    "{sql}: {v}, {least} was acknowledged"
                );
            }
        }));
    }
    for v in 1..=150 {
        rows(&w, &format!("UPDATE t SET v = {v} WHERE id = 1")).await;
        acked.store(v, Ordering::SeqCst);
    }
    done.store(1, Ordering::SeqCst);
    for reader in readers {
        reader.await.expect("what a reader saw");
    }
    let (reads, fetches) = (
        metric(port, "canon_read_timestamps_total"),
        metric(port, "canon_read_fetches_total"),
    );
    assert!(reads > 0 && fetches > 0);
    if shared == "true" {
        assert_eq!(looked() + others, reads, "each looks for itself");
        return;
    }
    // Nothing changes now, so a read needs a timestamp and nothing else; together they need few.
    let mut readers = Vec::new();
    for _ in 0..24 {
        let c = r.connect().await;
        readers.push(tokio::spawn(async move {
            for _ in 0..20 {
                one(&c, "SELECT v FROM t WHERE id = 1").await;
            }
        }));
    }
    for reader in readers {
        reader.await.expect("a reader");
    }
    let reads = metric(port, "canon_read_timestamps_total") - reads;
    let fetches = metric(port, "canon_read_fetches_total") - fetches;
    assert!(reads >= 480 && fetches < reads, "{fetches} for {reads}");
}

async fn a_dead_primary_answers_nothing(shared: &str) {
    if skip() {
        return;
    }
    let (mut p, r, port) = pair(shared).await;
    let w = p.connect().await;
    rows(&w, "CREATE TABLE t (id int PRIMARY KEY, v int NOT NULL)").await;
    rows(&w, "INSERT INTO t VALUES (1, 1)").await;
    reaches(port, "canon_strong_reads_connected", 1);
    let c = r.connect().await;
    assert_eq!(one(&c, "SELECT v FROM t").await, "1");
    p.kill();
    rows(&c, "SET canon.read_timeout = '100ms'").await;
    rows(&c, "SET canon.stale_action = 'error'").await;
    assert_eq!(refused(&c, "SELECT v FROM t").await.0, "57014");
    rows(&c, "SET canon.read_consistency = 'eventual'").await;
    assert_eq!(one(&c, "SELECT v FROM t").await, "1");
    rows(&c, "RESET canon.read_consistency").await;
    rows(&c, "SET canon.read_timeout = '60s'").await;
    p.launch();
    p.ready().await;
    let w = p.connect().await;
    rows(&w, "UPDATE t SET v = 2").await;
    assert_eq!(one(&c, "SELECT v FROM t").await, "2");
    // The replica takes over: it answers for itself.
    promote(&r, &[]);
    rows(&c, "UPDATE t SET v = 3").await;
    assert_eq!(one(&c, "SELECT v FROM t").await, "3");
    // Who has handed over cannot know that.
    let w = p.connect().await;
    assert_eq!(refused(&w, "SELECT v FROM t").await.0, "57P03");
    rows(&w, "SET canon.read_consistency = 'eventual'").await;
    assert_eq!(one(&w, "SELECT v FROM t").await, "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn over_a_connection_reads_see_what_was_acknowledged_and_share_fetches() {
    sees_what_was_acknowledged("false").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_shared_memory_reads_see_what_was_acknowledged() {
    sees_what_was_acknowledged("true").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn over_a_connection_a_dead_primary_answers_nothing() {
    a_dead_primary_answers_nothing("false").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_shared_memory_a_dead_primary_answers_nothing() {
    a_dead_primary_answers_nothing("true").await;
}

/// A connection of a replica on which the region is read; what follows is CopyData.
fn region_of(s: &Server) -> std::net::TcpStream {
    use std::io::Read;
    let mut t = asked(s, "READ_REGION");
    let mut head = [0; 5];
    t.read_exact(&mut head).expect("a place");
    let len = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize - 4;
    t.read_exact(&mut vec![0; len]).expect("a place");
    t
}

/// One that this command has turned over.
fn asked(s: &Server, command: &str) -> std::net::TcpStream {
    let proof = Proof::member("by hand", 0);
    let mut peer = RawPeer::connect(s, "canon", "canon", 0, &proof).expect("it is let in");
    peer.turn(command).expect("turned over");
    peer.stream
}

#[tokio::test(flavor = "multi_thread")]
async fn rubbish_ends_the_connection_and_nothing_else() {
    use std::io::{Read, Write};
    if skip() {
        return;
    }
    let s = Server::start().await;
    let frame = |body: &[u8]| [b"d", &(body.len() as u32 + 4).to_be_bytes()[..], body].concat();
    let number = 7u64.to_le_bytes();
    // A request is answered: the term, and a slot.
    let mut t = region_of(&s);
    let words = [3u32, 40].map(u32::to_le_bytes).concat();
    t.write_all(&frame(&[&number[..], &words].concat()))
        .expect("written");
    let mut answer = vec![0; 5 + 8 + 16];
    t.read_exact(&mut answer).expect("an answer");
    assert_eq!(answer[5..13], number);
    assert_ne!(answer[13..21], [0; 8], "the term");
    for body in [
        &[&number[..], &u32::MAX.to_le_bytes()].concat()[..],
        &[&number[..], b"odd"].concat(),
        b"short",
        b"",
        &[&number[..], &vec![0; 1 << 20]].concat(),
    ] {
        let mut t = region_of(&s);
        _ = t.write_all(&frame(body));
        let mut rest = Vec::new();
        _ = t.read_to_end(&mut rest);
        assert_eq!(rest.first(), Some(&b'E'), "{} bytes", body.len());
    }
    // Snapshots that are to be kept: one is, and what was never kept is let go.
    let mut t = asked(&s, "HOLD_SNAPSHOTS");
    for kind in [2u8, 1] {
        t.write_all(&frame(&[&[kind], &number[..]].concat()))
            .expect("written");
    }
    let mut answer = vec![0; 5 + 8 + 48];
    t.read_exact(&mut answer).expect("an answer");
    assert_eq!(answer[5..13], number);
    assert_eq!(answer[29..37], answer[53..61], "the term");
    for body in [&[3, 0, 0, 0, 0, 0, 0, 0, 0][..], b"", &[1, 2]] {
        let mut t = asked(&s, "HOLD_SNAPSHOTS");
        _ = t.write_all(&frame(body));
        let mut rest = Vec::new();
        _ = t.read_to_end(&mut rest);
        assert_eq!(rest.first(), Some(&b'E'), "{} bytes", body.len());
    }
    let c = s.connect().await;
    assert_eq!(one(&c, "SELECT 1").await, "1");
}

/// What a primary had published, and its disk had not, is gone with it: a replica that was told of it does not wait for it.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_is_as_new_as_its_primary_also_when_that_lost_what_it_had_published() {
    if skip() {
        return;
    }
    let scratch = tempfile::tempdir().expect("a directory");
    let full = scratch.path().join("full");
    let fault = format!("wal.before_write:while={}", full.display());
    let mut p = Server::start_with(&[("CANON_FAULT", &fault)]).await;
    let http = free_port();
    let address = format!("127.0.0.1:{http}");
    let r = replica_with(&p, "told", &[("CANON_HTTP", &address)]).await;
    let c = p.connect().await;
    bank(&c).await;
    assert_equal(&c, &r).await;
    on_disk(&c, "told").await;
    std::fs::write(&full, "").expect("written");
    let insert = "SET synchronous_commit = off; INSERT INTO moves (id, sum) VALUES (-5, 5)";
    rows(&c, insert).await;
    let deadline = Instant::now() + PATIENCE;
    let figure = async |name: &str| -> f64 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let page = get(http, "/metrics").1;
        assert!(Instant::now() < deadline, "{page}");
        let found = page.lines().find_map(|l| l.strip_prefix(name));
        found.map_or(-1.0, |n| n.trim().parse().expect("a number"))
    };
    while figure("canon_replica_lag_positions ").await <= 0.0 {}
    p.kill();
    std::fs::remove_file(&full).expect("removed");
    // It is not heard, and gets older.
    let mut age = figure("canon_replica_lag_seconds ").await;
    p.launch();
    p.ready().await;
    let lost = "SELECT count(*) FROM moves WHERE sum = 5";
    assert_eq!(one(&p.connect().await, lost).await, "0", "it is lost");
    loop {
        let now = figure("canon_replica_lag_seconds ").await;
        if now < age {
            break;
        }
        age = now;
    }
    while figure("canon_replica_lag_positions ").await > 0.0 {}
}

/// A replica that is to end does not wait for reads that nobody can answer any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_whose_primary_is_gone_does_not_hold_up_the_end() {
    if skip() {
        return;
    }
    let mut p = Server::start().await;
    let mut r = replica_with(&p, "ends", &[("CANON_SHUTDOWN_TIMEOUT", "1h")]).await;
    let (w, other) = (r.connect().await, r.connect().await);
    rows(&w, "CREATE TABLE t (id int PRIMARY KEY)").await;
    assert_eq!(one(&w, "SELECT count(*) FROM t").await, "0");
    p.kill();
    let read =
        tokio::spawn(async move { w.simple_query("BEGIN; SELECT count(*) FROM t").await.err() });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'ReadFreshness'";
    until(&other, waits, "1").await;
    signal(&r, "-TERM");
    let ended = r.exited(PATIENCE).await;
    assert!(ended.is_some_and(|s| s.success()), "{}", r.log_tail());
    let told = read.await.expect("no panic").expect("an error");
    assert_eq!(common::sqlstate(&told), "57P01");
}
