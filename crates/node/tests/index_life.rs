//! No entry of an index outlives its record: neither while the index is being made nor after it was dropped.

mod accounts;
mod schemas;

use accounts::{TABLE, accounts, begin, define, handle, key, put};
use base::schema::{Change, Object};
use node::{Node, NodeOptions};
use store::SecondaryIndex;
use txn::{Durability, Txn, TxnOptions};

fn open() -> (tempfile::TempDir, Node) {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path(), NodeOptions::default()).unwrap();
    (dir, node)
}

fn commit(node: &Node, t: Txn) {
    let held = node.commit(t).unwrap();
    futures::executor::block_on(node.published(held));
}

fn fill(node: &Node) {
    let mut t = begin(node, false, Durability::On);
    (0..100).for_each(|id| put(&mut t, id, id));
    commit(node, t);
}

fn empty(node: &Node) {
    let mut t = begin(node, false, Durability::On);
    let h = handle(&t);
    (0..100).for_each(|id| assert!(t.delete(&h, &key(id)).unwrap()));
    commit(node, t);
}

/// A transaction with a snapshot.
fn looking(node: &Node) -> Txn {
    let mut t = begin(node, true, Durability::On);
    let h = handle(&t);
    t.get(&h, &key(1), |_| ()).unwrap();
    t
}

fn entries(index: &SecondaryIndex) -> usize {
    let (guard, mut n) = (store::pin(), 0);
    let all = std::ops::Bound::Unbounded;
    let forward = store::tree::Direction::Forward;
    let mut cursor = index.tree.cursor(all, all, forward, &guard);
    let mut batch = Vec::new();
    while cursor.next_batch(64, &mut batch) {}
    n += batch.len();
    n
}

fn records(node: &Node) -> usize {
    let (guard, mut n) = (store::pin(), 0);
    let catalog = node.manager().catalog();
    let table = catalog.table(TABLE).unwrap();
    table.storage.for_each(&guard, |_| n += 1);
    n
}

fn wait_until_reclaimed(node: &Node) {
    while records(node) > 0 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn an_index_that_is_being_made_loses_the_entries_of_records_that_go() {
    let (_dir, node) = open();
    define(&node, accounts(false));
    fill(&node);
    let old = looking(&node);
    empty(&node);
    let mut t = node.begin(TxnOptions::default(), false);
    t.begin_statement().unwrap();
    t.lock_schema().unwrap();
    let change = Change::Put(Object::Table(accounts(true)));
    t.change_schema(vec![change]).unwrap();
    let index = handle(&t).indexes[1].clone().unwrap();
    assert_eq!(entries(&index), 100, "old snapshots find their rows");
    drop(old);
    wait_until_reclaimed(&node);
    assert_eq!(entries(&index), 0);
    commit(&node, t);
    fill(&node);
    assert_eq!(entries(&index), 100);
}

#[test]
fn an_index_that_was_dropped_loses_the_entries_of_records_that_go() {
    let (_dir, node) = open();
    define(&node, accounts(true));
    fill(&node);
    let old = looking(&node);
    empty(&node);
    // It sees no row, and may scan the index, which still has their entries.
    let reader = looking(&node);
    let index = handle(&reader).indexes[1].clone().unwrap();
    define(&node, accounts(false));
    assert_eq!(entries(&index), 100);
    drop(old);
    wait_until_reclaimed(&node);
    assert_eq!(entries(&index), 0);
    drop(reader);
}

#[test]
fn an_index_that_was_not_made_after_all_is_forgotten() {
    let (_dir, node) = open();
    define(&node, accounts(false));
    fill(&node);
    let mut t = node.begin(TxnOptions::default(), false);
    t.begin_statement().unwrap();
    t.lock_schema().unwrap();
    let change = Change::Put(Object::Table(accounts(true)));
    t.change_schema(vec![change]).unwrap();
    let storage = handle(&t).storage.clone();
    assert_eq!(storage.indexes().len(), 1);
    node.rollback(t);
    assert_eq!(storage.indexes().len(), 0);
    fill(&node);
}
