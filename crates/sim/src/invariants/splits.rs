//! A split value is, at every shown position of every node, what the deltas of its history come to, and never below its bound.
//!
//! The values that are compared come from two sides: the node's rows, which commits have made, and what clients say that they did.

use base::Position;
use store::pin;
use txn::TableHandle;

use crate::schema::QTY;
use crate::values::Values;

/// The split values that a node shows at a position, of its table of stocks.
fn values_at(stock: &TableHandle, at: Position) -> Values {
    let layout = &stock.table.layout;
    let guard = pin();
    let mut values = Values::new();
    stock.storage.for_each(&guard, |r| {
        if let Some(row) = r.row_at(at, &guard) {
            let row = layout.row(row);
            let number = |c| row.get(c).as_i64().expect("a number");
            values.insert(number(0), number(QTY));
        }
    });
    values
}

/// Node `i` shows its state at `at`, and the deltas of its history come to `want` there.
pub(super) fn check(i: usize, stock: &TableHandle, at: Position, want: &Values) {
    let shown = values_at(stock, at);
    assert!(
        shown == *want,
        "node {i} shows the split values {shown:?} at {at}, the deltas of the history come to {want:?}"
    );
    assert!(
        shown.values().all(|v| *v >= 0),
        "node {i} shows a split value below its bound at {at}: {shown:?}"
    );
}
