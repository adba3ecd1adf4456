//! What DDL and transactions ask of the binder: shapes of queries, checks of expressions, compiled CHECKs and DEFAULTs.

use crate::bind::domain::violated;
use crate::bind::{
    Binder, Env, Meaning, PrepareContext, Scope, ScopeColumn, ScopeRel, parse_expr, parse_query,
};
use crate::catalog::NoFacts;
use crate::ddl::{Analyzer, QueryShape};
use crate::exec::{Rt, State};
use crate::expr::{Expr, Slot};
use crate::functions::{EvalContext, NoSession, SessionContext, Volatility};
use crate::logical::Need;
use crate::plan::node::Plan;
use crate::types::OutputSettings;
use crate::types::text::failing_row;
use base::schema::{BOOTSTRAP_ROLE, Column, Schema, Table, TableDef, ViewDef};
use base::{ColumnType, Error, Oid, Result, SqlState, Value};
use sqlparser::ast;
use sqlparser::tokenizer::Location;
use std::sync::Arc;
use txn::{Catalog, RuleCompiler, Stop, TableRules};

/// The binder as DDL sees it.
pub struct Analysis<'a> {
    /// The role that looks names up.
    pub role: Oid,
    pub settings: &'a OutputSettings,
    pub session: &'a dyn SessionContext,
}

fn evaluate(
    e: &Expr,
    row: &[Value],
    plan: &Plan,
    settings: &OutputSettings,
    session: &dyn SessionContext,
) -> Result<Value> {
    let mut st = State::new(vec![], plan);
    st.env[..row.len()].clone_from_slice(row);
    let mut rt = Rt {
        txn: None,
        cx: EvalContext { settings, session },
        facts: &NoFacts,
        st: &mut st,
        plan,
    };
    // Its subqueries are refused: it reads no table.
    e.eval(&mut rt).map_err(Stop::only_error)
}

/// The columns of one table as a scope, without its storage.
fn table_scope(b: &mut Binder<'_>, def: &TableDef) -> ScopeRel {
    let mut columns = Vec::new();
    for (i, c) in def.columns.iter().enumerate() {
        let s: Slot = b.slot(format!("{}.{}", def.name, c.name));
        if !c.dropped {
            columns.push(ScopeColumn {
                name: c.name.clone(),
                expr: Expr::Slot(s),
                ty: c.ty(),
                origin: (def.id, i as i16 + 1),
            });
        }
    }
    ScopeRel {
        alias: def.name.clone(),
        schema: None,
        columns,
        system: None,
    }
}

fn bind_check(b: &mut Binder<'_>, def: &TableDef, e: &ast::Expr) -> Result<Expr> {
    let rel = table_scope(b, def);
    let root = Scope::root();
    let mut scope = Scope::inside(&root);
    scope.add(rel)?;
    b.in_rule = Some("check constraint");
    let mut env = Env::plain(&scope, "check constraints");
    let bound = b.expr(e, &mut env)?;
    b.condition(bound, "CHECK")
}

/// The expression of a generated column. 42P17 when its value could change by itself.
fn bind_generated(
    b: &mut Binder<'_>,
    def: &TableDef,
    column: &Column,
    e: &ast::Expr,
) -> Result<Expr> {
    let bound = bind_over_row(b, def, column, e, "column generation expression")?;
    if bound.volatility() != Volatility::Immutable {
        return Err(Error::new(
            SqlState::INVALID_OBJECT_DEFINITION,
            "generation expression is not immutable",
        ));
    }
    Ok(bound)
}

/// Whether an expression turns texts into labels of an enum or back, which ALTER TYPE may rename.
fn reads_labels(e: &Expr) -> bool {
    let is_enum = |t| matches!(t, base::Type::User(_) | base::Type::UserArray(_));
    matches!(e, Expr::Cast(c) if is_enum(c.from.ty) != is_enum(c.to.ty))
}

/// An expression over the row that is assigned to a column.
fn bind_over_row(
    b: &mut Binder<'_>,
    def: &TableDef,
    column: &Column,
    e: &ast::Expr,
    what: &'static str,
) -> Result<Expr> {
    let rel = table_scope(b, def);
    let root = Scope::root();
    let mut scope = Scope::inside(&root);
    scope.add(rel)?;
    b.in_rule = Some(what);
    let mut env = Env::plain(
        &scope,
        match what {
            "transform expression" => "transform expressions",
            _ => "column generation expressions",
        },
    );
    let bound = b.expr(e, &mut env)?;
    let (from, to) = (bound.ty.ty, column.ty());
    let cast = b.try_coerce(bound, to, crate::types::cast::CastKind::Assignment)?;
    cast.ok_or_else(|| {
        let shown = crate::types::typename::format_type;
        Error::new(
            SqlState::DATATYPE_MISMATCH,
            match what {
                "transform expression" => format!(
                    "result of USING clause for column \"{}\" cannot be cast automatically to type {}",
                    column.name,
                    shown(to.ty, to.typmod)
                ),
                _ => format!(
                    "column \"{}\" is of type {} but default expression is of type {}",
                    column.name,
                    shown(to.ty, to.typmod),
                    shown(from, -1)
                ),
            },
        )
        .hint(match what {
            "transform expression" => "You might need to add an explicit cast.",
            _ => "You will need to rewrite or cast the expression.",
        })
    })
}

