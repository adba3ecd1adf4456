//! Prepared statements: those of the wire and those of PREPARE are the same.

use super::Session;
use super::client::{Client, Column, Format};
use super::exit::Exit;
use super::extended::Portal;
use super::parse::{Parsed, Stmt};
use super::planner_api;
use super::plans::{Cached, Plan};
use super::row::Formats;
use super::run::{Run, Sink, Work};
use super::utility::Utility;
use crate::catalog::PreparedRow;
use crate::engine::Engine;
use base::{ColumnType, Error, Oid, Result, SqlState, Type, Value};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use txn::Catalog;

/// What a statement is made of.
#[derive(Clone)]
pub enum Body {
    Empty,
    /// Has a plan.
    Rows(Arc<sqlparser::ast::Statement>),
    Ddl(Ddl),
    Utility(Arc<Utility>),
}

/// A statement that changes the schema.
#[derive(Clone)]
pub enum Ddl {
    Statement(Arc<sqlparser::ast::Statement>),
    Extra(Arc<crate::ddl::Extra>),
}

impl Ddl {
    /// Whether it changes schema, roles or rights: not what looks after tables or locks them.
    pub fn changes(&self) -> bool {
        use crate::ddl::Extra as E;
        match self {
            Ddl::Statement(_) => true,
            Ddl::Extra(e) => !matches!(**e, E::Upkeep(_) | E::Lock(_) | E::Refused(_)),
        }
    }
}

/// A statement that may be run many times.
pub struct Statement {
    pub text: Arc<str>,
    source: Arc<str>,
    pub body: Body,
    /// Parameter types that the client declared; 0 for those to infer.
    declared: Box<[Oid]>,
    /// Parameter types found.
    pub params: Vec<ColumnType>,
    /// The first plan: what the client was told of the result.
    first: Option<Arc<Plan>>,
    /// The last plan, with the settings that it was made under.
    slot: Mutex<Option<(Arc<str>, Arc<Plan>)>>,
    /// Bytes that the session keeps for it.
    kept: std::sync::atomic::AtomicIsize,
}

impl Statement {
    /// The first plan, if it has plans.
    pub fn first_plan(&self) -> Option<&Plan> {
        self.first.as_deref()
    }

    /// What it was prepared from: its text and the parameter types that were declared.
    pub fn source(&self) -> (Arc<str>, Box<[Oid]>) {
        (self.text.clone(), self.declared.clone())
    }
}

/// A statement that gets no values: 42P02 when it asks for one.
pub(super) fn without_parameters(st: Result<Statement>) -> Result<Statement> {
    match st {
        Ok(st) if st.params.is_empty() => Ok(st),
        Ok(_) => Err(no_parameter()),
        Err(e) if e.fields().message.contains(" of parameter $") => Err(no_parameter()),
        Err(e) => Err(e),
    }
}

/// 42P02.
pub(super) fn no_parameter() -> Error {
    Error::new(SqlState::UNDEFINED_PARAMETER, "there is no parameter $1")
}

/// 26000.
fn unknown(name: &str) -> Error {
    if name.is_empty() {
        return Error::new(
            SqlState::INVALID_STATEMENT_NAME,
            "unnamed prepared statement does not exist",
        );
    }
    Error::new(
        SqlState::INVALID_STATEMENT_NAME,
        format!("prepared statement \"{name}\" does not exist"),
    )
}

