//! What a transaction has read or changed of a table that another one alters meanwhile, and others write as it is then.

mod accounts;
mod schemas;

use accounts::{TABLE, accounts, begin, define, handle, key};
use base::schema::{Change, FkAction, ForeignKey, Object, TableDef};
use base::{KeyRange, Oid, SqlState, Type, Value};
use node::{Node, NodeOptions};
use txn::{Access, Direction, Durability, Isolation, Result, Scan, Txn, TxnOptions};

const OTHER: Oid = TABLE + 100;

/// Accounts 1 to 3, and a table beside it.
fn open() -> (tempfile::TempDir, Node) {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path(), NodeOptions::default()).unwrap();
    define(&node, accounts(true));
    let columns = accounts(false).columns;
    define(&node, schemas::table(OTHER, "other", columns, vec![]));
    for id in 1..4 {
        write(&node, &[id, id]);
    }
    (dir, node)
}

/// The accounts with a column more.
fn grown() -> TableDef {
    let mut def = accounts(true);
    def.columns.push(schemas::column("more", Type::Int8, false));
    def.row_version = 1;
    def
}

/// Another transaction puts an account there.
fn write(node: &Node, values: &[i64]) {
    let mut t = begin(node, false, Durability::On);
    let h = handle(&t);
    let row: Vec<Value> = values.iter().map(|v| Value::Int8(*v)).collect();
    match t.get(&h, &key(values[0]), |_| ()).unwrap() {
        Some(()) => t.update(&h, &key(values[0]), &row).unwrap(),
        None => t.insert(&h, &row).unwrap(),
    }
    commit(node, t).unwrap();
}

fn commit(node: &Node, t: Txn) -> Result<()> {
    let held = node.commit(t)?;
    futures::executor::block_on(node.published(held));
    Ok(())
}

fn scan(t: &mut Txn, access: Access) -> Result<usize> {
    let (h, mut n) = (handle(t), 0);
    let mut scan = Scan::new(access, KeyRange::all(), Direction::Forward).of_columns(&[0]);
    let mut each = |_: &[u8], _: base::RowRef<'_>| {
        n += 1;
        Ok(())
    };
    while t.scan(&h, &mut scan, 100, &mut each)? {}
    Ok(n)
}

/// One reads, others alter and write, and the first writes beside it and commits.
fn reads_and_commits(read: impl Fn(&mut Txn), between: impl Fn(&Node)) -> Result<()> {
    let (_dir, node) = open();
    let mut t = begin(&node, false, Durability::On);
    read(&mut t);
    t.end_statement().unwrap();
    between(&node);
    t.begin_statement().unwrap();
    let other = t.catalog().table(OTHER).unwrap().clone();
    t.insert(&other, &[Value::Int8(1), Value::Int8(1)]).unwrap();
    t.end_statement().unwrap();
    commit(&node, t)
}

fn is_lost(outcome: Result<()>) {
    let code = outcome.map_err(|e| e.only_error().code());
    assert_eq!(code, Err(SqlState::SERIALIZATION_FAILURE));
}

#[test]
fn rows_with_columns_that_came_later_count_as_changed() {
    let by_key = |id: i64| {
        move |t: &mut Txn| {
            let h = handle(t);
            t.get_columns(&h, &key(id), 1, |_| ()).unwrap();
        }
    };
    let range = |access| move |t: &mut Txn| assert_eq!(scan(t, access).unwrap(), 3);
    for row in [[9, 9, 9], [1, 7, 7]] {
        let alter = |n: &Node| {
            define(n, grown());
            write(n, &row);
        };
        is_lost(reads_and_commits(range(Access::Primary), alter));
        is_lost(reads_and_commits(range(Access::Index(1)), alter));
        is_lost(reads_and_commits(by_key(row[0]), alter));
        reads_and_commits(by_key(2), alter).unwrap();
    }
    // Alone it is no reason.
    reads_and_commits(range(Access::Index(1)), |n| define(n, grown())).unwrap();
}

#[test]
fn an_index_that_is_dropped_hides_no_row() {
    let read = |t: &mut Txn| assert_eq!(scan(t, Access::Index(1)).unwrap(), 3);
    is_lost(reads_and_commits(read, |n| {
        define(n, accounts(false));
        write(n, &[9, 9]);
    }));
}

/// What it has changed says nothing of an index that came since; and it could not commit.
#[test]
fn who_has_written_to_a_table_that_was_altered_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path(), NodeOptions::default()).unwrap();
    define(&node, accounts(false));
    let options = TxnOptions {
        isolation: Isolation::ReadCommitted,
        ..TxnOptions::default()
    };
    let mut t = node.begin(options, false);
    t.begin_statement().unwrap();
    accounts::put(&mut t, 1, 1);
    t.end_statement().unwrap();
    define(&node, accounts(true));
    t.begin_statement().unwrap();
    is_lost(scan(&mut t, Access::Index(1)).map(drop));
    let h = handle(&t);
    is_lost(t.insert(&h, &[Value::Int8(2), Value::Int8(2)]));
}

#[test]
fn a_parent_with_columns_that_came_later_is_found() {
    let (_dir, node) = open();
    let mut parents = accounts(false);
    parents.indexes.push(schemas::unique(TABLE + 5, "one_v", 1));
    define(&node, parents.clone());
    let mut children = schemas::table(OTHER, "other", parents.columns.clone(), vec![]);
    children.foreign_keys.push(ForeignKey {
        id: OTHER + 9,
        name: "fk".into(),
        columns: vec![1],
        ref_table: TABLE,
        ref_index: TABLE + 5,
        ref_columns: vec![1],
        on_delete: FkAction::NoAction,
        on_update: FkAction::NoAction,
        deferral: base::schema::Deferral::Never,
        not_valid: false,
    });
    define(&node, children);
    let mut t = begin(&node, false, Durability::On);
    parents.columns = grown().columns;
    parents.row_version = 1;
    define(&node, parents);
    write(&node, &[9, 9, 9]);
    let other = t.catalog().table(OTHER).unwrap().clone();
    t.insert(&other, &[Value::Int8(1), Value::Int8(9)]).unwrap();
    t.end_statement().unwrap();
    commit(&node, t).unwrap();
}

/// Its own changes of the schema are of another table.
#[test]
fn who_alters_a_table_loses_what_it_has_read_of_another() {
    let (_dir, node) = open();
    let mut t = begin(&node, false, Durability::On);
    let h = handle(&t);
    t.get(&h, &key(1), |_| ()).unwrap();
    t.end_statement().unwrap();
    let emptied = TableDef {
        storage: TABLE + 50,
        ..accounts(true)
    };
    define(&node, emptied);
    t.begin_statement().unwrap();
    t.lock_schema().unwrap();
    let mut other = schemas::table(OTHER, "other", grown().columns, vec![]);
    other.row_version = 1;
    let change = Change::Put(Object::Table(other));
    t.change_schema(vec![change]).unwrap();
    t.end_statement().unwrap();
    is_lost(commit(&node, t));
}

/// Whoever made a row for the table as it was is told that it is another one.
#[test]
fn rows_that_were_made_for_another_table_are_refused() {
    let (_dir, node) = open();
    let old = node.manager().catalog().table(TABLE).unwrap().clone();
    define(&node, grown());
    let row = [Value::Int8(1), Value::Int8(5)];
    let mut t = begin(&node, false, Durability::On);
    is_lost(t.insert(&old, &row));
    t.get(&old, &key(1), |_| ()).unwrap();
    is_lost(t.update(&old, &key(1), &row));
}
