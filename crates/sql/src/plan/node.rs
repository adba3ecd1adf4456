//! The physical plan: the tree of operators that a statement runs as.
//!
//! Every node says which slots it writes. Children are shared (`Arc`), because an execution's state points at its node.

use super::asked::Asked;
use crate::expr::{CmpOp, Expr, Slot};
use crate::functions::{AggregateId, Resolved};
pub use crate::logical::window::WindowCall;
pub use crate::logical::write::{
    ColumnSource, ConflictUpdate, MergeAction, OnConflict, Returning, RowChecks, SplitDelta,
    SplitUpdate,
};
use crate::logical::{self, Need, OutColumn, StatementKind};
pub use crate::logical::{
    Agg, CatalogSource, Function, GroupingSets, LockTarget, SetKind, SortKey, Values,
};
use base::key::KeyColumn;
use base::schema::Table;
use base::{ColumnIdx, ColumnType, Oid, RelId, Type};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use txn::{Access, Direction, TableHandle, TableModes};

/// An INSERT whose rows come from operators.
pub type Insert = logical::write::Insert<Node>;
/// An UPDATE of the rows that operators find.
pub type Update = logical::write::Update<Node>;
/// A DELETE of the rows that operators find.
pub type Delete = logical::write::Delete<Node>;

/// A MERGE over the rows that operators pair.
pub type Merge = logical::write::Merge<Node>;

/// A statement ready to run, valid for one version of the schema.
pub struct Prepared {
    /// Types of the parameters, inferred where the client gave none.
    pub params: Vec<ColumnType>,
    /// Columns of the result; empty when the statement returns no rows.
    pub columns: Vec<OutColumn>,
    pub kind: StatementKind,
    /// Whether it writes and locks nothing.
    pub read_only: bool,
    /// SELECT … FOR UPDATE and such.
    pub locks_rows: bool,
    /// Version of the schema that it was planned for; another version needs another plan.
    pub schema_version: u64,
    pub privileges: Vec<Need>,
    /// Schemas that its text names, which must be usable.
    pub schemas: Vec<Oid>,
    /// The role that names were looked up for: it may use [`Prepared::schemas`].
    pub planned_for: Oid,
    pub(crate) plan: Plan,
    /// Found out when first asked for.
    pub(crate) touches: OnceLock<Touches>,
    /// The same.
    pub(crate) uses: OnceLock<Vec<(Oid, TableModes)>>,
}

impl Prepared {
    /// Whether a part of its WITH writes.
    pub fn writes_in_with(&self) -> bool {
        !self.plan.steps.is_empty()
    }
}

/// What a plan reads, named before it is read.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Touches {
    /// Storages, each once.
    pub tables: Vec<RelId>,
    /// The schema: catalog relations, functions that look names up, views, types.
    pub catalog: bool,
    /// The schema as a whole: any change of it may change the answer. A view or a type alone does not bring that.
    pub all_names: bool,
    /// The state of a sequence, which has no versions.
    pub unversioned: bool,
}

impl Touches {
    /// Nothing that is the same at every node of a cluster.
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty() && !self.catalog && !self.unversioned
    }
}

/// Everything an execution needs.
pub struct Plan {
    /// Parts of a WITH that changes data, before the root; see [`logical::Statement::steps`].
    pub steps: Vec<Step>,
    pub root: Root,
    /// Plans of subqueries used as values; [`crate::expr::Subquery::plan`] is the place.
    pub subplans: Vec<Node>,
    /// It looks names up in the schema when it runs.
    pub looks_up: bool,
    /// It is made of definitions beside those of its tables, which may have changed: views, types.
    pub by_definitions: bool,
    /// Which index serves it may depend on a number in its text.
    pub by_numbers: bool,
    /// It reads the state of a sequence by a function.
    pub sequences: bool,
    /// Common table expressions that are computed once and read by several.
    pub ctes: usize,
    /// How many slots there are.
    pub slots: usize,
    /// A name per slot, for EXPLAIN.
    pub names: Vec<String>,
    /// Slots of the result, in order.
    pub outputs: Vec<Slot>,
    /// Set when the statement is a read of one row, or a few, by key with plain columns as its result.
    pub point: Option<Point>,
    /// Set when it reads a range of one table and does nothing with it that needs more than the stored rows.
    pub short: Option<Short>,
    /// Holds expressions that nest deeply.
    pub deep: bool,
}

