//! accounts(id int8 primary key, v int8), made and written without SQL.
#![allow(dead_code)] // Each test program uses its part.

use base::schema::*;
use base::{Oid, Type, Value};
use node::Node;
use std::sync::Arc;
use txn::{Durability, TableHandle, Txn, TxnOptions};

pub const TABLE: Oid = 20_000;

pub fn column(name: &str) -> Column {
    Column {
        name: name.into(),
        type_oid: Type::Int8.oid(),
        typmod: -1,
        not_null: true,
        default: None,
        identity: None,
        dropped: false,
        missing: None,
    }
}

pub fn index(id: Oid, name: &str, column: u16, primary: bool) -> Index {
    Index {
        id,
        name: name.into(),
        columns: vec![IndexColumn {
            column,
            desc: false,
            nulls_first: false,
        }],
        unique: primary,
        primary,
        constraint: primary,
        constraint_oid: 0,
        nulls_not_distinct: false,
    }
}

/// accounts(id int8 primary key, v int8); `by_v`: with an index on v.
pub fn accounts(by_v: bool) -> TableDef {
    let mut indexes = vec![index(TABLE + 2, "pk", 0, true)];
    if by_v {
        indexes.push(index(TABLE + 3, "by_v", 1, false));
    }
    TableDef {
        id: TABLE,
        storage: TABLE + 1,
        namespace: PUBLIC,
        name: "accounts".into(),
        owner: BOOTSTRAP_ROLE,
        row_version: 0,
        columns: vec![column("id"), column("v")],
        indexes,
        checks: vec![],
        foreign_keys: vec![],
        acl: vec![],
        rewrite_of: None,
    }
}

pub fn define(node: &Node, def: TableDef) {
    let mut t = node.begin(TxnOptions::default(), false);
    t.begin_statement().unwrap();
    t.lock_schema().unwrap();
    let change = Change::Put(Object::Table(def));
    t.change_schema(vec![change]).unwrap();
    let held = node.commit(t).unwrap();
    futures::executor::block_on(node.published(held));
}

pub fn handle(t: &Txn) -> Arc<TableHandle> {
    t.catalog().table(TABLE).unwrap().clone()
}

pub fn key(id: i64) -> Vec<u8> {
    let mut k = vec![];
    base::key::encode_value(&Value::Int8(id), &mut k);
    k
}

pub fn begin(node: &Node, read_only: bool, durability: Durability) -> Txn {
    let options = TxnOptions {
        read_only,
        durability,
        ..TxnOptions::default()
    };
    let mut t = node.begin(options, read_only);
    t.begin_statement().unwrap();
    t
}

pub fn put(t: &mut Txn, id: i64, v: i64) {
    try_put(t, id, v).unwrap();
}

pub fn try_put(t: &mut Txn, id: i64, v: i64) -> base::Result<()> {
    let h = handle(t);
    let row = vec![Value::Int8(id), Value::Int8(v)];
    if t.get(&h, &key(id), |_| ())?.is_some() {
        t.update(&h, &key(id), &row)?;
    } else {
        t.insert(&h, &row)?;
    }
    Ok(())
}
