//! Log that is lost is noticed: each loss is made in the files of a server that is down, and the next start says what is missing, or a replica
//! that has more does. Each server is a process of its own.

mod common;
#[path = "replication/helpers.rs"]
#[allow(dead_code)]
mod helpers;

use common::{PATIENCE, Server};
use helpers::*;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio_postgres::Client;

const SMALL: (&str, &str) = ("CANON_SEGMENT_BYTES", "1MB");

/// One commit of these rows, of about 3 kB each.
async fn write(c: &Client, first: usize, rows_there: usize) {
    let last = first + rows_there - 1;
    let sql = format!(
        "INSERT INTO bulk SELECT n, repeat('x', 3000) FROM generate_series({first}, {last}) n"
    );
    rows(c, &sql).await;
}

async fn table(c: &Client) {
    rows(c, "CREATE TABLE bulk (id int PRIMARY KEY, v text)").await;
}

async fn count(c: &Client) -> String {
    one(c, "SELECT count(*) FROM bulk").await
}

/// Ends it in good order.
async fn stop(s: &mut Server) {
    signal(s, "-TERM");
    let status = s.exited(PATIENCE).await.expect("it ends");
    assert!(status.success(), "{}", s.log_tail());
}

fn log(s: &Server) -> String {
    std::fs::read_to_string(s.scratch().join("log")).unwrap_or_default()
}

/// Starts it, which must fail; what it said.
async fn refused_start(s: &mut Server, arguments: &[&str]) -> String {
    let before = log(s).len();
    s.launch_with(arguments);
    let status = s.exited(PATIENCE).await;
    let said = log(s)[before..].to_owned();
    assert!(status.is_some_and(|status| !status.success()), "{said}");
    said
}

fn copy(from: &Path, to: &Path) {
    _ = std::fs::remove_dir_all(to);
    let done = std::process::Command::new("cp")
        .args(["-r"])
        .args([from, to])
        .status();
    assert!(done.expect("cp runs").success());
}