impl Plan {
    /// A plan without operators, for expressions that run alone.
    pub fn bare(slots: usize) -> Plan {
        Plan {
            steps: vec![],
            root: Root::Rows(Node::Once(Arc::new(vec![]))),
            subplans: vec![],
            looks_up: false,
            by_definitions: false,
            by_numbers: false,
            sequences: false,
            ctes: 0,
            slots,
            names: vec![],
            outputs: vec![],
            point: None,
            short: None,
            deep: false,
        }
    }
}

/// What the statement is.
pub enum Root {
    Rows(Node),
    Insert(Arc<Insert>),
    Update(Arc<Update>),
    Delete(Arc<Delete>),
    Merge(Arc<Merge>),
    Explain {
        options: Explain,
        /// How long planning took.
        planning: Duration,
        inner: Arc<Prepared>,
    },
}

/// One part of a WITH that changes data.
pub struct Step {
    /// The number under which its rows are read.
    pub id: usize,
    pub name: String,
    pub root: Root,
    pub slots: Vec<Slot>,
}

/// How to explain.
#[derive(Clone, Copy)]
pub struct Explain {
    /// Run it, and show what was counted.
    pub analyze: bool,
    pub json: bool,
    pub costs: bool,
    /// With ANALYZE: show each node's times.
    pub timing: bool,
    /// Show how long planning and the run took.
    pub summary: bool,
}

/// `SELECT a, b FROM t WHERE key = …` by primary key: no operator tree is needed.
pub struct Point {
    pub scan: Arc<Scan>,
    pub columns: Vec<ColumnIdx>,
    /// The columns as `txn` has them.
    pub reads: u64,
}

/// A range of one table, short in most runs: no operator tree is needed.
pub struct Short {
    pub scan: Arc<Scan>,
    pub then: Then,
    /// Columns of the result; for aggregates their places in the list.
    pub columns: Vec<ColumnIdx>,
    /// All columns that are looked at.
    pub reads: Vec<ColumnIdx>,
}

/// What becomes of the rows.
pub enum Then {
    Give,
    Sort {
        keys: Vec<ShortKey>,
        /// Of rows with equal keys the first one.
        distinct: bool,
    },
    Aggregate(Vec<ShortAgg>),
}

pub struct ShortKey {
    pub column: ColumnIdx,
    pub ty: Type,
    pub not_null: bool,
    pub desc: bool,
    pub nulls_first: bool,
}

pub struct ShortAgg {
    pub id: AggregateId,
    pub types: Vec<Type>,
    pub column: Option<ColumnIdx>,
}

#[derive(Clone)]
pub enum Node {
    /// One row without columns, if the condition holds.
    Once(Arc<Vec<Expr>>),
    Values(Arc<Values>),
    Scan(Arc<Scan>),
    Virtual(Arc<Virtual>),
    Function(Arc<Function>),
    Filter(Arc<Filter>),
    Project(Arc<Project>),
    ProjectSet(Arc<ProjectSet>),
    NestLoop(Arc<NestLoop>),
    HashJoin(Arc<HashJoin>),
    FullJoin(Arc<FullJoin>),
    Materialize(Arc<Materialize>),
    Lookup(Arc<Lookup>),
    Sort(Arc<Sort>),
    Aggregate(Arc<Aggregate>),
    Window(Arc<Window>),
    Unique(Arc<Unique>),
    Limit(Arc<Limit>),
    Append(Arc<Append>),
    SetOp(Arc<SetOp>),
    With(Arc<With>),
    CteScan(Arc<CteScan>),
    Recursive(Arc<Recursive>),
    WorkTable(Arc<CteScan>),
    Lock(Arc<Lock>),
}

