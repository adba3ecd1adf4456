//! The tables of the simulation:
//!
//! ```text
//! accounts(id int8 primary key, v int8), with an index on v
//! stock(id int8 primary key, qty int8 CHECK (qty >= 0)), with qty split, in some runs with a hidden table for further records
//! ```

use base::schema::{BOOTSTRAP_ROLE, Change, Column, Index, IndexColumn, Object, PUBLIC, TableDef};
use base::split::{Mode, Split};
use base::split_records::settle_records;
use base::{Oid, RelId, Type, Value};

pub const TABLE: Oid = 20_000;
pub const STOCK: Oid = 20_100;
/// The place of the split column.
pub const QTY: usize = 1;
/// The hidden table for further records of stocks.
pub const FURTHER: Oid = STOCK + 10;

/// Where the rows of a table are.
pub fn storage(table: Oid) -> RelId {
    table + 1
}

/// A column of int8 that is not NULL.
pub fn column(name: &str) -> Column {
    let mut c = Column::new(name, Type::Int8.into());
    c.not_null = true;
    c
}

/// An index of one column; of the primary key it is unique.
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
        predicate: None,
        include: vec![],
        deferral: base::schema::Deferral::Never,
        late_primary: false,
    }
}

/// What makes the tables. `further`: stocks may have further records, in this mode.
pub fn changes(further: Option<Mode>) -> Vec<Change> {
    let by_v = index(TABLE + 3, "by_v", 1, false);
    let accounts = table(TABLE, "accounts", column("v"), vec![by_v]);
    let mut qty = column("qty");
    qty.split = Some(Split {
        mode: further.unwrap_or_default(),
        lower: Some(0),
        ..Split::default()
    });
    let mut stock = table(STOCK, "stock", qty, vec![]);
    let mut changes = match further {
        None => vec![],
        Some(_) => {
            // The table, its storage, its index.
            let mut next = FURTHER..;
            let mut new_oid = || next.next().expect("there are more");
            settle_records(&mut stock, None, &mut new_oid)
        }
    };
    changes.push(Change::Put(Object::Table(stock)));
    changes.insert(0, Change::Put(Object::Table(accounts)));
    changes
}

/// What makes a table of an id and one more column.
pub fn table(id: Oid, name: &str, second: Column, more: Vec<Index>) -> TableDef {
    let mut indexes = vec![index(id + 2, &format!("{name}_pk"), 0, true)];
    indexes.extend(more);
    TableDef {
        id,
        storage: storage(id),
        namespace: PUBLIC,
        name: name.into(),
        owner: BOOTSTRAP_ROLE,
        row_version: 0,
        columns: vec![column("id"), second],
        indexes,
        checks: vec![],
        foreign_keys: vec![],
        acl: vec![],
        rewrite_of: None,
    }
}

/// The bytes of a key.
pub fn key(id: i64) -> Vec<u8> {
    let mut k = vec![];
    base::key::encode_value(&Value::Int8(id), &mut k);
    k
}
