//! `canon backup` and `canon restore`: beside a server at work, of a replica, to a position and to a time.

use super::common::{PATIENCE, Server};
use super::helpers::*;
use super::under_load::{Filler, starts_whole};
use super::{canon, canon_with, text};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A folder for an archive, and its URL.
pub fn place() -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().expect("a folder");
    let url = format!("file://{}", dir.path().display());
    (dir, url)
}

/// The last word of what a backup said of its end: the position.
pub fn position(said: &str) -> String {
    let line = said.lines().find(|l| l.contains("up to position"));
    let word = line.and_then(|l| l.rsplit(' ').next());
    word.unwrap_or_else(|| panic!("{said}")).to_owned()
}

/// A server in a directory that was restored with these words more, and variables for the command.
pub fn restored(url: &str, words: &[&str], env: &[(&str, &str)]) -> Server {
    let new = Server::canon(&[]);
    let to = new.data_dir();
    let mut all = vec!["restore", "--from", url, "--to", text(&to)];
    all.extend(words);
    let (fine, said) = canon_with(&all, env);
    assert!(fine && said.contains("nothing is wrong"), "{said}");
    new
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_under_load_is_good_every_time_and_copies_what_is_new() {
    if skip() {
        return;
    }
    let s = Server::start_with(&[("CANON_SEGMENT_BYTES", "1MB")]).await;
    let c = s.connect().await;
    bank(&c).await;
    let movers = Movers::start(&s, 3).await;
    let filler = Filler::start(&s).await;
    let (_dir, url) = place();
    let data = s.data_dir();
    for n in 0..6 {
        movers.some(20).await;
        let acknowledged = movers.done.load(Ordering::SeqCst);
        let (fine, said) = canon(&["backup", "--data", text(&data), "--to", &url]);
        assert!(fine && said.contains("nothing is wrong"), "{n}: {said}");
        starts_whole(&mut restored(&url, &[], &[]), acknowledged).await;
    }
    let acknowledged = movers.done.load(Ordering::SeqCst);
    let (fine, said) = canon(&["backup", "--data", text(&data), "--to", &url, "--keep", "1"]);
    assert!(fine && said.contains("were removed"), "{said}");
    filler.stop().await;
    movers.stop().await;
    starts_whole(&mut restored(&url, &[], &[]), acknowledged).await;
    // Not over what is there.
    let (fine, said) = canon(&["restore", "--from", &url, "--to", text(&data)]);
    assert!(!fine && said.contains("is not empty"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_goes_back_to_a_position_or_a_time() {
    if skip() {
        return;
    }
    let (_dir, url) = place();
    let s = Server::start().await;
    let c = s.connect().await;
    bank(&c).await;
    let data = s.data_dir();
    let back_up = || {
        let (fine, said) = canon(&["backup", "--data", text(&data), "--to", &url]);
        assert!(fine, "{said}");
        position(&said)
    };
    rows(&c, "INSERT INTO moves (sum) VALUES (1)").await;
    let first = back_up();
    let time = one(
        &c,
        "SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')",
    )
    .await;
    rows(
        &c,
        "DELETE FROM moves; UPDATE accounts SET balance = 0; DROP TABLE accounts",
    )
    .await;
    back_up();
    for words in [
        ["--to-position", first.as_str()],
        ["--to-time", time.as_str()],
    ] {
        let mut new = restored(&url, &words, &[]);
        new.launch();
        new.ready().await;
        let d = new.connect().await;
        assert_eq!(
            one(&d, "SELECT sum(balance) FROM accounts").await,
            TOTAL.to_string()
        );
        assert_eq!(one(&d, "SELECT sum(sum) FROM moves").await, "1");
        rows(&d, "INSERT INTO moves (sum) VALUES (2)").await;
    }
    let mut new = restored(&url, &[], &[]);
    new.launch();
    new.ready().await;
    let d = new.connect().await;
    assert_eq!(refused(&d, "TABLE accounts").await.0, "42P01");
    assert_eq!(one(&d, "SELECT count(*) FROM moves").await, "0");
    // It is another cluster: a replica of the old one does not follow it.
    let of = |s: &Server| {
        std::fs::read_to_string(s.data_dir().join("CANON_VERSION")).expect("it is there")
    };
    assert_ne!(of(&new), of(&s));
    for (words, why) in [
        (["--to-time", "1999-01-01T00:00:00Z"], "holds no moment"),
        (["--to-time", "yesterday"], "a time with its zone is meant"),
        (["--cluster", "abc"], "the archive does not hold it"),
    ] {
        let never = Server::canon(&[]);
        let to = never.data_dir();
        let mut all = vec!["restore", "--from", url.as_str(), "--to", text(&to)];
        all.extend(words);
        let (fine, said) = canon(&all);
        assert!(!fine && said.contains(why), "{said}");
        assert!(!to.join("CANON_VERSION").exists());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_is_backed_up_too() {
    if skip() {
        return;
    }
    let s = Server::start().await;
    let c = s.connect().await;
    bank(&c).await;
    let r = replica(&s, "r").await;
    rows(&c, "INSERT INTO moves (sum) VALUES (5)").await;
    on_disk(&c, "r").await;
    let (_dir, url) = place();
    let (fine, said) = canon(&["backup", "--data", text(&r.data_dir()), "--to", &url]);
    assert!(fine, "{said}");
    starts_whole(&mut restored(&url, &[], &[]), 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_primary_archives_is_restored_and_a_backup_brings_the_rest() {
    if skip() {
        return;
    }
    let (dir, url) = place();
    let env = [
        ("CANON_ARCHIVE", url.as_str()),
        ("CANON_SEGMENT_BYTES", "1MB"),
        ("CANON_ARCHIVE_CHECKPOINTS", "3"),
    ];
    let s = Server::start_with(&env).await;
    let c = s.connect().await;
    bank(&c).await;
    rows(&c, "CREATE TABLE filler (id serial PRIMARY KEY, x text)").await;
    let fill = "INSERT INTO filler (x) SELECT repeat('x', 3000) FROM generate_series(1, 200)";
    let cluster = || {
        std::fs::read_dir(dir.path())
            .ok()?
            .next()?
            .ok()
            .map(|e| e.path())
    };
    let term = || {
        std::fs::read_dir(cluster()?)
            .ok()?
            .next()?
            .ok()
            .map(|e| e.path())
    };
    let count = |what: &str, end: &str| {
        let files = term().and_then(|t| std::fs::read_dir(t.join(what)).ok());
        let names = files.into_iter().flatten().flatten().map(|e| e.file_name());
        names.filter(|n| n.to_string_lossy().ends_with(end)).count()
    };
    for n in 1..=5 {
        rows(&c, &format!("INSERT INTO moves (sum) VALUES ({n})")).await;
        rows(&c, fill).await;
        rows(&c, "CHECKPOINT").await;
        let deadline = Instant::now() + PATIENCE;
        while count("checkpoint", ".ckpt") < n.min(3) || count("wal", ".wal") < n / 2 {
            assert!(Instant::now() < deadline, "{}", s.log_tail());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    let deadline = Instant::now() + PATIENCE;
    while count("times", "") == 0 {
        assert!(Instant::now() < deadline, "{}", s.log_tail());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let data = s.data_dir();
    let (fine, said) = canon(&["backup", "--data", text(&data), "--to", &url]);
    assert!(fine, "{said}");
    drop(s);
    let (fine, said) = canon(&["verify", "--archive", text(dir.path())]);
    assert!(fine, "{said}");
    starts_whole(&mut restored(&url, &[], &[]), 5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_million_rows_and_a_point_in_time() {
    if skip() {
        return;
    }
    const ROWS: u64 = 1_000_000;
    let (_dir, url) = place();
    let s = Server::start().await;
    let c = s.connect().await;
    rows(&c, "CREATE TABLE many (id int PRIMARY KEY, v int NOT NULL)").await;
    for n in 0..10 {
        let (from, to) = (n * ROWS / 10 + 1, (n + 1) * ROWS / 10);
        let sql = format!("INSERT INTO many SELECT g, g % 97 FROM generate_series({from}, {to}) g");
        rows(&c, &sql).await;
        if n == 4 {
            // So that the state is made of a checkpoint and of log.
            rows(&c, "CHECKPOINT").await;
        }
    }
    let state =
        "SELECT count(*)::text || ' ' || sum(v)::text || ' ' || sum(id::bigint)::text FROM many";
    let before = one(&c, state).await;
    assert!(before.starts_with(&format!("{ROWS} ")), "{before}");
    let data = s.data_dir();
    let back_up = || {
        let (fine, said) = canon(&["backup", "--data", text(&data), "--to", &url]);
        assert!(fine && said.contains("nothing is wrong"), "{said}");
    };
    back_up();
    let time = one(
        &c,
        "SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')",
    )
    .await;
    rows(
        &c,
        "UPDATE many SET v = 0 WHERE id % 100 = 0; DELETE FROM many WHERE id <= 5",
    )
    .await;
    let after = one(&c, state).await;
    assert_ne!(before, after);
    back_up();
    // The look at the new directory is the other tests'; here the rows are counted.
    for (words, wanted) in [
        (vec!["--no-verify", "--to-time", time.as_str()], before),
        (vec!["--no-verify"], after),
    ] {
        let mut new = Server::canon(&[]);
        let to = new.data_dir();
        let mut all = vec!["restore", "--from", url.as_str(), "--to", text(&to)];
        all.extend(words);
        let (fine, said) = canon(&all);
        assert!(fine, "{said}");
        new.launch();
        new.ready().await;
        assert_eq!(one(&new.connect().await, state).await, wanted);
    }
}