/// How a key column is fixed.
#[derive(Clone, Debug)]
pub enum KeyPart {
    /// Equal to this.
    Eq(Expr),
    /// Equal to one of these.
    In(Vec<Expr>),
    /// Equal to one of the array's elements.
    Any(Expr),
    /// IS NULL.
    Null,
}

/// A bound on the key column after the fixed ones.
#[derive(Clone, Debug)]
pub struct KeyBound {
    /// Lt, Le, Gt or Ge.
    pub op: CmpOp,
    pub value: Expr,
}

/// A read of one table.
pub struct Scan {
    pub table: Arc<Table>,
    /// None when only the shape of the query is asked for.
    pub handle: Option<Arc<TableHandle>>,
    /// Name shown by EXPLAIN.
    pub alias: String,
    pub access: Access,
    /// The index's key columns, and the name of the index; none for a scan of a table without primary key.
    pub key: Vec<KeyColumn>,
    pub index: Option<String>,
    pub fixed: Vec<KeyPart>,
    pub bounds: Vec<KeyBound>,
    /// Equalities on columns of the index behind those: their places in its key. They stand in the filter, too.
    pub tests: Vec<(usize, Expr)>,
    /// All key columns are fixed and the key is the primary one: read by key.
    pub by_key: bool,
    /// At most one row per key value: a unique index is fixed whole.
    pub unique: bool,
    pub direction: Direction,
    /// Rows wanted at first, when a LIMIT says so.
    pub want: Option<usize>,
    /// Conditions that the range does not express.
    pub filter: Vec<Expr>,
    /// Whether the filter needs no subquery, and so may run while the rows are being read.
    pub filter_inline: bool,
    /// What of the filter commit can ask again.
    pub asked: Option<Asked>,
    /// Columns to decode, with their slots.
    pub columns: Vec<(ColumnIdx, Slot)>,
    /// Slot for the row's key, when it is to be locked, updated or deleted.
    pub key_slot: Option<Slot>,
    /// Slot for the row's key, when `ctid` is read.
    pub ctid: Option<Slot>,
    /// The rows are changed by deltas alone: what is not looked at does not count as read.
    pub adds: bool,
    /// SKIP LOCKED passes over some of the rows.
    pub skips: bool,
    /// The condition of the key, for EXPLAIN.
    pub key_cond: Vec<Expr>,
}

impl Scan {
    /// The table in the store.
    pub fn handle(&self) -> &TableHandle {
        self.handle
            .as_deref()
            .expect("a plan that runs has its tables")
    }
}

/// A read of a catalog relation, which makes its rows when asked.
pub struct Virtual {
    pub source: CatalogSource,
    pub alias: String,
    pub filter: Vec<Expr>,
    pub columns: Vec<(usize, Slot)>,
}

pub struct Filter {
    pub input: Node,
    pub conditions: Vec<Expr>,
}

pub struct Project {
    pub input: Node,
    pub exprs: Vec<(Slot, Expr)>,
}

