//! Statements that change the schema: from the syntax tree to [`Change`]s.
//!
//! ```text
//! execute: lock_schema -> work (pure: schema + statement -> changes, notices, tag) -> change_schema
//! ```
//!
//! Everything between the two calls is a function of the newest schema ([`Work`]), so it is tested without a database. The
//! transaction builds storages and indexes and checks constraints over rows when it takes the changes, and undoes them with
//! the transaction. What a query or an expression means is the binder's knowledge: it comes in through [`Analyzer`].
//!
//! Statements that the SQL parser does not know (ALTER SEQUENCE, CREATE USER, VACUUM (…), REINDEX …) are read by
//! [`extra::parse`], to be tried before the parser at the start of each statement.
//!
//! Temporary relations are changed without the lock and without a word to other sessions, where the statement changes nothing else.
//!
//! Left out on purpose: composite and range types, functions, triggers, policies, partitions; 0A000.

mod alter;
mod alter_column;
mod column_type;
mod composite;
mod constraints;
mod create_table;
mod default_acl;
mod depend;
mod domain;
mod drop;
pub mod expr_text;
mod extension;
pub mod extra;
mod extra_run;
mod fill;
mod generated;
mod grant;
mod index;
mod labels;
mod like;
mod lock;
mod membership;
mod names;
pub mod privileges;
mod reorder;
mod role;
mod sequence;
mod settings;
pub mod split;
mod upkeep;
mod user_type;
mod view;
mod work;

pub use column_type::{column_type, type_from_text};
pub use expr_text::{quote_ident, quote_literal};
pub use extra::Extra;
pub use like::like_mark;
pub use role::scram_verifier;

use crate::catalog;
use crate::types::OutputSettings;
use base::schema::{Change, Column, Object, Schema, TableDef, ViewDef};
use base::{ColumnType, Error, Oid, Result, SqlState, Type, Value};
use sqlparser::ast::{Expr, FunctionDesc, Query, Statement};
use txn::{OnCommit, Stop, Txn};
use work::Work;

/// Who runs the statement, and what stands around it.
pub struct DdlContext<'a> {
    /// The role whose rights count, owner of what is created.
    pub role: Oid,
    /// Whom the session is for.
    pub session_user: Oid,
    pub database: &'a str,
    /// Names of schemas, `$user` already replaced.
    pub search_path: &'a [String],
    pub analyzer: &'a dyn Analyzer,
    /// How the session reads values.
    pub settings: &'a OutputSettings,
    /// Fills with bytes that cannot be guessed.
    pub random_bytes: &'a dyn Fn(&mut [u8]),
    /// Checks a setting's value as SET by this role would; what is stored.
    pub check_setting: &'a dyn Fn(&str, &str) -> Result<()>,
    /// Whether the statement runs inside BEGIN … COMMIT; some statements refuse that (25001).
    pub in_transaction_block: bool,
}

/// The shape of a query.
#[derive(Clone, Debug)]
pub struct QueryShape {
    pub columns: Vec<(String, ColumnType)>,
    /// Relations that it reads (catalog relations need not be named).
    pub depends_on: Vec<Oid>,
    /// Where the text has a `*`, and the columns that it stands for.
    pub stars: Vec<(sqlparser::tokenizer::Location, String)>,
}

/// What DDL asks the binder.
pub trait Analyzer {
    /// Binds a query (of a view, or of CREATE TABLE AS).
    fn query(&self, schema: &Schema, search_path: &[String], query: &Query) -> Result<QueryShape>;

    /// Which columns of a view may be written through it. 55000, with the reason as detail, for a view that is not updatable.
    fn writable_columns(&self, schema: &Schema, view: &ViewDef) -> Result<Vec<bool>>;

    /// Binds a CHECK condition over the table's columns; must be boolean, without subqueries and aggregates.
    fn check(
        &self,
        schema: &Schema,
        search_path: &[String],
        table: &TableDef,
        e: &Expr,
    ) -> Result<()>;

