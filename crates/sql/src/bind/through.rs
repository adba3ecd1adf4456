//! Writing through a view: the statement becomes one on the table behind the view.
//!
//! A view is *updatable* when its query is a plain SELECT from one table, or from one updatable view.
//!
//! | part of the statement | becomes |
//! |---|---|
//! | the view | its table; UPDATE and DELETE have the view's conditions beside their own |
//! | a column of the view that is a column of the table | that column |
//! | another column of the view, where it is read | its expression |
//! | another column of the view, where it is written | 0A000 |
//! | a right of the role on the view | that right, and the same right of the view's owner on the table |
//!
//! WITH CHECK OPTION keeps a view's conditions for new rows ([`RowChecks`]).
//!
//! Left out on purpose: defaults of a view's own columns. `SET c = DEFAULT` gives NULL, as in PostgreSQL where a view has none. Catalogs behind
//! views, which no statement writes.

use super::expr::Env;
use super::from::{Names, rename};
use super::window::Windows;
use super::{Binder, Bound, Scope, ScopeColumn, ScopeRel};
use crate::catalog::{Resolved, fold};
use crate::expr::{Expr, Slot};
use crate::logical::write::{ColumnSource, RowChecks, ViewCheck};
use crate::logical::{Need, TableRef};
use base::schema::{CheckOption, Relation, Table, ViewDef, privilege};
use base::{Error, Oid, Result, SqlState};
use sqlparser::ast::{self, TableAlias, TableFactor};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use txn::TableHandle;

/// What a statement writes: a table, by its own names or by those of a view over it.
pub(super) struct Target {
    pub table: TableRef,
    pub names: Names,
    pub columns: Writable,
    pub through: Through,
}

impl Target {
    /// The table's storage.
    pub fn storage(&self) -> Result<Arc<TableHandle>> {
        let handle = self.table.handle.clone();
        handle.ok_or_else(|| Error::internal("the catalog has no storage of a table"))
    }

    /// Slots of the table's row, by column.
    pub fn row(&self) -> Vec<Slot> {
        let columns = 0..self.table.table.def.columns.len();
        columns.map(|c| self.table.slot(c)).collect()
    }
}

/// The columns that a statement may name in order to write them.
#[derive(Clone)]
pub(super) struct Writable {
    pub table: Arc<Table>,
    /// The slot of the table's first column.
    base: Slot,
    view: Option<Rc<Columns>>,
}

/// The columns of a view.
struct Columns {
    view: String,
    /// What the statement does: the bit of its right.
    right: u32,
    columns: Vec<(String, Place)>,
    /// Of each column, its place in the relation that the view is over.
    below: Vec<Option<usize>>,
    /// By which of its columns a statement has named a column of the table: the table's, the view's. A view may have it twice.
    named: RefCell<Vec<(usize, usize)>>,
}

/// The table's column that a view's column is; else the view that computes it, and its name there.
type Place = Result<usize, (String, String)>;

impl Writable {
    /// The slot of a column of the table.
    pub fn slot(&self, column: usize) -> Slot {
        self.base + column as Slot
    }

    /// Whether the statement names a view.
    pub fn is_view(&self) -> bool {
        self.view.is_some()
    }

    /// The relation that the statement names.
    pub fn relation(&self) -> &str {
        match &self.view {
            Some(v) => &v.view,
            None => &self.table.def.name,
        }
    }

    /// The table's column of this name; none: there is no such column. 0A000 for one that a view computes.
    pub fn find(&self, name: &str) -> Result<Option<usize>> {
        let Some(v) = &self.view else {
            return Ok(self.table.column(name).map(usize::from));
        };
        let Some(number) = v.columns.iter().position(|c| c.0 == name) else {
            return Ok(None);
        };
        let at = v.place(&v.columns[number].1)?;
        v.named.borrow_mut().push((at, number));
        Ok(Some(at))
    }

    /// How many columns a statement sees.
    pub fn columns(&self) -> usize {
        let columns = &self.table.def.columns;
        let live = || columns.iter().filter(|c| !c.dropped).count();
        self.view.as_ref().map_or_else(live, |v| v.columns.len())
    }

