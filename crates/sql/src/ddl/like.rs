//! `CREATE TABLE t (LIKE s INCLUDING …)`: the columns of another table or view, and what else is asked for.
//!
//! Types and NOT NULL are always taken. Options are read from left to right, so that `INCLUDING ALL EXCLUDING INDEXES` leaves one out. Indexes
//! come last, with names of their own, as in PostgreSQL. The new table has no tie to the old one.
//!
//! Left out on purpose: STATISTICS, STORAGE and COMPRESSION, of which there is nothing to take; split columns, which a table has by its own
//! `WITH (split = …)`.

use super::create_table::{plain_column, push_column};
use super::names;
use super::work::Work;
use crate::catalog::Resolved;
use base::schema::{Check, Column, Index, Object, Relation, Table, TableDef, privilege};
use base::{ColumnIdx, Error, Oid, Result, SqlState};
use sqlparser::ast::{Ident, ObjectName};
use std::collections::HashMap;
use std::sync::Arc;

/// What follows when the columns are there: the source, the new places of its columns, and whether comments are taken.
pub(super) struct Like {
    source: Arc<Table>,
    places: HashMap<ColumnIdx, ColumnIdx>,
    indexes: bool,
    comments: bool,
}

/// What no name begins with that SQL can write.
const MARK: char = '\u{1}';

/// The name of a column that stands for a LIKE among the columns, where the parser cannot have one: its options (`in defaults`, `ex all`) and the parts of
/// the table's name.
pub fn like_mark(options: &[String], name: &[String]) -> String {
    let name = name.join(&MARK.to_string());
    format!("{MARK}like{MARK}{}{MARK}{name}", options.join(","))
}

/// The options and the name in such a column's name.
pub(super) fn clause(column: &str) -> Option<(Vec<&str>, Vec<&str>)> {
    let rest = column.strip_prefix(MARK)?.strip_prefix("like")?;
    let mut parts = rest.strip_prefix(MARK)?.split(MARK);
    let options = parts.next()?.split(',').filter(|o| !o.is_empty()).collect();
    Some((options, parts.collect()))
}

#[derive(Clone, Copy, Default)]
struct Options {
    comments: bool,
    constraints: bool,
    defaults: bool,
    generated: bool,
    identity: bool,
    indexes: bool,
}

fn read(options: &[&str]) -> Result<Options> {
    let mut o = Options::default();
    for option in options {
        let (how, what) = option.split_once(' ').unwrap_or(("", option));
        let on = how == "in";
        match what {
            "comments" => o.comments = on,
            "constraints" => o.constraints = on,
            "defaults" => o.defaults = on,
            "generated" => o.generated = on,
            "identity" => o.identity = on,
            "indexes" => o.indexes = on,
            "statistics" | "storage" | "compression" => {}
            "all" => {
                o = Options {
                    comments: on,
                    constraints: on,
                    defaults: on,
                    generated: on,
                    identity: on,
                    indexes: on,
                }
            }
            other => {
                let what = format!("syntax error at or near \"{other}\"");
                return Err(Error::new(SqlState::SYNTAX_ERROR, what));
            }
        }
    }
    Ok(o)
}

