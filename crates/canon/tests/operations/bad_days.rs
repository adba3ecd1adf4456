//! Bad situations of docs/operations.md that no other test tries.

use super::common::{PATIENCE, Server};
use super::helpers::*;
use super::{canon, text};
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_with_a_damaged_segment_is_filled_anew() {
    if skip() {
        return;
    }
    let p = Server::start().await;
    let mut r = replica(&p, "hurt").await;
    let c = p.connect().await;
    bank(&c).await;
    // Groups that were written when earlier ones were durable bear witness to them.
    for n in 0..5 {
        rows(&c, &format!("INSERT INTO moves (sum) VALUES ({n})")).await;
        on_disk(&c, "hurt").await;
    }
    assert_equal(&c, &r).await;
    r.kill();
    let data = r.data_dir();
    let segment = fs::read_dir(data.join("wal")).expect("segments");
    let mut segments: Vec<_> = segment.map(|e| e.expect("an entry").path()).collect();
    segments.retain(|p| !p.to_string_lossy().contains("spare"));
    segments.sort();
    let mut bytes = fs::read(&segments[0]).expect("a segment");
    bytes[140] ^= 1;
    fs::write(&segments[0], bytes).expect("written");
    // It does not start, and says where.
    r.launch();
    let why = r.try_ready().await.expect_err("damage");
    assert!(why.contains("exited"), "{why}");
    assert!(
        r.log_tail().contains("is damaged at offset 128"),
        "{}",
        r.log_tail()
    );
    let (fine, said) = canon(&["verify", "--data", text(&data)]);
    assert!(!fine && said.contains("at offset 128"), "{said}");
    // Another copy of all of it is at the primary.
    fs::rename(&data, data.with_file_name("data.damaged")).expect("moved aside");
    r.launch();
    r.ready().await;
    assert_equal(&c, &r).await;
    r.kill();
    let (fine, said) = canon(&["verify", "--data", text(&data)]);
    assert!(fine, "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_will_not_start_says_why() {
    if skip() {
        return;
    }
    let mut s = Server::start().await;
    let data = s.data_dir();
    let start = |more: &[&str], env: &[(&str, &str)]| {
        let output = Command::new(env!("CARGO_BIN_EXE_canon"))
            .args(["start", "--listen", "127.0.0.1:1", "--data"])
            .args(more)
            .envs(env.iter().copied())
            .output()
            .expect("canon runs");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
            + &String::from_utf8_lossy(&output.stdout)
    };
    // Another one is there.
    let said = start(&[text(&data)], &[]);
    assert!(
        said.contains("another process is using the data directory"),
        "{said}"
    );
    s.kill();
    // The wrong folder, a newer program's folder, a setting that is none.
    let other = s.scratch().join("other");
    fs::create_dir(&other).expect("made");
    fs::write(other.join("letters.txt"), "private").expect("written");
    let said = start(&[text(&other)], &[]);
    assert!(said.contains("not a data directory of Canon"), "{said}");
    let version = data.join("CANON_VERSION");
    let good = fs::read_to_string(&version).expect("a file");
    fs::write(&version, good.replace("canon 3", "canon 99")).expect("written");
    let said = start(&[text(&data)], &[]);
    assert!(said.contains("start a newer program"), "{said}");
    fs::write(&version, good).expect("written");
    let said = start(&[text(&data)], &[("CANON_SEGMENT_BYTES", "much")]);
    assert!(said.contains("segment_bytes"), "{said}");
    s.launch();
    s.ready().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_whose_directory_is_lost_comes_back_from_a_replica() {
    if skip() {
        return;
    }
    let mut p = Server::start_with(&[("CANON_SYNCHRONOUS_REPLICAS", "1")]).await;
    let r = replica(&p, "heir").await;
    let c = p.connect().await;
    bank(&c).await;
    rows(&c, "INSERT INTO moves (sum) VALUES (42)").await;
    p.kill();
    fs::remove_dir_all(p.data_dir()).expect("its disk is gone");
    promote(&r, &["--force", "--old-primary-is-down"]);
    let w = r.connect().await;
    assert_eq!(
        one(&w, "SELECT count(*) FROM moves WHERE sum = 42").await,
        "1"
    );
    // A new node in its place.
    p.set_env(&[
        ("CANON_REPLICA_OF", &format!("{}:{}", r.host, r.port)),
        ("CANON_NODE_NAME", "new"),
    ]);
    p.launch();
    p.ready().await;
    rows(&w, "INSERT INTO moves (sum) VALUES (43)").await;
    assert_equal(&w, &p).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_without_its_replicas_goes_on_with_fewer() {
    if skip() {
        return;
    }
    let mut p = Server::start_with(&[("CANON_SYNCHRONOUS_REPLICAS", "1")]).await;
    let r = replica(&p, "only").await;
    let c = p.connect().await;
    bank(&c).await;
    drop(r);
    let before = one(&c, "SELECT pg_current_wal_flush_lsn()").await;
    let waiting = p.connect().await;
    let waits = tokio::spawn(async move {
        _ = waiting
            .batch_execute("INSERT INTO moves (id, sum) VALUES (-1, 42)")
            .await;
    });
    let deadline = Instant::now() + PATIENCE;
    while one(&c, "SELECT pg_current_wal_flush_lsn()").await == before {
        assert!(Instant::now() < deadline, "nothing is flushed");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let count = "SELECT count(*) FROM moves WHERE sum = 42";
    assert_eq!(one(&c, count).await, "0", "not published");
    p.kill();
    waits.await.expect("its server is gone");
    p.set_env(&[("CANON_SYNCHRONOUS_REPLICAS", "0")]);
    p.launch();
    p.ready().await;
    let c = p.connect().await;
    assert_eq!(one(&c, count).await, "1");
    rows(&c, "INSERT INTO moves (sum) VALUES (43)").await;
    let r = replica(&p, "new").await;
    assert_equal(&c, &r).await;
}