    /// All columns, in the order in which values are given to them; what follows the last one that may be written so.
    pub fn all(&self) -> (Vec<usize>, Option<Error>) {
        let Some(v) = &self.view else {
            let live = |c: &usize| !self.table.def.columns[*c].dropped;
            return (
                (0..self.table.def.columns.len()).filter(live).collect(),
                None,
            );
        };
        let mut places = vec![];
        for (_, at) in &v.columns {
            match v.place(at) {
                Ok(at) if places.contains(&at) => return (places, Some(self.twice(at))),
                Ok(at) => places.push(at),
                Err(e) => return (places, Some(e)),
            }
        }
        (places, None)
    }

    /// A statement gives a column two values by two names.
    pub fn twice(&self, at: usize) -> Error {
        let name = &self.table.def.columns[at].name;
        let what = format!("multiple assignments to same column \"{name}\"");
        Error::new(SqlState::SYNTAX_ERROR, what)
    }
}

impl Columns {
    /// The view's column by which the statement has named a column of the table last; else the first one that it is.
    fn name_of(&self, column: usize) -> Option<usize> {
        let named = self.named.borrow();
        let last = named.iter().rfind(|(at, _)| *at == column);
        let is = |c: &(String, Place)| c.1.as_ref().is_ok_and(|at| *at == column);
        let first = || self.columns.iter().position(is);
        last.map(|(_, number)| *number).or_else(first)
    }

    fn place(&self, at: &Place) -> Result<usize> {
        at.clone().map_err(|(view, column)| {
            let verb = match self.right {
                privilege::INSERT => "insert into",
                _ => "update",
            };
            Error::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                format!("cannot {verb} column \"{column}\" of view \"{view}\""),
            )
            .detail("View columns that are not columns of their base relation are not updatable.")
        })
    }
}

/// A relation on the way from a statement to its table.
struct Level {
    /// The view in whose query it is named; 0: the statement names it.
    around: Oid,
    relation: Oid,
    /// The columns of a view; none: those of the table.
    view: Option<Rc<Columns>>,
}

/// What the views between a statement and its table add to the statement.
#[derive(Default)]
pub(super) struct Through {
    /// The conditions of the views' rows, over the table's row.
    pub filter: Vec<Expr>,
    checks: Vec<ViewCheck>,
    /// The table and the views over it.
    relations: Vec<Level>,
    /// Slots of the table's row that the conditions read.
    read: Vec<Slot>,
    /// A column of a view is a subquery that reads nothing of the row, so that no slot tells whether the statement reads it.
    apart: bool,
}

impl Through {
    /// What new rows have to satisfy.
    pub fn take_checks(&mut self, row: &[Slot]) -> Option<RowChecks> {
        let views = std::mem::take(&mut self.checks);
        let mut conditions = views.iter().flat_map(|v| &v.conditions);
        let early = conditions.any(Expr::has_subquery);
        (!views.is_empty()).then(|| RowChecks {
            row: row.to_vec(),
            views,
            early,
        })
    }
}