    /// Binds a DEFAULT expression: no columns; assignable to the column's type.
    fn default(
        &self,
        schema: &Schema,
        search_path: &[String],
        column: &Column,
        e: &Expr,
    ) -> Result<()>;

    /// Binds the expression of a generated column over the table's columns: 42P17 when it is not immutable, 42804 when its type does not fit.
    fn generated(
        &self,
        schema: &Schema,
        search_path: &[String],
        table: &TableDef,
        column: &Column,
        e: &Expr,
    ) -> Result<()>;

    /// Binds the expression or the condition of an index (`index expression`, `index predicate`) over the table's columns: its type. 42P17
    /// when it is not immutable.
    fn index_expression(
        &self,
        schema: &Schema,
        search_path: &[String],
        table: &TableDef,
        e: (&Expr, &'static str),
    ) -> Result<ColumnType>;

    /// The values of ALTER COLUMN TYPE … USING for the rows of the table, in the column's new type.
    fn transform(
        &self,
        schema: &Schema,
        search_path: &[String],
        column: (&TableDef, &Column),
        e: &Expr,
        rows: &[Vec<Value>],
    ) -> Result<Vec<Value>>;

    /// The value of a DEFAULT now, cast to the column's type; `None` when it is volatile.
    fn evaluate_default(
        &self,
        schema: &Schema,
        search_path: &[String],
        column: &Column,
        e: &Expr,
    ) -> Result<Option<Value>>;

    /// The value of a volatile DEFAULT for one row.
    fn evaluate_volatile(
        &self,
        schema: &Schema,
        search_path: &[String],
        column: &Column,
        e: &Expr,
    ) -> Result<Value>;
}

/// A NOTICE or WARNING for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// `NOTICE` or `WARNING`.
    pub severity: &'static str,
    pub code: SqlState,
    pub message: String,
    pub detail: String,
}

/// What a DDL statement tells the client.
#[derive(Clone, Debug, Default)]
pub struct DdlOutcome {
    /// The command tag: `CREATE TABLE`.
    pub tag: String,
    pub notices: Vec<Notice>,
}

/// Whether [`execute`] is the one to run this statement. (CREATE TABLE AS is not: see [`create_table_from_columns`].)
pub fn is_ddl(stmt: &Statement) -> bool {
    use Statement as S;
    match stmt {
        S::CreateTable(c) => c.query.is_none(),
        S::CreateView(_) | S::CreateIndex(_) | S::CreateRole(_) | S::CreateSchema { .. } => true,
        S::CreateDatabase { .. } | S::CreateExtension(_) => true,
        S::CreateUser(_) | S::CreateFunction(_) | S::CreateProcedure { .. } => true,
        S::CreateTrigger(_) | S::CreateType { .. } | S::CreateDomain(_) | S::CreatePolicy(_) => {
            true
        }
        S::CreateOperator(_) | S::CreateOperatorFamily(_) | S::CreateOperatorClass(_) => true,
        S::CreateServer(_) | S::CreateCollation(_) | S::CreateTextSearch(_) => true,
        S::AlterTable(_) | S::AlterIndex { .. } | S::AlterView { .. } | S::AlterRole { .. } => true,
        S::AlterSchema(_) | S::AlterType(_) | S::AlterPolicy(_) | S::AlterUser(_) => true,
        S::AlterFunction(_) | S::AlterCollation(_) | S::AlterOperator(_) => true,
        S::AlterOperatorFamily(_) | S::AlterOperatorClass(_) | S::AlterTextSearch(_) => true,
        S::Drop { .. } | S::DropFunction(_) | S::DropProcedure { .. } => true,
        S::DropPolicy(_) | S::DropExtension(_) | S::DropTrigger(_) | S::DropOperator(_) => true,
        S::DropOperatorFamily(_) | S::DropOperatorClass(_) => true,
        S::Truncate(_) | S::Comment { .. } | S::Grant(_) | S::Revoke(_) => true,
        _ => false,
    }
}

/// Runs a DDL statement inside the transaction. May end with [`Stop::Blocked`] like any statement.
pub fn execute(stmt: &Statement, txn: &mut Txn, ctx: &DdlContext<'_>) -> Result<DdlOutcome, Stop> {
    run(txn, ctx, &stmt.to_string(), |w| w.statement(stmt))
}

