//! Savepoints among changes of the schema: each goes back to the tables and rows of then. What was told before stays read.

mod accounts;
mod schemas;

use accounts::{TABLE, accounts, define, handle, key, put};
use base::schema::{Change, FkAction, ForeignKey, Object, TableDef};
use base::{SqlState, Value};
use node::{Node, NodeOptions};
use txn::{Durability, Result, Txn, TxnOptions};

fn open() -> (tempfile::TempDir, Node) {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path(), NodeOptions::default()).unwrap();
    (dir, node)
}

fn altering(node: &Node) -> Txn {
    let mut t = node.begin(TxnOptions::default(), false);
    t.begin_statement().unwrap();
    t.lock_schema().unwrap();
    t
}

fn become_(t: &mut Txn, def: TableDef) {
    let change = Change::Put(Object::Table(def));
    t.change_schema(vec![change]).unwrap();
}

fn commit(node: &Node, t: Txn) {
    let held = node.commit(t).unwrap();
    futures::executor::block_on(node.published(held));
}

/// The rows with these ids, of 0 to 9, and the ids that the index finds.
fn rows(node: &Node) -> Vec<i64> {
    let mut t = accounts::begin(node, true, Durability::On);
    let h = handle(&t);
    let mut there = |id: &i64| t.get(&h, &key(*id), |_| ()).unwrap().is_some();
    (0..10).filter(|id| there(id)).collect()
}

#[test]
fn a_table_that_was_made_before_a_savepoint_stays() {
    let (_dir, node) = open();
    let mut t = altering(&node);
    become_(&mut t, accounts(false));
    t.savepoint("s");
    put(&mut t, 1, 1);
    t.rollback_to_savepoint("s").unwrap();
    put(&mut t, 2, 2);
    commit(&node, t);
    assert_eq!(rows(&node), [2]);
}

#[test]
fn rows_and_changes_of_the_schema_go_back_in_turn() {
    let (_dir, node) = open();
    define(&node, accounts(false));
    let mut t = altering(&node);
    put(&mut t, 0, 0);
    t.savepoint("a");
    put(&mut t, 1, 1);
    become_(&mut t, accounts(true));
    put(&mut t, 2, 2);
    t.savepoint("b");
    let mut rewritten = accounts(true);
    rewritten.rewrite_of = Some(rewritten.storage);
    rewritten.storage = t.new_oid();
    become_(&mut t, rewritten);
    put(&mut t, 3, 3);
    t.rollback_to_savepoint("b").unwrap();
    assert_eq!(handle(&t).storage.id, accounts(true).storage);
    assert_eq!(handle(&t).indexes.len(), 2);
    put(&mut t, 4, 4);
    t.rollback_to_savepoint("a").unwrap();
    assert_eq!(handle(&t).indexes.len(), 1);
    put(&mut t, 5, 5);
    commit(&node, t);
    assert_eq!(rows(&node), [0, 5]);
    define(&node, accounts(true));
    assert_eq!(rows(&node), [0, 5]);
}

/// What was written first behind the change has its handle, which goes with it.
#[test]
fn the_first_row_of_a_table_may_go_with_a_change_of_it() {
    let (_dir, node) = open();
    define(&node, accounts(false));
    let mut t = altering(&node);
    t.savepoint("s");
    become_(&mut t, accounts(true));
    put(&mut t, 1, 1);
    let index = handle(&t).indexes[1].clone().unwrap();
    t.rollback_to_savepoint("s").unwrap();
    put(&mut t, 2, 2);
    commit(&node, t);
    assert_eq!(rows(&node), [2]);
    assert!(index.tree.is_empty(), "an index that came to nothing");
}

#[test]
fn a_statement_that_begins_again_changes_the_schema_once() {
    let (_dir, node) = open();
    let mut t = altering(&node);
    become_(&mut t, accounts(false));
    t.rollback_statement();
    assert!(t.catalog().table(TABLE).is_none());
    t.begin_statement().unwrap();
    become_(&mut t, accounts(true));
    put(&mut t, 1, 1);
    commit(&node, t);
    assert_eq!(rows(&node), [1]);
}

const CHILDREN: u32 = TABLE + 100;

/// A row of two numbers in the table of accounts, or in that of their children.
fn insert(t: &mut Txn, table: u32, id: i64, v: i64) -> Result<()> {
    let h = t.catalog().table(table).unwrap().clone();
    t.insert(&h, &[Value::Int8(id), Value::Int8(v)])?;
    t.end_statement()
}

fn delete(t: &mut Txn, table: u32, id: i64) -> Result<()> {
    let h = t.catalog().table(table).unwrap().clone();
    t.get(&h, &key(id), |_| ())?;
    t.delete(&h, &key(id))?;
    t.end_statement()
}

/// Runs in the savepoint that the first has gone back to; then the other changes what the error said, and commits.
fn told_and_changed(
    fails: impl Fn(&mut Txn) -> Result<()>,
    code: SqlState,
    change: impl Fn(&mut Txn) -> Result<()>,
) {
    let (_dir, node) = open();
    let mut parents = accounts(false);
    parents.indexes.push(schemas::unique(TABLE + 5, "one_v", 1));
    let mut children = schemas::table(
        CHILDREN,
        "children",
        accounts(false).columns,
        vec![schemas::index(CHILDREN + 3, "of", 1)],
    );
    children.foreign_keys.push(ForeignKey {
        id: CHILDREN + 9,
        name: "fk".into(),
        columns: vec![1],
        ref_table: TABLE,
        ref_columns: vec![0],
        ref_index: TABLE + 2,
        on_delete: FkAction::NoAction,
        on_update: FkAction::NoAction,
        deferral: base::schema::Deferral::Never,
        not_valid: false,
    });
    define(&node, parents);
    define(&node, children);
    let new = || accounts::begin(&node, false, Durability::On);
    let mut t = new();
    put(&mut t, 1, 10);
    put(&mut t, 2, 20);
    t.end_statement().unwrap();
    t.begin_statement().unwrap();
    insert(&mut t, CHILDREN, 1, 2).unwrap();
    commit(&node, t);

    let mut reader = new();
    reader.savepoint("s");
    let e = fails(&mut reader).unwrap_err();
    assert_eq!(e.error().expect("an error").code(), code);
    reader.fail_statement();
    reader.rollback_to_savepoint("s").unwrap();
    let mut other = new();
    change(&mut other).unwrap();
    commit(&node, other);
    reader.begin_statement().unwrap();
    put(&mut reader, 7, 70);
    reader.end_statement().unwrap();
    let lost = node.commit(reader).unwrap_err();
    assert_eq!(lost.code(), SqlState::SERIALIZATION_FAILURE);
}

#[test]
fn what_an_error_said_counts_as_read() {
    let update = |t: &mut Txn| {
        put(t, 1, 11);
        t.end_statement()
    };
    told_and_changed(
        |t| insert(t, TABLE, 9, 10),
        SqlState::UNIQUE_VIOLATION,
        update,
    );
    told_and_changed(
        |t| insert(t, CHILDREN, 2, 5),
        SqlState::FOREIGN_KEY_VIOLATION,
        |t| insert(t, TABLE, 5, 50),
    );
    told_and_changed(
        |t| delete(t, TABLE, 2),
        SqlState::FOREIGN_KEY_VIOLATION,
        |t| delete(t, CHILDREN, 1),
    );
}