impl Binder<'_> {
    /// What a statement with this right writes.
    pub(super) fn target(
        &mut self,
        name: &ast::ObjectName,
        alias: Option<&TableAlias>,
        right: u32,
    ) -> Result<Target> {
        let found = self.relation(name).map_err(|e| match name.0.first() {
            Some(ast::ObjectNamePart::Identifier(i)) => e.at(self.position(i.span.start)),
            _ => e,
        })?;
        self.target_of(found, alias, right, false)
    }

    /// `cascaded`: a view above has WITH CASCADED CHECK OPTION.
    fn target_of(
        &mut self,
        found: Resolved,
        alias: Option<&TableAlias>,
        right: u32,
        cascaded: bool,
    ) -> Result<Target> {
        let schema = &self.cx.catalog.schema;
        let schema = schema.namespace(found.namespace()).map(|n| n.name.clone());
        let around = self.views.last().copied().unwrap_or(0);
        match found {
            Resolved::Relation(Relation::Table(t)) => {
                self.need(t.def.id, right);
                let (table, names) = self.table(&t, alias, schema)?;
                let columns = Writable {
                    base: table.base,
                    table: t,
                    view: None,
                };
                let through = Through {
                    relations: vec![Level {
                        around,
                        relation: columns.table.def.id,
                        view: None,
                    }],
                    ..Through::default()
                };
                Ok(Target {
                    table,
                    names,
                    columns,
                    through,
                })
            }
            Resolved::Relation(Relation::View(v)) => {
                self.need(v.id, right);
                let mut target = self.through(&v, right, cascaded)?;
                target.through.relations.push(Level {
                    around,
                    relation: v.id,
                    view: target.columns.view.clone(),
                });
                // Its only relation has the view's name.
                let mut rel = target.names.rels.remove(0);
                rel.schema = schema;
                if let Some(a) = alias {
                    (rel.alias, rel.schema) = (fold(&a.name), None);
                }
                target.names = Names::one(rename(rel, alias)?);
                Ok(target)
            }
            Resolved::Virtual(v) => Err(Error::new(
                SqlState::INSUFFICIENT_PRIVILEGE,
                format!("permission denied for table {}", v.name()),
            )),
            other => Err(Error::new(
                SqlState::WRONG_OBJECT_TYPE,
                format!("cannot write to relation \"{}\"", other.name()),
            )),
        }
    }

    /// The table behind a view. 55000 when it is not updatable, with the reason as its detail.
    fn through(&mut self, v: &Arc<ViewDef>, right: u32, cascaded: bool) -> Result<Target> {
        let query = super::parse_query(&v.query)?;
        let (select, name, alias) = only_relation(&query).map_err(|why| refuse(v, right, why))?;
        let cascaded = cascaded || v.check_option == Some(CheckOption::Cascaded);
        let checked = cascaded || v.check_option.is_some();
        self.enter()?;
        let target = self.within_view(v, |b| {
            let found = b.relation(name)?;
            if let Resolved::Relation(Relation::Sequence(_)) = found {
                return Err(refuse(v, right, SINGLE));
            }
            let mut target = b.target_of(found, alias, right, cascaded)?;
            let root = Scope::root();
            let mut scope = Scope::inside(&root);
            scope.rels.clone_from(&target.names.rels);
            scope.star.clone_from(&target.names.star);
            let row = target.row();
            let listed = b.view_columns(v, select, &scope, right)?;
            b.unread(&row);
            let apart = |e: &Expr| {
                let mut reads = false;
                e.slots(&mut |s| reads |= row.contains(&s));
                !reads && e.has_subquery()
            };
            target.through.apart |= listed.iter().any(|(c, _)| apart(&c.expr));
            if right != privilege::INSERT || checked {
                let conditions = b.where_clause(select.selection.as_ref(), &scope)?;
                target.through.read.extend(b.unread(&row));
                if checked && !conditions.is_empty() {
                    target.through.checks.push(ViewCheck {
                        view: v.name.clone(),
                        conditions: conditions.clone(),
                    });
                }
                target.through.filter.extend(conditions);
            }
            target.show(v, right, listed);
            Ok(target)
        })?;
        self.depth -= 1;
        let columns = target.columns.view.as_ref();
        let some = columns.is_some_and(|v| v.columns.iter().any(|c| c.1.is_ok()));
        if right != privilege::DELETE && !some {
            return Err(refuse(v, right, NO_COLUMNS));
        }
        Ok(target)
    }

    /// The select list of a view, over the columns behind it.
    fn view_columns(
        &mut self,
        v: &ViewDef,
        select: &ast::Select,
        scope: &Scope<'_>,
        right: u32,
    ) -> Result<Vec<(Bound, (Oid, i16))>> {
        let mut env = Env {
            aggs: Some(vec![]),
            sets: Some(vec![]),
            windows: Some(Windows {
                named: &select.named_window,
                calls: vec![],
            }),
            ..Env::plain(scope, "SELECT")
        };
        let targets = self.targets(&select.projection, &mut env)?;
        let refused = [
            (
                env.aggs.is_some_and(|a| !a.is_empty()),
                "Views that return aggregate functions are not automatically updatable.",
            ),
            (
                env.windows.is_some_and(|w| !w.calls.is_empty()),
                "Views that return window functions are not automatically updatable.",
            ),
            (
                env.sets.is_some_and(|s| !s.is_empty()),
                "Views that return set-returning functions are not automatically updatable.",
            ),
        ];
        if let Some((_, why)) = refused.iter().find(|(r, _)| *r) {
            return Err(refuse(v, right, why));
        }
        let mut listed = Vec::with_capacity(targets.len());
        // A view of an older build may say `*` of a table that has more columns today.
        for t in targets.into_iter().take(v.columns.len()) {
            listed.push((self.settle(t.bound)?, t.origin));
        }
        Ok(listed)
    }

    /// Which slots of a row are marked as read; they are not any more.
    fn unread(&mut self, row: &[Slot]) -> Vec<Slot> {
        let taken = |s: &Slot| std::mem::take(&mut self.used[*s as usize]);
        row.iter().copied().filter(taken).collect()
    }

    /// Marks what the views' conditions read.
    pub(super) fn read_through(&mut self, through: &Through) {
        for s in &through.read {
            self.used[*s as usize] = true;
        }
    }

    /// Notes that these rights on the target are needed, on the views as on the table.
    pub(super) fn need_target(&mut self, through: &Through, bits: u32) {
        for level in &through.relations {
            self.need_in(level.around, level.relation, bits);
        }
    }

    /// Notes that the statement writes these columns of the table, or reads them to decide: SELECT, INSERT or UPDATE is needed on them, on the
    /// views as on the table.
    pub(super) fn need_columns(
        &mut self,
        through: &Through,
        right: u32,
        columns: impl Iterator<Item = usize>,
    ) {
        for column in columns {
            let named = through.relations.last().and_then(|l| l.view.as_ref());
            let mut at = named.map_or(Some(column), |v| v.name_of(column));
            // From what the statement names to the table.
            for level in through.relations.iter().rev() {
                let same = |n: &&mut Need| n.relation == level.relation && n.view == level.around;
                if let Some(n) = self.privileges.iter_mut().find(same) {
                    let set = match right {
                        privilege::INSERT => &mut n.inserted,
                        privilege::UPDATE => &mut n.updated,
                        _ => &mut n.read,
                    };
                    set.insert(at.map_or(0, |at| at as u16 + 1));
                }
                if let Some(v) = &level.view {
                    at = at.and_then(|at| v.below[at]);
                }
            }
        }
    }

    /// [`Binder::need_columns`] of the columns that SET names.
    pub(super) fn need_assigned(&mut self, through: &Through, columns: &[ColumnSource]) {
        let set = |c: &(usize, &ColumnSource)| !matches!(c.1, ColumnSource::Keep);
        let set = columns.iter().enumerate().filter(set);
        self.need_columns(through, privilege::UPDATE, set.map(|(at, _)| at));
    }

    /// Notes that the target's rows are read, if the statement names something of a row, or may. What an assignment to a part of a column keeps of
    /// it is not read.
    pub(super) fn need_read(&mut self, through: &Through) {
        let target = through.relations.last().expect("the relation named");
        let same = |n: &&Need| n.relation == target.relation && n.view == target.around;
        let noted = self.privileges.iter().find(same);
        if through.apart || noted.is_some_and(|n| !n.read.is_empty()) {
            self.need_target(through, privilege::SELECT);
        }
    }

    /// Which columns of a view may be written; 55000 for a view that is not updatable.
    pub(crate) fn writable_columns(&mut self, v: &ViewDef) -> Result<Vec<bool>> {
        let target = self.through(&Arc::new(v.clone()), privilege::DELETE, false)?;
        let columns = target.columns.view.iter().flat_map(|v| &v.columns);
        Ok(columns.map(|c| c.1.is_ok()).collect())
    }
}

