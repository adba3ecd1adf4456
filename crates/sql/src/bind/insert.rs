//! INSERT.

use super::expr::Env;
use super::scope::ScopeRel;
use super::select::QCol;
use super::syntax::{is_default, values_of};
use super::through::{Target, Writable};
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
        let mut target = self.target(name, alias.as_ref(), privilege::INSERT)?;
        let rels = &mut target.names.rels;
        let systems = rels.iter_mut().filter_map(|r| r.system.as_mut());
        systems.for_each(|s| s.key = None);
        let (handle, row) = (target.storage()?, target.row());
        let t = target.table.table.clone();
        let (overriding, listed) = overriding(&i.columns);
        let places = self.insert_places(&target.columns, listed)?;
        let (input, given, buffer) = match &i.source {
            None => (Logical::once(), vec![], false),
            Some(q) => match values_of(q) {
                Some(v) => self.insert_values(&t, &places, v, outer, overriding)?,
                None => self.insert_query(&t, &places, q, outer, overriding)?,
            },
        };
        self.need_columns(
            &target.through,
            privilege::INSERT,
            places.given(given.len()),
        );
        let columns = self.insert_columns(&t, &places, &given)?;
        let mut conflict = match &i.on {
            None => None,
            Some(ast::OnInsert::OnConflict(c)) => Some(self.on_conflict(&target, c, &row)?),
            Some(_) => return Err(Error::unsupported("ON DUPLICATE KEY UPDATE")),
        };
        let Target {
            names, mut through, ..
        } = target;
        let mut scope = Scope::inside(outer);
        (scope.rels, scope.star) = (names.rels, names.star);
        let updates = conflict.as_ref().is_some_and(|c| c.update.is_some());
        let updated = updates.then(|| self.slot("xmax"));
        let systems = scope.rels.iter_mut().filter_map(|r| r.system.as_mut());
        systems.for_each(|s| s.updated = updated);
        let checks = through.take_checks(&row);
        let (returning, cols) = self.returning(i.returning.as_deref(), &scope, row, &through)?;
        if (returning.is_some() || checks.is_some() || self.stepwise)
            && let Some(u) = conflict.as_mut().and_then(|c| c.update.as_mut())
        {
            u.deltas.clear();
        }
        let root = Root::Insert(Insert {
            handle,
            input,
            columns,
            buffer: buffer || checks.as_ref().is_some_and(|c| c.early),
            conflict,
            updated: updated.filter(|s| self.used[*s as usize]),
            checks,
            returning,
        });
        Ok((root, cols))
    }

    /// The places of the columns that the statement lists, or of all.
    pub(super) fn insert_places(
        &self,
        to: &Writable,
        listed: &[ast::ObjectName],
    ) -> Result<Places> {
        if listed.is_empty() {
            let (at, beyond) = to.all();
            return Ok(Places {
                at,
                named: false,
                beyond,
                most: to.columns(),
            });
        }
        let mut places: Vec<usize> = Vec::new();
        let mut names = Vec::new();
        for c in listed {
            let at = self.assignable(to, c)?;
            let name = crate::catalog::split_name(c)?.1;
            if names.contains(&name) {
                return Err(Error::new(
                    SqlState::DUPLICATE_COLUMN,
                    format!("column \"{name}\" specified more than once"),
                ));
            }
            // Two names of a view for one column.
            if places.contains(&at) {
                return Err(to.twice(at));
            }
            names.push(name);
            places.push(at);
        }
        Ok(Places {
            most: places.len(),
            at: places,
            named: true,
            beyond: None,
        })
    }

    /// A value for each column of the table: what is given for these places, or the default.
    pub(super) fn insert_columns(
        &mut self,
        t: &Table,
        places: &Places,
        given: &[Option<Expr>],
    ) -> Result<Vec<Expr>> {
        let mut columns = Vec::with_capacity(t.def.columns.len());
        for c in 0..t.def.columns.len() {
            let at = places.at.iter().position(|&p| p == c);
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
        places: &Places,
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
        check_width(width, places)?;
        let mut rows = Vec::with_capacity(v.rows.len());
        let mut buffer = false;
        for r in &v.rows {
            let mut row = Vec::with_capacity(width);
            for (e, &at) in r.content.iter().zip(&places.at) {
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
        places: &Places,
        q: &ast::Query,
        outer: &Scope<'_>,
        o: Overriding,
    ) -> Result<(Logical, Vec<Option<Expr>>, bool)> {
        let types: Vec<ColumnType> = places.at.iter().map(|&c| t.def.columns[c].ty()).collect();
        let rel = self.query(q, outer, Some(&types))?;
        check_width(rel.cols.len(), places)?;
        let mut given = Vec::new();
        for (c, &at) in rel.cols.iter().zip(&places.at) {
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

    /// The relation `excluded` of ON CONFLICT: slots for the row that was not inserted, by the names of the target.
    pub(super) fn excluded(&mut self, target: &Target) -> Result<(Vec<Slot>, ScopeRel)> {
        let (t, first) = (&target.table.table, target.columns.slot(0));
        let mut slots = Vec::new();
        for c in &t.def.columns {
            slots.push(self.slot(format!("excluded.{}", c.name)));
        }
        let mut columns = target.names.star.clone();
        for c in &mut columns {
            if c.expr.has_subquery() {
                return Err(Error::unsupported(
                    "ON CONFLICT DO UPDATE of a view with a subquery in its select list",
                ));
            }
            c.expr.rewrite(&mut |e| {
                if let Expr::Slot(s) = e
                    && let Some(own) = slots.get(s.wrapping_sub(first) as usize)
                {
                    *s = *own;
                }
            });
        }
        let rel = ScopeRel {
            alias: "excluded".into(),
            schema: None,
            columns,
            system: None,
        };
        Ok((slots, rel))
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

/// The columns that values are given to, in the order of the values.
pub(super) struct Places {
    at: Vec<usize>,
    /// The statement lists them, so that each has a value.
    named: bool,
    /// What is wrong with one more value; none: that there is one.
    beyond: Option<Error>,
    /// Values that there are columns for, whether or not they may be written.
    most: usize,
}

impl Places {
    /// The columns that as many values are given to.
    pub fn given(&self, values: usize) -> impl Iterator<Item = usize> + Clone {
        self.at.iter().copied().take(values)
    }

    /// Nothing is given.
    pub fn none() -> Places {
        Places {
            at: vec![],
            named: false,
            beyond: None,
            most: 0,
        }
    }
}

fn check_width(given: usize, places: &Places) -> Result<()> {
    if let Some(e) = places.beyond.as_ref().filter(|_| given <= places.most)
        && given > places.at.len()
    {
        return Err(e.clone());
    }
    if given > places.at.len() {
        return Err(Error::new(
            SqlState::SYNTAX_ERROR,
            "INSERT has more expressions than target columns",
        ));
    }
    if given < places.at.len() && places.named {
        return Err(Error::new(
            SqlState::SYNTAX_ERROR,
            "INSERT has more target columns than expressions",
        ));
    }
    Ok(())
}