impl Work<'_> {
    /// Runs the statement; its command tag.
    fn statement(&mut self, stmt: &Statement) -> Result<String> {
        use Statement as S;
        match stmt {
            S::CreateTable(c) => self.create_table(c),
            S::CreateIndex(c) => self.create_index(c),
            S::AlterIndex { name, operation } => self.alter_index(name, operation),
            S::CreateSchema {
                schema_name,
                if_not_exists,
                ..
            } => self.create_schema(schema_name, *if_not_exists),
            S::AlterSchema(a) => self.alter_schema(&a.name, a.if_exists, &a.operations),
            S::CreateRole(c) => self.create_role_statement(c),
            S::AlterRole { name, operation } => self.alter_role_statement(name, operation),
            S::CreateView(c) => self.create_view(c),
            S::AlterTable(a) => self.alter_table(a),
            S::Grant(g) => self.grant(g),
            S::Revoke(r) => self.revoke(r),
            S::Comment {
                object_type,
                object_name,
                comment,
                ..
            } => self.comment(object_type, object_name, comment.as_deref()),
            S::CreateExtension(c) => self.create_extension(c),
            S::DropExtension(d) => self.drop_extensions(d),
            S::DropFunction(d) => self.drop_functions(&d.func_desc, d.if_exists, "FUNCTION"),
            S::DropProcedure {
                if_exists,
                proc_desc,
                ..
            } => self.drop_functions(proc_desc, *if_exists, "PROCEDURE"),
            S::DropTrigger(d) => {
                let table = d.table_name.as_ref().map(ToString::to_string);
                let what = format!(
                    "trigger \"{}\" for relation \"{}\" does not exist",
                    d.trigger_name,
                    table.unwrap_or_default()
                );
                self.drop_missing(SqlState::UNDEFINED_OBJECT, what, d.if_exists)?;
                Ok("DROP TRIGGER".into())
            }
            S::CreateType {
                name,
                representation,
            } => self.create_type(name, representation.as_ref()),
            S::AlterType(a) => self.alter_type(a),
            S::Drop {
                object_type,
                if_exists,
                names,
                cascade,
                ..
            } => self.drop_statement(*object_type, *if_exists, names, *cascade),
            S::Truncate(t) => self.truncate(t),
            other => Err(Error::unsupported(first_words(&other.to_string()))),
        }
    }
}

impl Work<'_> {
    fn drop_functions(
        &mut self,
        functions: &[FunctionDesc],
        if_exists: bool,
        kind: &str,
    ) -> Result<String> {
        for f in functions {
            let args = f
                .args
                .iter()
                .flatten()
                .map(|a| match column_type(&a.data_type) {
                    Ok(t) => format!("pg_catalog.{}", t.ty.typname()),
                    Err(_) => a.data_type.to_string().to_lowercase(),
                });
            let args: Vec<String> = args.collect();
            let what = format!(
                "{} {}({}) does not exist",
                kind.to_lowercase(),
                f.name,
                args.join(",")
            );
            self.drop_missing(SqlState::UNDEFINED_FUNCTION, what, if_exists)?;
        }
        Ok(format!("DROP {kind}"))
    }

    /// Drops something of a kind that cannot exist.
    fn drop_missing(&mut self, code: SqlState, what: String, if_exists: bool) -> Result<()> {
        if !if_exists {
            return Err(Error::new(code, what));
        }
        self.notice(SqlState([b'0'; 5]), format!("{what}, skipping"));
        Ok(())
    }
}

/// The command that a statement's text begins, as its tag names it.
fn command(text: &str) -> String {
    let words = text.split_whitespace();
    let words: Vec<&str> = words
        .filter(|w| {
            !matches!(
                *w,
                "UNIQUE" | "OR" | "REPLACE" | "UNLOGGED" | "MATERIALIZED"
            )
        })
        .take(2)
        .collect();
    match words.as_slice() {
        [one @ ("GRANT" | "REVOKE" | "COMMENT"), ..] => (*one).to_owned(),
        words => words.join(" "),
    }
}