impl Target {
    /// Gives the table the names of a view.
    fn show(&mut self, v: &ViewDef, right: u32, listed: Vec<(Bound, (Oid, i16))>) {
        let mut rel = ScopeRel {
            alias: v.name.clone(),
            schema: None,
            columns: vec![],
            system: None,
        };
        let (mut columns, mut below) = (vec![], vec![]);
        for (i, (c, (bound, origin))) in v.columns.iter().zip(listed).enumerate() {
            let place = self.place(v, &c.name, &bound, origin);
            below.push(match self.columns.is_view() {
                true => self.column_below(origin),
                false => place.as_ref().ok().copied(),
            });
            columns.push((c.name.clone(), place));
            rel.columns.push(ScopeColumn {
                name: c.name.clone(),
                expr: bound.expr,
                ty: bound.ty,
                origin: (v.id, i as i16 + 1),
            });
        }
        self.names = Names::one(rel);
        self.columns.view = Some(Rc::new(Columns {
            view: v.name.clone(),
            right,
            columns,
            below,
            named: RefCell::default(),
        }));
    }

    /// The place of a column in the relation that a view is over.
    fn column_below(&self, origin: (Oid, i16)) -> Option<usize> {
        let is = |c: &ScopeColumn| c.origin == origin && origin.0 != 0;
        self.names.star.iter().position(is)
    }

