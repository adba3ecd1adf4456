//! Further records of split values, in the schema: the column that counts them, and the hidden table that has them.
//!
//! A hot value has *further records* beside the one in its row: rows of a hidden table, so that the commits of many transactions need not
//! push their versions to one record.
//!
//! ```text
//! the row                    key | … | share | … | count        share: record 0        count: how many further records there are
//! its hidden table           key, 1 | share      key, 2 | share      …      key, count | share
//! the value                  the sum of all shares
//! ```
//! The count is a column that is kept as a dropped one is: rows without it have no further records, so no row is rewritten when a column
//! is set split. The hidden table is an ordinary table of a namespace that no name leads to.
//!
//! Left out on purpose: shares and sums, which `txn` knows.

use crate::id::{ColumnIdx, Oid};
use crate::modifier::numeric_modifier;
use crate::schema::{CANON_SPLIT, Change, Column, Index, IndexColumn, Object, TableDef};
use crate::split::{MAX_DIGITS, Records, Split};
use crate::types::{ColumnType, Type};

/// Most columns of a table that still gets a column for the count.
const MOST_COLUMNS: usize = 1_500;

/// The table and the column whose further records are in the hidden table of this name.
pub fn records_of(hidden: &TableDef) -> Option<(Oid, ColumnIdx)> {
    if hidden.namespace != CANON_SPLIT {
        return None;
    }
    let (table, column) = hidden.name.strip_prefix("records_")?.split_once('_')?;
    Some((table.parse().ok()?, column.parse().ok()?))
}

fn plain_column(name: String, ty: Type) -> Column {
    let ty = ColumnType { ty, typmod: -1 };
    let mut column = Column::new(name, ty);
    column.not_null = true;
    column
}

/// The hidden table of a split column: the owner's key, the number of the record, its share.
fn hidden_table(owner: &TableDef, at: usize, key: &Index, ids: [Oid; 3]) -> TableDef {
    let [id, storage, index] = ids;
    let of_key = key.columns.iter().map(|c| {
        let c = &owner.columns[usize::from(c.column)];
        let mut column = Column::new(c.name.clone(), c.ty());
        column.not_null = true;
        column
    });
    let mut columns: Vec<Column> = of_key.collect();
    let value = &owner.columns[at];
    let mut share = plain_column("share".into(), Type::Int8);
    if value.ty().ty == Type::Numeric {
        let (_, scale) = numeric_modifier(value.typmod).unwrap_or((0, 0));
        let typmod = (MAX_DIGITS << 16 | scale) + 4;
        let ty = Type::Numeric;
        share.set_type(ColumnType { ty, typmod });
    }
    share.split = Some(Split {
        max: 1,
        ..Split::default()
    });
    columns.push(plain_column("record".into(), Type::Int2));
    columns.push(share);
    let mut places: Vec<IndexColumn> = key.columns.clone();
    for (place, c) in places.iter_mut().enumerate() {
        c.column = place as ColumnIdx;
    }
    places.push(IndexColumn {
        column: places.len() as ColumnIdx,
        desc: false,
        nulls_first: false,
    });
    let primary = Index {
        id: index,
        name: format!("records_{}_{at}_pkey", owner.id),
        columns: places,
        constraint_oid: 0,
        ..key.clone()
    };
    TableDef {
        id,
        storage,
        namespace: CANON_SPLIT,
        name: format!("records_{}_{at}", owner.id),
        owner: owner.owner,
        row_version: 0,
        columns,
        indexes: vec![primary],
        checks: vec![],
        foreign_keys: vec![],
        acl: vec![],
        rewrite_of: None,
    }
}

/// The column that counts the further records of column `at`: the one that it had when it was split before, else a new one. None: the table
/// has too many columns.
fn count_column(def: &mut TableDef, old: Option<&TableDef>, at: usize) -> Option<ColumnIdx> {
    let name = format!("........canon.records.{at}........");
    // In rows of then it says that there are none: RESET has taken them back.
    let before = def.columns.iter().position(|c| c.dropped && c.name == name);
    if let Some(before) = before {
        return Some(before as ColumnIdx);
    }
    if def.columns.len() >= MOST_COLUMNS {
        return None;
    }
    let mut count = plain_column(name, Type::Int2);
    count.dropped = true;
    count.not_null = false;
    def.columns.push(count);
    if old.is_some_and(|o| o.row_version == def.row_version) {
        def.row_version += 1;
    }
    Some((def.columns.len() - 1) as ColumnIdx)
}

/// What has to become of hidden tables when `def` takes the place of `old` (none: it is new). `def` gets the columns for counts.
pub fn settle_records(
    def: &mut TableDef,
    old: Option<&TableDef>,
    new_oid: &mut dyn FnMut() -> Oid,
) -> Vec<Change> {
    let mut changes = vec![];
    // A hidden table is one already: its share has no further records of its own.
    if def.namespace == CANON_SPLIT {
        return changes;
    }
    let had = |at: usize| {
        let split = old?.columns.get(at)?.split.as_ref()?;
        split.records
    };
    let key = def.indexes.iter().find(|i| i.primary).cloned();
    let columns_of = |def: &TableDef, key: &Index| {
        let types = key.columns.iter().map(|c| {
            let column = &def.columns[usize::from(c.column)];
            (*c, column.type_oid, column.typmod)
        });
        types.collect::<Vec<_>>()
    };
    let old_key = old.and_then(|o| o.indexes.iter().find(|i| i.primary).map(|k| (o, k)));
    let moved = old.is_none_or(|o| o.storage != def.storage || o.rewrite_of != def.rewrite_of)
        || key.as_ref().map(|k| columns_of(def, k)) != old_key.map(|(o, k)| columns_of(o, k));
    for at in 0..def.columns.len() {
        let splittable = def.columns[at].split.is_some() && !def.columns[at].dropped;
        let new = def.columns[at].split.as_ref().and_then(|s| s.records);
        let before = had(at).or(new);
        let Some(key) = key.as_ref().filter(|_| splittable) else {
            changes.extend(before.map(|r| Change::Drop(r.table)));
            if let Some(s) = &mut def.columns[at].split {
                s.records = None;
            }
            continue;
        };
        let retyped = old.is_some_and(|o| {
            o.columns
                .get(at)
                .is_none_or(|c| c.ty() != def.columns[at].ty())
        });
        if before.is_some() && !moved && !retyped {
            if let Some(s) = &mut def.columns[at].split {
                s.records = before;
            }
            continue;
        }
        let records = match before {
            Some(r) => r,
            None => {
                let Some(count) = count_column(def, old, at) else {
                    continue;
                };
                Records {
                    count,
                    table: new_oid(),
                }
            }
        };
        if let Some(s) = &mut def.columns[at].split {
            s.records = Some(records);
        }
        let ids = [records.table, new_oid(), new_oid()];
        let hidden = hidden_table(def, at, key, ids);
        changes.push(Change::Put(Object::Table(hidden)));
    }
    changes
}

/// The hidden tables of a table that goes.
pub fn drop_records(def: &TableDef) -> Vec<Change> {
    let records = def.columns.iter().filter_map(|c| c.split.as_ref()?.records);
    records.map(|r| Change::Drop(r.table)).collect()
}