fn bind_default(b: &mut Binder<'_>, column: &Column, e: &ast::Expr) -> Result<Expr> {
    if let Some(name) = first_column(e) {
        return Err(Error::new(
            SqlState::FEATURE_NOT_SUPPORTED,
            "cannot use column reference in DEFAULT expression",
        )
        .detail(format!("It names \"{name}\".")));
    }
    let root = Scope::root();
    b.in_rule = Some("DEFAULT expression");
    let mut env = Env::plain(&root, "DEFAULT expressions");
    let bound = b.expr(e, &mut env)?;
    let from = bound.ty.ty;
    let to = column.ty();
    b.try_coerce(bound, to, crate::types::cast::CastKind::Assignment)?
        .ok_or_else(|| {
            let shown = crate::types::typename::format_type;
            Error::new(
                SqlState::DATATYPE_MISMATCH,
                format!(
                    "column \"{}\" is of type {} but default expression is of type {}",
                    column.name,
                    shown(to.ty, to.typmod),
                    shown(from, -1)
                ),
            )
            .hint("You will need to rewrite or cast the expression.")
        })
}

/// A name in a DEFAULT that is a bare column.
fn first_column(e: &ast::Expr) -> Option<String> {
    match e {
        ast::Expr::Identifier(i) => Some(crate::catalog::fold(i)),
        ast::Expr::Nested(e) | ast::Expr::UnaryOp { expr: e, .. } => first_column(e),
        ast::Expr::BinaryOp { left, right, .. } => {
            first_column(left).or_else(|| first_column(right))
        }
        _ => None,
    }
}

impl Analysis<'_> {
    fn with<R>(
        &self,
        schema: &Schema,
        search_path: &[String],
        f: impl FnOnce(&mut Binder<'_>) -> Result<R>,
    ) -> Result<R> {
        let catalog = Catalog {
            schema: Arc::new(schema.clone()),
            tables: Default::default(),
        };
        let path: Vec<Oid> = crate::catalog::namespaces(schema, search_path).collect();
        let cx = PrepareContext {
            catalog: &catalog,
            search_path: &path,
            role: self.role,
            settings: self.settings,
            session: self.session,
            rows: None,
            source: "",
        };
        f(&mut Binder::new(&cx, &[]))
    }
}

/// Where the query of a view names a relation without its schema, and the relation; nothing for a query that cannot be bound any more.
pub fn unqualified_names(schema: &Schema, view: &ViewDef) -> Vec<(Location, Oid)> {
    let settings = OutputSettings::default();
    let analysis = Analysis {
        role: BOOTSTRAP_ROLE,
        settings: &settings,
        session: &NoSession,
    };
    let found = analysis.with(schema, &view.search_path, |b| {
        let query = parse_query(&view.query)?;
        let root = Scope::root();
        b.unqualified = Some(vec![]);
        b.meanings.push(Meaning::of(view));
        b.query(&query, &Scope::boundary(&root), None)?;
        Ok(b.unqualified.take())
    });
    found.ok().flatten().unwrap_or_default()
}

/// Which columns of a view may be written; none for a view that is not updatable.
pub fn writable_columns(schema: &Schema, view: &ViewDef) -> Option<Vec<bool>> {
    let settings = OutputSettings::default();
    let analysis = Analysis {
        role: BOOTSTRAP_ROLE,
        settings: &settings,
        session: &NoSession,
    };
    analysis.writable_columns(schema, view).ok()
}

/// The relations that a query names itself, not those inside its views.
fn own_relations(needs: &[Need]) -> Vec<Oid> {
    let mut all = vec![];
    for n in needs.iter().filter(|n| n.view == 0) {
        if !all.contains(&n.relation) {
            all.push(n.relation);
        }
    }
    all
}

