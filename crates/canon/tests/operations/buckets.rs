//! Archives in a bucket: backups, a primary's archive, restores, and what is said when the bucket says no or is gone.
//!
//! The bucket is moto's, which checks signatures (`bucket.py`). One server of it serves all tests of the program, each below a prefix of its own.

use super::backups::{position, restored};
use super::common::{PATIENCE, Server, tests_dir};
use super::helpers::*;
use super::under_load::starts_whole;
use super::{canon_with, text};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// A server, and the keys of its user.
struct Bucket {
    port: u16,
    key: String,
    secret: String,
}

/// A Python that imports moto.
fn python() -> PathBuf {
    if let Some(python) = std::env::var_os("CANON_MOTO") {
        return python.into();
    }
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| tests_dir().join("../../../target"), PathBuf::from);
    target.join("clients/moto/bin/python")
}

/// It ends when this process does, because its standard input does.
fn bucket() -> &'static Bucket {
    static ONE: OnceLock<Bucket> = OnceLock::new();
    ONE.get_or_init(|| {
        let mut child = Command::new(python())
            .arg(tests_dir().join("operations/bucket.py"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a Python with moto: `cargo xtask clients` installs it");
        let mut line = String::new();
        let mut said = BufReader::new(child.stdout.take().expect("a pipe"));
        said.read_line(&mut line).expect("it says where it is");
        let words: Vec<&str> = line.split_whitespace().collect();
        let [port, key, secret] = words[..] else {
            panic!("moto did not start: {line:?}");
        };
        let bucket = Bucket {
            port: port.parse().expect("a port"),
            key: key.into(),
            secret: secret.into(),
        };
        // Its standard input stays open for as long as this process lives.
        std::mem::forget(child);
        bucket
    })
}

impl Bucket {
    /// The variables of its user, through this port.
    fn variables(&self, port: u16) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}")),
            ("AWS_ACCESS_KEY_ID", self.key.clone()),
            ("AWS_SECRET_ACCESS_KEY", self.secret.clone()),
            ("NO_PROXY", "127.0.0.1".into()),
        ]
    }
}

