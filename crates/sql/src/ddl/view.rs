//! CREATE VIEW. A view is its query's text, with the search path under which it was bound. Each `*` in it is replaced by the
//! columns that it stands for, so that a column added to a table later does not show in the view. NATURAL joins are kept as they
//! were written, and do join by a common column that is added later.
//!
//! Left out on purpose: materialized and temporary views, WITH CHECK OPTION and other options (0A000).

use super::create_table::plain_column;
use super::work::Work;
use crate::catalog::Resolved;
use crate::types::typename::format_type;
use base::schema::{Column, Object, Relation, ViewDef};
use base::{ColumnType, Error, Result, SqlState, Type};
use sqlparser::ast::{CreateTableOptions, CreateView};
use sqlparser::tokenizer::Location;

impl Work<'_> {
    pub(super) fn create_view(&mut self, c: &CreateView) -> Result<String> {
        let tag = "CREATE VIEW".to_string();
        if c.materialized {
            return Err(Error::unsupported("a materialized view"));
        }
        if c.temporary {
            return Err(Error::unsupported("a temporary view"));
        }
        if !matches!(c.options, CreateTableOptions::None) {
            return Err(Error::unsupported("an option of a view"));
        }
        let (namespace, name) = self.target(&c.name)?;
        let old = self.schema.lookup(namespace, &name);
        if c.if_not_exists && old.is_some() {
            self.skip_existing(&name);
            return Ok(tag);
        }
        let (schema, path) = (&self.schema, self.ctx.search_path);
        let text = c.query.to_string();
        let query = crate::bind::parse_query(&text)?;
        let shape = self.ctx.analyzer.query(schema, path, &query)?;
        let query = without_stars(text, shape.stars);
        if c.columns.len() > shape.columns.len() {
            return Err(Error::new(
                SqlState::SYNTAX_ERROR,
                "CREATE VIEW specifies more column names than columns",
            ));
        }
        let mut columns: Vec<Column> = vec![];
        for (i, (column, ty)) in shape.columns.into_iter().enumerate() {
            let column = match c.columns.get(i) {
                Some(given) => self.name(&given.name),
                None => column,
            };
            if columns.iter().any(|c| c.name == column) {
                return Err(Error::new(
                    SqlState::DUPLICATE_COLUMN,
                    format!("column \"{column}\" specified more than once"),
                ));
            }
            let ty = match ty.ty {
                Type::Unknown => ColumnType::plain(Type::Text),
                _ => ty,
            };
            columns.push(plain_column(column, ty));
        }
        let mut def = ViewDef {
            id: 0,
            namespace,
            name,
            owner: self.ctx.role,
            columns,
            query,
            search_path: self.ctx.search_path.to_vec(),
            depends_on: shape.depends_on,
            acl: vec![],
        };
        match old.and_then(|id| crate::catalog::by_oid(&self.schema, id)) {
            None => def.id = self.oid(),
            Some(_) if !c.or_replace => {
                self.must_be_free(namespace, &def.name)?;
            }
            Some(Resolved::Relation(Relation::View(v))) => {
                self.must_own("view", &v.name, v.owner)?;
                check_replacement(&v.columns, &def.columns)?;
                if def.depends_on.contains(&v.id) {
                    return Err(Error::new(
                        SqlState::INVALID_OBJECT_DEFINITION,
                        format!(
                            "infinite recursion detected in rules for relation \"{}\"",
                            v.name
                        ),
                    ));
                }
                (def.id, def.owner, def.acl) = (v.id, v.owner, v.acl.clone());
            }
            Some(other) => return Err(self.wrong_kind(&other, "view")),
        }
        self.put(Object::View(def));
        Ok(tag)
    }
}

/// The text with the columns that each `*` stands for today, so that the view keeps them when a table gets more.
fn without_stars(text: String, mut stars: Vec<(Location, String)>) -> String {
    stars.sort_by_key(|(at, _)| (at.line, at.column));
    let mut out = text.clone();
    // From the end, so that what is ahead keeps its place.
    for (at, columns) in stars.into_iter().rev() {
        let lines = text.split_inclusive('\n');
        let before: usize = lines.take(at.line as usize - 1).map(str::len).sum();
        let line = &text[before..];
        let start = line.char_indices().nth(at.column as usize - 1);
        if let Some((i, '*')) = start {
            out.replace_range(before + i..before + i + 1, &columns);
        }
    }
    out
}

/// A replacement keeps the old columns and may add some: 42P16.
fn check_replacement(old: &[Column], new: &[Column]) -> Result<()> {
    let refuse = |what: String| Err(Error::new(SqlState::INVALID_TABLE_DEFINITION, what));
    if new.len() < old.len() {
        return refuse("cannot drop columns from view".into());
    }
    for (o, n) in old.iter().zip(new) {
        if o.name != n.name {
            let what = format!(
                "cannot change name of view column \"{}\" to \"{}\"",
                o.name, n.name
            );
            let hint =
                "Use ALTER VIEW ... RENAME COLUMN ... to change name of view column instead.";
            return Err(Error::new(SqlState::INVALID_TABLE_DEFINITION, what).hint(hint));
        }
        if o.ty() != n.ty() {
            let shown = |c: &Column| format_type(c.ty().ty, c.typmod);
            return refuse(format!(
                "cannot change data type of view column \"{}\" from {} to {}",
                o.name,
                shown(o),
                shown(n)
            ));
        }
    }
    Ok(())
}
