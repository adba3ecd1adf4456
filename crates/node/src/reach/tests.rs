//! A log that has lost its end below a checkpoint: refused, and begun anew where the loss is accepted.

use crate::{Node, NodeOptions};
use base::record::CommitBuilder;
use base::{Position, Result, SqlState};
use env::{Env, MemDisk, OpenMode};
use std::path::Path;
use std::sync::Arc;
use wal::LogReader;

fn open(disk: &MemDisk, accept: Option<Position>) -> Result<Node> {
    let options = NodeOptions {
        env: Env {
            disk: Arc::new(disk.clone()),
            ..Env::os()
        },
        threads: false,
        segment_bytes: 16 << 10,
        accept_log_end: accept,
        ..NodeOptions::default()
    };
    Node::open(Path::new("/d"), options)
}

/// One commit, a group of its own; its position.
fn commit(node: &Node) -> Position {
    let (at, ticket) = node.order().begin().expect("it leads");
    let (heads, data) = CommitBuilder::new().finish(at, 0);
    node.order().ready(ticket, heads, data);
    node.append_step();
    node.sync_step();
    assert_eq!(node.marks().flushed.get(), at);
    at
}

/// The disk forgets all groups of the log above this.
fn forget_above(node: Node, disk: &MemDisk, keep: Position) {
    let log = node.dir().log().clone();
    let mut reader = LogReader::open(log.clone(), node.cluster(), keep).expect("a log");
    let first = reader.next_group().expect("readable").expect("a group");
    let name = log.list().expect("a list")[0];
    let (path, from) = (log.path(name), first.header().offset);
    drop((reader, log, node));
    let file = env::Disk::open(disk, &path, OpenMode::Write).expect("a file");
    let len = file.len().expect("a length");
    file.zero_fill(from, len).expect("zeroed");
    file.sync_data().expect("synced");
}

#[test]
fn a_log_that_ends_below_its_checkpoint_has_lost_something() {
    let disk = MemDisk::new();
    let node = open(&disk, None).expect("a new database");
    let known = commit(&node);
    node.anchor_step().expect("the anchor is written");
    let kept = commit(&node);
    commit(&node);
    let end = commit(&node);
    node.checkpoint_step(true).expect("a checkpoint");
    forget_above(node, &disk, kept);
    // The checkpoint has all that is missing, and the anchor does not know of it; but a replica at `known` would be sent over the gap.
    let refused = open(&disk, None).err().expect("it does not start");
    assert_eq!(refused.code(), SqlState::DATA_CORRUPTED, "{refused}");
    let node = open(&disk, Some(end)).expect("the end is accepted");
    assert_eq!(node.recovered_end(), end);
    let begun = commit(&node);
    let log = |from| LogReader::open(node.dir().log().clone(), node.cluster(), from);
    for lost in [known, kept] {
        let missing = log(lost).err();
        assert!(matches!(missing, Some(wal::Error::Missing { .. })));
    }
    let mut rest = log(end).expect("the log after the checkpoint");
    let group = rest.next_group().expect("readable").expect("a group");
    assert_eq!(group.header().last, begun);
    let facts = node.facts(None).expect("it is asked");
    assert!(facts.reaches_back_to >= kept.next(), "a copy is sent");
    drop((rest, node));
    // Accepted once: the next start asks for nothing.
    let again = open(&disk, None).expect("it starts");
    assert_eq!(again.recovered_end(), begun);
}
