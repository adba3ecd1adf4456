//! Where the session meets the rest of this crate: plans, DDL, names, privileges.

use super::Session;
use super::client::Severity;
use super::parse::{Parsed, Stmt, parse_one};
use super::prepared::{Ddl, no_parameter};
use super::settings::{Settings, Span};
use super::state::State;
use crate::bind::PrepareContext;
use crate::catalog::{Names, functions};
use crate::ddl::{self, DdlContext, DdlOutcome};
use crate::engine::Engine;
use crate::exec::ExecContext;
use crate::plan::Prepared;
use crate::rules::Analysis;
use crate::types::{CatalogLookup, OutputSettings, cast};
use base::schema::{Schema, privilege};
use base::{ColumnType, Error, Oid, Result, Type, Value};
use sqlparser::ast::{CreateTable, Query, Statement};
use std::sync::Arc;
use txn::{Catalog, Stop, Txn};

/// What a DDL statement tells.
pub struct Outcome {
    pub tag: String,
    pub notices: Vec<(Severity, Error)>,
}

/// Whether the statement is run by a plan; else it is DDL.
pub fn has_plan(s: &Statement) -> bool {
    matches!(
        s,
        Statement::Query(_)
            | Statement::Insert(_)
            | Statement::Update(_)
            | Statement::Delete(_)
            | Statement::Explain { .. }
            | Statement::Merge(_)
    )
}

/// Plans a statement.
pub fn prepare<E: Engine>(
    session: &mut Session<E>,
    ast: &Statement,
    types: &[Option<Type>],
    source: &str,
    catalog: &Arc<Catalog>,
) -> Result<Arc<Prepared>> {
    let path: Vec<Oid> = crate::catalog::namespaces(&catalog.schema, &session.path).collect();
    let rows = |t: &txn::TableHandle| {
        session
            .block
            .txn
            .as_ref()
            .map_or(1000, |x| x.estimated_rows(t))
    };
    crate::prepare::prepare(
        ast,
        types,
        &PrepareContext {
            catalog,
            search_path: &path,
            role: session.state.current_role.get(),
            settings: &session.output,
            session: &session.state,
            rows: Some(&rows),
            source,
        },
    )
}

/// Refuses what the role may not do. What a view reads is checked as the view's owner as of now, whichever role reads the view.
pub fn check_privileges(schema: &Schema, role: Oid, p: &Prepared) -> Result<()> {
    if p.privileges.is_empty() && p.schemas.is_empty() {
        return Ok(());
    }
    let superuser = ddl::privileges::is_superuser(schema, role);
    if role != p.planned_for && !superuser {
        for &n in &p.schemas {
            ddl::privileges::check_namespace(schema, role, n, privilege::USAGE)?;
        }
    }
    for n in &p.privileges {
        let reader = match n.view {
            0 => role,
            view => ddl::privileges::reader_in(schema, view, role),
        };
        if reader != role || !superuser {
            let named = ddl::privileges::Named {
                read: &n.read,
                inserted: &n.inserted,
                updated: &n.updated,
            };
            ddl::privileges::check_named(schema, reader, n.relation, n.bits, named)?;
        }
    }
    Ok(())
}

/// A type by its name in SQL.
pub fn type_named(schema: &Schema, path: &[String], text: &str) -> Result<ColumnType> {
    crate::catalog::user_types::type_named(schema, path, text)
}

/// A value stored where another type is declared.
pub fn assign(v: Value, from: ColumnType, to: ColumnType, s: &OutputSettings) -> Result<Value> {
    cast::apply(v, from, to, false, s)
}

/// Names as this schema and path have them, for `reg*` types.
pub fn lookup(catalog: &Arc<Catalog>, path: &Arc<[String]>, role: Oid) -> Arc<dyn CatalogLookup> {
    Arc::new(Names {
        role,
        schema: catalog.schema.clone(),
        search_path: path.clone(),
    })
}

/// Runs a DDL statement in the transaction.
pub fn execute_ddl<E: Engine>(session: &mut Session<E>, d: &Ddl) -> Result<Outcome, Stop> {
    if let Ddl::Statement(s) = d
        && ddl::makes_temporary(s)
    {
        let txn = session.block.txn.as_mut().expect("begun");
        txn.lend(&session.temp);
    }
    if let Ddl::Statement(s) = d
        && let Statement::CreateTable(c) = &**s
        && let Some(query) = &c.query
    {
        return create_table_as(session, c, query);
    }
    let outcome = with_context(session, |txn, ctx| match d {
        Ddl::Statement(s) if ddl::is_ddl(s) => ddl::execute(s, txn, ctx),
        Ddl::Statement(s) => Err(Error::unsupported(first_words(s)).into()),
        Ddl::Extra(e) => ddl::execute_extra(e, txn, ctx),
    })?;
    Ok(told(outcome))
}