impl<E: Engine> Session<E> {
    /// Makes a statement of a parsed text: plans it if it has a plan.
    pub(super) fn statement(
        &mut self,
        parsed: Option<Parsed>,
        declared: &[Oid],
    ) -> Result<Statement> {
        let Some(parsed) = parsed else {
            return Ok(Statement {
                text: "".into(),
                source: "".into(),
                body: Body::Empty,
                declared: declared.into(),
                params: Vec::new(),
                first: None,
                slot: Mutex::default(),
                kept: Default::default(),
            });
        };
        let body = match &parsed.stmt {
            Stmt::Utility(u) => Body::Utility(u.clone()),
            Stmt::Sql(s) if planner_api::has_plan(s) => Body::Rows(s.clone()),
            Stmt::Sql(s) => Body::Ddl(Ddl::Statement(s.clone())),
            Stmt::Extra(e) => Body::Ddl(Ddl::Extra(e.clone())),
        };
        let mut st = Statement {
            text: parsed.text,
            source: parsed.source,
            body,
            declared: declared.into(),
            params: Vec::new(),
            first: None,
            slot: Mutex::default(),
            kept: Default::default(),
        };
        if let Body::Rows(_) = st.body {
            self.not_failed()?;
            let plan = self.plan(&st)?;
            st.params = plan.prepared.params.clone();
            st.first = Some(plan);
        }
        if let Body::Utility(u) = &st.body
            && let Utility::Declare { query, .. } = &**u
            && query.text.contains('$')
        {
            // A cursor's query gets its values when the cursor is declared.
            self.not_failed()?;
            st.params = self.statement(Some(query.clone()), declared)?.params;
        }
        Ok(st)
    }

    /// The same; where the schema that is shown here does not have what it names, with the newest.
    pub(super) async fn fresh_statement(
        &mut self,
        parsed: Option<Parsed>,
        declared: &[Oid],
    ) -> Result<Statement, Exit> {
        if !self.follows() {
            return Ok(self.statement(parsed, declared)?);
        }
        let e = match self.statement(parsed.clone(), declared) {
            Err(e) => e,
            ok => return Ok(ok?),
        };
        if self.renew_schema(&e).await? {
            return Ok(self.statement(parsed, declared)?);
        }
        Err(e.into())
    }

    /// The same for who is told of its columns before it runs, and can take no others then: with the schema that a read now would see.
    pub(super) async fn newest_statement(
        &mut self,
        parsed: Option<Parsed>,
        declared: &[Oid],
    ) -> Result<Statement, Exit> {
        let st = self.fresh_statement(parsed.clone(), declared).await?;
        let Some(first) = st.first_plan().filter(|_| self.follows()) else {
            return Ok(st);
        };
        let same_everywhere = first.prepared.read_only && first.prepared.touches().is_empty();
        if first.columns.is_empty() || same_everywhere {
            return Ok(st);
        }
        match self.newest_schema().await {
            // It will run elsewhere.
            Err(Exit::Elsewhere) => return Ok(st),
            waited => waited?,
        }
        match first.prepared.schema_version == self.schema_version() {
            true => Ok(st),
            false => Ok(self.statement(parsed, declared)?),
        }
    }

    /// The schema that plans are made for now.
    fn schema_version(&self) -> u64 {
        match &self.block.txn {
            Some(t) => t.schema_version(),
            None => self.shared.engine.schema_version(),
        }
    }

    /// The catalog that is seen now.
    fn seen_catalog(&self) -> Arc<txn::Catalog> {
        match &self.block.txn {
            Some(t) => t.catalog(),
            None => self.temp.over(self.shared.engine.catalog()),
        }
    }

