//! What clients do to stocks, and what it comes to.

use std::collections::BTreeMap;

/// Stocks are few, so that they run out.
pub const IDS: u64 = 3;

/// What a new stock has.
pub const START: i64 = 12;

/// The values of the stocks, by id.
pub type Values = BTreeMap<i64, i64>;

/// What a transaction did to a stock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It made the row, with so many.
    Made(i64, i64),
    Moved {
        id: i64,
        by: i64,
        /// What a guard needs of the committed value, without the transaction's own deltas.
        least: Option<i64>,
        exact: bool,
    },
}

impl Change {
    pub fn apply(&self, values: &mut Values) {
        match *self {
            Change::Made(id, qty) => drop(values.insert(id, qty)),
            Change::Moved { id, by, .. } => *values.entry(id).or_default() += by,
        }
    }
}

/// The net of the changes of one stock.
pub fn net(changes: &[Change], of: i64) -> i64 {
    let by = |c: &Change| match c {
        Change::Moved { id, by, .. } if *id == of => *by,
        _ => 0,
    };
    changes.iter().map(by).sum()
}
