//! What is wrong with further records, looked at from outside: `canon verify`.
//!
//! | found | a read of the row |
//! |---|---|
//! | a row counts records that are not there | XX000 |
//! | the sum lies outside the bounds | XX000 where it leaves the type; else it shows the sum |
//! | a record that no row counts | does not see it: what it holds is lost |
//!
//! Left out on purpose: bytes of a record that are no row. The look at the rows of the hidden table finds them.

use base::{RowRef, Value};
use store::Guard;

use super::shares::value_of;
use crate::handle::{TableHandle, plain};

impl TableHandle {
    /// What is wrong with the further records of a row, one sentence each.
    pub(crate) fn records_faults(&self, key: &[u8], row: RowRef<'_>, guard: &Guard) -> Vec<String> {
        let mut found = vec![];
        for s in self.spreads.iter().filter(|s| s.count(row) > 0) {
            let (count, column) = (s.count(row), &self.table.def.columns[s.column].name);
            let is_row = |b: &[u8]| s.table.table.layout.check(b);
            let sum = s.sum(key, count, guard, |r| {
                r.newest(guard).filter(|v| v.row().is_some_and(is_row))
            });
            let share = value_of(&s.units, row, s.column);
            match share.zip(sum).map(|(share, sum)| share + sum.total) {
                None => found.push(format!(
                    "column {column}: not all of its {count} further records are there"
                )),
                Some(total) if !s.units.allows(total) => found.push(format!(
                    "column {column}: its records come to {}, which its bounds do not allow",
                    plain(&s.number(total))
                )),
                Some(_) => {}
            }
        }
        found
    }

    /// Further records that no row counts: the key of each, and its column.
    pub(crate) fn stray_records(&self, guard: &Guard, each: &mut dyn FnMut(&[u8], &str)) {
        for s in &self.spreads {
            let layout = &s.table.table.layout;
            s.table.storage.for_each(guard, |r| {
                let bytes = r.newest(guard).and_then(|v| v.row());
                let Some(bytes) = bytes.filter(|b| layout.check(b)) else {
                    return;
                };
                let number = match layout.row(bytes).get(s.share() - 1) {
                    Value::Int2(n) => i32::from(n),
                    _ => 0,
                };
                // Its key ends with the number of the record, two bytes.
                let (owner, _) = r.key().split_at(r.key().len() - 2);
                let row = self.storage.primary.get(owner, guard);
                let row = row.and_then(|r| r.newest(guard)?.row());
                let row = row.filter(|b| self.table.layout.check(b));
                let counted = row.map_or(0, |b| s.count(self.table.layout.row(b)));
                if !(1..=i32::from(counted)).contains(&number) {
                    each(r.key(), &self.table.def.columns[s.column].name);
                }
            });
        }
    }
}
