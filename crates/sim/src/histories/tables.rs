//! The tables of small histories:
//!
//! ```text
//! parents(id primary key, v, u unique)     children(id primary key, parent references parents)     stocks(id primary key, qty split, >= 0)
//! ```
//! All columns are int8 and not NULL.

use base::schema::{Change, Deferral, FkAction, ForeignKey, Index, Object};
use base::split::Split;
use base::{Oid, Value};

use crate::schema::{column, index, table};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    Parent,
    Child,
    Stock,
}

pub const TABLES: [Table; 3] = [Table::Parent, Table::Child, Table::Stock];

/// A row's table and key.
pub type Name = (Table, i64);

/// The columns behind the key.
pub type Row = Vec<i64>;

/// The place of `qty` in stocks.
pub const QTY: usize = 1;

impl Table {
    pub fn id(self) -> Oid {
        21_000 + 100 * self as Oid
    }
}

/// A row as it is written.
pub fn values(id: i64, row: &[i64]) -> Vec<Value> {
    let all = std::iter::once(&id).chain(row);
    all.map(|v| Value::Int8(*v)).collect()
}

/// What makes the tables.
pub fn changes(on_delete: FkAction) -> Vec<Change> {
    let parent = Table::Parent.id();
    let by_u = Index {
        unique: true,
        constraint: true,
        ..index(parent + 3, "by_u", 2, false)
    };
    let mut parents = table(parent, "parents", column("v"), vec![by_u]);
    parents.columns.push(column("u"));
    let child = Table::Child.id();
    let by_parent = index(child + 3, "by_parent", 1, false);
    let mut children = table(child, "children", column("parent"), vec![by_parent]);
    children.foreign_keys.push(ForeignKey {
        id: child + 9,
        name: "child_parent".into(),
        columns: vec![1],
        ref_table: parent,
        ref_index: parent + 2,
        ref_columns: vec![0],
        on_delete,
        on_update: FkAction::NoAction,
        deferral: Deferral::Never,
        not_valid: false,
    });
    let mut qty = column("qty");
    qty.split = Some(Split {
        lower: Some(0),
        ..Split::default()
    });
    let stocks = table(Table::Stock.id(), "stocks", qty, vec![]);
    let all = [parents, children, stocks];
    all.map(|t| Change::Put(Object::Table(t))).into()
}
