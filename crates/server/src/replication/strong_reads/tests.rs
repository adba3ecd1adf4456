//! Reads that arrive as their node is promoted.

use super::*;
use base::{Consistency, ReadPolicy};
use futures::FutureExt;
use node::NodeOptions;

fn strong_reads(path: &std::path::Path) -> Arc<StrongReads> {
    drop(Node::open(path, NodeOptions::default()).expect("a new database"));
    let options = NodeOptions {
        replica: true,
        ..NodeOptions::default()
    };
    let node = Arc::new(Node::open(path, options).expect("a replica"));
    let primary = Primary::parse("127.0.0.1:1").expect("an address");
    Arc::new(StrongReads::new(primary, "reader".into(), node, Env::os()))
}

/// Nobody serves the lanes any more, and who waited was woken.
fn promote(f: &StrongReads) {
    f.node.promote().expect("promoted");
    f.disconnected();
}

fn want(policy: ReadPolicy) -> ReadWant {
    ReadWant {
        consistency: Consistency::Strong,
        arrived: 1,
        policy,
    }
}

#[test]
fn a_read_that_finds_its_node_promoted_does_not_wait_for_an_answer() {
    let scratch = tempfile::tempdir().expect("a directory");
    let f = strong_reads(scratch.path());
    let mine = want(ReadPolicy::ReadWait);
    let ReadPoint::Wait(asks) = f.read_point(&mine, &Vec::new) else {
        panic!("there is no timestamp");
    };
    promote(&f);
    assert!(matches!(asks.now_or_never(), Some(Ok(ReadPoint::Newest))));
    // It had looked whether the node is a replica before it was none.
    let mine = want(ReadPolicy::Tracker);
    let found = f.fetched(Placing::new(mine), &mine, &Vec::new);
    assert!(matches!(found, ReadPoint::Newest));
}

#[test]
fn a_read_that_waits_is_woken_by_a_promotion() {
    let scratch = tempfile::tempdir().expect("a directory");
    let f = strong_reads(scratch.path());
    let mine = want(ReadPolicy::Tracker);
    let ReadPoint::Wait(mut waits) = f.read_point(&mine, &Vec::new) else {
        panic!("there is no timestamp");
    };
    assert!((&mut waits).now_or_never().is_none());
    promote(&f);
    assert!(matches!(waits.now_or_never(), Some(Ok(ReadPoint::Newest))));
}
