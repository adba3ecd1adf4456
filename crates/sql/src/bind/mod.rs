//! The binder: from syntax to typed expressions over slots, by PostgreSQL's rules for names and types.
//!
//! A [`Binder`] lives for one statement. It numbers the slots, infers the types of parameters, and makes the logical plan
//! ([`crate::logical`]) of the statement and of its subqueries. Names live in [`scope::Scope`]s, one per query level; a scope
//! knows its parent, so that correlated subqueries resolve by walking up, and each subquery notes which slots it took from
//! outside.
//!
//! Left out on purpose (0A000): named arguments.

mod arrays;
mod blanks;
mod call;
mod coerce;
mod composite;
mod conflict;
mod conflict_text;
mod cte;
mod dml;
pub mod domain;
mod expr;
mod from;
mod group;
mod insert;
mod json_records;
mod json_rows;
mod lock;
mod locking;
mod merge;
mod merge_text;
mod no_columns;
mod ops;
mod ordered_set;
mod params;
mod query;
mod recursion;
mod rows;
mod scope;
mod select;
mod setop;
mod spelling;
mod split;
mod subquery;
mod syntax;
mod system;
mod target;
mod through;
mod tokens;
mod window;

pub(crate) use expr::Env;
pub(crate) use query::Rel;
pub(crate) use scope::{Meaning, Scope, ScopeColumn, ScopeRel};
pub(crate) use select::QCol;
pub use syntax::adapt;
pub(crate) use syntax::{parse_expr, parse_query, query_text, without_collation};

use crate::catalog::user_types;
use crate::ddl::privileges::{check_namespace, held_on_namespace};
use crate::expr::{Expr, Slot};
use crate::functions::SessionContext;
use crate::logical::{self, Logical, Need, OutColumn, Root, StatementKind};
use crate::types::OutputSettings;
use base::cancel::check_cancelled;
use base::schema::privilege;
use base::{ColumnSet, ColumnType, Error, Oid, Result, SqlState, Type};
use sqlparser::ast::{self, Statement};
use sqlparser::tokenizer::Location;
use std::sync::Arc;
use txn::{Catalog, TableHandle};

/// How deep queries and views may nest.
const MAX_DEPTH: usize = 64;

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

/// An expression with its type.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    pub expr: Expr,
    pub ty: ColumnType,
}

impl Bound {
    pub fn new(expr: Expr, ty: Type) -> Bound {
        Bound {
            expr,
            ty: ty.into(),
        }
    }
}

/// The state of binding one statement.
pub(crate) struct Binder<'a> {
    pub cx: &'a PrepareContext<'a>,
    /// Names of the schemas searched.
    pub path: Vec<String>,
    /// Types of the parameters, where known.
    pub params: Vec<Option<Type>>,
    /// A name per slot, `alias.column` for columns.
    pub names: Vec<String>,
    /// Which slots something reads.
    pub used: Vec<bool>,
    pub subqueries: Vec<Logical>,
    pub ctes: usize,
    /// The WITH of the statement changes data: its parts become steps, and no write begins before all reads have ended.
    pub stepwise: bool,
    pub steps: Vec<logical::Step>,
    /// Recursive CTEs that are read once, to be planned where they are read.
    pub lazy: Vec<(usize, Logical)>,
    pub recursion: recursion::Recursion,
    /// Slots of functions in FROM that give plain values, with the names of the relations.
    pub scalars: Vec<(Slot, String)>,
    /// Slots of records whose fields are known.
    pub shapes: Vec<(Slot, rows::Shape)>,
    pub relations: usize,
    pub privileges: Vec<Need>,
    /// Schemas that the text names.
    pub schemas: Vec<Oid>,
    /// The views whose queries are being bound, the innermost last; and what their queries' names mean.
    pub views: Vec<Oid>,
    pub meanings: Vec<Meaning>,
    /// The domains whose checks are being bound, the innermost last; and how often one was bound.
    pub domains: Vec<Oid>,
    pub domain_uses: usize,
    /// Set while a stored DEFAULT is bound: its names were looked up when it was made, and so are those of views.
    pub stored: bool,
    pub locks_rows: bool,
    /// The locking clauses of the query whose FROM is being bound.
    pub locking: locking::Locking,
    /// Relations whose rows are to be locked, by their first slots, until a query joins them.
    pub marks: Vec<(Slot, locking::RowLock)>,
    /// Calls a function that moves a sequence.
    pub writes: bool,
    /// How many calls of volatile functions were bound.
    pub volatile: usize,
    /// Names are looked up when it runs.
    pub looks_up: bool,
    /// It is made of definitions beside those of its tables: views, types.
    pub by_definitions: bool,
    /// An index of a table that it names is over an expression, or has a condition, with a number in it.
    pub by_numbers: bool,
    /// Reads the state of a sequence by a function.
    pub sequences: bool,
    pub depth: usize,
    /// How deep the expression that is being bound is, and the deepest yet.
    pub nesting: usize,
    pub deepest: usize,
    /// The types of the fields of rows that stand in slots.
    pub records: Vec<(Slot, Arc<crate::types::record::Shape>)>,
    /// What each `*` of the text stands for, when asked (CREATE VIEW).
    pub stars: Option<Vec<(Location, String)>>,
    /// Where the text names a relation without its schema, and which relation that is, when asked (`pg_get_viewdef`).
    pub unqualified: Option<Vec<(Location, Oid)>>,
    /// Set while a DEFAULT or CHECK is bound: parameters and subqueries have no place there.
    pub in_rule: Option<&'static str>,
}

