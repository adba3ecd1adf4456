//! A statement made ready to run: bound, then planned, once for any number of runs and one version of the schema.
//!
//! This is the one place that knows both the binder and the planner. EXPLAIN is prepared here as well, because its plan is the plan of the
//! statement inside of it.

use crate::bind::{self, PrepareContext};
use crate::plan::node::{Explain, Plan, Root};
use crate::plan::{self, OutColumn, Prepared, StatementKind};
use base::{ColumnType, Error, Result, SqlState, Type};
use sqlparser::ast::{AnalyzeFormat, AnalyzeFormatKind, Statement, UtilityOption};
use std::sync::Arc;
use std::time::Instant;

/// Prepares a SELECT, VALUES, INSERT, UPDATE, DELETE, MERGE or EXPLAIN. `param_types`: what the client declared, `None` for
/// parameters to infer.
pub fn prepare(
    stmt: &Statement,
    param_types: &[Option<Type>],
    cx: &PrepareContext<'_>,
) -> Result<Arc<Prepared>> {
    match stmt {
        Statement::Explain {
            analyze,
            statement,
            format,
            options,
            ..
        } => {
            let o = explain_options(*analyze, format.as_ref(), options.as_deref().unwrap_or(&[]))?;
            explain(statement, o, param_types, cx)
        }
        _ => {
            let bound = bind::statement(stmt, param_types, cx)?;
            plan::physical(bound, cx.rows, cx.catalog.schema.version, cx.role)
        }
    }
}

fn explain_options(
    analyze: bool,
    format: Option<&AnalyzeFormatKind>,
    options: &[UtilityOption],
) -> Result<Explain> {
    let mut o = Explain {
        analyze,
        json: false,
        costs: true,
        timing: true,
        summary: false,
    };
    let (mut timing, mut summary) = (None, None);
    let format = format.map(|f| match f {
        AnalyzeFormatKind::Keyword(f) | AnalyzeFormatKind::Assignment(f) => f,
    });
    let unknown_format = |f: &str| Err(Error::unsupported(format!("EXPLAIN format {f}")));
    match format {
        None | Some(AnalyzeFormat::TEXT) => {}
        Some(AnalyzeFormat::JSON) => o.json = true,
        Some(f) => return unknown_format(&f.to_string()),
    }
    for u in options {
        match u.name.value.to_ascii_lowercase().as_str() {
            "analyze" | "analyse" => o.analyze = switch(u)?,
            "costs" => o.costs = switch(u)?,
            "timing" => timing = Some(switch(u)?),
            "summary" => summary = Some(switch(u)?),
            "verbose" | "buffers" | "settings" | "wal" => {
                switch(u)?;
            }
            "format" => {
                let f = u.arg.as_ref().map(ToString::to_string).unwrap_or_default();
                match f.trim_matches('\'').to_ascii_lowercase().as_str() {
                    "text" => o.json = false,
                    "json" => o.json = true,
                    other => return unknown_format(other),
                }
            }
            other => {
                return Err(Error::new(
                    SqlState::SYNTAX_ERROR,
                    format!("unrecognized EXPLAIN option \"{other}\""),
                ));
            }
        }
    }
    if timing == Some(true) && !o.analyze {
        return Err(Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            "EXPLAIN option TIMING requires ANALYZE",
        ));
    }
    o.timing = timing.unwrap_or(true);
    o.summary = summary.unwrap_or(o.analyze);
    Ok(o)
}

fn switch(o: &UtilityOption) -> Result<bool> {
    let text = match &o.arg {
        None => return Ok(true),
        Some(a) => a.to_string().trim_matches('\'').to_ascii_lowercase(),
    };
    match text.as_str() {
        "true" | "on" | "1" => Ok(true),
        "false" | "off" | "0" => Ok(false),
        _ => Err(Error::new(
            SqlState::SYNTAX_ERROR,
            format!("{} requires a Boolean value", o.name.value.to_lowercase()),
        )),
    }
}

/// The statement inside is prepared as it would be alone.
fn explain(
    inner: &Statement,
    o: Explain,
    params: &[Option<Type>],
    cx: &PrepareContext<'_>,
) -> Result<Arc<Prepared>> {
    if !matches!(
        inner,
        Statement::Query(_)
            | Statement::Insert(_)
            | Statement::Update(_)
            | Statement::Delete(_)
            | Statement::Merge(_)
    ) {
        return Err(Error::unsupported("EXPLAIN of this statement"));
    }
    let from = Instant::now();
    let p = prepare(inner, params, cx)?;
    let planning = from.elapsed();
    let ty = if o.json { Type::Json } else { Type::Text };
    Ok(Arc::new(Prepared {
        touches: Default::default(),
        uses: Default::default(),
        params: p.params.clone(),
        columns: vec![OutColumn {
            name: "QUERY PLAN".into(),
            ty: ColumnType::plain(ty),
            table: 0,
            column: 0,
            record: None,
        }],
        kind: StatementKind::Explain,
        read_only: !o.analyze || p.read_only,
        locks_rows: o.analyze && p.locks_rows,
        schema_version: p.schema_version,
        privileges: p.privileges.clone(),
        schemas: p.schemas.clone(),
        planned_for: p.planned_for,
        plan: Plan {
            root: Root::Explain {
                options: o,
                planning,
                inner: p,
            },
            outputs: vec![0],
            ..Plan::bare(0)
        },
    }))
}