impl Analyzer for Analysis<'_> {
    fn query(
        &self,
        schema: &Schema,
        search_path: &[String],
        query: &ast::Query,
    ) -> Result<QueryShape> {
        self.with(schema, search_path, |b| {
            let root = Scope::root();
            let boundary = Scope::boundary(&root);
            b.stars = Some(vec![]);
            let rel = b.query(query, &boundary, None)?;
            if !b.params.is_empty() {
                return Err(Error::new(
                    SqlState::UNDEFINED_PARAMETER,
                    "there is no parameter $1",
                ));
            }
            Ok(QueryShape {
                columns: rel.cols.into_iter().map(|c| (c.name, c.ty)).collect(),
                depends_on: own_relations(&b.privileges),
                stars: b.stars.take().unwrap_or_default(),
            })
        })
    }

    fn writable_columns(&self, schema: &Schema, view: &ViewDef) -> Result<Vec<bool>> {
        self.with(schema, &view.search_path, |b| b.writable_columns(view))
    }

    fn check(
        &self,
        schema: &Schema,
        search_path: &[String],
        table: &TableDef,
        e: &ast::Expr,
    ) -> Result<()> {
        self.with(schema, search_path, |b| bind_check(b, table, e).map(|_| ()))
    }

    fn default(
        &self,
        schema: &Schema,
        search_path: &[String],
        column: &Column,
        e: &ast::Expr,
    ) -> Result<()> {
        self.with(schema, search_path, |b| {
            bind_default(b, column, e).map(|_| ())
        })
    }

    fn generated(
        &self,
        schema: &Schema,
        search_path: &[String],
        table: &TableDef,
        column: &Column,
        e: &ast::Expr,
    ) -> Result<()> {
        self.with(schema, search_path, |b| {
            bind_generated(b, table, column, e).map(|_| ())
        })
    }

    fn index_expression(
        &self,
        schema: &Schema,
        search_path: &[String],
        table: &TableDef,
        (e, what): (&ast::Expr, &'static str),
    ) -> Result<ColumnType> {
        self.with(schema, search_path, |b| {
            let rel = table_scope(b, table);
            let root = Scope::root();
            let mut scope = Scope::inside(&root);
            scope.add(rel)?;
            b.in_rule = Some(what);
            let mut env = Env::plain(
                &scope,
                match what {
                    "index predicate" => "index predicates",
                    _ => "index expressions",
                },
            );
            let bound = b.expr(e, &mut env)?;
            let ty = bound.ty;
            let expr = match what {
                "index predicate" => b.condition(bound, "WHERE")?,
                _ => bound.expr,
            };
            if expr.volatility() != Volatility::Immutable || expr.any(&mut reads_labels) {
                return Err(Error::new(
                    SqlState::INVALID_OBJECT_DEFINITION,
                    format!("functions in {what} must be marked IMMUTABLE"),
                ));
            }
            Ok(ty)
        })
    }

    fn transform(
        &self,
        schema: &Schema,
        search_path: &[String],
        (table, column): (&TableDef, &Column),
        e: &ast::Expr,
        rows: &[Vec<Value>],
    ) -> Result<Vec<Value>> {
        let (e, slots) = self.with(schema, search_path, |b| {
            let e = bind_over_row(b, table, column, e, "transform expression")?;
            Ok((e, b.names.len()))
        })?;
        let plan = Plan::bare(slots.max(table.columns.len()));
        rows.iter()
            .map(|r| {
                let row = &r[..table.columns.len()];
                evaluate(&e, row, &plan, self.settings, self.session)
            })
            .collect()
    }

    fn evaluate_default(
        &self,
        schema: &Schema,
        search_path: &[String],
        column: &Column,
        e: &ast::Expr,
    ) -> Result<Option<Value>> {
        let (e, slots) = self.with(schema, search_path, |b| {
            Ok((bind_default(b, column, e)?, b.names.len()))
        })?;
        if e.volatility() == Volatility::Volatile {
            return Ok(None);
        }
        evaluate(&e, &[], &Plan::bare(slots), self.settings, self.session).map(Some)
    }

    fn evaluate_volatile(
        &self,
        schema: &Schema,
        search_path: &[String],
        column: &Column,
        e: &ast::Expr,
    ) -> Result<Value> {
        let (e, slots) = self.with(schema, search_path, |b| {
            Ok((bind_default(b, column, e)?, b.names.len()))
        })?;
        evaluate(&e, &[], &Plan::bare(slots), self.settings, self.session)
    }
}

/// Compiles the CHECKs and DEFAULTs of tables for transactions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Compiler;

/// A CHECK of a table.
struct Condition {
    name: String,
    expr: Expr,
    not_valid: bool,
}

/// One table's rules.
struct Rules {
    schema: String,
    table: String,
    checks: Vec<Condition>,
    /// Columns of domains: place, the domain's name, whether NULL is refused, its checks.
    domains: Vec<(usize, String, bool, Vec<(String, Expr)>)>,
    defaults: Vec<Option<Expr>>,
    /// Places of generated columns and what they are computed by.
    generated: Vec<(usize, Expr)>,
    /// Columns that no statement sees.
    dropped: Vec<bool>,
    plan: Plan,
    settings: OutputSettings,
}

