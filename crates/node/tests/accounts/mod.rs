//! accounts(id int8 primary key, v int8), made and written without SQL.
#![allow(dead_code)] // Each test program uses its part.

pub use crate::schemas::{define, key};

use crate::schemas::{column, index, table};
use base::schema::TableDef;
use base::{Oid, Type, Value};
use node::Node;
use std::sync::Arc;
use txn::{Durability, TableHandle, Txn, TxnOptions};

pub const TABLE: Oid = 20_000;

/// accounts(id int8 primary key, v int8); `by_v`: with an index on v.
pub fn accounts(by_v: bool) -> TableDef {
    let columns = ["id", "v"].map(|name| column(name, Type::Int8, true));
    let more = by_v.then(|| index(TABLE + 3, "by_v", 1));
    table(
        TABLE,
        "accounts",
        columns.into(),
        more.into_iter().collect(),
    )
}

pub fn handle(t: &Txn) -> Arc<TableHandle> {
    t.catalog().table(TABLE).unwrap().clone()
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

pub fn try_put(t: &mut Txn, id: i64, v: i64) -> txn::Result<()> {
    let h = handle(t);
    let row = vec![Value::Int8(id), Value::Int8(v)];
    if t.get(&h, &key(id), |_| ())?.is_some() {
        t.update(&h, &key(id), &row)?;
    } else {
        t.insert(&h, &row)?;
    }
    Ok(())
}