fn with_context<E: Engine, R>(
    session: &mut Session<E>,
    f: impl FnOnce(&mut Txn, &DdlContext<'_>) -> Result<R, Stop>,
) -> Result<R, Stop> {
    let in_transaction_block = !session.autocommit();
    let Session {
        block,
        state,
        path,
        shared,
        output,
        ..
    } = session;
    let txn = block.txn.as_mut().expect("begun");
    let random = |out: &mut [u8]| shared.host.random(out);
    let role = state.current_role.get();
    let superuser = ddl::privileges::is_superuser(&txn.catalog().schema, role);
    let check = |name: &str, value: &str| {
        let mut fresh = Settings::default();
        fresh
            .set(name, Some(value), Span::Session, superuser)
            .map(|_| ())
    };
    let path = ddl::privileges::usable_path(&txn.catalog().schema, role, path);
    let analyzer = Analysis {
        role,
        settings: output,
        session: state,
    };
    f(
        txn,
        &DdlContext {
            role,
            session_user: state.session_user.get(),
            database: &shared.database,
            search_path: &path,
            analyzer: &analyzer,
            settings: output,
            random_bytes: &random,
            check_setting: &check,
            in_transaction_block,
        },
    )
}

fn told(outcome: DdlOutcome) -> Outcome {
    let notices = outcome.notices.into_iter().map(|n| {
        let severity = match n.severity {
            "WARNING" => Severity::Warning,
            _ => Severity::Notice,
        };
        let e = Error::new(n.code, n.message);
        (
            severity,
            if n.detail.is_empty() {
                e
            } else {
                e.detail(n.detail)
            },
        )
    });
    Outcome {
        tag: outcome.tag,
        notices: notices.collect(),
    }
}

/// CREATE TABLE AS: the table by the query's columns, then an INSERT of the query.
fn create_table_as<E: Engine>(
    session: &mut Session<E>,
    create: &CreateTable,
    query: &Query,
) -> Result<Outcome, Stop> {
    let catalog = session.block.txn.as_ref().expect("begun").catalog();
    let select = Statement::Query(Box::new(query.clone()));
    let text = crate::bind::query_text(query)?;
    let shape = prepare(session, &select, &[], &text, &catalog)?;
    if !shape.params.is_empty() {
        return Err(no_parameter().into());
    }
    let fill = create.with_data.as_ref().is_none_or(|w| w.data);
    if fill {
        check_privileges(&catalog.schema, session.state.current_role.get(), &shape)?;
    }
    let mut columns = Vec::with_capacity(shape.columns.len());
    for c in &shape.columns {
        // A column that is one of a table is of its domain, too.
        let table = catalog.schema.table(c.table);
        let at = usize::try_from(c.column - 1).ok();
        let column = table.zip(at).and_then(|(t, at)| t.def.columns.get(at));
        let domain = column.and_then(|c| c.domain);
        columns.push((c.name.clone(), c.ty, domain));
    }
    let (made, outcome) = with_context(session, |txn, ctx| {
        ddl::create_table_from_columns(create, &columns, txn, ctx)
    })?;
    let mut told = told(outcome);
    let (Some(id), true) = (made, fill && create.query.is_some()) else {
        return Ok(told);
    };
    let catalog = session.block.txn.as_ref().expect("begun").catalog();
    let Some(table) = catalog.schema.table(id) else {
        return Err(Error::internal("the new table is not there").into());
    };
    let home = catalog
        .schema
        .namespace(table.def.namespace)
        .map_or("public", |n| n.name.as_str());
    let sql = format!(
        "INSERT INTO {}.{} {text}",
        ddl::quote_ident(home),
        ddl::quote_ident(&table.def.name)
    );
    let Some(Parsed {
        stmt: Stmt::Sql(insert),
        ..
    }) = parse_one(&sql)?
    else {
        return Err(Error::internal("the statement of CREATE TABLE AS is not one").into());
    };
    let insert = prepare(session, &insert, &[], &sql, &catalog)?;
    *session.state.catalog.get_mut() = catalog;
    let mut run = insert.start(Vec::new());
    let Session {
        block,
        state,
        output,
        ..
    } = session;
    let cx = ExecContext {
        settings: output,
        session: state,
        facts: state,
    };
    run.for_each_row(block.txn.as_mut().expect("begun"), &cx, 0, &mut |_| {
        Ok(crate::exec::Go::On)
    })?;
    told.tag = format!("SELECT {}", run.rows_affected());
    Ok(told)
}

/// What a statement calls itself.
fn first_words(s: &Statement) -> String {
    let text = s.to_string();
    let capital = |w: &&str| w.bytes().all(|b| b.is_ascii_uppercase());
    let words: Vec<&str> = text
        .split_whitespace()
        .take(3)
        .take_while(capital)
        .collect();
    words.join(" ")
}

/// Functions that look things up in the catalog.
pub fn catalog_function<E: Engine>(
    state: &State<E>,
    name: &'static str,
    types: &[Type],
    args: &[Value],
) -> Result<Value> {
    let schema = state.catalog.borrow().schema.clone();
    let search_path: Arc<[String]> = state.search_path().into();
    let scope = functions::Scope {
        schema: &schema,
        search_path: &search_path,
        facts: state,
    };
    functions::call(&scope, name, types, args)
}
