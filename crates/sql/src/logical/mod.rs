//! The logical plan: what a statement asks for, with every name bound and every type settled, and nothing said about how its rows are found.
//!
//! ```text
//! tree ─ bind ─▶ Statement of Logical ─ plan ─▶ Plan of Node ─ exec ─▶ rows
//! ```
//! A [`Logical`] is a tree of relational operators over slots ([`crate::expr`]). Its leaves are relations in FROM ([`from::From`]) and VALUES.
//! The order of joins, indexes, sorts that an index saves, and the algorithm of each operator are the planner's ([`crate::plan`]).
//!
//! The binder makes the tree; the planner consumes it. Neither knows the other. Subqueries used as values are trees of their own, which
//! [`crate::expr::Subquery`] names by number.
//!
//! Left out on purpose: estimates, which belong to the physical plan.

pub(crate) mod from;
pub(crate) mod window;
pub(crate) mod write;

pub(crate) use from::{From, TableRef};
pub(crate) use window::{Window, WindowCall};

use crate::catalog::VirtualTable;
use crate::expr::{Expr, Slot};
use crate::functions::{AggregateId, Resolved};
use crate::types::record::Shape;
use base::{ColumnSet, ColumnType, Oid, Type};
use std::sync::Arc;
use txn::{LockMode, TableHandle, WaitPolicy};

/// A bound statement.
pub(crate) struct Statement {
    /// The parts of a WITH that changes data, in order, each read by those behind it and by the root; empty: the WITH only reads, and stands in
    /// the trees.
    pub steps: Vec<Step>,
    pub root: Root,
    pub kind: StatementKind,
    /// Queries used as values; [`crate::expr::Subquery::plan`] is the place.
    pub subqueries: Vec<Logical>,
    /// Types of the parameters.
    pub params: Vec<ColumnType>,
    pub columns: Vec<OutColumn>,
    /// Slots of the result, in order.
    pub outputs: Vec<Slot>,
    /// A name per slot, for EXPLAIN.
    pub names: Vec<String>,
    /// Which slots something reads.
    pub used: Vec<bool>,
    /// Common table expressions that are computed once and read by several.
    pub ctes: usize,
    pub privileges: Vec<Need>,
    /// Schemas that the text names.
    pub schemas: Vec<Oid>,
    pub locks_rows: bool,
    /// Calls a function that moves a sequence, or writes a table.
    pub writes: bool,
    /// Names are looked up when it runs.
    pub looks_up: bool,
    /// It is made of definitions beside those of its tables: views, types.
    pub by_definitions: bool,
    /// Which index serves it may depend on a number in its text.
    pub by_numbers: bool,
    /// Reads the state of a sequence by a function.
    pub sequences: bool,
    /// How deep its deepest expression nests.
    pub deepest: usize,
}

/// What the statement is.
pub(crate) enum Root {
    Rows(Logical),
    Insert(write::Insert<Logical>),
    Update(write::Update<Logical>),
    Delete(write::Delete<Logical>),
    Merge(write::Merge<Logical>),
}

impl Root {
    /// Whether it gives rows.
    pub fn returns(&self) -> bool {
        match self {
            Root::Rows(_) => true,
            Root::Insert(i) => i.returning.is_some(),
            Root::Update(u) => u.returning.is_some(),
            Root::Delete(d) => d.returning.is_some(),
            Root::Merge(_) => false,
        }
    }
}

/// One part of a WITH that changes data.
pub(crate) struct Step {
    /// The number under which its rows are read.
    pub id: usize,
    pub name: String,
    pub root: Root,
    /// Slots of its rows: those of RETURNING for one that writes.
    pub slots: Vec<Slot>,
}

/// Which command it is, for the command tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementKind {
    Select,
    Insert,
    Update,
    Delete,
    Merge,
    Explain,
}

/// A column of the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutColumn {
    pub name: String,
    pub ty: ColumnType,
    /// The table and the column's number (1-based) when it is a plain column; 0 otherwise.
    pub table: Oid,
    pub column: i16,
    /// The types of a row's fields, where they are known.
    pub record: Option<Arc<Shape>>,
}

/// Rights that an execution needs, checked anew each time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    pub relation: Oid,
    /// Bits of `schema::privilege`.
    pub bits: u32,
    /// The view in whose query the relation is named, whose owner must hold the rights; 0: the statement's own text, and the current role.
    pub view: Oid,
    /// The columns that are named to be read, inserted and updated, for a role that holds rights on columns alone.
    pub read: ColumnSet,
    pub inserted: ColumnSet,
    pub updated: ColumnSet,
}