impl<'a> Binder<'a> {
    pub fn new(cx: &'a PrepareContext<'a>, params: &[Option<Type>]) -> Binder<'a> {
        let schema = &cx.catalog.schema;
        let usable = |n: &&Oid| held_on_namespace(schema, cx.role, **n) & privilege::USAGE != 0;
        let name = |n: &Oid| schema.namespace(*n).map(|n| n.name.clone());
        let path = cx.search_path.iter().filter(usable);
        Binder {
            cx,
            path: path.filter_map(name).collect(),
            params: params.to_vec(),
            names: vec![],
            used: vec![],
            subqueries: vec![],
            ctes: 0,
            stepwise: false,
            steps: vec![],
            lazy: vec![],
            recursion: recursion::Recursion::default(),
            scalars: vec![],
            shapes: vec![],
            relations: 0,
            privileges: vec![],
            schemas: vec![],
            views: vec![],
            meanings: vec![],
            domains: vec![],
            domain_uses: 0,
            stored: false,
            locks_rows: false,
            locking: locking::Locking::default(),
            marks: vec![],
            writes: false,
            volatile: 0,
            looks_up: false,
            by_definitions: false,
            by_numbers: false,
            sequences: false,
            depth: 0,
            nesting: 0,
            deepest: 0,
            records: vec![],
            stars: None,
            unqualified: None,
            in_rule: None,
        }
    }

    /// A slot of this name.
    pub fn slot(&mut self, name: impl Into<String>) -> Slot {
        self.names.push(name.into());
        self.used.push(false);
        (self.names.len() - 1) as Slot
    }

    /// Notes that these rights on a relation are needed, by the owner of the view that is being bound, or by the current role.
    pub fn need(&mut self, relation: Oid, bits: u32) {
        let view = self.views.last().copied().unwrap_or(0);
        self.need_in(view, relation, bits);
    }

    /// [`Binder::need`] of the query of this view; 0: of the statement itself.
    pub fn need_in(&mut self, view: Oid, relation: Oid, bits: u32) {
        let same = |n: &&mut Need| n.relation == relation && n.view == view;
        match self.privileges.iter_mut().find(same) {
            Some(n) => n.bits |= bits,
            None => self.privileges.push(Need {
                relation,
                bits,
                view,
                read: ColumnSet::default(),
                inserted: ColumnSet::default(),
                updated: ColumnSet::default(),
            }),
        }
    }

    /// Notes that a column is read, where rights on its relation are needed: by the number that a role is granted it by, or 0 for what only a
    /// right on the relation gives. What an index or a rule reads is not the statement's.
    pub fn reads_column(&mut self, (relation, column): (Oid, i16)) {
        if relation == 0 || self.stored {
            return;
        }
        let view = self.views.last().copied().unwrap_or(0);
        let same = |n: &&mut Need| n.relation == relation && n.view == view;
        if let Some(n) = self.privileges.iter_mut().find(same) {
            n.read.insert(column.max(0).unsigned_abs());
        }
    }

    /// The text names this schema: 42501 unless it is usable. Stored definitions name what their makers might use.
    pub fn name_schema(&self, name: &str) -> Result<()> {
        if self.stored || !self.views.is_empty() {
            return Ok(());
        }
        let schema = &self.cx.catalog.schema;
        let Some(n) = schema.namespace_named(name) else {
            return Ok(());
        };
        check_namespace(schema, self.cx.role, n.id, privilege::USAGE)
    }

    /// The type of this name: 42704.
    pub fn type_named(&mut self, text: &str) -> Result<ColumnType> {
        let built_in = crate::ddl::type_from_text(text);
        if let Err(e) = &built_in
            && e.code() == SqlState::UNDEFINED_OBJECT
        {
            self.by_definitions = true;
            if let Some(n) = user_types::schema_of(text) {
                self.name_schema(&n)?;
            }
        }
        let schema = &self.cx.catalog.schema;
        user_types::type_of(schema, self.cx.search_path, text, built_in)
    }

    /// Notes that a name of the text was found in this schema.
    pub fn found_in(&mut self, namespace: Oid) {
        let own = !self.stored && self.views.is_empty();
        if own && !crate::catalog::is_system(namespace) && !self.schemas.contains(&namespace) {
            self.schemas.push(namespace);
        }
    }

    /// Goes one level down; 54001 when there are too many.
    pub fn enter(&mut self) -> Result<()> {
        check_cancelled()?;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Error::new(
                SqlState::STATEMENT_TOO_COMPLEX,
                "the statement nests too deeply",
            ));
        }
        Ok(())
    }

    /// The character position of a place in the text.
    pub fn position(&self, at: Location) -> usize {
        if at.line == 0 || self.cx.source.is_empty() {
            return 0;
        }
        let before: usize = self
            .cx
            .source
            .split_inclusive('\n')
            .take(at.line as usize - 1)
            .map(|l| l.chars().count())
            .sum();
        before + at.column as usize
    }

    /// The finished statement.
    pub fn finish(
        mut self,
        kind: StatementKind,
        root: Root,
        cols: Vec<QCol>,
    ) -> Result<logical::Statement> {
        let params = self.resolved_params()?;
        target::must_fit(cols.len())?;
        if self.relations <= 1 {
            for n in &mut self.names {
                if !n.contains('(')
                    && let Some(at) = n.find('.')
                {
                    n.drain(..=at);
                }
            }
        }
        let outputs = cols.iter().map(|c| c.slot).collect();
        let looks_up = self.looks_up || cols.iter().any(|c| coerce::names_relations(c.ty.ty));
        let columns = cols.into_iter().map(|c| OutColumn {
            record: self
                .records
                .iter()
                .find(|(s, _)| *s == c.slot)
                .map(|(_, shape)| shape.clone()),
            name: c.name,
            ty: c.ty,
            table: c.origin.0,
            column: c.origin.1,
        });
        Ok(logical::Statement {
            columns: columns.collect(),
            writes: self.writes || self.stepwise || !matches!(root, Root::Rows(_)),
            steps: self.steps,
            root,
            kind,
            subqueries: self.subqueries,
            params,
            outputs,
            names: self.names,
            used: self.used,
            ctes: self.ctes,
            privileges: self.privileges,
            schemas: self.schemas,
            locks_rows: self.locks_rows,
            looks_up,
            by_definitions: self.by_definitions,
            by_numbers: self.by_numbers,
            sequences: self.sequences,
            deepest: self.deepest,
        })
    }
}

