//! Backups by a server's own schedule: how many stay, what a fail-over changes, and what is said of one that fails.

use super::backups::{place, restored};
use super::common::{PATIENCE, Server, free_port};
use super::helpers::*;
use super::under_load::starts_whole;
use super::{canon, canon_with, text};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The backups that an archive lists: their terms and numbers; and what was said.
fn listed(url: &str) -> (Vec<(u64, u64)>, String) {
    let (fine, said) = canon(&["backup", "list", "--from", url]);
    if !fine {
        return (Vec::new(), said);
    }
    let of = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let whole = line.contains("read whole at");
        let [_, term, "checkpoint", number, ..] = words[..] else {
            return None;
        };
        whole.then(|| {
            (
                term.parse().expect("a term"),
                number.parse().expect("a number"),
            )
        })
    };
    (said.lines().filter_map(of).collect(), said)
}

/// Waits until the listing is as wanted.
async fn until_listed(s: &Server, url: &str, wanted: impl Fn(&[(u64, u64)]) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (all, said) = listed(url);
        if wanted(&all) {
            return;
        }
        assert!(Instant::now() < deadline, "{said}\n{}", s.log_tail());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn status(http: &str) -> String {
    canon(&["status", "--http", http]).1
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_makes_backups_by_itself_and_keeps_as_many_as_are_wanted() {
    if skip() {
        return;
    }
    let (_dir, url) = place();
    let http = format!("127.0.0.1:{}", free_port());
    let s = Server::start_with(&[
        ("CANON_ARCHIVE", &url),
        ("CANON_SEGMENT_BYTES", "1MB"),
        ("CANON_HTTP", &http),
        ("CANON_BACKUP_EVERY", "1s"),
        ("CANON_BACKUP_KEEP", "2"),
    ])
    .await;
    let c = s.connect().await;
    bank(&c).await;
    let movers = Movers::start(&s, 2).await;
    until_listed(&s, &url, |all| all.first().is_some_and(|b| b.1 > 2)).await;
    let acknowledged = movers.done.load(Ordering::SeqCst);
    let newest = listed(&url).0.last().expect("there are some").1;
    until_listed(&s, &url, |all| all.last().is_some_and(|b| b.1 > newest)).await;
    movers.stop().await;
    let drawn = status(&http);
    assert!(drawn.contains("in the archive, the newest of"), "{drawn}");
    assert!(drawn.contains("a restore goes back to"), "{drawn}");
    drop(s);
    // One more may have been made and not pruned after when the server stopped.
    let (all, said) = listed(&url);
    assert!((2..=3).contains(&all.len()), "{said}");
    assert!(said.contains("a restore goes back to 20"), "{said}");
    let (fine, words) = canon(&["backup", "prune", "--from", &url, "--keep", "1"]);
    assert!(fine && words.contains("were removed"), "{words}");
    assert_eq!(listed(&url).0.len(), 1);
    let (fine, words) = canon(&["verify", "--archive", &url]);
    assert!(fine && words.contains("a directory can be made"), "{words}");
    // A variable for the directory is no word of the command.
    let elsewhere = [("CANON_DATA", "/nowhere")];
    assert!(canon_with(&["backup", "list", "--from", &url], &elsewhere).0);
    let (fine, words) = canon(&["backup", "prune", "--from", &url, "--keep", "7d"]);
    assert!(fine && words.contains("0 objects were removed"), "{words}");
    starts_whole(&mut restored(&url, &[], &[]), acknowledged).await;
    let (fine, words) = canon(&["backup", "prune", "--from", &url, "--keep", "0"]);
    assert!(!fine && words.contains("a number of backups"), "{words}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_primary_makes_a_backup_at_once_and_a_replica_none() {
    if skip() {
        return;
    }
    let (_dir, url) = place();
    let env = [
        ("CANON_ARCHIVE", url.as_str()),
        ("CANON_BACKUP_EVERY", "1h"),
        ("CANON_BACKUP_KEEP", "7d"),
    ];
    let s = Server::start_with(&env).await;
    let c = s.connect().await;
    bank(&c).await;
    until_listed(&s, &url, |all| all.len() == 1).await;
    let mut r = replica_with(&s, "r", &env).await;
    rows(&c, "INSERT INTO moves (sum) VALUES (1)").await;
    on_disk(&c, "r").await;
    promote(&r, &[]);
    r.ready().await;
    let d = r.connect().await;
    rows(&d, "INSERT INTO moves (sum) VALUES (2)").await;
    until_listed(&r, &url, |all| all.len() == 2).await;
    let (all, said) = listed(&url);
    assert!(all[0].0 < all[1].0, "one of each term: {said}");
    // It starts again, and sees in the archive that none is due.
    r.kill();
    r.set_env(&[&env[..], &[("CANON_NODE_NAME", "r")]].concat());
    r.launch();
    r.ready().await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(listed(&url).0, all, "{}", r.log_tail());
    let data = r.data_dir();
    let (fine, said) = canon(&["backup", "--data", text(&data), "--to", &url, "--keep", "2"]);
    assert!(fine, "{said}");
    starts_whole(&mut restored(&url, &[], &[]), 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_that_fails_is_said_and_goes_on_later() {
    if skip() {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("place");
    std::fs::write(&file, "not a folder").expect("written");
    let url = format!("file://{}", file.display());
    let http = format!("127.0.0.1:{}", free_port());
    let s = Server::start_with(&[
        ("CANON_ARCHIVE", &url),
        ("CANON_HTTP", &http),
        ("CANON_BACKUP_EVERY", "1s"),
    ])
    .await;
    let c = s.connect().await;
    bank(&c).await;
    let deadline = Instant::now() + PATIENCE;
    while !status(&http).contains("the last backup failed: ") {
        assert!(
            Instant::now() < deadline,
            "{}\n{}",
            status(&http),
            s.log_tail()
        );
        rows(&c, "INSERT INTO moves (sum) VALUES (1)").await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    tokio::time::sleep(Duration::from_secs(4)).await;
    let log = std::fs::read_to_string(s.scratch().join("log")).expect("a log");
    assert_eq!(log.matches("the backup failed").count(), 1, "{log}");
    std::fs::remove_file(&file).expect("removed");
    until_listed(&s, &url, |all| !all.is_empty()).await;
    while !status(&http).contains("in the archive, the newest of") {
        assert!(
            Instant::now() < deadline,
            "{}\n{}",
            status(&http),
            s.log_tail()
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(!status(&http).contains("the last backup failed"));
    assert!(s.log_tail().contains("backups go on"), "{}", s.log_tail());
}