fn as_text(variables: &[(&'static str, String)]) -> Vec<(&'static str, &'static str)> {
    let leak = |(n, v): &(&'static str, String)| (*n, &*v.clone().leak());
    variables.iter().map(leak).collect()
}

/// A server with three rows of books, and its directory.
async fn some_server(more: &[(&str, &str)]) -> (Server, tokio_postgres::Client) {
    let mut env = vec![("CANON_SEGMENT_BYTES", "1MB")];
    env.extend(more);
    let s = Server::start_with(&env).await;
    let c = s.connect().await;
    bank(&c).await;
    rows(&c, "CREATE TABLE filler (id serial PRIMARY KEY, x text)").await;
    (s, c)
}

async fn fill(c: &tokio_postgres::Client) {
    let sql = "INSERT INTO filler (x) SELECT repeat('x', 3000) FROM generate_series(1, 800)";
    rows(c, sql).await;
}

/// How many segments a backup said were new.
fn new_segments(said: &str) -> u64 {
    let word = said.split_whitespace().next();
    let n = word.and_then(|w| w.parse().ok());
    n.unwrap_or_else(|| panic!("{said}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_takes_backups_and_gives_them_back() {
    if skip() {
        return;
    }
    let env = as_text(&bucket().variables(bucket().port));
    let url = "s3://backups/whole/and/parts";
    let (s, c) = some_server(&[]).await;
    let data = s.data_dir();
    let back_up = |more: &[&str]| {
        let mut words = vec!["backup", "--data", text(&data), "--to", url];
        words.extend(more);
        let (fine, said) = canon_with(&words, &env);
        assert!(fine && said.contains("nothing is wrong"), "{said}");
        said
    };
    fill(&c).await;
    rows(&c, "INSERT INTO moves (sum) VALUES (1)").await;
    let first = back_up(&[]);
    assert!(new_segments(&first) >= 3, "{first}");
    rows(&c, "INSERT INTO moves (sum) VALUES (2)").await;
    // Only the beginning of the last segment is new.
    let second = back_up(&[]);
    assert_eq!(new_segments(&second), 1, "{second}");
    let (fine, said) = canon_with(&["verify", "--archive", url], &env);
    assert!(fine && said.contains("a directory can be made"), "{said}");
    for (words, sum) in [
        (&[][..], "3"),
        (&["--to-position", position(&first).as_str()][..], "1"),
    ] {
        let mut new = restored(url, words, &env);
        new.launch();
        new.ready().await;
        let d = new.connect().await;
        assert_eq!(one(&d, "SELECT sum(sum) FROM moves").await, sum);
        assert_eq!(one(&d, "SELECT count(*) FROM filler").await, "800");
    }
    // What no kept checkpoint needs goes, and the rest is whole.
    rows(&c, "CHECKPOINT").await;
    fill(&c).await;
    rows(&c, "CHECKPOINT").await;
    let third = back_up(&["--keep", "1"]);
    assert!(third.contains("were removed"), "{third}");
    starts_whole(&mut restored(url, &[], &env), 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_archives_to_a_bucket() {
    if skip() {
        return;
    }
    let url = "s3://backups/by-a-primary";
    let env = as_text(&bucket().variables(bucket().port));
    let mut all = vec![("CANON_ARCHIVE", url)];
    all.extend(&env);
    let (s, c) = some_server(&all).await;
    fill(&c).await;
    rows(&c, "CHECKPOINT").await;
    rows(&c, "INSERT INTO moves (sum) VALUES (1)").await;
    let deadline = Instant::now() + PATIENCE;
    while !canon_with(&["verify", "--archive", url], &env)
        .1
        .contains("a directory can be made")
    {
        assert!(Instant::now() < deadline, "{}", s.log_tail());
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let data = s.data_dir();
    let (fine, said) = canon_with(&["backup", "--data", text(&data), "--to", url], &env);
    assert!(fine, "{said}");
    starts_whole(&mut restored(url, &[], &env), 1).await;
    // The secret is in no log.
    assert!(!s.log_tail().contains(&bucket().secret));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_bucket_refuses_is_said() {
    if skip() {
        return;
    }
    let fine = bucket().variables(bucket().port);
    let (s, _c) = some_server(&[]).await;
    let data = s.data_dir();
    let never = Server::canon(&[]);
    let to = never.data_dir();
    let url = "s3://backups/refused";
    let with = |name: &'static str, value: &str| {
        let mut all = fine.clone();
        all.push((name, value.to_owned()));
        as_text(&all)
    };
    for (url, env, whys) in [
        (
            url,
            with("AWS_SECRET_ACCESS_KEY", "a-wrong-secret"),
            &["403", "SignatureDoesNotMatch"][..],
        ),
        (
            url,
            with("AWS_ACCESS_KEY_ID", "AKIANOBODY"),
            &["403", "InvalidAccessKeyId"][..],
        ),
        (
            "s3://no-such-bucket/x",
            with("AWS_REGION", "us-east-1"),
            &["404", "NoSuchBucket"][..],
        ),
        (
            url,
            with("AWS_SECRET_ACCESS_KEY", ""),
            &["AWS_SECRET_ACCESS_KEY is not set"][..],
        ),
        (
            url,
            with("AWS_ENDPOINT_URL", "http://127.0.0.1:9"),
            &["s3://backups/refused at 127.0.0.1:9", "4 attempts"][..],
        ),
        (
            "s3://Backups",
            with("AWS_REGION", "x"),
            &["small letters"][..],
        ),
    ] {
        for words in [
            ["backup", "--data", text(&data), "--to", url],
            ["restore", "--from", url, "--to", text(&to)],
        ] {
            let (done, said) = canon_with(&words, &env);
            assert!(!done, "{words:?}: {said}");
            for why in whys {
                assert!(said.contains(why), "{words:?}: {why}: {said}");
            }
            assert!(!said.contains(&bucket().secret), "{said}");
            assert!(!said.contains("a-wrong-secret"), "{said}");
        }
        assert!(!to.join("CANON_VERSION").exists());
    }
}

/// A way to the bucket that breaks every connection once so many bytes have passed in all; how many broke.
struct Way {
    port: u16,
    left: Arc<AtomicI64>,
    broken: Arc<AtomicUsize>,
}

impl Way {
    fn to(port: u16) -> Way {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let way = Way {
            port: listener.local_addr().expect("bound").port(),
            left: Arc::new(AtomicI64::new(i64::MAX)),
            broken: Arc::default(),
        };
        let (left, broken) = (way.left.clone(), way.broken.clone());
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let far = TcpStream::connect(("127.0.0.1", port)).expect("the bucket is there");
                for (mut from, mut to) in [
                    (near.try_clone(), far.try_clone()),
                    (far.try_clone(), near.try_clone()),
                ]
                .map(|(a, b)| (a.expect("a socket"), b.expect("a socket")))
                {
                    let (left, broken) = (left.clone(), broken.clone());
                    std::thread::spawn(move || {
                        let mut buf = [0; 16 << 10];
                        while let Ok(n @ 1..) = from.read(&mut buf) {
                            if left.fetch_sub(n as i64, Ordering::SeqCst) < n as i64 {
                                broken.fetch_add(1, Ordering::SeqCst);
                                break;
                            }
                            if to.write_all(&buf[..n]).is_err() {
                                break;
                            }
                        }
                        _ = from.shutdown(Shutdown::Both);
                        _ = to.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        way
    }

    fn open_for(&self, bytes: i64) {
        self.left.store(bytes, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_that_goes_in_the_middle_leaves_what_the_next_backup_goes_on_from() {
    if skip() {
        return;
    }
    let way = Way::to(bucket().port);
    let env = as_text(&bucket().variables(way.port));
    let url = "s3://backups/in-the-middle";
    let (s, c) = some_server(&[]).await;
    fill(&c).await;
    rows(&c, "INSERT INTO moves (sum) VALUES (1)").await;
    let data = s.data_dir();
    let back_up = || canon_with(&["backup", "--data", text(&data), "--to", url], &env);
    way.open_for(1_500_000);
    let (fine, said) = back_up();
    assert!(!fine && said.contains("4 attempts"), "{said}");
    assert!(way.broken.load(Ordering::SeqCst) >= 4, "{said}");
    way.open_for(i64::MAX);
    let (fine, said) = back_up();
    assert!(fine && said.contains("nothing is wrong"), "{said}");
    // One segment was whole when the bucket went. It is not copied again.
    assert!(new_segments(&said) >= 2, "{said}");
    let never = Server::canon(&[]);
    let to = never.data_dir();
    way.open_for(1_500_000);
    let (fine, said) = canon_with(&["restore", "--from", url, "--to", text(&to)], &env);
    assert!(!fine && said.contains("attempts"), "{said}");
    assert!(!to.join("CANON_VERSION").exists());
    way.open_for(i64::MAX);
    starts_whole(&mut restored(url, &[], &env), 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_that_is_longer_than_a_part_goes_in_parts() {
    if skip() {
        return;
    }
    let env = as_text(&bucket().variables(bucket().port));
    let url = "s3://backups/in-parts";
    let (s, c) = some_server(&[]).await;
    let sql = "INSERT INTO filler (x) SELECT repeat('x', 3000) FROM generate_series(1, 24000)";
    rows(&c, sql).await;
    rows(&c, "CHECKPOINT").await;
    rows(&c, "INSERT INTO moves (sum) VALUES (1)").await;
    let checkpoints = std::fs::read_dir(s.data_dir().join("checkpoint")).expect("a folder");
    let lengths = checkpoints.map(|f| f.and_then(|f| f.metadata()).map_or(0, |m| m.len()));
    assert!(
        lengths.max() > Some(64 << 20),
        "it is no longer than a part"
    );
    let data = s.data_dir();
    let (fine, said) = canon_with(&["backup", "--data", text(&data), "--to", url], &env);
    assert!(fine && said.contains("nothing is wrong"), "{said}");
    let mut new = restored(url, &[], &env);
    new.launch();
    new.ready().await;
    let d = new.connect().await;
    let sum = "SELECT count(*)::text || ' ' || sum(length(x))::text FROM filler";
    assert_eq!(one(&d, sum).await, "24000 72000000");
    assert_eq!(one(&d, "SELECT sum(sum) FROM moves").await, "1");
}

/// A program that renews keys writes them to a file. The server is not started again.
#[tokio::test(flavor = "multi_thread")]
async fn keys_in_a_file_are_read_again_when_they_are_refused() {
    if skip() {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("keys");
    let write = |secret: &str| {
        let key = &bucket().key;
        let text =
            format!("[default]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n");
        std::fs::write(&file, text).expect("written");
    };
    write("ended");
    let (fine, url) = (
        as_text(&bucket().variables(bucket().port)),
        "s3://backups/renewed",
    );
    let endpoint = fine.iter().find(|v| v.0 == "AWS_ENDPOINT_URL");
    let (s, c) = some_server(&[
        ("CANON_ARCHIVE", url),
        ("CANON_BACKUP_EVERY", "1s"),
        *endpoint.expect("it is said"),
        ("NO_PROXY", "127.0.0.1"),
        ("AWS_SHARED_CREDENTIALS_FILE", text(&file)),
    ])
    .await;
    rows(&c, "INSERT INTO moves (sum) VALUES (1)").await;
    let deadline = Instant::now() + PATIENCE;
    while !s.log_tail().contains("SignatureDoesNotMatch") {
        assert!(Instant::now() < deadline, "{}", s.log_tail());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    write(&bucket().secret);
    while !canon_with(&["backup", "list", "--from", url], &fine)
        .1
        .contains("read whole at")
    {
        assert!(Instant::now() < deadline, "{}", s.log_tail());
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    starts_whole(&mut restored(url, &[], &fine), 1).await;
}