/// The words in capitals that a statement starts with, for "… is not supported".
fn first_words(text: &str) -> String {
    let words = text.split_whitespace().take(3);
    let keyword = |w: &&str| w.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
    words.take_while(keyword).collect::<Vec<_>>().join(" ")
}

/// [`execute`] for the statements of [`extra`].
pub fn execute_extra(e: &Extra, txn: &mut Txn, ctx: &DdlContext<'_>) -> Result<DdlOutcome, Stop> {
    match e {
        Extra::Lock(l) => lock::execute(l, txn, ctx),
        Extra::Upkeep(u) => upkeep::execute(u, txn, ctx),
        Extra::Refused(what) => Err(Error::unsupported(what).into()),
        Extra::DropIndexConcurrently(s) => {
            if ctx.in_transaction_block {
                let what = "DROP INDEX CONCURRENTLY cannot run inside a transaction block";
                return Err(Error::new(SqlState::ACTIVE_SQL_TRANSACTION, what).into());
            }
            run(txn, ctx, &s.to_string(), |w| w.extra(e))
        }
        Extra::Statement(s, _) => run(txn, ctx, &s.to_string(), |w| w.extra(e)),
        Extra::CreateUser { .. } => run(txn, ctx, "CREATE ROLE", |w| w.extra(e)),
        Extra::CreateSequence { .. } => run(txn, ctx, "CREATE SEQUENCE", |w| w.extra(e)),
        Extra::AlterSequence { .. } => run(txn, ctx, "ALTER SEQUENCE", |w| w.extra(e)),
        Extra::OfType(s) => run(txn, ctx, s.command(), |w| w.extra(e)),
        Extra::ViewOptions { .. } => run(txn, ctx, "ALTER VIEW", |w| w.extra(e)),
        Extra::CommentOnConstraint { .. } => run(txn, ctx, "COMMENT", |w| w.extra(e)),
        Extra::RoleGrant(_) => run(txn, ctx, "GRANT ROLE", |w| w.extra(e)),
        Extra::DefaultPrivileges(_) => run(txn, ctx, "ALTER DEFAULT PRIVILEGES", |w| w.extra(e)),
        Extra::StoredSetting(_) => run(txn, ctx, "ALTER ROLE", |w| w.extra(e)),
        Extra::SetSchema { tag, .. } => run(txn, ctx, tag, |w| w.extra(e)),
        Extra::DropIdentity { .. } | Extra::AlterIdentity { .. } | Extra::ColumnOptions { .. } => {
            run(txn, ctx, "ALTER TABLE", |w| w.extra(e))
        }
    }
}

/// Makes the table of CREATE TABLE AS: `columns` as the query gives them, renamed by the statement's own list if it has one.
/// `None` when the table is there and IF NOT EXISTS was said; the outcome's notices say so.
pub fn create_table_from_columns(
    create: &sqlparser::ast::CreateTable,
    columns: &[(String, ColumnType, Option<Oid>)],
    txn: &mut Txn,
    ctx: &DdlContext<'_>,
) -> Result<(Option<Oid>, DdlOutcome), Stop> {
    let mut made = None;
    let outcome = run(txn, ctx, "CREATE TABLE AS", |w| {
        made = w.create_table_from_columns(create, columns)?;
        Ok("CREATE TABLE AS".into())
    })?;
    Ok((made, outcome))
}

/// Whether a statement makes a temporary relation, for which the session must have lent its space.
pub fn makes_temporary(stmt: &Statement) -> bool {
    let (name, temporary) = match stmt {
        Statement::CreateTable(c) => (&c.name, c.temporary),
        Statement::CreateView(c) => (&c.name, c.temporary),
        _ => return false,
    };
    let explicit = match catalog::split_name(name) {
        Ok((Some(n), _)) => n == "pg_temp",
        _ => false,
    };
    temporary || explicit
}