    /// The plan of a statement for the schema that is seen now: its last one, one that another session made, or a new one.
    pub(super) fn plan(&mut self, st: &Statement) -> Result<Arc<Plan>> {
        if self.stale {
            self.refresh();
        }
        let Body::Rows(ast) = &st.body else {
            return Err(Error::internal("a statement without a plan was planned"));
        };
        let version = self.schema_version();
        let same = |env: &Arc<str>| Arc::ptr_eq(env, &self.env) || **env == *self.env;
        if let Some((env, plan)) = &*st.slot.lock()
            && plan.prepared.schema_version == version
            && same(env)
            && !self.block.ddl
        {
            return Ok(plan.clone());
        }
        let catalog = self.seen_catalog();
        let version = catalog.schema.version;
        if self.block.ddl {
            return self.make_plan(ast, st, catalog);
        }
        let counters = &self.shared.counters;
        let found = self.shared.plans.get(&st.text, &st.declared, &self.env);
        let plan = match found {
            Some(f) if f.plan.prepared.schema_version == version => {
                counters.plans_found.fetch_add(1, Ordering::Relaxed);
                f.plan
            }
            _ => {
                let before = base::memory::mine();
                let plan = self.make_plan(ast, st, catalog)?;
                let bytes = base::memory::mine().wrapping_sub(before).max(0) as usize;
                let parsed = Parsed {
                    stmt: Stmt::Sql(ast.clone()),
                    text: st.text.clone(),
                    source: st.source.clone(),
                };
                let cached = Cached {
                    parsed,
                    plan: plan.clone(),
                };
                self.shared
                    .plans
                    .put(&st.text, &st.declared, &self.env, bytes, cached);
                plan
            }
        };
        *st.slot.lock() = Some((self.env.clone(), plan.clone()));
        Ok(plan)
    }

    /// [`Session::plan`] for a run: the result must be what it was when the statement was prepared.
    pub(super) fn plan_again(&mut self, st: &Statement) -> Result<Arc<Plan>> {
        let plan = self.plan(st)?;
        let same = |first: &Arc<Plan>| {
            Arc::ptr_eq(first, &plan) || Column::same_row(&first.columns, &plan.columns)
        };
        if !st.first.as_ref().is_none_or(same) {
            return Err(result_type_changed());
        }
        Ok(plan)
    }

    fn make_plan(
        &mut self,
        ast: &sqlparser::ast::Statement,
        st: &Statement,
        catalog: Arc<txn::Catalog>,
    ) -> Result<Arc<Plan>> {
        self.shared
            .counters
            .plans_made
            .fetch_add(1, Ordering::Relaxed);
        *self.state.catalog.get_mut() = catalog.clone();
        self.output.catalog = Some(planner_api::lookup(
            &catalog,
            &self.path,
            self.state.current_role.get(),
        ));
        let types: Vec<Option<Type>> = st
            .declared
            .iter()
            .map(|&oid| declared_type(&catalog.schema, oid))
            .collect::<Result<_>>()?;
        planner_api::prepare(self, ast, &types, &st.source, &catalog).map(Plan::new)
    }

    /// Keeps a statement under a name; "" is the unnamed one.
    pub(super) fn keep(&mut self, name: &str, st: Statement, from_sql: bool) -> Result<()> {
        let st = Arc::new(st);
        self.forward.version += 1;
        if name.is_empty() {
            self.forward.elsewhere.remove("");
            self.unnamed = Some(st);
            return Ok(());
        }
        if self.statements.contains_key(name) || self.forward.elsewhere.contains_key(name) {
            return Err(Error::new(
                SqlState::DUPLICATE_PREPARED_STATEMENT,
                format!("prepared statement \"{name}\" already exists"),
            ));
        }
        self.state.prepared.get_mut().push(PreparedRow {
            name: name.to_owned(),
            statement: st.text.to_string(),
            prepare_time: self.state.statement_start.get(),
            parameter_types: st.params.iter().map(|t| t.ty.oid()).collect(),
            from_sql,
        });
        // Its plan may be shared with others, who pay for it in their turn.
        let least = 2 * st.text.len() + size_of::<Statement>();
        let kept = self.handle.account.taken().max(least as isize);
        st.kept.store(kept, Ordering::Relaxed);
        self.handle.account.keep(kept);
        self.statements.insert(name.into(), st);
        Ok(())
    }

    fn give_back(&self, st: &Statement) {
        self.handle.account.keep(-st.kept.load(Ordering::Relaxed));
    }

    pub(super) fn find_statement(&mut self, name: &str) -> Result<&Arc<Statement>> {
        self.fetch_statement(name)?;
        let found = if name.is_empty() {
            self.unnamed.as_ref()
        } else {
            self.statements.get(name)
        };
        found.ok_or_else(|| unknown(name))
    }

