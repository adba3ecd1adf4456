//! Contended transactions that have read what the other changes, and how they look again at what they have read.

mod schemas;

use base::{KeyRange, Oid, SqlState, Type, Value};
use node::{Node, NodeOptions};
use schemas::*;
use std::path::Path;
use std::sync::Arc;
use txn::{Access, Cause, Direction, Scan, TableHandle, Txn, TxnOptions};

const TABLES: [Oid; 2] = [20000, 30000];
const ROWS: i64 = 300;

/// Two tables t(id int8 primary key, v int8) with `ROWS` rows (i, 10) each.
fn open(path: &Path) -> (Node, [Arc<TableHandle>; 2]) {
    let node = Node::open(path, NodeOptions::default()).unwrap();
    for id in TABLES {
        let columns = vec![
            column("id", Type::Int8, true),
            column("v", Type::Int8, false),
        ];
        define(&node, table(id, &format!("t{id}"), columns, vec![]));
    }
    let handles = TABLES.map(|id| node.manager().catalog().table(id).unwrap().clone());
    let mut t = node.begin(TxnOptions::default(), false);
    t.begin_statement().unwrap();
    for h in &handles {
        for i in 0..ROWS {
            t.insert(h, &row(i, 10)).unwrap();
        }
    }
    t.end_statement().unwrap();
    node.commit(t).unwrap();
    (node, handles)
}

fn row(id: i64, v: i64) -> Vec<Value> {
    vec![Value::Int8(id), Value::Int8(v)]
}

fn contended(node: &Node) -> Txn {
    let options = TxnOptions {
        contended: true,
        ..TxnOptions::default()
    };
    node.begin(options, false)
}

/// A statement that reads a row.
fn read(t: &mut Txn, h: &TableHandle, id: i64) -> Option<i64> {
    t.begin_statement().unwrap();
    let v = t.get(h, &key(id), |r| r.get(1).as_i64().unwrap()).unwrap();
    t.end_statement().unwrap();
    v
}

/// A statement that reads all rows.
fn read_all(t: &mut Txn, h: &TableHandle) -> i64 {
    t.begin_statement().unwrap();
    let mut scan = Scan::new(Access::Primary, KeyRange::all(), Direction::Forward);
    let mut sum = 0;
    let mut add = |_: &[u8], r: base::RowRef<'_>| {
        sum += r.get(1).as_i64().unwrap();
        Ok(())
    };
    while t.scan(h, &mut scan, 64, &mut add).unwrap() {}
    t.end_statement().unwrap();
    sum
}

/// A statement that changes a row.
fn change(t: &mut Txn, h: &TableHandle, id: i64, v: i64) -> txn::Result<()> {
    t.begin_statement()?;
    t.update(h, &key(id), &row(id, v))?;
    t.end_statement()
}

fn committed_change(node: &Node, h: &TableHandle, id: i64, v: i64) {
    let mut t = node.begin(TxnOptions::default(), false);
    change(&mut t, h, id, v).unwrap();
    node.commit(t).unwrap();
}

fn is_lost(r: txn::Result<()>) -> bool {
    r.is_err_and(|e| e.error().expect("an error").code() == SqlState::SERIALIZATION_FAILURE)
}

/// Two that have each read what the other changes; the second is at its commit, and waits for nobody.
fn crossed(node: &Node, h: &Arc<TableHandle>) -> (Txn, Txn) {
    let (mut a, mut b) = (contended(node), contended(node));
    read(&mut a, h, 0);
    read(&mut b, h, 1);
    change(&mut b, h, 0, 50).unwrap();
    change(&mut a, h, 1, 51).unwrap();
    assert!(b.readers_in_the_way().is_empty());
    (a, b)
}

#[test]
fn who_is_at_its_commit_does_not_wait_for_one_that_loses_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let (node, [h, _]) = open(dir.path());
    let (mut a, b) = crossed(&node, &h);
    // It may still fail, so the other goes on until it has not.
    change(&mut a, &h, 2, 52).unwrap();
    node.commit(b).unwrap();
    assert!(is_lost(a.begin_statement().map_err(txn::Stop::from)));
    drop(a);

    // A reader whose changes are no concern of the one at its commit is waited for.
    let (mut a, mut b) = (contended(&node), contended(&node));
    read(&mut a, &h, 0);
    read(&mut b, &h, 1);
    change(&mut b, &h, 0, 60).unwrap();
    change(&mut a, &h, 2, 61).unwrap();
    assert_eq!(b.readers_in_the_way(), [a.id()]);
    node.commit(a).unwrap();
    assert!(b.readers_in_the_way().is_empty());
    node.commit(b).unwrap();
}

#[test]
fn who_is_overtaken_by_one_that_fails_goes_on_as_before() {
    let dir = tempfile::tempdir().unwrap();
    let (node, [h, _]) = open(dir.path());
    let (mut a, b) = crossed(&node, &h);
    drop(b);
    change(&mut a, &h, 2, 52).unwrap();
    // Looks at all it has read at its commit only, as if it had not been overtaken.
    committed_change(&node, &h, 0, 60);
    change(&mut a, &h, 3, 53).unwrap();
    assert!(node.commit(a).is_err());
}

#[test]
fn who_changes_what_one_has_read_that_waits_at_its_commit_for_it_learns_it_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let (node, [h, _]) = open(dir.path());
    // (the row that the later one changes, whether it loses)
    for (id, lost) in [(1, true), (2, false)] {
        let (mut a, mut b) = (contended(&node), contended(&node));
        read(&mut a, &h, 0);
        read(&mut b, &h, 1);
        change(&mut b, &h, 0, 50).unwrap();
        assert_eq!(b.readers_in_the_way(), [a.id()]);
        let circles = node.manager().stats.aborts(Cause::Circle);
        assert_eq!(is_lost(change(&mut a, &h, id, 51)), lost);
        let more = node.manager().stats.aborts(Cause::Circle) - circles;
        assert_eq!(more, u64::from(lost));
        if lost {
            drop(a);
        } else {
            node.commit(a).unwrap();
        }
        assert!(b.readers_in_the_way().is_empty());
        node.commit(b).unwrap();
    }
}

#[test]
fn tables_that_nobody_writes_to_are_not_looked_at_again() {
    let dir = tempfile::tempdir().unwrap();
    let (node, [h, other]) = open(dir.path());
    let mut t = contended(&node);
    assert_eq!(read_all(&mut t, &h), 10 * ROWS);
    // More often than looks at the whole table would be allowed.
    for i in 0..20 {
        committed_change(&node, &other, i, i);
        assert_eq!(read(&mut t, &other, i), Some(i));
    }
    assert_eq!(t.moves(), 20);
    // What is written to, is.
    committed_change(&node, &h, ROWS - 1, 0);
    committed_change(&node, &other, 30, 0);
    assert_eq!(read(&mut t, &other, 30), Some(10));
    assert_eq!(t.moves(), 20);
    assert!(is_lost(change(&mut t, &other, 31, 0)));
}