/// Binds a statement other than EXPLAIN.
pub(crate) fn statement(
    stmt: &Statement,
    param_types: &[Option<Type>],
    cx: &PrepareContext<'_>,
) -> Result<logical::Statement> {
    let mut b = Binder::new(cx, param_types);
    let scope = Scope::root();
    match stmt {
        Statement::Query(q) => {
            b.stepwise = cte::changes_data(q);
            if let Some(written) = written(q) {
                let (kind, root, cols) = b.write_with(q, written, &scope)?;
                return b.finish(kind, root, cols);
            }
            let rel = b.query(q, &scope, None)?;
            b.finish(StatementKind::Select, Root::Rows(rel.node), rel.cols)
        }
        Statement::Insert(i) => {
            let (root, cols) = b.insert(i, &scope)?;
            b.finish(StatementKind::Insert, root, cols)
        }
        Statement::Update(u) => {
            let (root, cols) = b.update(u, &scope)?;
            b.finish(StatementKind::Update, root, cols)
        }
        Statement::Delete(d) => {
            let (root, cols) = b.delete(d, &scope)?;
            b.finish(StatementKind::Delete, root, cols)
        }
        Statement::Merge(m) => {
            let (root, cols) = b.merge(m, &scope)?;
            b.finish(StatementKind::Merge, root, cols)
        }
        other => {
            let text = other.to_string();
            let word = text.split_whitespace().next().unwrap_or_default();
            Err(Error::unsupported(format!("{word} as a query")))
        }
    }
}

/// `WITH … INSERT|UPDATE|DELETE|MERGE`: the statement behind the WITH.
fn written(q: &ast::Query) -> Option<&Statement> {
    match &*q.body {
        ast::SetExpr::Insert(s)
        | ast::SetExpr::Update(s)
        | ast::SetExpr::Delete(s)
        | ast::SetExpr::Merge(s) => Some(s),
        _ => None,
    }
}
