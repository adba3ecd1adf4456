//! Which split values are used much: for the workers that give them further records, and for users who look.
//!
//! A value is watched from the first commit that had to wait for its record, or from its first delta where its column asks for records
//! (`split_min`). It is forgotten when a worker has looked and there was no delta since.
//!
//! Left out on purpose: what is decided from it, which is the node's.

use base::split::Mode;
use base::{Oid, Value};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use store::pin;

use super::escrow::{Heat, ValueName};
use super::rows::Share;
use super::shares::value_of;
use crate::handle::{Spread, TableHandle};
use crate::manager::TxnManager;

/// A split value that has further records, or is watched, as it is now.
#[derive(Clone, Debug)]
pub struct SplitValue {
    pub table: Oid,
    pub column: u16,
    /// The primary-index key of its row.
    pub key: Box<[u8]>,
    /// The same as errors show it.
    pub name: String,
    /// How many further records it has, and may and shall have.
    pub records: u16,
    pub most: u16,
    pub least: u16,
    /// The sum of its shares, of the column's type.
    pub total: Value,
    /// In the mode `rows`, its records, the row first.
    pub shares: Option<Vec<Share>>,
    /// Likewise the least and the greatest share, as numbers.
    pub extremes: Option<(Value, Value)>,
    pub mode: Mode,
    /// How far below it running transactions may still take it, in the column's type.
    pub reserved: Value,
    pub heat: Heat,
}

impl TxnManager {
    /// Split values that have further records or are watched. `look`: their heat begins anew, as after a worker's look.
    pub fn split_values(&self, look: bool) -> Vec<SplitValue> {
        let catalog = self.catalog();
        let tables = catalog.tables.values().filter(|t| !t.spreads.is_empty());
        let tables: Vec<&Arc<TableHandle>> = tables.collect();
        let looked = if look { self.escrow.look() } else { vec![] };
        let looked: HashMap<ValueName, Heat> = looked.into_iter().collect();
        let mut names: BTreeSet<(Oid, u16, Box<[u8]>)> = BTreeSet::new();
        for name in self.escrow.watched() {
            let of = tables.iter().find(|t| t.storage.id == name.storage);
            names.extend(of.map(|t| (t.table.def.id, name.column, name.key)));
        }
        for t in &tables {
            for s in &t.spreads {
                let guard = pin();
                s.table.storage.for_each(&guard, |r| {
                    // Its key ends with the number of the record, two bytes.
                    let (owner, _) = r.key().split_at(r.key().len() - 2);
                    if r.newest(&guard).is_some_and(|v| v.row().is_some()) {
                        names.insert((t.table.def.id, s.column as u16, owner.into()));
                    }
                });
            }
        }
        let mut values = vec![];
        for (table, column, key) in names {
            let Some(t) = catalog.tables.get(&table) else {
                continue;
            };
            let Some(s) = t.spread(usize::from(column)) else {
                continue;
            };
            let name = ValueName {
                storage: t.storage.id,
                column,
                key,
            };
            let seen = looked.get(&name).copied();
            values.extend(self.value(t, s, name, seen));
        }
        values
    }

    /// The values in the mode `rows` that are watched: those with deltas since a worker looked last. In others there is nothing to balance.
    pub fn rows_in_use(&self) -> Vec<SplitValue> {
        let catalog = self.catalog();
        let tables = catalog.tables.values();
        let of: HashMap<_, _> = tables
            .filter(|t| t.spreads.iter().any(|s| s.rows.is_some()))
            .map(|t| (t.storage.id, t))
            .collect();
        if of.is_empty() {
            return vec![];
        }
        let watched = self.escrow.watched().into_iter();
        let values = watched.filter_map(|name| {
            let t = of.get(&name.storage)?;
            let s = t.spread(usize::from(name.column))?;
            s.rows?;
            self.value(t, s, name, None)
        });
        let mut values: Vec<SplitValue> = values.collect();
        values.sort_by(|a, b| (a.table, a.column, &a.key).cmp(&(b.table, b.column, &b.key)));
        values
    }

    /// The watched split values that were fought for most, the hottest first, and how many are watched. Looks at no table as a whole, so it may be asked
    /// for often.
    pub fn hottest_split_values(&self, most: usize) -> (Vec<SplitValue>, usize) {
        let catalog = self.catalog();
        let (hottest, watched) = self.escrow.hottest(most);
        let value = |(name, heat): (ValueName, Heat)| {
            let mut tables = catalog.tables.values();
            let t = tables.find(|t| t.storage.id == name.storage)?;
            let s = t.spread(usize::from(name.column))?;
            self.value(t, s, name, Some(heat))
        };
        (hottest.into_iter().filter_map(value).collect(), watched)
    }

    fn value(
        &self,
        t: &TableHandle,
        s: &Spread,
        name: ValueName,
        seen: Option<Heat>,
    ) -> Option<SplitValue> {
        let guard = pin();
        let row = t.storage.primary.get(&name.key, &guard)?.newest(&guard)?;
        let bytes = row.row().filter(|r| t.table.layout.knows(r))?;
        let row = t.table.layout.row(bytes);
        let records = s.count(row);
        let sum = s.sum(&name.key, records, &guard, |r| r.newest(&guard))?;
        let (reserved, heat) = self.escrow.of(&name);
        let shares = s.shares_of(&name.key, row, &guard);
        let all = || shares.iter().flatten().map(|s| s.share);
        let extremes = all().min().zip(all().max());
        Some(SplitValue {
            table: t.table.def.id,
            column: name.column,
            name: t.describe_row(bytes),
            key: name.key,
            records,
            most: s.max,
            least: s.min.min(s.max),
            total: s
                .units
                .value(value_of(&s.units, row, s.column)? + sum.total),
            extremes: extremes.map(|(a, b)| (s.number(a), s.number(b))),
            mode: match s.rows {
                Some(_) => Mode::Rows,
                None => Mode::Escrow,
            },
            shares,
            reserved: s.units.value(reserved.down),
            heat: seen.unwrap_or(heat),
        })
    }

    /// A commit waited for the record of a delta.
    pub(crate) fn note_wait(&self, table: &TableHandle, key: &[u8], column: u16) {
        let catalog = self.catalog();
        let (storage, column, key) = match table.records_of {
            None => (table.storage.id, column, key),
            Some((owner, column)) => match catalog.table(owner) {
                Some(owner) => (owner.storage.id, column, &key[..key.len() - 2]),
                None => return,
            },
        };
        self.escrow.waited(ValueName {
            storage,
            column,
            key: key.into(),
        });
    }
}
