//! INSERT.

use super::expr::Env;
use super::scope::{ScopeColumn, ScopeRel};
use super::select::QCol;
use super::syntax::{is_default, values_of};
use super::{Binder, Scope};
use crate::expr::{Expr, Slot};
use crate::logical::write::Insert;
use crate::logical::{Logical, Root, Values};
use base::schema::{Identity, Table, privilege};
use base::{ColumnType, Error, Result, SqlState};
use sqlparser::ast::{self, TableObject};

impl Binder<'_> {
    pub(super) fn insert(
        &mut self,
        i: &ast::Insert,
        outer: &Scope<'_>,
    ) -> Result<(Root, Vec<QCol>)> {
        let odd = i.or.is_some()
            || i.ignore
            || i.overwrite
            || i.replace_into
            || !i.assignments.is_empty()
            || i.partitioned.is_some()
            || i.insert_alias.is_some()
            || i.output.is_some()
            || i.multi_table_insert_type.is_some();
        if odd {
            return Err(Error::unsupported("this form of INSERT"));
        }
        let TableObject::TableName(name) = &i.table else {
            return Err(Error::unsupported("INSERT into something that is no table"));
        };
        let alias = i.table_alias.as_ref().map(|a| ast::TableAlias {
            explicit: a.explicit,
            name: a.alias.clone(),
            columns: vec![],
            at: None,
        });
        let (table, handle, mut names) = self.target(name, alias.as_ref(), privilege::INSERT)?;
        let systems = names.rels.iter_mut().filter_map(|r| r.system.as_mut());
        systems.for_each(|s| s.key = None);
        let t = table.table.clone();
        let row: Vec<Slot> = (0..t.def.columns.len()).map(|c| table.slot(c)).collect();
        let (overriding, listed) = overriding(&i.columns);
        let (places, named) = self.insert_places(&t, listed)?;
        let (input, given, buffer) = match &i.source {
            None => (Logical::once(), vec![], false),
            Some(q) => match values_of(q) {
                Some(v) => self.insert_values(&t, &places, named, v, outer, overriding)?,
                None => self.insert_query(&t, &places, named, q, outer, overriding)?,
            },
        };
        let columns = self.insert_columns(&t, &places, &given)?;
        let mut scope = Scope::inside(outer);
        (scope.rels, scope.star) = (names.rels.clone(), names.star.clone());
        let mut conflict = match &i.on {
            None => None,
            Some(ast::OnInsert::OnConflict(c)) => Some(self.on_conflict(&table, c, &row, &names)?),
            Some(_) => return Err(Error::unsupported("ON DUPLICATE KEY UPDATE")),
        };
        let updates = conflict.as_ref().is_some_and(|c| c.update.is_some());
        let updated = updates.then(|| self.slot("xmax"));
        let systems = scope.rels.iter_mut().filter_map(|r| r.system.as_mut());
        systems.for_each(|s| s.updated = updated);
        let (returning, cols) = self.returning(i.returning.as_deref(), &scope, row, t.def.id)?;
        if (returning.is_some() || self.stepwise)
            && let Some(u) = conflict.as_mut().and_then(|c| c.update.as_mut())
        {
            u.deltas.clear();
        }
        let root = Root::Insert(Insert {
            handle,
            input,
            columns,
            buffer,
            conflict,
            updated: updated.filter(|s| self.used[*s as usize]),
            returning,
        });
        Ok((root, cols))
    }

    /// The places of the columns that the statement lists, and whether it lists any: else all.
    pub(super) fn insert_places(
        &self,
        t: &Table,
        listed: &[ast::ObjectName],
    ) -> Result<(Vec<usize>, bool)> {
        let mut places: Vec<usize> = Vec::new();
        for c in listed {
            let at = self.assignable(t, c)?;
            if places.contains(&at) {
                return Err(Error::new(
                    SqlState::DUPLICATE_COLUMN,
                    format!(
                        "column \"{}\" specified more than once",
                        t.def.columns[at].name
                    ),
                ));
            }
            places.push(at);
        }
        let named = !places.is_empty();
        if !named {
            places = (0..t.def.columns.len())
                .filter(|&c| !t.def.columns[c].dropped)
                .collect();
        }
        Ok((places, named))
    }

    /// A value for each column of the table: what is given for these places, or the default.
    pub(super) fn insert_columns(
        &mut self,
        t: &Table,
        places: &[usize],
        given: &[Option<Expr>],
    ) -> Result<Vec<Expr>> {
        let mut columns = Vec::with_capacity(t.def.columns.len());
        for c in 0..t.def.columns.len() {
            let at = places.iter().position(|&p| p == c);
            let e = match at.and_then(|a| given.get(a)) {
                Some(Some(e)) => e.clone(),
                _ if t.def.columns[c].dropped => Expr::NULL,
                _ => self.default_of(t, c)?,
            };
            columns.push(e);
        }
        Ok(columns)
    }

    /// Checks a value given for an identity column or a generated one.
    fn check_identity(&self, t: &Table, at: usize, o: Overriding) -> Result<()> {
        let c = &t.def.columns[at];
        let identity = c.identity == Some(Identity::Always) && o == Overriding::No;
        if identity || c.generated {
            let e = Error::new(
                SqlState::GENERATED_ALWAYS,
                format!(
                    "cannot insert a non-DEFAULT value into column \"{}\"",
                    c.name
                ),
            )
            .detail(super::dml::of_itself(c));
            return Err(match c.generated {
                true => e,
                false => e.hint("Use OVERRIDING SYSTEM VALUE to override."),
            });
        }
        Ok(())
    }

    /// VALUES: each row's expressions take their columns' types at once.
    pub(super) fn insert_values(
        &mut self,
        t: &Table,
        places: &[usize],
        named: bool,
        v: &ast::Values,
        outer: &Scope<'_>,
        o: Overriding,
    ) -> Result<(Logical, Vec<Option<Expr>>, bool)> {
        let width = v.rows.first().map_or(0, |r| r.content.len());
        if v.rows.iter().any(|r| r.content.len() != width) {
            return Err(Error::new(
                SqlState::SYNTAX_ERROR,
                "VALUES lists must all be the same length",
            ));
        }
        check_width(width, places, named)?;
        let mut rows = Vec::with_capacity(v.rows.len());
        let mut buffer = false;
        for r in &v.rows {
            let mut row = Vec::with_capacity(width);
            for (e, &at) in r.content.iter().zip(places) {
                let c = &t.def.columns[at];
                let user = c.identity.is_some() && o == Overriding::User;
                row.push(if is_default(e) || user {
                    self.default_of(t, at)?
                } else {
                    self.check_identity(t, at, o)?;
                    let mut env = Env::plain(outer, "VALUES");
                    let b = self.expr(e, &mut env)?;
                    self.assign(b, &c.name, c.ty())?
                });
            }
            buffer |= row.iter().any(Expr::has_subquery);
            rows.push(row);
        }
        if let [_] = rows[..] {
            // One row needs no slots: the expressions themselves are the columns' sources.
            let row = rows.pop().expect("one");
            let given = row.into_iter().map(Some).collect();
            return Ok((Logical::once(), given, buffer));
        }
        let out: Vec<Slot> = (0..width)
            .map(|c| self.slot(format!("column{}", c + 1)))
            .collect();
        let given = out.iter().map(|&s| Some(Expr::Slot(s))).collect();
        let node = Logical::Values(Values { rows, out });
        Ok((node, given, buffer))
    }

    fn insert_query(
        &mut self,
        t: &Table,
        places: &[usize],
        named: bool,
        q: &ast::Query,
        outer: &Scope<'_>,
        o: Overriding,
    ) -> Result<(Logical, Vec<Option<Expr>>, bool)> {
        let types: Vec<ColumnType> = places.iter().map(|&c| t.def.columns[c].ty()).collect();
        let rel = self.query(q, outer, Some(&types))?;
        check_width(rel.cols.len(), places, named)?;
        let mut given = Vec::new();
        for (c, &at) in rel.cols.iter().zip(places) {
            let column = &t.def.columns[at];
            if column.identity.is_some() && o == Overriding::User {
                given.push(None);
                continue;
            }
            self.check_identity(t, at, o)?;
            let b = super::Bound {
                expr: Expr::Slot(c.slot),
                ty: c.ty,
            };
            given.push(Some(self.assign(b, &column.name, column.ty())?));
        }
        Ok((rel.node, given, true))
    }

    /// The relation `excluded` of ON CONFLICT: slots for the row that was not inserted.
    pub(super) fn excluded(&mut self, t: &Table) -> (Vec<Slot>, ScopeRel) {
        let mut slots = Vec::new();
        let mut columns = Vec::new();
        for (i, c) in t.def.columns.iter().enumerate() {
            let s = self.slot(format!("excluded.{}", c.name));
            slots.push(s);
            if !c.dropped {
                columns.push(ScopeColumn {
                    name: c.name.clone(),
                    expr: Expr::Slot(s),
                    ty: c.ty(),
                    origin: (t.def.id, i as i16 + 1),
                });
            }
        }
        let rel = ScopeRel {
            alias: "excluded".into(),
            schema: None,
            columns,
            system: None,
        };
        (slots, rel)
    }
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Overriding {
    No,
    System,
    User,
}

/// OVERRIDING SYSTEM|USER VALUE, as [`super::syntax`] left it in the column list; the columns without it.
pub(super) fn overriding(columns: &[ast::ObjectName]) -> (Overriding, &[ast::ObjectName]) {
    match columns.split_last() {
        Some((last, rest)) => match super::syntax::overriding_word(last) {
            Some("system") => (Overriding::System, rest),
            Some(_) => (Overriding::User, rest),
            None => (Overriding::No, columns),
        },
        None => (Overriding::No, &[]),
    }
}

fn check_width(given: usize, places: &[usize], named: bool) -> Result<()> {
    if given > places.len() {
        return Err(Error::new(
            SqlState::SYNTAX_ERROR,
            "INSERT has more expressions than target columns",
        ));
    }
    if given < places.len() && named {
        return Err(Error::new(
            SqlState::SYNTAX_ERROR,
            "INSERT has more target columns than expressions",
        ));
    }
    Ok(())
}
