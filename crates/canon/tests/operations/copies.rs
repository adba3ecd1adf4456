//! Copies of a directory in which a server is at work.

use super::common::Server;
use super::helpers::*;
use super::under_load::{Filler, starts_whole};
use super::{canon, text};
use std::fs;
use std::process::Command;
use std::sync::atomic::Ordering;

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_under_load_is_good_every_time() {
    if skip() {
        return;
    }
    let s = Server::start_with(&[("CANON_SEGMENT_BYTES", "1MB")]).await;
    let c = s.connect().await;
    bank(&c).await;
    let movers = Movers::start(&s, 3).await;
    let filler = Filler::start(&s).await;
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
    filler.stop().await;
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