    /// Forgets a statement; whether there was one.
    pub(super) fn forget(&mut self, name: &str) -> bool {
        self.forward.version += 1;
        let elsewhere = self.forward.elsewhere.remove(name).is_some();
        if name.is_empty() {
            return self.unnamed.take().is_some() || elsewhere;
        }
        self.state.prepared.get_mut().retain(|p| p.name != name);
        let gone = self.statements.remove(name);
        gone.iter().for_each(|st| self.give_back(st));
        gone.is_some() || elsewhere
    }

    /// DEALLOCATE.
    pub(super) fn deallocate(&mut self, name: Option<&str>) -> Result<()> {
        match name {
            None => {
                self.forward.version += 1;
                self.forward.elsewhere.clear();
                let gone = std::mem::take(&mut self.statements);
                gone.values().for_each(|st| self.give_back(st));
                self.state.prepared.get_mut().clear();
                Ok(())
            }
            Some(n) if self.forget(n) => Ok(()),
            Some(n) => Err(unknown(n)),
        }
    }

    /// PREPARE.
    pub(super) async fn prepare_sql(
        &mut self,
        name: &str,
        types: &[String],
        parsed: &Parsed,
    ) -> Result<(), Exit> {
        let schema = self.seen_catalog().schema.clone();
        let declared: Vec<Oid> = types
            .iter()
            .map(|t| Ok(planner_api::type_named(&schema, &self.path, t)?.ty.oid()))
            .collect::<Result<_>>()?;
        let st = self.newest_statement(Some(parsed.clone()), &declared);
        let st = st.await?;
        if !matches!(st.body, Body::Rows(_)) {
            return Err(Error::new(
                SqlState::SYNTAX_ERROR,
                "only SELECT, INSERT, UPDATE, DELETE, MERGE or VALUES statements can be prepared",
            )
            .into());
        }
        Ok(self.keep(name, st, true)?)
    }

    /// EXECUTE: the run of the statement with its arguments.
    pub(super) async fn execute_sql<C: Client>(
        &mut self,
        c: &mut C,
        name: &str,
        args: Option<&Arc<sqlparser::ast::Statement>>,
        formats: &Formats,
    ) -> Result<Run, Exit> {
        let st = self.find_statement(name)?.clone();
        let params = self.execute_params(c, name, &st, args).await?;
        let plan = self.plan_again(&st)?;
        let formats = match formats {
            Formats::Each(f) if f.len() != plan.columns.len() => Formats::Text,
            f => f.clone(),
        };
        Ok(Run::new(st, plan, params, formats))
    }

    /// EXPLAIN EXECUTE, as a run of EXPLAIN over the statement.
    pub(super) async fn explain_sql<C: Client>(
        &mut self,
        c: &mut C,
        options: &str,
        name: &str,
        args: Option<&Arc<sqlparser::ast::Statement>>,
    ) -> Result<Run, Exit> {
        use sqlparser::ast;
        let st = self.find_statement(name)?.clone();
        let Body::Rows(inner) = &st.body else {
            return Err(Error::unsupported("EXPLAIN of a statement without a plan").into());
        };
        let params = self.execute_params(c, name, &st, args).await?;
        let mut parsed = super::parse::parse_one(&format!("EXPLAIN {options} SELECT 1"))?;
        let explain = match parsed.as_mut().map(|p| &mut p.stmt) {
            Some(Stmt::Sql(s)) => Arc::make_mut(s),
            _ => return Err(Error::internal("EXPLAIN is no statement").into()),
        };
        if let ast::Statement::Explain { statement, .. } = explain {
            **statement = (**inner).clone();
        }
        let declared: Vec<Oid> = st.params.iter().map(|t| t.ty.oid()).collect();
        let parsed = parsed.map(|p| Parsed {
            text: format!("EXPLAIN {options} {}", st.text).into(),
            source: st.source.clone(),
            ..p
        });
        let st = Arc::new(self.statement(parsed, &declared)?);
        let plan = self.plan(&st)?;
        Ok(Run::new(st, plan, params, Formats::Text).untold())
    }