/// A relational operator. Each writes the slots that its fields name, and leaves those of its input as they are.
pub(crate) enum Logical {
    /// FROM and WHERE: relations joined inwardly under conditions. No relation: one row without columns.
    Join {
        items: Vec<From>,
        filter: Vec<Expr>,
    },
    Values(Values),
    /// HAVING.
    Filter {
        input: Box<Logical>,
        conditions: Vec<Expr>,
    },
    Project {
        input: Box<Logical>,
        exprs: Vec<(Slot, Expr)>,
    },
    /// Set-returning functions in a select list, in lock step; a shorter one gives NULLs.
    ProjectSet {
        input: Box<Logical>,
        functions: Vec<SetCall>,
    },
    Sort {
        input: Box<Logical>,
        keys: Vec<SortKey>,
        /// Slots of the input that are needed above.
        slots: Vec<Slot>,
    },
    Aggregate {
        input: Box<Logical>,
        keys: Vec<(Slot, Expr)>,
        aggs: Vec<Agg>,
        /// One group even over no rows (no GROUP BY).
        plain: bool,
        sets: Option<GroupingSets>,
    },
    /// Calls over one window. Rows come sorted by it.
    Window {
        input: Box<Logical>,
        window: Window,
        calls: Vec<WindowCall>,
        /// Slots of the input that are needed above.
        slots: Vec<Slot>,
    },
    /// DISTINCT by these expressions: the first row of each.
    Unique {
        input: Box<Logical>,
        keys: Vec<Expr>,
    },
    Limit {
        input: Box<Logical>,
        limit: Option<Expr>,
        offset: Option<Expr>,
        /// The rows that follow the last one and have the same keys come, too; none: they do not.
        ties: Vec<SortKey>,
    },
    /// UNION ALL; every input writes the same slots.
    Append(Vec<Logical>),
    /// INTERSECT and EXCEPT; both inputs write `slots`.
    SetOp {
        kind: SetKind,
        all: bool,
        left: Box<Logical>,
        right: Box<Logical>,
        slots: Vec<Slot>,
    },
    /// Common table expressions, computed when first read.
    With {
        ctes: Vec<Cte>,
        input: Box<Logical>,
    },
    /// WITH RECURSIVE: `first`, then `step` over the rows of the round before, until a round is empty.
    Recursive {
        id: usize,
        first: Box<Logical>,
        step: Box<Logical>,
        /// UNION, not UNION ALL.
        distinct: bool,
        slots: Vec<Slot>,
    },
    /// Row locks on rows that passed all filters.
    Lock {
        input: Box<Logical>,
        tables: Vec<LockTarget>,
    },
}

impl Logical {
    /// One row without columns.
    pub fn once() -> Logical {
        Logical::Join {
            items: vec![],
            filter: vec![],
        }
    }

    /// DISTINCT by these expressions.
    pub fn unique(self, keys: Vec<Expr>) -> Logical {
        Logical::Unique {
            input: Box::new(self),
            keys,
        }
    }
}

/// GROUPING SETS, ROLLUP, CUBE: the rows are grouped once for each set of keys. A key outside of a set is NULL in its groups.
#[derive(Clone, Debug, Default)]
pub struct GroupingSets {
    /// Each as places in the list of keys. The empty set is one group even over no rows.
    pub sets: Vec<Vec<usize>>,
    /// GROUPING(…): the slot, and the keys as places. A bit is set for a key outside of the group's set, the last key's bit is the lowest.
    pub calls: Vec<(Slot, Vec<usize>)>,
}

/// A common table expression that is computed once.
pub(crate) struct Cte {
    pub id: usize,
    pub name: String,
    pub input: Logical,
    pub slots: Vec<Slot>,
}

/// A call of a set-returning function in a select list, and the slot for its values.
pub(crate) type SetCall = (Slot, Resolved, Vec<Expr>);

pub struct Values {
    pub rows: Vec<Vec<Expr>>,
    pub out: Vec<Slot>,
}

/// Where a relation that is no table has its rows.
#[derive(Clone, Copy)]
pub enum CatalogSource {
    Fixed(&'static dyn VirtualTable),
    /// The state of a sequence: last_value, log_cnt, is_called.
    Sequence(Oid),
}

/// A set-returning function in FROM.
pub struct Function {
    pub f: Resolved,
    pub args: Vec<Expr>,
    pub out: Vec<Slot>,
    pub ordinality: Option<Slot>,
    pub alias: String,
    pub filter: Vec<Expr>,
}

#[derive(Clone, Debug)]
pub struct SortKey {
    pub expr: Expr,
    pub desc: bool,
    pub nulls_first: bool,
}

/// One aggregate call.
#[derive(Clone)]
pub struct Agg {
    pub slot: Slot,
    pub id: AggregateId,
    pub args: Vec<Expr>,
    pub types: Vec<Type>,
    pub distinct: bool,
    pub filter: Option<Expr>,
    pub order: Vec<SortKey>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetKind {
    Intersect,
    Except,
}

pub struct LockTarget {
    pub handle: Arc<TableHandle>,
    pub key_slot: Slot,
    pub mode: LockMode,
    pub wait: WaitPolicy,
}
