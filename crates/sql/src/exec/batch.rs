//! Rows on their way out.

use crate::expr::Slot;
use base::{ColumnIdx, RowRef, Value};

/// A row of the result, where it stands.
#[derive(Clone, Copy)]
pub enum RowView<'a> {
    /// The values in order.
    Values(&'a [Value]),
    /// The values at these places.
    Slots {
        values: &'a [Value],
        slots: &'a [Slot],
    },
    /// Columns of a stored row: its bytes can be sent as they are.
    Stored {
        row: RowRef<'a>,
        columns: &'a [ColumnIdx],
    },
}

impl<'a> RowView<'a> {
    /// Number of columns.
    pub fn width(&self) -> usize {
        match self {
            RowView::Values(v) => v.len(),
            RowView::Slots { slots, .. } => slots.len(),
            RowView::Stored { columns, .. } => columns.len(),
        }
    }

    /// The value of column `i` where it stands; `None` for a stored row, whose values are decoded by [`RowView::get`].
    pub fn value(&self, i: usize) -> Option<&'a Value> {
        match self {
            RowView::Values(v) => Some(&v[i]),
            RowView::Slots { values, slots } => Some(&values[slots[i] as usize]),
            RowView::Stored { .. } => None,
        }
    }

    /// A copy of column `i`.
    pub fn get(&self, i: usize) -> Value {
        match self {
            RowView::Stored { row, columns } => row.get(columns[i] as usize),
            _ => self.value(i).expect("not stored").clone(),
        }
    }
}

/// Rows of one width, one after another; reusable.
#[derive(Clone, Debug, Default)]
pub struct RowBatch {
    width: usize,
    rows: usize,
    values: Vec<Value>,
}

impl RowBatch {
    /// No rows.
    pub fn new() -> RowBatch {
        RowBatch::default()
    }

    /// Empties it for rows of `width` columns.
    pub fn clear(&mut self, width: usize) {
        self.width = width;
        self.rows = 0;
        self.values.clear();
    }

    /// Appends a row.
    pub fn push(&mut self, row: &RowView<'_>) {
        assert_eq!(row.width(), self.width, "rows of a batch are of one width");
        self.values.extend((0..self.width).map(|i| row.get(i)));
        self.rows += 1;
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows
    }

    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Columns of a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Row `i`.
    pub fn row(&self, i: usize) -> &[Value] {
        assert!(i < self.rows, "row {i} of {}", self.rows);
        &self.values[i * self.width..(i + 1) * self.width]
    }

    /// The rows in order.
    pub fn rows(&self) -> impl Iterator<Item = &[Value]> {
        (0..self.rows).map(|i| self.row(i))
    }
}
