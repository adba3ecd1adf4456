//! Tables for tests of the engine, made without SQL.
#![allow(dead_code)] // Each test program uses its part.

use base::schema::*;
use base::{Oid, Type, Value};
use node::Node;
use txn::TxnOptions;

pub fn column(name: &str, ty: Type, not_null: bool) -> Column {
    let mut c = Column::new(name, ty.into());
    c.not_null = not_null;
    c
}

/// An index on one column.
pub fn index(id: Oid, name: &str, column: u16) -> Index {
    Index {
        id,
        name: name.into(),
        columns: vec![IndexColumn {
            column,
            desc: false,
            nulls_first: false,
        }],
        unique: false,
        primary: false,
        constraint: false,
        constraint_oid: 0,
        nulls_not_distinct: false,
        predicate: None,
        include: vec![],
        deferral: base::schema::Deferral::Never,
        late_primary: false,
    }
}

pub fn unique(id: Oid, name: &str, column: u16) -> Index {
    Index {
        unique: true,
        constraint: true,
        ..index(id, name, column)
    }
}

/// A table whose first column is its primary key, by index `id` + 2; its storage is `id` + 1.
pub fn table(id: Oid, name: &str, columns: Vec<Column>, more: Vec<Index>) -> TableDef {
    let key = Index {
        primary: true,
        ..unique(id + 2, "pk", 0)
    };
    TableDef {
        id,
        storage: id + 1,
        namespace: PUBLIC,
        name: name.into(),
        owner: BOOTSTRAP_ROLE,
        row_version: 0,
        columns,
        indexes: std::iter::once(key).chain(more).collect(),
        checks: vec![],
        foreign_keys: vec![],
        acl: vec![],
        rewrite_of: None,
    }
}

/// Makes the table, and waits until it is published.
pub fn define(node: &Node, def: TableDef) {
    let mut t = node.begin(TxnOptions::default(), false);
    t.begin_statement().unwrap();
    t.lock_schema().unwrap();
    let change = Change::Put(Object::Table(def));
    t.change_schema(vec![change]).unwrap();
    let held = node.commit(t).unwrap();
    futures::executor::block_on(node.published(held));
}

/// The primary key's bytes.
pub fn key(id: i64) -> Vec<u8> {
    let mut k = vec![];
    base::key::encode_value(&Value::Int8(id), &mut k);
    k
}
