//! UPDATE and DELETE, and what all writing statements share: targets, assignments, RETURNING.

use super::expr::Env;
use super::from::Names;
use super::select::QCol;
use super::syntax::is_default;
use super::through::{Target, Through, Writable};
use super::{Binder, Bound, Scope};
use crate::catalog::split_name;
use crate::expr::{Expr, Slot};
use crate::functions::NEXT_IDENTITY;
use crate::logical::write::{ColumnSource, Delete, Returning, Update};
use crate::logical::{From, Logical, Root, StatementKind, TableRef};
use base::schema::{Identity, Relation, Table, privilege};
use base::{Error, Result, SqlState};
use sqlparser::ast::{
    self, Assignment, AssignmentTarget, Expr as Ast, SelectItem, TableAlias, TableFactor,
    TableWithJoins, UpdateTableFromKind,
};

/// How many assignments to elements and fields a statement may have. Each is an expression over the one before it of the same column, and
/// expressions are walked by recursion.
const MOST_PARTS: usize = 3000;

impl Binder<'_> {
    /// The value of a column's DEFAULT, NULL without one. Identity columns take the next value of their sequence.
    pub(super) fn default_of(&mut self, t: &Table, column: usize) -> Result<Expr> {
        let c = &t.def.columns[column];
        if c.identity.is_some() {
            let schema = &self.cx.catalog.schema;
            let sequence = schema.relations().find_map(|r| match r {
                Relation::Sequence(s) if s.owned_by == Some((t.def.id, column as u16)) => {
                    Some(s.id)
                }
                _ => None,
            });
            let id = sequence.ok_or_else(|| {
                Error::internal(format!("identity column \"{}\" has no sequence", c.name))
            })?;
            let arg = Bound::new(Expr::Const(base::Value::Oid(id)), base::Type::RegClass);
            let next = self.call(NEXT_IDENTITY, vec![arg])?;
            return self.assign(next, &c.name, c.ty());
        }
        // A generated column is computed when the row is written.
        let Some(text) = c.default.as_ref().filter(|_| !c.generated) else {
            return Ok(Expr::NULL);
        };
        let e = super::syntax::parse_expr(text)?;
        let scope = Scope::root();
        let mut env = Env::plain(&scope, "DEFAULT expressions");
        let stored = std::mem::replace(&mut self.stored, true);
        let b = self.expr(&e, &mut env);
        self.stored = stored;
        let b = b?;
        self.assign(b, &c.name, c.ty())
    }

    /// The column of this name that may be assigned.
    pub(super) fn assignable(&self, to: &Writable, name: &ast::ObjectName) -> Result<usize> {
        let (qualifier, column) = split_name(name)?;
        let missing = |shown: &str| {
            Error::new(
                SqlState::UNDEFINED_COLUMN,
                format!(
                    "column \"{shown}\" of relation \"{}\" does not exist",
                    to.relation()
                ),
            )
        };
        // `SET t.c` names the field c of a composite column t.
        if let Some(q) = qualifier {
            return Err(missing(&q));
        }
        to.find(&column)?.ok_or_else(|| {
            let at = match name.0.first() {
                Some(ast::ObjectNamePart::Identifier(i)) => self.position(i.span.start),
                _ => 0,
            };
            missing(&column).at(at)
        })
    }

    /// SET clauses: a source per column of the table.
    pub(super) fn assignments(
        &mut self,
        to: &Writable,
        list: &[Assignment],
        scope: &Scope<'_>,
    ) -> Result<Vec<ColumnSource>> {
        let mut out = vec![ColumnSource::Keep; to.table.def.columns.len()];
        let of_part =
            |a: &&Assignment| matches!(&a.target, AssignmentTarget::ColumnName(n) if n.0.len() > 1);
        let parts = list.iter().filter(of_part).count();
        if parts > MOST_PARTS {
            let what = "stack depth limit exceeded";
            return Err(
                Error::new(SqlState::STATEMENT_TOO_COMPLEX, what).hint(format!(
                    "A statement may assign to at most {MOST_PARTS} elements and fields."
                )),
            );
        }
        self.deepest = self.deepest.max(parts);
        for a in list {
            match &a.target {
                AssignmentTarget::ColumnName(n) if super::syntax::subscripts(n).is_some() => {
                    self.assign_element(to, n, &a.value, scope, &mut out)?;
                }
                AssignmentTarget::ColumnName(n) => match Self::field_target(to, n)? {
                    Some(target) => self.assign_field(to, target, &a.value, scope, &mut out)?,
                    None => {
                        let at = self.assignable(to, n)?;
                        self.assign_one(to, at, &a.value, scope, &mut out)?;
                    }
                },
                AssignmentTarget::Tuple(names) => {
                    let mut places = Vec::new();
                    for n in names {
                        places.push(self.assignable(to, n)?);
                    }
                    self.assign_many(to, &places, &a.value, scope, &mut out)?;
                }
            }
        }
        Ok(out)
    }

    fn put_source(to: &Writable, at: usize, e: Expr, out: &mut [ColumnSource]) -> Result<()> {
        if !matches!(out[at], ColumnSource::Keep) {
            return Err(to.twice(at));
        }
        out[at] = ColumnSource::Expr(e);
        Ok(())
    }

    fn assign_one(
        &mut self,
        to: &Writable,
        at: usize,
        value: &Ast,
        scope: &Scope<'_>,
        out: &mut [ColumnSource],
    ) -> Result<()> {
        let c = &to.table.def.columns[at];
        let e = if is_default(value) && !to.is_view() {
            self.default_of(&to.table, at)?
        } else {
            if c.identity == Some(Identity::Always) || c.generated {
                return Err(Error::new(
                    SqlState::GENERATED_ALWAYS,
                    format!("column \"{}\" can only be updated to DEFAULT", c.name),
                )
                .detail(of_itself(c)));
            }
            match is_default(value) {
                // A view's own default: it has none.
                true => Expr::NULL,
                false => {
                    let mut env = Env::plain(scope, "UPDATE");
                    let b = self.expr(value, &mut env)?;
                    self.assign(b, &c.name, c.ty())?
                }
            }
        };
        Self::put_source(to, at, e, out)
    }

    fn assign_many(
        &mut self,
        to: &Writable,
        places: &[usize],
        value: &Ast,
        scope: &Scope<'_>,
        out: &mut [ColumnSource],
    ) -> Result<()> {
        let mismatch = || {
            Error::new(
                SqlState::SYNTAX_ERROR,
                "number of columns does not match number of values",
            )
        };
        if let Some(items) = self.row_items(value) {
            if items.len() != places.len() {
                return Err(mismatch());
            }
            for (&at, v) in places.iter().zip(items) {
                self.assign_one(to, at, v, scope, out)?;
            }
            return Ok(());
        }
        match value {
            Ast::Nested(e) if places.len() == 1 => self.assign_one(to, places[0], e, scope, out),
            Ast::Subquery(q) => {
                // Each column reads its own copy of the query.
                for (i, &at) in places.iter().enumerate() {
                    let one = one_column_of(q, i, places.len()).ok_or_else(mismatch)?;
                    let sub = Ast::Subquery(Box::new(one));
                    self.assign_one(to, at, &sub, scope, out)?;
                }
                Ok(())
            }
            e if places.len() == 1 => self.assign_one(to, places[0], e, scope, out),
            _ => Err(Error::unsupported(
                "this source of a multiple-column UPDATE",
            )),
        }
    }

    /// RETURNING over the target's row.
    pub(super) fn returning(
        &mut self,
        items: Option<&[SelectItem]>,
        scope: &Scope<'_>,
        row: Vec<Slot>,
        through: &Through,
    ) -> Result<(Option<Returning>, Vec<QCol>)> {
        let Some(items) = items else {
            return Ok((None, vec![]));
        };
        let mut env = Env::plain(scope, "RETURNING");
        let mut targets = self.targets(items, &mut env)?;
        self.need_read(through);
        for t in &mut targets {
            t.bound = self.settle(t.bound.clone())?;
        }
        let mut exprs = Vec::new();
        let mut cols = Vec::new();
        for t in targets {
            let slot = match t.bound.expr {
                Expr::Slot(s) => s,
                e => {
                    let s = self.slot(String::new());
                    exprs.push((s, e));
                    s
                }
            };
            cols.push(QCol {
                name: t.name,
                slot,
                ty: t.bound.ty,
                origin: t.origin,
            });
        }
        let outputs = cols.iter().map(|c| c.slot).collect();
        let r = Returning {
            row,
            exprs,
            outputs,
        };
        Ok((Some(r), cols))
    }

    pub(super) fn key_slot(&mut self, t: &mut TableRef) -> Slot {
        let s = self.slot(format!("{}.key", t.alias));
        self.used[s as usize] = true;
        t.key_slot = Some(s);
        s
    }

    pub(super) fn update(
        &mut self,
        u: &ast::Update,
        outer: &Scope<'_>,
    ) -> Result<(Root, Vec<QCol>)> {
        if u.or.is_some() || u.output.is_some() || !u.order_by.is_empty() || u.limit.is_some() {
            return Err(Error::unsupported("this form of UPDATE"));
        }
        let (name, alias) = plain_table(&u.table, "UPDATE")?;
        let target = self.target(name, alias, privilege::UPDATE)?;
        let (handle, row) = (target.storage()?, target.row());
        let Target {
            mut table,
            names,
            columns: writable,
            mut through,
        } = target;
        let key_slot = self.key_slot(&mut table);
        let alias = table.alias.clone();
        let from: &[TableWithJoins] = match &u.from {
            None => &[],
            Some(UpdateTableFromKind::BeforeSet(f) | UpdateTableFromKind::AfterSet(f)) => f,
        };
        let (mut items, scope) = self.with_target(from, names, outer)?;
        items.insert(0, From::Table(table));
        let columns = self.assignments(&writable, &u.assignments, &scope)?;
        self.need_assigned(&through, &columns);
        let mut filter = std::mem::take(&mut through.filter);
        filter.extend(self.where_clause(u.selection.as_ref(), &scope)?);
        self.need_read(&through);
        let (returning, cols) =
            self.returning(u.returning.as_deref(), &scope, row.clone(), &through)?;
        self.read_through(&through);
        let checks = through.take_checks(&row);
        let free =
            |(i, c): (usize, &ColumnSource)| matches!(c, ColumnSource::Keep) || handle.is_free(i);
        // The new row is needed whole.
        let whole = returning.is_some() || checks.is_some() || self.stepwise;
        let in_place = !whole && columns.iter().enumerate().all(free);
        // What stays as it is must be read, unless the row is changed where it stands.
        for (c, &s) in columns.iter().zip(&row) {
            if matches!(c, ColumnSource::Keep) && !in_place {
                self.used[s as usize] = true;
            }
        }
        let joined = items.len() > 1;
        let by_deltas = match joined || whole {
            true => None,
            false => super::split::of_update(&handle, &columns, &row, &filter),
        };
        let (split, filter) = match by_deltas {
            None => (None, filter),
            Some((split, rest)) => {
                // Neither what is added nor the guards are read by the scan.
                split
                    .deltas
                    .iter()
                    .for_each(|d| self.used[row[d.column] as usize] = false);
                if let Some(From::Table(t)) = items.first_mut() {
                    t.adds = true;
                }
                (Some(split), rest)
            }
        };
        let input = Logical::Join { items, filter };
        let root = Root::Update(Update {
            handle,
            alias,
            input,
            key_slot,
            row,
            columns,
            split,
            joined,
            in_place,
            checks,
            returning,
        });
        Ok((root, cols))
    }

    pub(super) fn delete(
        &mut self,
        d: &ast::Delete,
        outer: &Scope<'_>,
    ) -> Result<(Root, Vec<QCol>)> {
        if !d.tables.is_empty() || d.output.is_some() || !d.order_by.is_empty() || d.limit.is_some()
        {
            return Err(Error::unsupported("this form of DELETE"));
        }
        let (ast::FromTable::WithFromKeyword(tables) | ast::FromTable::WithoutKeyword(tables)) =
            &d.from;
        let [target] = &tables[..] else {
            return Err(Error::new(
                SqlState::SYNTAX_ERROR,
                "DELETE takes one table; others go behind USING",
            ));
        };
        let (name, alias) = plain_table(target, "DELETE")?;
        let target = self.target(name, alias, privilege::DELETE)?;
        let (handle, row) = (target.storage()?, target.row());
        let Target {
            mut table,
            names,
            mut through,
            ..
        } = target;
        let key_slot = self.key_slot(&mut table);
        let alias = table.alias.clone();
        let using = d.using.as_deref().unwrap_or(&[]);
        let (mut items, scope) = self.with_target(using, names, outer)?;
        items.insert(0, From::Table(table));
        let mut filter = std::mem::take(&mut through.filter);
        filter.extend(self.where_clause(d.selection.as_ref(), &scope)?);
        self.need_read(&through);
        let (returning, cols) = self.returning(d.returning.as_deref(), &scope, row, &through)?;
        self.read_through(&through);
        let joined = items.len() > 1;
        let input = Logical::Join { items, filter };
        let root = Root::Delete(Delete {
            handle,
            alias,
            input,
            key_slot,
            joined,
            returning,
        });
        Ok((root, cols))
    }

    /// The scope of a target and the relations beside it.
    fn with_target<'p>(
        &mut self,
        from: &'p [TableWithJoins],
        target: Names,
        outer: &'p Scope<'p>,
    ) -> Result<(Vec<From>, Scope<'p>)> {
        let (items, mut scope) = self.bind_from(from, outer)?;
        for r in &scope.rels {
            if r.alias == target.rels[0].alias {
                return Err(Error::new(
                    SqlState::DUPLICATE_ALIAS,
                    format!("table name \"{}\" specified more than once", r.alias),
                ));
            }
        }
        scope.rels.splice(0..0, target.rels);
        scope.star.splice(0..0, target.star);
        Ok((items, scope))
    }

    pub(super) fn where_clause(&mut self, e: Option<&Ast>, scope: &Scope<'_>) -> Result<Vec<Expr>> {
        let mut filter = Vec::new();
        if let Some(e) = e {
            if let Ast::Function(f) = e
                && f.name.to_string().eq_ignore_ascii_case("current of")
            {
                return Err(Error::unsupported("WHERE CURRENT OF"));
            }
            let mut env = Env::plain(scope, "WHERE");
            let b = self.expr(e, &mut env)?;
            self.condition(b, "WHERE")?.conjuncts(&mut filter);
        }
        Ok(filter)
    }

    /// `WITH … INSERT | UPDATE | DELETE | MERGE`.
    pub(super) fn write_with(
        &mut self,
        q: &ast::Query,
        stmt: &ast::Statement,
        scope: &Scope<'_>,
    ) -> Result<(StatementKind, Root, Vec<QCol>)> {
        let mut found: Option<(StatementKind, Root, Vec<QCol>)> = None;
        let mut body = |b: &mut Self, s: &Scope<'_>| {
            let (kind, (root, cols)) = match stmt {
                ast::Statement::Insert(i) => (StatementKind::Insert, b.insert(i, s)?),
                ast::Statement::Update(u) => (StatementKind::Update, b.update(u, s)?),
                ast::Statement::Delete(d) => (StatementKind::Delete, b.delete(d, s)?),
                ast::Statement::Merge(m) => (StatementKind::Merge, b.merge(m, s)?),
                _ => return Err(Error::unsupported("this statement behind WITH")),
            };
            found = Some((kind, root, cols));
            // The WITH wraps this placeholder; its CTEs are moved into the statement's input below.
            Ok(super::Rel {
                node: Logical::once(),
                cols: vec![],
            })
        };
        if matches!(stmt, ast::Statement::Merge(_)) && q.with.as_ref().is_some_and(|w| w.recursive)
        {
            return Err(Error::new(
                SqlState::SYNTAX_ERROR,
                "WITH RECURSIVE is not supported for MERGE statement",
            ));
        }
        let wrapped = match &q.with {
            Some(w) => self.with(w, 0, scope, &mut body)?,
            None => body(self, scope)?,
        };
        let (kind, mut root, cols) = found.expect("the body ran");
        let input = match &mut root {
            Root::Insert(i) => {
                i.buffer = true;
                &mut i.input
            }
            Root::Update(u) => &mut u.input,
            Root::Delete(d) => &mut d.input,
            Root::Merge(m) => &mut m.input,
            Root::Rows(n) => n,
        };
        let inner = std::mem::replace(input, Logical::once());
        *input = rewrap(wrapped.node, inner);
        Ok((kind, root, cols))
    }
}

