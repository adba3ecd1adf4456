//! Backups: copies of a directory in which a server is at work, and a directory made of an archive by hand.

use super::common::{PATIENCE, Server};
use super::helpers::*;
use super::{canon, text};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Statements of an operator, as docs/operations.md has them, in a shell.
fn shell(script: &str, env: &[(&str, &str)]) {
    let here = Path::new(env!("CARGO_BIN_EXE_canon")).parent();
    let path = format!("{}:{}", here.expect("a folder").display(), env!("PATH"));
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", script])
        .env("PATH", path)
        .envs(env.iter().copied())
        .output()
        .expect("a shell");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{script}\n{said}");
}

/// Checkpoints one after the other, so that segments go and are recycled all the time.
struct Checkpoints(Arc<AtomicBool>, tokio::task::JoinHandle<()>);

impl Checkpoints {
    async fn start(s: &Server) -> Checkpoints {
        let stop = Arc::new(AtomicBool::new(false));
        let c = s.connect().await;
        let asked = stop.clone();
        let task = tokio::spawn(async move {
            while !asked.load(Ordering::SeqCst) {
                rows(&c, "CHECKPOINT").await;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        Checkpoints(stop, task)
    }

    async fn stop(self) {
        self.0.store(true, Ordering::SeqCst);
        self.1.await.expect("checkpoints");
    }
}

/// A server of its own in this copy has all that was acknowledged, and its books are in order.
async fn starts_whole(server: &mut Server, acknowledged: u64) {
    server.launch();
    server.ready().await;
    let c = server.connect().await;
    let sum = one(&c, "SELECT sum(balance) FROM accounts").await;
    assert_eq!(sum, TOTAL.to_string());
    let moves: u64 = one(&c, "SELECT count(*) FROM moves")
        .await
        .parse()
        .expect("a number");
    assert!(moves >= acknowledged, "{moves} of {acknowledged}");
    rows(&c, "INSERT INTO moves (sum) VALUES (1)").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_under_load_is_good_every_time() {
    if skip() {
        return;
    }
    let s = Server::start_with(&[("CANON_SEGMENT_BYTES", "1MB")]).await;
    let c = s.connect().await;
    bank(&c).await;
    rows(&c, "CREATE TABLE filler (id serial PRIMARY KEY, x text)").await;
    let movers = Movers::start(&s, 3).await;
    let filler = Arc::new(AtomicBool::new(false));
    let (stop, f) = (filler.clone(), s.connect().await);
    let filling = tokio::spawn(async move {
        while !stop.load(Ordering::SeqCst) {
            let sql = "INSERT INTO filler (x) SELECT repeat('x', 3000) FROM generate_series(1, 40)";
            rows(&f, sql).await;
            rows(
                &f,
                "DELETE FROM filler WHERE id < (SELECT max(id) - 500 FROM filler)",
            )
            .await;
        }
    });
    let checkpoints = Checkpoints::start(&s).await;
    for n in 0..8 {
        movers.some(20).await;
        let acknowledged = movers.done.load(Ordering::SeqCst);
        let mut copy = Server::canon(&[]);
        let to = copy.data_dir();
        let (fine, said) = canon(&["copy", "--data", text(&s.data_dir()), "--to", text(&to)]);
        assert!(
            fine && said.contains("nothing is wrong"),
            "copy {n}: {said}"
        );
        let (fine, said) = canon(&["verify", "--data", text(&to)]);
        assert!(fine, "copy {n}: {said}");
        starts_whole(&mut copy, acknowledged).await;
    }
    // Not into a folder that is in use.
    let (fine, said) = canon(&[
        "copy",
        "--data",
        text(&s.data_dir()),
        "--to",
        text(&s.data_dir()),
    ]);
    assert!(
        !fine && said.contains("a copy needs a folder of its own"),
        "{said}"
    );
    // Plain cp, in whatever order: what it has is whole and complete, or is found to be damaged. Never less in silence.
    for n in 0..4 {
        movers.some(20).await;
        let acknowledged = movers.done.load(Ordering::SeqCst);
        let mut copy = Server::canon(&[]);
        let to = copy.data_dir();
        let done = Command::new("cp")
            .arg("-r")
            .arg(s.data_dir())
            .arg(&to)
            .output();
        let whole = done.expect("cp runs").status.success();
        let (fine, said) = canon(&["verify", "--data", text(&to)]);
        match fine {
            true => starts_whole(&mut copy, acknowledged).await,
            false => assert!(!whole || said.contains("damaged:"), "cp {n}: {said}"),
        }
    }
    checkpoints.stop().await;
    filler.store(true, Ordering::SeqCst);
    filling.await.expect("a filler");
    movers.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_joins_its_cluster_as_a_replica() {
    if skip() {
        return;
    }
    let s = Server::start().await;
    let c = s.connect().await;
    bank(&c).await;
    let mut copy = Server::canon(&[
        ("CANON_REPLICA_OF", &format!("{}:{}", s.host, s.port)),
        ("CANON_NODE_NAME", "from a copy"),
    ]);
    let to = copy.data_dir();
    let (fine, said) = canon(&["copy", "--data", text(&s.data_dir()), "--to", text(&to)]);
    assert!(fine, "{said}");
    rows(&c, "INSERT INTO moves (sum) VALUES (5)").await;
    copy.launch();
    copy.ready().await;
    assert_equal(&c, &copy).await;
    assert!(
        !copy.log_tail().contains("copying the primary's database"),
        "{}",
        copy.log_tail()
    );
}

/// Its replica is ahead of the copy, and no node of the cluster believes what has another secret.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_with_a_secret_of_its_own_is_looked_at() {
    if skip() {
        return;
    }
    let s = Server::start().await;
    let c = s.connect().await;
    bank(&c).await;
    let r = replica(&s, "r").await;
    let mut copy = Server::canon(&[]);
    let secret = super::common::cluster_secret(copy.scratch());
    fs::write(&secret, "e".repeat(64)).expect("written");
    let to = copy.data_dir();
    let (fine, said) = canon(&["copy", "--data", text(&s.data_dir()), "--to", text(&to)]);
    assert!(fine, "{said}");
    assert!(to.join("CANON_REPLICAS").exists());
    rows(&c, "INSERT INTO moves (sum) VALUES (5)").await;
    assert_equal(&c, &r).await;
    copy.launch();
    copy.ready().await;
    let looked = copy.connect().await;
    rows(&looked, "INSERT INTO moves (sum) VALUES (6)").await;
    rows(&c, "INSERT INTO moves (sum) VALUES (7)").await;
    assert_equal(&c, &r).await;
}

fn folders(dir: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(dir).into_iter().flatten();
    let mut all: Vec<PathBuf> = all.map(|e| e.expect("an entry").path()).collect();
    all.sort();
    all
}

/// What docs/operations.md tells to do.
const RESTORE: &str = r#"
cd "$ARCHIVE"/*/
cluster=$(basename "$PWD")
term=$(ls -d */checkpoint/*.ckpt | sort | tail -n 1 | cut -d / -f 1)
checkpoint=$(ls "$term/checkpoint" | grep ckpt$ | sort | tail -n 1)
mkdir -m 700 "$NEW" "$NEW/wal" "$NEW/checkpoint"
cp "$term/checkpoint/$checkpoint" "$NEW/checkpoint/"
cp "$term"/wal/*.wal "$NEW/wal/"
canon verify --archive "$ARCHIVE" | sed -n 's/^CANON_TERMS: //p' > "$NEW/CANON_TERMS"
printf 'canon 1\ncluster %s\n' "$cluster" > "$NEW/CANON_VERSION"
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_is_made_of_an_archive_by_hand() {
    if skip() {
        return;
    }
    let archive = tempfile::tempdir().expect("a directory");
    let url = format!("file://{}", archive.path().display());
    let s = Server::start_with(&[("CANON_ARCHIVE", &url), ("CANON_SEGMENT_BYTES", "1MB")]).await;
    let c = s.connect().await;
    bank(&c).await;
    rows(&c, "CREATE TABLE filler (id serial PRIMARY KEY, x text)").await;
    let fill = "INSERT INTO filler (x) SELECT repeat('x', 3000) FROM generate_series(1, 200)";
    for n in 0..6 {
        rows(&c, &format!("INSERT INTO moves (sum) VALUES ({n})")).await;
        rows(&c, fill).await;
        if n == 2 {
            rows(&c, "CHECKPOINT").await;
        }
    }
    let term = || folders(&folders(archive.path()).pop()?).pop();
    let count = |what: &str| {
        let files = term().map_or(vec![], |t| folders(&t.join(what)));
        let made = files
            .iter()
            .filter(|f| f.extension() != Some("tmp".as_ref()));
        made.count()
    };
    let deadline = Instant::now() + PATIENCE;
    while count("wal") < 3 || count("checkpoint") < 1 {
        assert!(Instant::now() < deadline, "{}", s.log_tail());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    drop(s);
    let (fine, said) = canon(&["verify", "--archive", text(archive.path())]);
    assert!(fine, "{said}");
    let mut restored = Server::canon(&[]);
    let new = restored.data_dir();
    shell(
        RESTORE,
        &[("ARCHIVE", text(archive.path())), ("NEW", text(&new))],
    );
    let (fine, said) = canon(&["verify", "--data", text(&new)]);
    assert!(fine, "{said}");
    restored.launch();
    restored.ready().await;
    let c = restored.connect().await;
    let found: i64 = one(&c, "SELECT count(*) FROM moves")
        .await
        .parse()
        .expect("a number");
    // All but what was in the segment that was being written.
    assert!((3..=6).contains(&found), "{found}");
    assert_eq!(
        one(&c, "SELECT sum(balance) FROM accounts").await,
        TOTAL.to_string()
    );
    rows(&c, "INSERT INTO moves (sum) VALUES (77)").await;
    let page = include_str!("../../../../docs/operations.md");
    for line in RESTORE.lines().filter(|l| !l.is_empty()) {
        assert!(page.contains(line), "docs/operations.md lacks: {line}");
    }
}
