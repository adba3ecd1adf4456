//! Generated columns: `b int GENERATED ALWAYS AS (a * 2) STORED`.
//!
//! The schema keeps the text of the expression as the column's default, with a mark. A transaction computes the column for each row that it
//! writes ([`txn::TableRules::generate`]), before it looks at constraints: INSERT, UPDATE, COPY, cascades and the library alike. The log
//! holds the values, so replicas and recovery compute nothing.
//!
//! Left out on purpose: VIRTUAL columns, which PostgreSQL 15 does not have; tables that have split columns, whose deltas would be
//! values of other columns (0A000).

use super::constraints::live;
use super::expr_text;
use super::work::Work;
use base::schema::{Column, FkAction, TableDef};
use base::{Error, Result, SqlState};
use sqlparser::ast::{ColumnOption, Expr, GeneratedAs, GeneratedExpressionMode};

/// Makes the column a generated one. 42601 for what the grammar does not have.
fn mark(column: &mut Column, option: &ColumnOption) -> Result<()> {
    let ColumnOption::Generated {
        generated_as,
        generation_expr_mode,
        ..
    } = option
    else {
        return Err(Error::internal("no generated column"));
    };
    if matches!(generated_as, GeneratedAs::ByDefault) {
        let what = "for a generated column, GENERATED ALWAYS must be specified";
        return Err(Error::new(SqlState::SYNTAX_ERROR, what));
    }
    if !matches!(generation_expr_mode, Some(GeneratedExpressionMode::Stored)) {
        let what = "a generated column has to be STORED";
        return Err(Error::new(SqlState::SYNTAX_ERROR, what));
    }
    if column.generated {
        let what = format!(
            "multiple generation clauses specified for column \"{}\"",
            column.name
        );
        return Err(Error::new(SqlState::SYNTAX_ERROR, what));
    }
    column.generated = true;
    Ok(())
}

/// The generated columns that are computed from this one.
pub(super) fn computed_from<'t>(
    def: &'t TableDef,
    name: &'t str,
) -> impl Iterator<Item = (base::ColumnIdx, &'t Column)> {
    live(def).filter(move |(_, c)| {
        let text = c.default.as_deref().filter(|_| c.generated);
        text.is_some_and(|t| !expr_text::mentioned(t, &[name]).is_empty())
    })
}

impl Work<'_> {
    /// Makes the column a generated one, with the schemas of the types that its expression names.
    pub(super) fn mark_generated(
        &self,
        def: &TableDef,
        column: &mut Column,
        e: &Expr,
        option: &ColumnOption,
    ) -> Result<()> {
        mark(column, option)?;
        column.default = Some(self.text_of(def, e)?);
        Ok(())
    }

    /// Looks at the generated columns of a table whose columns are all there.
    pub(super) fn check_generated(&self, def: &TableDef) -> Result<()> {
        let names: Vec<&str> = live(def)
            .filter(|(_, c)| c.generated)
            .map(|(_, c)| c.name.as_str())
            .collect();
        for (_, c) in live(def).filter(|(_, c)| c.generated) {
            let text = c.default.as_deref().unwrap_or_default();
            if c.identity.is_some() {
                let what = format!(
                    "both identity and generation expression specified for column \"{}\" of table \"{}\"",
                    c.name, def.name
                );
                return Err(Error::new(SqlState::SYNTAX_ERROR, what));
            }
            if let Some(other) = expr_text::mentioned(text, &names).first() {
                let what = format!(
                    "cannot use generated column \"{other}\" in column generation expression"
                );
                return Err(Error::new(SqlState::INVALID_OBJECT_DEFINITION, what)
                    .detail("A generated column cannot reference another generated column."));
            }
            let e = expr_text::parse(text)?;
            let (schema, path) = (&self.schema, self.ctx.search_path);
            self.ctx.analyzer.generated(schema, path, def, c, &e)?;
        }
        Ok(())
    }
}

/// 42601 for an action of a foreign key that would write a generated column.
pub(super) fn refuse_actions(def: &TableDef) -> Result<()> {
    let generated = |c: &base::ColumnIdx| def.columns[*c as usize].generated;
    for f in &def.foreign_keys {
        if !f.columns.iter().any(generated) {
            continue;
        }
        let when = match (f.on_update, f.on_delete) {
            (FkAction::SetNull | FkAction::SetDefault | FkAction::Cascade, _) => "UPDATE",
            (_, FkAction::SetNull | FkAction::SetDefault) => "DELETE",
            _ => continue,
        };
        let what = format!(
            "invalid ON {when} action for foreign key constraint containing generated column"
        );
        return Err(Error::new(SqlState::SYNTAX_ERROR, what));
    }
    Ok(())
}

/// Whether a column's type may change: not that of one which a generated column is computed from.
pub(super) fn may_change_type(def: &TableDef, at: base::ColumnIdx, using: bool) -> Result<()> {
    let column = &def.columns[at as usize];
    let name = &column.name;
    if let Some((_, g)) = computed_from(def, name).next() {
        return Err(Error::new(
            SqlState::FEATURE_NOT_SUPPORTED,
            "cannot alter type of a column used by a generated column",
        )
        .detail(format!(
            "Column \"{name}\" is used by generated column \"{}\".",
            g.name
        )));
    }
    let hidden = def.columns.iter().filter(|c| c.is_hidden());
    for c in hidden {
        let text = c.default.as_deref().unwrap_or_default();
        if !expr_text::mentioned(text, &[name]).is_empty() {
            return Err(Error::unsupported(
                "changing the type of a column that the expression or the condition of an index names",
            ));
        }
    }
    if using && column.generated {
        let what = "cannot specify USING when altering type of generated column";
        return Err(Error::new(SqlState::INVALID_COLUMN_DEFINITION, what)
            .detail(format!("Column \"{name}\" is a generated column.")));
    }
    Ok(())
}