/// Set-returning functions in a select list, in lock step; a shorter one gives NULLs.
pub struct ProjectSet {
    pub input: Node,
    pub functions: Vec<(Slot, Resolved, Vec<Expr>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinKind {
    Inner,
    Left,
}

/// For each row of `left`, the rows of `right`, which reads the left row's slots where they stand.
pub struct NestLoop {
    pub left: Node,
    pub right: Node,
    pub kind: JoinKind,
    pub on: Vec<Expr>,
    /// Slots that `right` writes: NULL when it has no row.
    pub right_slots: Vec<Slot>,
}

pub struct HashJoin {
    pub left: Node,
    pub right: Node,
    pub kind: JoinKind,
    pub left_keys: Vec<Expr>,
    pub right_keys: Vec<Expr>,
    pub on: Vec<Expr>,
    pub right_slots: Vec<Slot>,
    /// The right side gives the same rows each time it begins in one execution, so its table is made once. A subquery that runs for each row of its
    /// outer query begins anew each time.
    pub right_kept: bool,
}

/// FULL JOIN by hashing the right side; without keys all pairs are tried.
pub struct FullJoin {
    pub left: Node,
    pub right: Node,
    pub left_keys: Vec<Expr>,
    pub right_keys: Vec<Expr>,
    pub on: Vec<Expr>,
    pub left_slots: Vec<Slot>,
    pub right_slots: Vec<Slot>,
}

/// Reads its input once and gives it again on each start.
pub struct Materialize {
    pub input: Node,
    pub slots: Vec<Slot>,
}

/// The rows of `input`, which reads nothing of the queries around it, whose `keys` equal `probes`, which read nothing else.
pub struct Lookup {
    pub input: Node,
    pub keys: Vec<Expr>,
    pub probes: Vec<Expr>,
    /// The same as conditions.
    pub conditions: Vec<Expr>,
    pub slots: Vec<Slot>,
}

pub struct Sort {
    pub input: Node,
    pub keys: Vec<SortKey>,
    /// Slots of the input that are needed above.
    pub slots: Vec<Slot>,
    /// Only the first rows are wanted: limit plus offset.
    pub top: Option<(Option<Expr>, Option<Expr>)>,
}

pub struct Aggregate {
    pub input: Node,
    pub keys: Vec<(Slot, Expr)>,
    pub aggs: Vec<Agg>,
    /// One group even over no rows (no GROUP BY).
    pub plain: bool,
    /// Only the first row matters: min or max along an index.
    pub first_only: bool,
    pub sets: Option<GroupingSets>,
}

/// Calls over one window.
pub struct Window {
    pub input: Node,
    pub window: logical::window::Window,
    /// Partition and order, as the rows are sorted.
    pub keys: Vec<SortKey>,
    pub calls: Vec<WindowCall>,
    /// Slots of the input that are needed above.
    pub slots: Vec<Slot>,
    /// The input comes sorted.
    pub sorted: bool,
}

/// DISTINCT by these expressions: the first row of each.
pub struct Unique {
    pub input: Node,
    pub keys: Vec<Expr>,
}

pub struct Limit {
    pub input: Node,
    pub limit: Option<Expr>,
    pub offset: Option<Expr>,
    /// The rows that follow the last one and have the same keys come, too; none: they do not.
    pub ties: Vec<SortKey>,
}

/// UNION ALL; every input writes the same slots.
pub struct Append {
    pub inputs: Vec<Node>,
}

/// INTERSECT and EXCEPT; both inputs write `slots`.
pub struct SetOp {
    pub kind: SetKind,
    pub all: bool,
    pub left: Node,
    pub right: Node,
    pub slots: Vec<Slot>,
}

/// Common table expressions, computed when first read.
pub struct With {
    pub ctes: Vec<Cte>,
    pub input: Node,
}

pub struct Cte {
    pub id: usize,
    pub name: String,
    pub plan: Node,
    pub slots: Vec<Slot>,
}

pub struct CteScan {
    pub id: usize,
    pub name: String,
    pub out: Vec<Slot>,
    pub filter: Vec<Expr>,
}

/// WITH RECURSIVE: `first`, then `step` over the rows of the round before, until a round is empty.
pub struct Recursive {
    pub id: usize,
    pub first: Node,
    pub step: Node,
    /// UNION, not UNION ALL.
    pub distinct: bool,
    pub slots: Vec<Slot>,
}

/// Row locks on rows that passed all filters.
pub struct Lock {
    pub input: Node,
    pub tables: Vec<LockTarget>,
}

impl Root {
    fn handle(&self) -> Option<&TableHandle> {
        Some(match self {
            Root::Insert(i) => &i.handle,
            Root::Update(u) => &u.handle,
            Root::Delete(d) => &d.handle,
            Root::Merge(m) => &m.handle,
            _ => return None,
        })
    }

    /// The oid of the table that is written.
    pub fn target(&self) -> Option<Oid> {
        self.handle().map(|h| h.table.def.id)
    }
}

impl Prepared {
    /// Whether it writes a temporary table and no other, which a read-only transaction may.
    pub fn writes_temporary(&self) -> bool {
        let target = self.plan.root.handle();
        target.is_some_and(TableHandle::is_temporary) && !self.writes_in_with()
    }
}