    async fn execute_params<C: Client>(
        &mut self,
        c: &mut C,
        name: &str,
        st: &Statement,
        args: Option<&Arc<sqlparser::ast::Statement>>,
    ) -> Result<Vec<Value>, Exit> {
        let mut params = Vec::new();
        if let Some(args) = args {
            params = self.evaluate(c, args).await?;
        }
        if params.len() != st.params.len() {
            return Err(Error::new(
                SqlState::SYNTAX_ERROR,
                format!("wrong number of parameters for prepared statement \"{name}\""),
            )
            .detail(format!(
                "Expected {} parameters but got {}.",
                st.params.len(),
                params.len()
            ))
            .into());
        }
        let values = params.into_iter().zip(&st.params);
        let values = values.map(|((v, from), to)| {
            let to = self.type_of_now(*to);
            planner_api::assign(v, from, to, &self.output)
        });
        Ok(values.collect::<Result<_>>()?)
    }

    fn catalog_of_now(&self) -> Arc<Catalog> {
        match &self.block.txn {
            Some(t) => t.catalog(),
            None => self.temp.over(self.shared.engine.catalog()),
        }
    }

    /// A parameter's type as it is now: an enum may have other labels since the statement was prepared.
    pub(super) fn type_of_now(&self, ty: ColumnType) -> ColumnType {
        if !matches!(ty.ty, Type::User(_) | Type::UserArray(_)) {
            return ty;
        }
        let now = self.catalog_of_now().schema.type_numbered(ty.ty.oid());
        ColumnType {
            ty: now.unwrap_or(ty.ty),
            ..ty
        }
    }