impl RuleCompiler for Compiler {
    fn compile(&self, schema: &Schema, table: &Table) -> Result<Arc<dyn TableRules>> {
        let settings = OutputSettings::default();
        let analysis = Analysis {
            // The names were looked up when the rules were made.
            role: BOOTSTRAP_ROLE,
            settings: &settings,
            session: &NoSession,
        };
        let def = &table.def;
        let home = schema
            .namespace(def.namespace)
            .map(|n| n.name.clone())
            .unwrap_or_default();
        let path = [home.clone(), "public".to_owned()];
        let mut slots = def.columns.len();
        let mut checks = Vec::new();
        for c in &def.checks {
            let e = parse_expr(&c.expr)?;
            let e = analysis.with(schema, &path, |b| {
                let e = bind_check(b, def, &e)?;
                slots = slots.max(b.names.len());
                Ok(e)
            })?;
            checks.push(Condition {
                name: c.name.clone(),
                expr: e,
                not_valid: c.not_valid,
            });
        }
        let mut domains = Vec::new();
        for (i, c) in def.columns.iter().enumerate() {
            let Some((named, d)) = c.rules().filter(|_| !c.dropped) else {
                continue;
            };
            let of_value = analysis.with(schema, &path, |b| {
                // The slots of the row's columns.
                table_scope(b, def);
                let bound = b.domain_checks(d, i as Slot, c.ty())?;
                slots = slots.max(b.names.len());
                Ok(bound)
            })?;
            let name = crate::ddl::quote_ident(&named.name);
            domains.push((i, name, d.not_null, of_value));
        }
        let mut defaults = Vec::new();
        let mut generated = Vec::new();
        for (i, c) in def.columns.iter().enumerate() {
            defaults.push(match &c.default {
                Some(text) if c.generated => {
                    let e = parse_expr(text)?;
                    let e = analysis.with(schema, &path, |b| {
                        let e = bind_generated(b, def, c, &e)?;
                        slots = slots.max(b.names.len());
                        Ok(e)
                    })?;
                    generated.push((i, e));
                    None
                }
                Some(text) if !c.dropped => {
                    let e = parse_expr(text)?;
                    Some(analysis.with(schema, &path, |b| {
                        let e = bind_default(b, c, &e)?;
                        slots = slots.max(b.names.len());
                        Ok(e)
                    })?)
                }
                _ => None,
            });
        }
        Ok(Arc::new(Rules {
            schema: home,
            table: def.name.clone(),
            checks,
            domains,
            defaults,
            generated,
            dropped: def.columns.iter().map(|c| c.dropped).collect(),
            plan: Plan::bare(slots),
            settings,
        }))
    }
}

impl TableRules for Rules {
    fn check(&self, row: &[Value]) -> Result<()> {
        self.check_domains(row)?;
        self.checks.iter().try_for_each(|c| self.holds(c, row))
    }

    fn check_stored(&self, row: &[Value]) -> Result<()> {
        self.check_domains(row)?;
        let mut valid = self.checks.iter().filter(|c| !c.not_valid);
        valid.try_for_each(|c| self.holds(c, row))
    }

    fn generate(&self, row: &mut [Value]) -> Result<()> {
        for (at, e) in &self.generated {
            row[*at] = evaluate(e, row, &self.plan, &self.settings, &NoSession)?;
        }
        Ok(())
    }

    fn default(&self, column: usize) -> Result<Value> {
        match self.defaults.get(column) {
            Some(Some(e)) => evaluate(e, &[], &self.plan, &self.settings, &NoSession),
            _ => Ok(Value::Null),
        }
    }
}

impl Rules {
    fn check_domains(&self, row: &[Value]) -> Result<()> {
        for (at, domain, not_null, checks) in &self.domains {
            if *not_null && row[*at].is_null() {
                return Err(violated(domain, None));
            }
            for (name, e) in checks {
                let v = evaluate(e, row, &self.plan, &self.settings, &NoSession)?;
                if matches!(v, Value::Bool(false)) {
                    return Err(violated(domain, Some(name)));
                }
            }
        }
        Ok(())
    }

    fn holds(&self, c: &Condition, row: &[Value]) -> Result<()> {
        let v = evaluate(&c.expr, row, &self.plan, &self.settings, &NoSession)?;
        if !matches!(v, Value::Bool(false)) {
            return Ok(());
        }
        let what = format!(
            "new row for relation \"{}\" violates check constraint \"{}\"",
            self.table, c.name
        );
        Err(Error::new(SqlState::CHECK_VIOLATION, what)
            .detail(self.failing_row(row))
            .table(&self.schema, &self.table)
            .constraint(&c.name))
    }

    fn failing_row(&self, row: &[Value]) -> String {
        let shown = row.iter().zip(&self.dropped).filter(|(_, d)| !**d);
        failing_row(shown.map(|(v, _)| v), &self.settings)
    }
}