/// Where the log ends, as a refused start says.
fn end_in(said: &str) -> String {
    let (_, rest) = said.split_once("What is here ends at ").expect("the end");
    rest.split(". ").next().expect("a position").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_part_that_is_missing_is_named_and_the_start_refused() {
    if skip() {
        return;
    }
    let mut s = Server::start_with(&[SMALL]).await;
    let c = s.connect().await;
    table(&c).await;
    write(&c, 1, 300).await;
    rows(&c, "CHECKPOINT").await;
    for part in 1..8 {
        write(&c, 300 * part + 1, 300).await;
    }
    for n in 2401..2420 {
        write(&c, n, 1).await;
    }
    drop(c);
    stop(&mut s).await;
    let data = s.data_dir();
    let kept = s.scratch().join("kept");
    copy(&data, &kept);
    assert!(segments(&data).len() > 4, "{:?}", segments(&data));

    type Damage = (&'static str, fn(&Path));
    let damages: [Damage; 6] = [
        ("wal/ holds no segment", |d| {
            std::fs::remove_dir_all(d.join("wal")).expect("removed");
        }),
        ("is missing, and all behind it", |d| {
            std::fs::remove_file(segments(d).pop().expect("one")).expect("removed");
        }),
        ("is missing, and later ones are there", |d| {
            std::fs::remove_file(&segments(d)[2]).expect("removed");
        }),
        ("the first segments of the log are missing", |d| {
            for path in &segments(d)[..2] {
                std::fs::remove_file(path).expect("removed");
            }
        }),
        ("the end of segment", |d| zero_tail(d, 16_000)),
        (
            "checkpoint 1 (checkpoint/0000000000000001.ckpt) is missing",
            |d| {
                std::fs::remove_dir_all(d.join("checkpoint")).expect("removed");
            },
        ),
    ];
    for (words, damage) in damages {
        copy(&kept, &data);
        damage(&data);
        let said = refused_start(&mut s, &[]).await;
        assert!(said.contains("log is missing in"), "{said}");
        assert!(said.contains(words), "not {words}: {said}");
        let first = said.find("canon promote --force").expect("a way out");
        assert!(said[first..].contains("accept"), "{said}");
        // Nothing makes it start the second time.
        let again = refused_start(&mut s, &[]).await;
        assert!(again.contains(words), "not {words}: {again}");
    }
    // What is whole starts; so does a directory that no anchor was written in, which gets one.
    copy(&kept, &data);
    let anchor = data.join("CANON_ANCHOR");
    std::fs::remove_file(&anchor).expect("there was one");
    s.launch();
    s.ready().await;
    assert_eq!(count(&s.connect().await).await, "2419");
    assert_eq!(
        std::fs::metadata(&anchor).expect("there is one").len(),
        8192
    );
    let whole = s.connect().await;
    write(&whole, 5000, 1).await;
    drop(whole);
    // A crash leaves an end that the anchor has not seen, and one that is torn.
    s.kill();
    s.launch();
    s.ready().await;
    assert_eq!(count(&s.connect().await).await, "2420");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shorter_log_is_accepted_at_its_end_once_and_that_is_recorded() {
    if skip() {
        return;
    }
    let mut s = Server::start_with(&[SMALL]).await;
    let c = s.connect().await;
    table(&c).await;
    for n in 1..=40 {
        write(&c, n, 1).await;
    }
    drop(c);
    stop(&mut s).await;
    // Nothing is missing yet.
    let said = refused_start(&mut s, &["--accept-log-end", "1.1"]).await;
    assert!(said.contains("is whole"), "{said}");
    let data = s.data_dir();
    zero_tail(&data, 16_000);
    let said = refused_start(&mut s, &[]).await;
    let end = end_in(&said);
    assert!(said.contains(&format!("--accept-log-end {end}")), "{said}");
    for wrong in ["1.1", "99999.7"] {
        let said = refused_start(&mut s, &["--accept-log-end", wrong]).await;
        assert!(said.contains(&format!("ends at {end}")), "{said}");
    }
    assert!(!data.join("CANON_ACCEPTED").exists());
    let terms = std::fs::read_to_string(data.join("CANON_TERMS")).unwrap_or_default();

    s.launch_with(&["--accept-log-end", &end]);
    s.ready().await;
    let c = s.connect().await;
    let left: usize = count(&c).await.parse().expect("a number");
    assert!((20..40).contains(&left), "{left}");
    assert!(log(&s).contains("accepted without its end"), "{}", log(&s));
    let record = std::fs::read_to_string(data.join("CANON_ACCEPTED")).expect("a record");
    assert!(record.starts_with(&format!("{end} ")), "{record}");
    // What was lost may be elsewhere, under this term: another begins.
    let now = std::fs::read_to_string(data.join("CANON_TERMS")).expect("terms");
    assert!(now != terms && now.trim_end().ends_with(&end), "{now}");
    for n in 100..140 {
        write(&c, n, 1).await;
    }
    drop(c);
    stop(&mut s).await;
    // Left in a script it does nothing any more, and is not good for another loss.
    s.launch_with(&["--accept-log-end", &end]);
    s.ready().await;
    assert_eq!(count(&s.connect().await).await, (left + 40).to_string());
    stop(&mut s).await;
    zero_tail(&data, 16_000);
    let said = refused_start(&mut s, &["--accept-log-end", &end]).await;
    assert!(said.contains("used once before"), "{said}");
    let next = end_in(&refused_start(&mut s, &[]).await);
    s.launch_with(&["--accept-log-end", &next]);
    s.ready().await;
}

/// A primary that has lost acknowledged commits, of which its anchor is too old to know; and its replica, which has them.
async fn lost_tail(synchronous: &str) -> (Server, Server) {
    let mut p = Server::start_with(&[SMALL, ("CANON_SYNCHRONOUS_REPLICAS", synchronous)]).await;
    let r = replica_with(&p, "only", &[("CANON_SYNCHRONOUS_REPLICAS", synchronous)]).await;
    let c = p.connect().await;
    table(&c).await;
    write(&c, 1, 10).await;
    let anchor = std::fs::read(p.data_dir().join("CANON_ANCHOR")).expect("an anchor");
    for n in 11..=60 {
        write(&c, n, 1).await;
    }
    on_disk(&c, "only").await;
    p.kill();
    zero_tail(&p.data_dir(), 40_000);
    std::fs::write(p.data_dir().join("CANON_ANCHOR"), anchor).expect("written");
    (p, r)
}

/// The replica takes over with all that was acknowledged, and the old primary follows it.
async fn replica_takes_over(p: &mut Server, r: &Server, rows_there: &str) {
    assert!(!r.data_dir().join("set-aside").exists());
    promote(r, &["--force", "--old-primary-is-down"]);
    let of = format!("{}:{}", r.host, r.port);
    p.set_env(&[SMALL, ("CANON_REPLICA_OF", &of), ("CANON_NODE_NAME", "old")]);
    p.launch();
    p.ready().await;
    let c = r.connect().await;
    let deadline = Instant::now() + PATIENCE;
    while count(&c).await != rows_there {
        assert!(Instant::now() < deadline, "{}", count(&c).await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_equal(&c, p).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_whose_replica_is_ahead_does_not_serve() {
    if skip() {
        return;
    }
    for synchronous in ["1", "0"] {
        let (mut p, r) = lost_tail(synchronous).await;
        let said = refused_start(&mut p, &[]).await;
        assert!(
            said.contains("this primary has lost log: replica only at 127.0.0.1:"),
            "{said}"
        );
        let first = said
            .find("canon promote --force --old-primary-is-down")
            .expect("a way out");
        assert!(said[first..].contains("empty data directory"), "{said}");
        let again = refused_start(&mut p, &[]).await;
        assert!(again.contains("this primary has lost log"), "{again}");
        replica_takes_over(&mut p, &r, "60").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_meets_a_replica_ahead_of_it_stops() {
    if skip() {
        return;
    }
    let (mut p, mut r) = lost_tail("0").await;
    r.kill();
    // Nobody can tell it what it has lost.
    p.launch();
    p.ready().await;
    let c = p.connect().await;
    let left: usize = count(&c).await.parse().expect("a number");
    assert!(left < 60, "{left}");
    // It writes on, behind what it has lost.
    for n in 1000..1010 {
        write(&c, n, 1).await;
    }
    drop(c);
    let before = log(&p).len();
    r.launch();
    let status = p.exited(PATIENCE).await;
    let said = log(&p)[before..].to_owned();
    assert!(status.is_some_and(|s| !s.success()), "{said}");
    assert!(
        said.contains("this primary has lost log: replica only"),
        "{said}"
    );
    r.ready().await;
    replica_takes_over(&mut p, &r, "60").await;
    // What it wrote alone is set aside: the promotion cut it off.
    assert!(p.data_dir().join("set-aside").exists());
}

/// What a replica is sent after it was a primary for a moment, by mistake, is no gap in its log: nothing is ahead of it when it takes over.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_was_started_as_a_primary_by_mistake_takes_over_later() {
    if skip() {
        return;
    }
    let mut p = Server::start_with(&[SMALL]).await;
    let mut r = replica_with(&p, "heir", &[SMALL]).await;
    let c = p.connect().await;
    table(&c).await;
    write(&c, 1, 10).await;
    assert_equal(&c, &r).await;
    stop(&mut r).await;
    r.set_env(&[SMALL]);
    r.launch();
    r.ready().await;
    stop(&mut r).await;
    let of = format!("{}:{}", p.host, p.port);
    r.set_env(&[
        SMALL,
        ("CANON_REPLICA_OF", &of),
        ("CANON_NODE_NAME", "heir"),
    ]);
    r.launch();
    r.ready().await;
    write(&c, 11, 10).await;
    assert_equal(&c, &r).await;
    drop(c);
    promote(&r, &[]);
    stop(&mut p).await;
    let of = format!("{}:{}", r.host, r.port);
    p.set_env(&[SMALL, ("CANON_REPLICA_OF", &of), ("CANON_NODE_NAME", "old")]);
    p.launch();
    p.ready().await;
    let c = r.connect().await;
    write(&c, 21, 10).await;
    assert_equal(&c, &p).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_lost_log_does_not_start_and_is_filled_anew() {
    if skip() {
        return;
    }
    let p = Server::start_with(&[SMALL]).await;
    let mut r = replica_with(&p, "short", &[SMALL]).await;
    let c = p.connect().await;
    table(&c).await;
    for n in 1..=60 {
        write(&c, n, 1).await;
    }
    assert_equal(&c, &r).await;
    stop(&mut r).await;
    let data = r.data_dir();
    zero_tail(&data, 40_000);
    let said = refused_start(&mut r, &[]).await;
    assert!(said.contains("the end of segment"), "{said}");
    std::fs::remove_dir_all(data.join("wal")).expect("removed");
    let said = refused_start(&mut r, &[]).await;
    assert!(said.contains("wal/ holds no segment"), "{said}");
    std::fs::remove_dir_all(&data).expect("removed");
    r.launch();
    r.ready().await;
    assert_equal(&c, &r).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_does_not_answer_keeps_nobody_from_serving() {
    if skip() {
        return;
    }
    let mut p = Server::start_with(&[SMALL]).await;
    let r = replica_with(&p, "silent", &[SMALL]).await;
    let c = p.connect().await;
    table(&c).await;
    write(&c, 1, 10).await;
    on_disk(&c, "silent").await;
    drop(c);
    let known = std::fs::read_to_string(p.data_dir().join("CANON_REPLICAS")).expect("known");
    assert_eq!(known, format!("127.0.0.1:{} silent\n", r.port));
    // It takes connections, and says nothing.
    signal(&r, "-STOP");
    p.kill();
    p.launch();
    p.ready().await;
    assert!(
        log(&p).contains("did not say within 2s how far it is"),
        "{}",
        p.log_tail()
    );
    let c = p.connect().await;
    write(&c, 11, 10).await;
    signal(&r, "-CONT");
    assert_equal(&c, &r).await;
}
