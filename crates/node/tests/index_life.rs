//! No entry of an index outlives its record: neither while the index is being made nor after it was dropped. And what rows and
//! entries were counted to take is given back when they go, whichever way they go.

mod accounts;
mod schemas;

use accounts::{TABLE, accounts, begin, define, handle, key, put};
use base::schema::{Change, Object, TableDef};
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

fn used(node: &Node) -> u64 {
    node.manager().store.memory.used()
}

fn wait_until_used(node: &Node, bytes: u64) {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while used(node) != bytes {
        let late = std::time::Instant::now() > until;
        assert!(!late, "{} bytes are counted, {bytes} in use", used(node));
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

fn altering(node: &Node) -> Txn {
    let mut t = node.begin(TxnOptions::default(), false);
    t.begin_statement().unwrap();
    t.lock_schema().unwrap();
    t
}

fn table(def: TableDef) -> Vec<Change> {
    vec![Change::Put(Object::Table(def))]
}

/// The rows in new storage, without a primary key.
fn rewritten(t: &mut Txn, by_v: bool) -> TableDef {
    let mut def = accounts(by_v);
    def.rewrite_of = Some(handle(t).storage.id);
    def.storage = t.new_oid();
    def.indexes.retain(|i| !i.primary);
    def
}

/// New storage without rows.
fn truncated(t: &mut Txn, by_v: bool) -> TableDef {
    let mut def = accounts(by_v);
    def.storage = t.new_oid();
    def
}

#[test]
fn memory_of_a_schema_change_that_comes_to_nothing_is_given_back() {
    let (_dir, node) = open();
    define(&node, accounts(false));
    fill(&node);
    let mut t = begin(&node, false, Durability::On);
    put(&mut t, 1000, 7);
    commit(&node, t);
    let before = used(&node);
    let index = |t: &mut Txn| t.change_schema(table(accounts(true))).unwrap();
    let rewrite = |t: &mut Txn| {
        let def = rewritten(t, true);
        t.change_schema(table(def)).unwrap();
    };
    let fails = |t: &mut Txn| {
        let mut def = accounts(true);
        def.indexes[1].unique = true;
        t.change_schema(table(def)).unwrap_err();
    };
    let changes: [(&str, &dyn Fn(&mut Txn)); 3] = [
        ("an index", &index),
        ("a rewrite", &rewrite),
        ("a unique index over duplicates", &fails),
    ];
    for (what, change) in changes {
        let mut t = altering(&node);
        change(&mut t);
        // As a session does, and a plan.
        let kept = t.catalog();
        assert!(used(&node) > before, "{what} takes memory");
        node.rollback(t);
        assert_eq!(used(&node), before, "after {what}");
        drop(kept);
        assert_eq!(used(&node), before, "after {what}, and its catalog");

        let mut t = altering(&node);
        t.savepoint("s");
        change(&mut t);
        assert!(used(&node) > before, "{what} takes memory");
        t.rollback_to_savepoint("s").unwrap();
        assert_eq!(used(&node), before, "after {what} behind a savepoint");
        commit(&node, t);
        assert_eq!(used(&node), before, "after {what} behind a savepoint");
    }
    fill(&node);
}

#[test]
fn memory_of_what_is_dropped_is_given_back() {
    let (_dir, node) = open();
    define(&node, accounts(false));
    fill(&node);
    let without_index = used(&node);
    define(&node, accounts(true));
    assert!(used(&node) > without_index);
    let kept = node.manager().catalog();
    define(&node, accounts(false));
    wait_until_used(&node, without_index);
    drop(kept);
    assert_eq!(used(&node), without_index);

    define(&node, accounts(true));
    let with_index = used(&node);
    let mut t = altering(&node);
    let def = truncated(&mut t, true);
    t.change_schema(table(def)).unwrap();
    let kept = node.manager().catalog();
    commit(&node, t);
    wait_until_used(&node, 0);
    drop(kept);
    assert_eq!(used(&node), 0);
    fill(&node);
    assert_eq!(used(&node), with_index);
    let mut t = altering(&node);
    t.change_schema(vec![Change::Drop(TABLE)]).unwrap();
    commit(&node, t);
    wait_until_used(&node, 0);
}

#[test]
fn memory_of_what_was_made_and_dropped_in_one_transaction_is_given_back() {
    let (_dir, node) = open();
    define(&node, accounts(false));
    fill(&node);
    let before = used(&node);
    let mut t = altering(&node);
    t.change_schema(table(accounts(true))).unwrap();
    let storage = handle(&t).storage.clone();
    t.change_schema(table(accounts(false))).unwrap();
    commit(&node, t);
    assert_eq!(used(&node), before);
    assert!(storage.indexes().is_empty());

    let mut t = altering(&node);
    let def = rewritten(&mut t, false);
    t.change_schema(table(def)).unwrap();
    let def = truncated(&mut t, false);
    t.change_schema(table(def)).unwrap();
    commit(&node, t);
    wait_until_used(&node, 0);
}

#[test]
fn memory_of_rows_that_go_is_given_back() {
    let (_dir, node) = open();
    define(&node, accounts(true));
    fill(&node);
    empty(&node);
    wait_until_used(&node, 0);
}
