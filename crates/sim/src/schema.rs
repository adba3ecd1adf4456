//! The one table of the simulation: accounts(id int8 primary key, v int8) with an index on v.

use base::schema::{BOOTSTRAP_ROLE, Change, Column, Index, IndexColumn, Object, PUBLIC, TableDef};
use base::{Oid, Type, Value};

pub const TABLE: Oid = 20_000;

fn column(name: &str) -> Column {
    let mut c = Column::new(name, Type::Int8.into());
    c.not_null = true;
    c
}

fn index(id: Oid, name: &str, column: u16, primary: bool) -> Index {
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

/// What makes the table.
pub fn change() -> Change {
    Change::Put(Object::Table(TableDef {
        id: TABLE,
        storage: TABLE + 1,
        namespace: PUBLIC,
        name: "accounts".into(),
        owner: BOOTSTRAP_ROLE,
        row_version: 0,
        columns: vec![column("id"), column("v")],
        indexes: vec![
            index(TABLE + 2, "pk", 0, true),
            index(TABLE + 3, "by_v", 1, false),
        ],
        checks: vec![],
        foreign_keys: vec![],
        acl: vec![],
        rewrite_of: None,
    }))
}

/// The bytes of a key.
pub fn key(id: i64) -> Vec<u8> {
    let mut k = vec![];
    base::key::encode_value(&Value::Int8(id), &mut k);
    k
}