    /// The values of a SELECT of one row without tables, with their types.
    async fn evaluate<C: Client>(
        &mut self,
        c: &mut C,
        ast: &Arc<sqlparser::ast::Statement>,
    ) -> Result<Vec<(Value, ColumnType)>, Exit> {
        let st = Statement {
            text: ast.to_string().into(),
            source: "".into(),
            body: Body::Rows(ast.clone()),
            declared: [].into(),
            params: Vec::new(),
            first: None,
            slot: Mutex::default(),
            kept: Default::default(),
        };
        let catalog = self.catalog_of_now();
        let plan = self.make_plan(ast, &st, catalog)?;
        if !plan.prepared.params.is_empty() {
            return Err(no_parameter().into());
        }
        if !plan.prepared.touches().tables.is_empty() || plan.prepared.has_subqueries() {
            let what = "cannot use subquery in EXECUTE parameter";
            return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, what).into());
        }
        let types: Vec<ColumnType> = plan.prepared.columns.iter().map(|c| c.ty).collect();
        let mut rows = Vec::new();
        // As any statement of this block: what its functions do and are told is this transaction's.
        let mut run = Run::new(Arc::new(st), plan, Vec::new(), Formats::Text);
        let work = Work::Rows {
            run: &mut run,
            max_rows: 0,
            describe: false,
            sink: Sink::Keep(&mut rows),
        };
        self.execute_work(c, work).await?;
        let row = rows.pop().unwrap_or_default();
        Ok(row.into_iter().zip(types).collect())
    }

    /// The columns that a statement gives, if it gives rows.
    pub(super) fn columns_of(&mut self, st: &Arc<Statement>) -> Result<Option<Vec<Column>>> {
        match &st.body {
            Body::Empty | Body::Ddl(_) => Ok(None),
            Body::Rows(_) => {
                let plan = self.plan(st)?;
                Ok(plan.gives_rows().then(|| plan.columns.clone()))
            }
            Body::Utility(u) => self.utility_columns(u),
        }
    }

    /// Runs a plan's statement and says it is complete.
    pub(super) async fn finish_run<C: Client>(
        &mut self,
        c: &mut C,
        run: &mut Run,
        max_rows: usize,
        describe: bool,
    ) -> Result<bool, Exit> {
        let work = Work::Rows {
            run,
            max_rows,
            describe,
            sink: super::run::Sink::Client,
        };
        let ended = self.execute_work(c, work).await?;
        if !ended.suspended {
            c.command_complete(&ended.tag);
        }
        Ok(ended.suspended)
    }

    /// The format of every column, from what Bind asked.
    pub(super) fn result_formats(codes: &[Format], columns: usize) -> Result<Formats> {
        match codes {
            [] | [Format::Text] => Ok(Formats::Text),
            [Format::Binary] => Ok(Formats::Binary),
            c if c.len() == columns => Ok(Formats::Each(c.to_vec())),
            c => Err(Error::new(
                SqlState::PROTOCOL_VIOLATION,
                format!(
                    "bind message has {} result formats but query has {columns} columns",
                    c.len()
                ),
            )),
        }
    }

    /// Ends all portals of the transaction, which is rolled back or goes elsewhere.
    pub(super) fn drop_portals(&mut self) {
        self.keep_portals(|p| p.cursor.is_held());
    }

    /// Ends the portals of the transaction but for the cursors that its commit leaves.
    pub(super) fn drop_portals_at_commit(&mut self) {
        self.keep_portals(|p| p.cursor.is_kept());
    }

    fn keep_portals(&mut self, stays: impl Fn(&Portal) -> bool) {
        self.unnamed_portal = None;
        if !self.portals.is_empty() {
            self.portals.retain(|_, p| stays(p));
        }
        let held = &self.portals;
        let cursors = self.state.cursors.get_mut();
        cursors.retain(|c| held.contains_key(&*c.name));
    }

    /// Ends portals made after a savepoint.
    pub(super) fn drop_portals_since(&mut self, depth: u32) {
        let gone: Vec<Box<str>> = self
            .portals
            .iter()
            .filter(|(_, p)| p.depth >= depth)
            .map(|(n, _)| n.clone())
            .collect();
        for n in gone {
            self.close_portal(&n);
        }
        if self
            .unnamed_portal
            .as_ref()
            .is_some_and(|p| p.depth >= depth)
        {
            self.close_portal("");
        }
    }

    /// Closes a portal; whether there was one.
    pub(super) fn close_portal(&mut self, name: &str) -> bool {
        let p = if name.is_empty() {
            self.unnamed_portal.take()
        } else {
            self.state.cursors.get_mut().retain(|c| c.name != name);
            self.portals.remove(name)
        };
        if let Some(p) = &p {
            self.rest(p, false);
        }
        p.is_some()
    }

    /// Tells the transaction whether this portal rests at its snapshot.
    pub(super) fn rest(&mut self, p: &Portal, resting: bool) {
        if p.counted != resting
            && let Some(t) = &mut self.block.txn
        {
            t.portal_opened(if resting { 1 } else { -1 });
        }
    }
}

fn declared_type(schema: &base::schema::Schema, oid: Oid) -> Result<Option<Type>> {
    match oid {
        0 => Ok(None),
        705 => Ok(None),
        _ => schema.type_numbered(oid).map(Some).ok_or_else(|| {
            Error::new(
                SqlState::UNDEFINED_OBJECT,
                format!("type with OID {oid} does not exist"),
            )
        }),
    }
}

/// 0A000, which drivers know by the routine, and prepare the statement again.
pub(super) fn result_type_changed() -> Error {
    Error::new(
        SqlState::FEATURE_NOT_SUPPORTED,
        "cached plan must not change result type",
    )
    .hint("The schema was changed; prepare the statement again.")
    .routine("RevalidateCachedQuery")
}
