//! A split value is, at every shown position of every node, what the deltas of its history come to, and never below its bound.
//!
//! The values that are compared come from two sides: the node's rows, which commits have made, and what clients say that they did. Where a
//! value has further records, these are added up here from the rows of the hidden table, by no code of the product, and each row has to count
//! as many as there are.

use base::Position;
use node::Node;
use std::collections::BTreeMap;
use store::pin;

use crate::schema::{FURTHER, QTY, STOCK};
use crate::values::Values;

/// What the rows of a node say of one stock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stock {
    /// The share in its row; none: there is no row.
    share: Option<i64>,
    /// How many further records the row counts, how many there are, and what they hold.
    counted: i64,
    records: i64,
    further: i64,
}

impl Stock {
    /// Its value; none: there is no such stock.
    pub(super) fn value(&self) -> Option<i64> {
        assert_eq!(
            self.counted, self.records,
            "a stock counts other further records than there are: {self:?}"
        );
        self.share.map(|s| s + self.further)
    }
}

/// The stocks of a node at a position, by id.
pub(super) fn stocks_at(node: &Node, at: Position) -> BTreeMap<i64, Stock> {
    let guard = pin();
    let mut all: BTreeMap<i64, Stock> = BTreeMap::new();
    let catalog = node.catalog();
    let stock = &catalog.tables[&STOCK];
    let layout = &stock.table.layout;
    stock.storage.for_each(&guard, |r| {
        if let Some(row) = r.row_at(at, &guard) {
            let row = layout.row(row);
            let number = |c| row.get(c).as_i64();
            let one = all.entry(number(0).expect("a key")).or_default();
            one.share = number(QTY);
            // The column that counts is NULL in a row that never had any.
            if layout.len() > QTY + 1 {
                one.counted = number(QTY + 1).unwrap_or(0);
            }
        }
    });
    let Some(further) = catalog.tables.get(&FURTHER) else {
        return all;
    };
    let layout = &further.table.layout;
    further.storage.for_each(&guard, |r| {
        if let Some(row) = r.row_at(at, &guard) {
            let row = layout.row(row);
            // The key of the stock, the number of the record, its share.
            let number = |c| row.get(c).as_i64().expect("a number");
            let one = all.entry(number(0)).or_default();
            one.records += 1;
            one.further += number(2);
        }
    });
    all
}

/// The split values that a node shows at a position.
fn values_at(node: &Node, at: Position) -> Values {
    let all = stocks_at(node, at).into_iter();
    all.filter_map(|(id, s)| Some((id, s.value()?))).collect()
}

/// Node `i` shows its state at `at`, and the deltas of its history come to `want` there.
pub(super) fn check(i: usize, node: &Node, at: Position, want: &Values) {
    let shown = values_at(node, at);
    assert!(
        shown == *want,
        "node {i} shows the split values {shown:?} at {at}, the deltas of the history come to {want:?}"
    );
    assert!(
        shown.values().all(|v| *v >= 0),
        "node {i} shows a split value below its bound at {at}: {shown:?}"
    );
}