impl Work<'_> {
    /// Adds the columns of the relation of this name.
    pub(super) fn like(
        &mut self,
        def: &mut TableDef,
        options: &[&str],
        name: &[&str],
    ) -> Result<Option<Like>> {
        let o = read(options)?;
        let parts: Vec<Ident> = name.iter().map(|n| Ident::with_quote('"', *n)).collect();
        let found = self.resolve(&ObjectName::from(parts))?;
        let relation = match &found {
            Resolved::Relation(r @ (Relation::Table(_) | Relation::View(_))) => r.clone(),
            other => {
                let what = format!("\"{}\" is not a table or view", other.name());
                return Err(Error::new(SqlState::WRONG_OBJECT_TYPE, what));
            }
        };
        let role = self.ctx.role;
        super::privileges::check_relation(&self.schema, role, &relation, privilege::SELECT)?;
        let source = match relation {
            Relation::Table(t) => t,
            Relation::View(v) => {
                for c in &v.columns {
                    push_column(def, plain_column(c.name.clone(), c.ty()))?;
                }
                return Ok(None);
            }
            Relation::Sequence(_) => return Err(Error::internal("a sequence is no table")),
        };
        let mut places = HashMap::new();
        for (i, c) in source.def.columns.iter().enumerate() {
            if c.dropped {
                continue;
            }
            let at = def.columns.len();
            places.insert(i as ColumnIdx, at as ColumnIdx);
            self.like_column(def, (source.def.id, i), c, o)?;
            if o.comments {
                self.copy_comment((source.def.id, i as i32 + 1), (def.id, at as i32 + 1))?;
            }
        }
        for c in source.def.checks.iter().filter(|_| o.constraints) {
            if names::has_constraint(def, &c.name) {
                let what = format!("check constraint \"{}\" already exists", c.name);
                return Err(Error::new(SqlState::DUPLICATE_OBJECT, what));
            }
            let id = self.oid();
            def.checks.push(Check {
                id,
                not_valid: false,
                ..c.clone()
            });
            if o.comments {
                self.copy_comment((c.id, 0), (id, 0))?;
            }
        }
        Ok(Some(Like {
            source,
            places,
            indexes: o.indexes,
            comments: o.comments,
        }))
    }

    fn like_column(
        &mut self,
        def: &mut TableDef,
        (table, place): (Oid, usize),
        c: &Column,
        o: Options,
    ) -> Result<()> {
        let at = def.columns.len();
        let mut column = plain_column(c.name.clone(), c.ty());
        (column.not_null, column.domain) = (c.not_null, c.domain);
        let plain = c.identity.is_none() && !c.generated;
        if o.defaults && plain || o.generated && c.generated {
            (column.default, column.generated) = (c.default.clone(), c.generated);
        }
        push_column(def, column)?;
        if c.identity.is_none() || !o.identity {
            return Ok(());
        }
        let text = self.column_sequence(def, at, c.ty().ty, &[])?;
        (def.columns[at].default, def.columns[at].identity) = (Some(text), c.identity);
        let of = |w: &Self, t: Oid, c: usize| {
            let found = w.owned_sequences(|x, y| (x, y) == (t, c as ColumnIdx));
            match found.first().and_then(|s| w.schema.relation(*s)) {
                Some(Relation::Sequence(s)) => Some((**s).clone()),
                _ => None,
            }
        };
        if let (Some(old), Some(mut new)) = (of(self, table, place), of(self, def.id, at)) {
            (new.start, new.increment, new.cache) = (old.start, old.increment, old.cache);
            (new.min, new.max, new.cycle) = (old.min, old.max, old.cycle);
            self.put(Object::Sequence(new));
        }
        Ok(())
    }

    /// Adds the indexes and keys of the source.
    pub(super) fn like_indexes(&mut self, def: &mut TableDef, like: Option<Like>) -> Result<()> {
        let Some(like) = like.filter(|l| l.indexes) else {
            return Ok(());
        };
        for i in &like.source.def.indexes {
            if i.is_primary_key() && def.indexes.iter().any(Index::is_primary_key) {
                let what = format!(
                    "multiple primary keys for table \"{}\" are not allowed",
                    def.name
                );
                return Err(Error::new(SqlState::INVALID_TABLE_DEFINITION, what));
            }
            let mut index: Index = i.clone();
            for c in &mut index.columns {
                let source = &like.source.def.columns[c.column as usize];
                c.column = match source.is_hidden() {
                    true => super::create_table::push_hidden(def, source.clone())?,
                    false => like.places[&c.column],
                };
                def.columns[c.column as usize].not_null |= i.is_primary_key();
            }
            for c in &mut index.include {
                *c = like.places[c];
            }
            let columns = super::constraints::written_names(def, index.written(), &index.include);
            let (second, label) = match (i.is_primary_key(), i.constraint) {
                (true, _) => ("", "pkey"),
                (_, true) => (&*columns, "key"),
                _ => (&*columns, "idx"),
            };
            index.name = self.constraint_name(def, second, label, true);
            index.id = self.oid();
            if i.constraint {
                index.constraint_oid = self.oid();
            }
            if like.comments {
                self.copy_comment((i.id, 0), (index.id, 0))?;
                if i.constraint {
                    self.copy_comment((i.constraint_oid, 0), (index.constraint_oid, 0))?;
                }
            }
            def.indexes.push(index);
        }
        Ok(())
    }

    fn copy_comment(&mut self, from: (Oid, i32), to: (Oid, i32)) -> Result<()> {
        let text = {
            let mut all = self.schema.comments();
            all.find(|c| (c.1, c.2) == from).map(|c| c.3.to_owned())
        };
        if let Some(text) = text {
            self.put_comment(to.0, to.1, Some(&text))?;
        }
        Ok(())
    }
}
