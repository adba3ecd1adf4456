//! Statements that write: what becomes of the rows of their input.
//!
//! The input `I` is a logical plan when the statement is bound, and operators when it runs. Nothing else differs, so that planning such a
//! statement is planning its input.

use crate::expr::{Expr, Slot};
use std::sync::Arc;
use txn::TableHandle;

/// Where a column of a new row comes from.
#[derive(Clone, Debug)]
pub enum ColumnSource {
    /// An expression over the input's slots, of the column's type.
    Expr(Expr),
    /// Stays as it is (UPDATE).
    Keep,
}

pub struct Insert<I> {
    pub handle: Arc<TableHandle>,
    pub input: I,
    /// One per column of the table, over the input's slots.
    pub columns: Vec<Expr>,
    /// Whether the input reads tables, so that it must end before the first row is written.
    pub buffer: bool,
    pub conflict: Option<OnConflict>,
    /// A slot for what `xmax` is of the row: not 0 where ON CONFLICT updated one.
    pub updated: Option<Slot>,
    pub checks: Option<RowChecks>,
    pub returning: Option<Returning>,
}

impl<I> Insert<I> {
    /// The same statement over another form of its input.
    pub fn map<J, E>(self, f: impl FnOnce(I) -> Result<J, E>) -> Result<Insert<J>, E> {
        Ok(Insert {
            input: f(self.input)?,
            handle: self.handle,
            columns: self.columns,
            buffer: self.buffer,
            conflict: self.conflict,
            updated: self.updated,
            checks: self.checks,
            returning: self.returning,
        })
    }
}

pub struct OnConflict {
    /// Places of the arbiter indexes; empty: any.
    pub arbiters: Vec<usize>,
    pub update: Option<ConflictUpdate>,
}

pub struct ConflictUpdate {
    /// Slots of the row that is there, by column.
    pub existing: Vec<Slot>,
    /// Slots of `excluded`, by column.
    pub excluded: Vec<Slot>,
    pub columns: Vec<ColumnSource>,
    pub condition: Vec<Expr>,
    /// The statement adds to split columns of the row and does nothing else. The full expressions stand in `columns` all the same.
    pub deltas: Vec<SplitDelta>,
}

/// WITH CHECK OPTION: what a new row must satisfy, asked after it is written.
pub struct RowChecks {
    /// Slots that hold the new row, by column.
    pub row: Vec<Slot>,
    /// The innermost view first.
    pub views: Vec<ViewCheck>,
    /// A condition has a subquery, which must not see what the statement writes: it is asked before the first row is written.
    pub early: bool,
}

/// What one view asks of new rows.
pub struct ViewCheck {
    pub view: String,
    pub conditions: Vec<Expr>,
}

/// RETURNING: expressions over the slots of the target's row.
pub struct Returning {
    /// Slots that hold the new row (the old one for DELETE), by column.
    pub row: Vec<Slot>,
    pub exprs: Vec<(Slot, Expr)>,
    pub outputs: Vec<Slot>,
}

pub struct Update<I> {
    pub handle: Arc<TableHandle>,
    pub alias: String,
    pub input: I,
    pub key_slot: Slot,
    /// Slots of the target's row, by column.
    pub row: Vec<Slot>,
    pub columns: Vec<ColumnSource>,
    /// The statement adds to split columns and does nothing else: `input` gives the rows that satisfy the conditions, guards aside. The full
    /// expressions stand in `columns` all the same, for rows that have to be written exactly.
    pub split: Option<SplitUpdate>,
    /// A row may come more than once (UPDATE … FROM).
    pub joined: bool,
    /// Only columns are set of which no constraint speaks: the others are not read.
    pub in_place: bool,
    pub checks: Option<RowChecks>,
    pub returning: Option<Returning>,
}

impl<I> Update<I> {
    /// The same statement over another form of its input.
    pub fn map<J, E>(self, f: impl FnOnce(I) -> Result<J, E>) -> Result<Update<J>, E> {
        Ok(Update {
            input: f(self.input)?,
            handle: self.handle,
            alias: self.alias,
            key_slot: self.key_slot,
            row: self.row,
            columns: self.columns,
            split: self.split,
            joined: self.joined,
            in_place: self.in_place,
            checks: self.checks,
            returning: self.returning,
        })
    }
}

/// MERGE: what is done with each pair of a source row and its target row, or with a source row that has none.
pub struct Merge<I> {
    pub handle: Arc<TableHandle>,
    pub alias: String,
    /// The source joined with the target; a row without a match has NULL in `key_slot`.
    pub input: I,
    pub key_slot: Slot,
    /// Slots of the target's row, by column.
    pub row: Vec<Slot>,
    /// The first clause that fits a row acts on it.
    pub clauses: Vec<MergeClause>,
}

impl<I> Merge<I> {
    /// The same statement over another form of its input.
    pub fn map<J, E>(self, f: impl FnOnce(I) -> Result<J, E>) -> Result<Merge<J>, E> {
        Ok(Merge {
            handle: self.handle,
            alias: self.alias,
            input: f(self.input)?,
            key_slot: self.key_slot,
            row: self.row,
            clauses: self.clauses,
        })
    }
}

/// `WHEN [NOT] MATCHED AND condition THEN action`.
pub struct MergeClause {
    pub matched: bool,
    pub condition: Vec<Expr>,
    pub action: MergeAction,
}

pub enum MergeAction {
    /// A source per column of the table.
    Update(Vec<ColumnSource>),
    Delete,
    /// A new row, by column.
    Insert(Vec<Expr>),
    Nothing,
}

/// An UPDATE by deltas.
pub struct SplitUpdate {
    pub deltas: Vec<SplitDelta>,
    /// The columns that the conditions look at, guards aside (`txn::column_set`); 0: none.
    pub looked_at: u64,
}

/// A split column, what is added to it, and what it has to be at least before.
pub struct SplitDelta {
    pub column: usize,
    pub amount: Expr,
    /// The amount is taken away.
    pub negative: bool,
    pub guards: Vec<Guard>,
}

/// `column >= bound`, or `column > bound`; with an offset `column + offset >= bound`.
pub struct Guard {
    pub bound: Expr,
    pub strict: bool,
    /// What is added to the column, or taken away (true).
    pub offset: Option<(Expr, bool)>,
    /// The condition itself.
    pub whole: Expr,
}

pub struct Delete<I> {
    pub handle: Arc<TableHandle>,
    pub alias: String,
    pub input: I,
    pub key_slot: Slot,
    pub joined: bool,
    pub returning: Option<Returning>,
}

impl<I> Delete<I> {
    /// The same statement over another form of its input.
    pub fn map<J, E>(self, f: impl FnOnce(I) -> Result<J, E>) -> Result<Delete<J>, E> {
        Ok(Delete {
            input: f(self.input)?,
            handle: self.handle,
            alias: self.alias,
            key_slot: self.key_slot,
            joined: self.joined,
            returning: self.returning,
        })
    }
}