/// Why a column is not given a value.
pub(super) fn of_itself(c: &base::schema::Column) -> String {
    match c.generated {
        true => format!("Column \"{}\" is a generated column.", c.name),
        false => format!(
            "Column \"{}\" is an identity column defined as GENERATED ALWAYS.",
            c.name
        ),
    }
}

/// Puts `inner` in the place of the innermost input of a chain of WITHs.
fn rewrap(outer: Logical, inner: Logical) -> Logical {
    match outer {
        Logical::With { ctes, input } => Logical::With {
            ctes,
            input: Box::new(rewrap(*input, inner)),
        },
        _ => inner,
    }
}

fn plain_table<'t>(
    t: &'t TableWithJoins,
    what: &str,
) -> Result<(&'t ast::ObjectName, Option<&'t TableAlias>)> {
    match &t.relation {
        TableFactor::Table {
            name,
            alias,
            args: None,
            ..
        } if t.joins.is_empty() => Ok((name, alias.as_ref())),
        _ => Err(Error::new(
            SqlState::SYNTAX_ERROR,
            format!("{what} takes one table by name"),
        )),
    }
}

/// A query that gives column `i` of a SELECT with `n` columns.
fn one_column_of(q: &ast::Query, i: usize, n: usize) -> Option<ast::Query> {
    let mut one = q.clone();
    let ast::SetExpr::Select(s) = &mut *one.body else {
        return None;
    };
    if s.projection.len() != n {
        return None;
    }
    s.projection = vec![s.projection[i].clone()];
    Some(one)
}
