//! A statement made ready to run: parsed, bound and planned once, valid for one version of the schema.
//!
//! [`prepare`] turns syntax into a [`Prepared`]: the binder ([`crate::bind`]) gives every name a slot and every expression a
//! type, the planner (here) chooses access paths and join order by rules, and [`crate::exec`] runs the tree of [`node::Node`]s.
//! Parameters are bound at execution; the same plan serves any number of executions at once.
//!
//! Left out on purpose: statistics. The rules look at which index columns a predicate fixes, and at the tables' sizes.

pub(crate) mod access;
pub(crate) mod explain;
pub(crate) mod join;
pub(crate) mod node;

use crate::functions::SessionContext;
use crate::types::OutputSettings;
use base::{ColumnType, Oid, Result, Type};
use std::sync::Arc;
use txn::{Catalog, TableHandle};

/// To be called on the tokens of a statement before they are parsed: brings what PostgreSQL says and the parser does not
/// know (row locks, OVERRIDING, TABLE, strings over several lines) to forms that both know.
pub use crate::bind::adapt as adapt_tokens;

/// What preparing a statement may look at.
#[derive(Clone, Copy)]
pub struct PrepareContext<'a> {
    pub catalog: &'a Catalog,
    /// Namespaces searched for unqualified names, in order, `pg_catalog` included.
    pub search_path: &'a [Oid],
    pub settings: &'a OutputSettings,
    pub session: &'a dyn SessionContext,
    /// Estimated rows of a table; none: every table counts as middling.
    pub rows: Option<&'a dyn Fn(&TableHandle) -> u64>,
    /// The text that the statement was parsed from, for error positions; may be empty.
    pub source: &'a str,
}

/// A column of the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutColumn {
    pub name: String,
    pub ty: ColumnType,
    /// The table and the column's number (1-based) when it is a plain column; 0 otherwise.
    pub table: Oid,
    pub column: i16,
}

/// Which command it is, for the command tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementKind {
    Select,
    Insert,
    Update,
    Delete,
    Explain,
}

/// A statement ready to run.
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
    /// What the user must hold: (relation, bits of `schema::privilege`).
    pub privileges: Vec<(Oid, u32)>,
    pub(crate) plan: node::Plan,
}

/// Prepares a SELECT, VALUES, INSERT, UPDATE, DELETE or EXPLAIN. `param_types`: what the client declared, `None` for
/// parameters to infer.
pub fn prepare(
    stmt: &sqlparser::ast::Statement,
    param_types: &[Option<Type>],
    ctx: &PrepareContext<'_>,
) -> Result<Arc<Prepared>> {
    crate::bind::statement(stmt, param_types, ctx)
}