/// What the statement comes to over the schema that the transaction sees.
struct Worked {
    tag: String,
    fills: Vec<fill::Fill>,
    changes: Vec<Change>,
    on_commit: Option<(Oid, OnCommit)>,
    notices: Vec<Notice>,
}

fn work(
    txn: &mut Txn,
    ctx: &DdlContext<'_>,
    f: &mut dyn FnMut(&mut Work<'_>) -> Result<String>,
) -> Result<Worked> {
    let schema = (*txn.catalog().schema).clone();
    let awaited = txn.awaited_tables();
    let mut new_oid = || txn.new_oid();
    let mut work = Work::new(schema, ctx, &mut new_oid);
    work.awaited = awaited;
    let tag = f(&mut work)?;
    let (on_commit, own) = (work.on_commit, work.schema.temporary());
    let (fills, mut changes, notices) = work.finish();
    let before = txn.catalog();
    let mut hidden = vec![];
    for c in &mut changes {
        let of = |o: &Object| match o {
            Object::Table(t) => Some(t.namespace),
            Object::Sequence(s) => Some(s.namespace),
            Object::View(v) => Some(v.namespace),
            _ => None,
        };
        if let Change::Put(o) = c
            && let Some(old) = catalog::by_oid(&before.schema, o.id())
            && of(o).is_some_and(|n| (own == Some(n)) != (own == Some(old.namespace())))
        {
            return Err(Error::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                "cannot move objects into or out of temporary schemas",
            ));
        }
        // A temporary relation does not keep other sessions from changing or dropping a type.
        let users = |all: &[Column]| {
            let mut live = all.iter().filter(|c| !c.dropped);
            live.any(|c| {
                let user = matches!(c.ty().ty, Type::User(_) | Type::UserArray(_));
                user || c.domain.is_some()
            })
        };
        let refused = match c {
            Change::Put(Object::Type(t)) => Some(t.namespace) == own,
            Change::Put(Object::Table(t)) => Some(t.namespace) == own && users(&t.columns),
            Change::Put(Object::View(v)) => Some(v.namespace) == own && users(&v.columns),
            _ => false,
        };
        if refused {
            return Err(Error::unsupported("a user's type in a temporary schema"));
        }
        match c {
            Change::Put(Object::Table(def)) => {
                split::settle(def)?;
                if Some(def.namespace) == own && def.columns.iter().any(|c| c.split.is_some()) {
                    return Err(Error::unsupported("a split column of a temporary table"));
                }
                let old = before.table(def.id).map(|t| &t.table.def);
                hidden.extend(base::split_records::settle_records(def, old, &mut || {
                    txn.new_oid()
                }));
            }
            Change::Drop(id) => {
                let old = before.table(*id).map(|t| &t.table.def);
                hidden.extend(old.map_or_else(Vec::new, base::split_records::drop_records));
            }
            Change::Put(_) => {}
        }
    }
    changes.extend(hidden);
    Ok(Worked {
        tag,
        fills,
        changes,
        on_commit,
        notices,
    })
}

fn run(
    txn: &mut Txn,
    ctx: &DdlContext<'_>,
    text: &str,
    mut f: impl FnMut(&mut Work<'_>) -> Result<String>,
) -> Result<DdlOutcome, Stop> {
    if txn.is_read_only() {
        return Err(Error::new(
            SqlState::READ_ONLY_SQL_TRANSACTION,
            format!(
                "cannot execute {} in a read-only transaction",
                command(text)
            ),
        )
        .into());
    }
    // An error may be one of an older schema, and is told when the newest gives it, too.
    let own = match txn.has_temp_space() {
        true => work(txn, ctx, &mut f).ok(),
        false => None,
    };
    let own = own.filter(|w| !w.changes.is_empty() && txn.are_temporary(&w.changes));
    let done = match own {
        Some(own) => own,
        None => {
            txn.lock_schema()?;
            work(txn, ctx, &mut f)?
        }
    };
    fill::apply(txn, ctx, done.fills, done.changes, done.on_commit)?;
    Ok(DdlOutcome {
        tag: done.tag,
        notices: done.notices,
    })
}

#[cfg(test)]
pub(crate) mod tests;
