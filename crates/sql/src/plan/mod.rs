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
pub(crate) mod touches;

use crate::functions::SessionContext;
use crate::reading::Touch;
use crate::types::OutputSettings;
use base::{ColumnType, Oid, RelId, Result, Type, Value};
use std::sync::{Arc, OnceLock};
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
    /// The role that looks names up: schemas that it may not use are refused, and not searched.
    pub role: Oid,
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
    /// The types of a row's fields, where they are known.
    pub record: Option<Arc<crate::types::record::Shape>>,
}

/// Rights that an execution needs, checked anew each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    pub relation: Oid,
    /// Bits of `schema::privilege`.
    pub bits: u32,
    /// The view in whose query the relation is named, whose owner must hold the rights; 0: the statement's own text, and the current role.
    pub view: Oid,
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
    pub privileges: Vec<Need>,
    /// Schemas that its text names, which must be usable.
    pub schemas: Vec<Oid>,
    /// The role that names were looked up for: it may use [`Prepared::schemas`].
    pub planned_for: Oid,
    pub(crate) plan: node::Plan,
    pub(crate) touches: OnceLock<touches::Touches>,
}

impl Prepared {
    /// What it reads; found out when somebody asks first.
    pub fn touches(&self) -> &touches::Touches {
        self.touches
            .get_or_init(|| touches::Touches::of(&self.plan))
    }

    /// Whether values of it come from queries of their own.
    pub fn has_subqueries(&self) -> bool {
        !self.plan.subplans.is_empty()
    }

    /// The same as a replica asks for it: one row, where these parameters say which.
    pub fn touching(&self, params: &[Value]) -> Vec<Touch> {
        if self.plan.point.is_some() {
            let row = self.point_key(params);
            return row.map(|(t, k)| Touch::Row(t, k)).into_iter().collect();
        }
        let t = self.touches();
        let mut all: Vec<Touch> = t.tables.iter().map(|t| Touch::Table(*t)).collect();
        // Plans are made with the schema at the statement's position, so catalog relations need no second question.
        if t.unversioned {
            all.push(Touch::All);
        }
        all
    }

    /// The storage and the encoded primary key that a read of one row by its key looks up, with these parameters. `None`: it reads more
    /// than that, or the key is one that no row can have.
    pub fn point_key(&self, params: &[Value]) -> Option<(RelId, Box<[u8]>)> {
        let p = self.plan.point.as_ref()?;
        let mut key = Vec::new();
        crate::exec::point_key(p, params, &mut key)
            .ok()?
            .then(|| (p.scan.handle().storage.id, key.into()))
    }
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