    /// What a column of a view is behind it.
    fn place(&self, v: &ViewDef, name: &str, bound: &Bound, origin: (Oid, i16)) -> Place {
        let below = self.column_below(origin);
        if let (Some(at), Some(inner)) = (below, &self.columns.view) {
            return inner.columns[at].1.clone();
        }
        let columns = &self.table.table.def.columns;
        let is = |c: &usize| {
            matches!(bound.expr, Expr::Slot(s) if s == self.table.slot(*c))
                && bound.ty == columns[*c].ty()
        };
        let computed = || (v.name.clone(), name.to_owned());
        (0..columns.len()).find(is).ok_or_else(computed)
    }
}

const SINGLE: &str =
    "Views that do not select from a single table or view are not automatically updatable.";
const NO_COLUMNS: &str = "Views that have no updatable columns are not automatically updatable.";

fn refuse(v: &ViewDef, right: u32, why: &str) -> Error {
    let verb = match right {
        privilege::INSERT => "insert into",
        privilege::UPDATE => "update",
        _ => "delete from",
    };
    Error::new(
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("cannot {verb} view \"{}\"", v.name),
    )
    .detail(why)
}

/// The SELECT of an updatable view and its relation; else the reason why it is none.
fn only_relation(
    q: &ast::Query,
) -> Result<(&ast::Select, &ast::ObjectName, Option<&TableAlias>), &'static str> {
    let s = match &*q.body {
        ast::SetExpr::Select(s) => s,
        ast::SetExpr::SetOperation { .. } => {
            return Err(
                "Views containing UNION, INTERSECT, or EXCEPT are not automatically updatable.",
            );
        }
        _ => return Err(SINGLE),
    };
    let grouped = !matches!(&s.group_by, ast::GroupByExpr::Expressions(e, _) if e.is_empty());
    let distinct = !matches!(s.distinct, None | Some(ast::Distinct::All));
    let refused = [
        (
            distinct,
            "Views containing DISTINCT are not automatically updatable.",
        ),
        (
            grouped,
            "Views containing GROUP BY are not automatically updatable.",
        ),
        (
            s.having.is_some(),
            "Views containing HAVING are not automatically updatable.",
        ),
        (
            q.with.is_some(),
            "Views containing WITH are not automatically updatable.",
        ),
        (
            q.limit_clause.is_some() || q.fetch.is_some(),
            "Views containing LIMIT or OFFSET are not automatically updatable.",
        ),
    ];
    if let Some((_, why)) = refused.iter().find(|(r, _)| *r) {
        return Err(why);
    }
    match &s.from[..] {
        [one] if one.joins.is_empty() => match &one.relation {
            TableFactor::Table {
                name,
                alias,
                args: None,
                sample: None,
                ..
            } => Ok((s, name, alias.as_ref())),
            _ => Err(SINGLE),
        },
        _ => Err(SINGLE),
    }
}
