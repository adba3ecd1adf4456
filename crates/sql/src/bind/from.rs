//! FROM: relations, joins, and what their columns are called.
//!
//! A view, or a derived table, that is a plain SELECT melts into the query around it: its relations and conditions join
//! the others, its columns stand for their expressions. Everything else is planned on its own.

use super::cte::CteSource;
use super::expr::Env;
use super::locking::RowLock;
use super::scope::{CteKind, Meaning, ScopeColumn, ScopeRel};
use super::select::Selected;
use super::{Binder, Rel, Scope};
use crate::catalog::{Resolved, VirtualTable, fold, split_name};
use crate::ddl::privileges::is_closed;
use crate::expr::{Expr, Slot};
use crate::logical::from::{Computed, slots_of};
use crate::logical::{CatalogSource, From, TableRef};
use base::schema::{Relation, Table, ViewDef, privilege};
use base::{ColumnType, Error, Oid, Result, SqlState, Type};
use sqlparser::ast::{
    self, Ident, JoinConstraint, JoinOperator, TableAlias, TableFactor, TableWithJoins,
};
use std::sync::Arc;

/// Which sides of a join keep their rows.
#[derive(Clone, Copy)]
enum Side {
    Inner,
    Left,
    Right,
    Full,
}

impl Side {
    fn item(self, left: From, right: From, on: Vec<Expr>) -> From {
        let (left, right) = match self {
            Side::Right => (right, left),
            _ => (left, right),
        };
        match self {
            Side::Inner => From::Inner {
                items: vec![left, right],
                filter: on,
            },
            Side::Left | Side::Right => From::Left {
                left: Box::new(left),
                right: Box::new(right),
                on,
            },
            Side::Full => From::Full {
                left: Box::new(left),
                right: Box::new(right),
                on,
            },
        }
    }
}

/// The names that a FROM item brings.
#[derive(Default, Clone)]
pub(crate) struct Names {
    pub rels: Vec<ScopeRel>,
    pub star: Vec<ScopeColumn>,
}

impl Names {
    /// The names of one relation.
    pub fn one(rel: ScopeRel) -> Names {
        Names::of(rel)
    }

    fn of(rel: ScopeRel) -> Names {
        Names {
            star: rel.columns.clone(),
            rels: vec![rel],
        }
    }

    fn join(mut self, other: Names) -> Result<Names> {
        for r in &other.rels {
            if self
                .rels
                .iter()
                .any(|x| x.alias == r.alias && !r.alias.is_empty())
            {
                return Err(Error::new(
                    SqlState::DUPLICATE_ALIAS,
                    format!("table name \"{}\" specified more than once", r.alias),
                ));
            }
        }
        self.rels.extend(other.rels);
        self.star.extend(other.star);
        Ok(self)
    }
}

/// Most relations of one FROM clause. Each join is inside of the next one, and joins are walked by recursion.
const MOST_JOINED: usize = 1000;

/// 54001 for a FROM clause of too many relations.
fn must_be_joinable(from: &[TableWithJoins]) -> Result<()> {
    fn relations(all: &[TableWithJoins]) -> usize {
        let of = |f: &TableFactor| match f {
            TableFactor::NestedJoin {
                table_with_joins, ..
            } => relations(std::slice::from_ref(table_with_joins)),
            _ => 1,
        };
        let joined = |t: &TableWithJoins| t.joins.iter().map(|j| of(&j.relation)).sum::<usize>();
        all.iter().map(|t| of(&t.relation) + joined(t)).sum()
    }
    if relations(from) <= MOST_JOINED {
        return Ok(());
    }
    let what = "stack depth limit exceeded";
    Err(
        Error::new(SqlState::STATEMENT_TOO_COMPLEX, what).hint(format!(
            "A FROM clause may have at most {MOST_JOINED} relations."
        )),
    )
}

/// Whether a FROM clause has an outer join.
fn has_outer_join(from: &[TableWithJoins]) -> bool {
    from.iter().any(|t| {
        t.joins.iter().any(|j| {
            !matches!(
                j.join_operator,
                JoinOperator::Join(_) | JoinOperator::Inner(_) | JoinOperator::CrossJoin(_)
            )
        }) || matches!(&t.relation, TableFactor::NestedJoin { .. })
    })
}

impl Binder<'_> {
    /// Binds a FROM clause into `scope`, whose parent is the enclosing query's.
    pub(crate) fn bind_from<'p>(
        &mut self,
        from: &'p [TableWithJoins],
        outer: &'p Scope<'p>,
    ) -> Result<(Vec<From>, Scope<'p>)> {
        must_be_joinable(from)?;
        let mut scope = Scope::inside(outer);
        let mut items = Vec::new();
        let melt = !has_outer_join(from);
        for t in from {
            let (item, names) = self.table_with_joins(t, outer, &scope, melt)?;
            let mut all = Names {
                rels: std::mem::take(&mut scope.rels),
                star: std::mem::take(&mut scope.star),
            };
            all = all.join(names)?;
            (scope.rels, scope.star) = (all.rels, all.star);
            items.push(item);
        }
        Ok((items, scope))
    }

    fn table_with_joins(
        &mut self,
        t: &TableWithJoins,
        outer: &Scope<'_>,
        visible: &Scope<'_>,
        melt: bool,
    ) -> Result<(From, Names)> {
        let first = self.recursions();
        let (mut item, mut names) = self.factor(&t.relation, outer, visible, melt)?;
        for j in &t.joins {
            let before = self.recursions();
            let (right, right_names) = {
                let mut seen = Scope::inside(visible);
                (seen.rels, seen.star) = (names.rels.clone(), names.star.clone());
                self.factor(&j.relation, outer, &seen, melt)?
            };
            match &j.join_operator {
                JoinOperator::Left(_) | JoinOperator::LeftOuter(_) | JoinOperator::FullOuter(_)
                    if self.recursions() > before =>
                {
                    self.no_recursion_since(before, "an outer join")?;
                }
                JoinOperator::Right(_)
                | JoinOperator::RightOuter(_)
                | JoinOperator::FullOuter(_)
                    if before > first =>
                {
                    self.no_recursion_since(first, "an outer join")?;
                }
                _ => {}
            }
            (item, names) = self.join(j, item, names, right, right_names, outer)?;
        }
        Ok((item, names))
    }

    fn join(
        &mut self,
        j: &ast::Join,
        left: From,
        left_names: Names,
        right: From,
        right_names: Names,
        outer: &Scope<'_>,
    ) -> Result<(From, Names)> {
        let (side, constraint) = match &j.join_operator {
            JoinOperator::Join(c) | JoinOperator::Inner(c) => (Side::Inner, c),
            JoinOperator::CrossJoin(c) => (Side::Inner, c),
            JoinOperator::Left(c) | JoinOperator::LeftOuter(c) => (Side::Left, c),
            JoinOperator::Right(c) | JoinOperator::RightOuter(c) => (Side::Right, c),
            JoinOperator::FullOuter(c) => (Side::Full, c),
            _ => return Err(Error::unsupported("this kind of join")),
        };
        if matches!(side, Side::Right | Side::Full) {
            not_lateral(&left, &right)?;
        }
        let mut on = Vec::new();
        let using: Option<Vec<String>> = match constraint {
            JoinConstraint::On(e) => {
                let mut scope = Scope::inside(outer);
                let names = left_names.clone().join(right_names.clone())?;
                (scope.rels, scope.star) = (names.rels, names.star);
                let mut env = Env::plain(&scope, "JOIN conditions");
                let b = self.expr(e, &mut env)?;
                self.condition(b, "JOIN/ON")?.conjuncts(&mut on);
                None
            }
            JoinConstraint::Using(cols) => {
                let mut names = Vec::new();
                for c in cols {
                    names.push(split_name(c)?.1);
                }
                Some(names)
            }
            JoinConstraint::Natural => Some(
                left_names
                    .star
                    .iter()
                    .filter(|l| right_names.star.iter().any(|r| r.name == l.name))
                    .map(|l| l.name.clone())
                    .collect(),
            ),
            JoinConstraint::None => {
                if !matches!(j.join_operator, JoinOperator::CrossJoin(_)) {
                    return Err(Error::new(
                        SqlState::SYNTAX_ERROR,
                        "syntax error: a join needs ON or USING",
                    ));
                }
                None
            }
        };
        let mut merged = Vec::new();
        if let Some(using) = &using {
            for name in using {
                let l = one_column(&left_names.star, name, "left")?;
                let r = one_column(&right_names.star, name, "right")?;
                let (a, b) = (self.take(&l), self.take(&r));
                on.push(self.operator("=", a.clone(), b.clone())?.expr);
                merged.push(match side {
                    Side::Right => r,
                    Side::Inner | Side::Left => l,
                    Side::Full => self.either(l.name, a, b)?,
                });
            }
        }
        let mut names = left_names.join(right_names)?;
        if let Some(using) = using {
            names.star.retain(|c| !using.contains(&c.name));
            merged.extend(std::mem::take(&mut names.star));
            names.star = merged;
        }
        Ok((side.item(left, right, on), names))
    }

    /// The column that a FULL JOIN merges of two.
    fn either(&mut self, name: String, a: super::Bound, b: super::Bound) -> Result<ScopeColumn> {
        let (items, ty) = self.unify(vec![a, b], "JOIN/USING")?;
        Ok(ScopeColumn {
            name,
            expr: Expr::Coalesce(items),
            ty,
            origin: (0, 0),
        })
    }

    /// A column of a scope, as an expression that is read.
    fn take(&mut self, c: &ScopeColumn) -> super::Bound {
        self.reads_column(c.origin);
        c.expr.slots(&mut |s| self.used[s as usize] = true);
        super::Bound {
            expr: c.expr.clone(),
            ty: c.ty,
        }
    }

    fn factor(
        &mut self,
        f: &TableFactor,
        outer: &Scope<'_>,
        visible: &Scope<'_>,
        melt: bool,
    ) -> Result<(From, Names)> {
        match f {
            TableFactor::Table {
                name,
                alias,
                args: Some(args),
                with_ordinality,
                ..
            } => self.function_in_from(name, &args.args, *with_ordinality, alias.as_ref(), visible),
            TableFactor::Table {
                sample: Some(_), ..
            } => Err(Error::unsupported("TABLESAMPLE")),
            TableFactor::Table { name, alias, .. } => self.named(name, alias.as_ref(), outer, melt),
            TableFactor::Function {
                name,
                args,
                with_ordinality,
                alias,
                ..
            } => self.function_in_from(name, args, *with_ordinality, alias.as_ref(), visible),
            TableFactor::UNNEST {
                alias,
                array_exprs,
                with_offset: false,
                with_ordinality,
                ..
            } => {
                let args: Vec<ast::FunctionArg> = array_exprs
                    .iter()
                    .map(|e| ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(e.clone())))
                    .collect();
                let name = ast::ObjectName::from(vec![Ident::new("unnest")]);
                if args.len() != 1 {
                    return self.unnest_together(
                        &name,
                        &args,
                        *with_ordinality,
                        alias.as_ref(),
                        visible,
                    );
                }
                self.function_in_from(&name, &args, *with_ordinality, alias.as_ref(), visible)
            }
            TableFactor::Derived {
                lateral,
                subquery,
                alias,
                ..
            } => {
                if alias.is_none() {
                    return Err(Error::new(
                        SqlState::SYNTAX_ERROR,
                        "subquery in FROM must have an alias",
                    )
                    .hint("For example, FROM (SELECT ...) [AS] foo."));
                }
                let lock = alias.as_ref().map(|a| fold(&a.name));
                let lock = lock.and_then(|name| self.locking.of_relation(&name));
                let around = if *lateral { visible } else { outer };
                let boundary = Scope::boundary(around);
                let selected = self.query_or_flat(subquery, &boundary, lock)?;
                let crossed = boundary.take_crossed();
                let bound = self.derived(selected, alias.as_ref(), None, None, crossed, melt)?;
                self.mark_subquery(&bound.0, lock);
                Ok(bound)
            }
            TableFactor::NestedJoin {
                table_with_joins,
                alias,
            } => {
                let (item, names) =
                    self.table_with_joins(table_with_joins, outer, visible, false)?;
                Ok(match alias {
                    Some(a) => {
                        let rel = ScopeRel {
                            alias: fold(&a.name),
                            schema: None,
                            columns: names.star,
                            system: None,
                        };
                        (item, Names::of(rename(rel, Some(a))?))
                    }
                    None => (item, names),
                })
            }
            _ => Err(Error::unsupported("this kind of FROM item")),
        }
    }

    /// A table, view, catalog relation or CTE by name.
    fn named(
        &mut self,
        name: &ast::ObjectName,
        alias: Option<&TableAlias>,
        outer: &Scope<'_>,
        melt: bool,
    ) -> Result<(From, Names)> {
        let (schema, plain) = split_name(name)?;
        if schema.is_none()
            && let Some((cte, around)) = outer.find_cte(&plain)
        {
            let source = match cte.kind {
                CteKind::Inline { query, alias, once } => CteSource::Inline {
                    query,
                    alias,
                    once,
                    around: around.parent.expect("a WITH stands inside a scope"),
                    late: &cte.late,
                },
                CteKind::Shared(id) => CteSource::Rows { id, work: false },
                CteKind::Silent => {
                    return Err(Error::new(
                        SqlState::FEATURE_NOT_SUPPORTED,
                        format!("WITH query \"{plain}\" does not have a RETURNING clause"),
                    ));
                }
                CteKind::Work(id) => CteSource::Rows { id, work: true },
            };
            let cols = cte.cols.clone();
            // Reading its rows is reading what they were made of.
            let deps = cte.deps.clone();
            outer.cross(around, &deps);
            self.locking
                .may_name_cte(&alias.map_or_else(|| plain.clone(), |a| fold(&a.name)))?;
            return self.cte_reference(&plain, source, (&cols, deps), outer, alias, melt);
        }
        let found = self.relation(name).map_err(|e| match name.0.first() {
            Some(ast::ObjectNamePart::Identifier(i)) => e.at(self.position(i.span.start)),
            _ => e,
        })?;
        if let (Some(all), [ast::ObjectNamePart::Identifier(i)]) =
            (&mut self.unqualified, &name.0[..])
        {
            all.push((i.span.start, found.oid()));
        }
        let schema_name = self
            .cx
            .catalog
            .schema
            .namespace(found.namespace())
            .map(|n| n.name.clone());
        let lock = match self.locking.is_empty() {
            true => None,
            false => {
                let shown = alias.map_or_else(|| plain, |a| fold(&a.name));
                self.locking.of_relation(&shown)
            }
        };
        match found {
            Resolved::Relation(Relation::Table(t)) => {
                self.need(t.def.id, privilege::SELECT);
                let (table, names) = self.table(&t, alias, schema_name)?;
                self.marks.extend(lock.map(|l| (table.base, l)));
                Ok((From::Table(table), names))
            }
            Resolved::Relation(Relation::View(v)) => {
                self.need(v.id, privilege::SELECT);
                let bound = self.view(&v, alias, schema_name, (melt, lock))?;
                self.mark_subquery(&bound.0, lock);
                Ok(bound)
            }
            Resolved::Relation(Relation::Sequence(s)) => {
                self.need(s.id, privilege::SELECT);
                let cols = [
                    ("last_value".to_owned(), Type::Int8),
                    ("log_cnt".to_owned(), Type::Int8),
                    ("is_called".to_owned(), Type::Bool),
                ];
                self.catalog_relation(
                    CatalogSource::Sequence(s.id),
                    s.id,
                    &s.name,
                    &cols,
                    alias,
                    schema_name,
                )
            }
            Resolved::Virtual(v) => self.fixed(v, alias, schema_name),
            Resolved::Index(t, i) => Err(Error::new(
                SqlState::WRONG_OBJECT_TYPE,
                format!("cannot open relation \"{}\"", t.def.indexes[i].name),
            )
            .detail("This operation is not supported for indexes.")),
        }
    }

    /// A relation of the system catalogs.
    fn fixed(
        &mut self,
        v: &'static dyn VirtualTable,
        alias: Option<&TableAlias>,
        schema: Option<String>,
    ) -> Result<(From, Names)> {
        let cols: Vec<(String, Type)> = v
            .columns()
            .iter()
            .map(|(n, t)| ((*n).to_owned(), *t))
            .collect();
        let name = VirtualTable::name(v);
        if is_closed(name) {
            self.need(v.oid(), privilege::SELECT);
        }
        self.catalog_relation(CatalogSource::Fixed(v), v.oid(), name, &cols, alias, schema)
    }

    /// A table's slots and names.
    pub(crate) fn table(
        &mut self,
        t: &Arc<Table>,
        alias: Option<&TableAlias>,
        schema: Option<String>,
    ) -> Result<(TableRef, Names)> {
        let shown = alias.map_or(t.def.name.clone(), |a| fold(&a.name));
        let base = self.names.len() as Slot;
        self.relations += 1;
        let mut columns = Vec::new();
        for (i, c) in t.def.columns.iter().enumerate() {
            let s = self.slot(format!("{shown}.{}", c.name));
            if !c.dropped {
                columns.push(ScopeColumn {
                    name: c.name.clone(),
                    expr: Expr::Slot(s),
                    ty: c.ty(),
                    origin: (t.def.id, i as i16 + 1),
                });
            }
        }
        // The next slot is that of `ctid`.
        self.slot(format!("{shown}.ctid"));
        let rel = ScopeRel {
            alias: shown.clone(),
            schema: if alias.is_none() { schema } else { None },
            columns,
            system: Some(super::system::System::of(t, base)),
        };
        let table = TableRef {
            handle: self.cx.catalog.table(t.def.id).cloned(),
            table: t.clone(),
            alias: shown,
            base,
            key_slot: None,
            adds: false,
            skips: false,
            views: self.views.as_slice().into(),
            computed: self.over_indexes(t, &rel)?,
        };
        Ok((table, Names::of(rename(rel, alias)?)))
    }

    /// Binds what indexes are over. It costs a statement nothing unless the table has such an index.
    fn over_indexes(&mut self, t: &Arc<Table>, rel: &ScopeRel) -> Result<Computed> {
        let mut found = Computed::default();
        let conditions = t.def.indexes.iter().filter(|i| i.predicate.is_some());
        let conditions: Vec<_> = conditions
            .map(|i| (i.columns[0].column as usize, i.predicate.as_deref()))
            .collect();
        for (at, c) in t.def.columns.iter().enumerate() {
            let condition = conditions.iter().find(|p| p.0 == at).and_then(|p| p.1);
            let Some(text) = condition.or(c.default.as_deref()).filter(|_| c.is_hidden()) else {
                continue;
            };
            let root = Scope::root();
            let mut scope = Scope::inside(&root);
            // The text knows the table by its own name.
            scope.add(ScopeRel {
                alias: t.def.name.clone(),
                ..rel.clone()
            })?;
            // What is bound here is read only if the statement reads it, too, and was looked up when the index was made.
            let (used, around) = (self.used.clone(), self.in_rule.replace("index expression"));
            let stored = std::mem::replace(&mut self.stored, true);
            let before = (self.looks_up, self.by_definitions);
            let mut env = Env::plain(&scope, "index expressions");
            let bound = self.expr(&super::parse_expr(text)?, &mut env);
            (self.used, self.in_rule) = (used, around);
            self.stored = stored;
            (self.looks_up, self.by_definitions) = before;
            self.used.resize(self.names.len(), false);
            let expr = bound?.expr;
            self.by_numbers |= expr.any(&mut |e| matches!(e, Expr::Const(v) if is_number(v)));
            match condition {
                Some(_) => {
                    let mut all = vec![];
                    expr.conjuncts(&mut all);
                    found.conditions.push((at, all));
                }
                None => found.columns.push((at, expr)),
            }
        }
        Ok(found)
    }

    fn catalog_relation(
        &mut self,
        source: CatalogSource,
        oid: Oid,
        name: &str,
        cols: &[(String, Type)],
        alias: Option<&TableAlias>,
        schema: Option<String>,
    ) -> Result<(From, Names)> {
        let shown = alias.map_or(name.to_owned(), |a| fold(&a.name));
        let base = self.names.len() as Slot;
        self.relations += 1;
        let mut columns = Vec::new();
        for (i, (n, ty)) in cols.iter().enumerate() {
            let s = self.slot(format!("{shown}.{n}"));
            columns.push(ScopeColumn {
                name: n.clone(),
                expr: Expr::Slot(s),
                ty: ColumnType::plain(*ty),
                origin: (oid, i as i16 + 1),
            });
        }
        let rel = ScopeRel {
            alias: shown.clone(),
            schema: if alias.is_none() { schema } else { None },
            columns,
            system: None,
        };
        let item = From::Virtual {
            source,
            alias: shown,
            base,
            width: cols.len(),
        };
        Ok((item, Names::of(rename(rel, alias)?)))
    }

    fn view(
        &mut self,
        v: &ViewDef,
        alias: Option<&TableAlias>,
        schema: Option<String>,
        (melt, lock): (bool, Option<RowLock>),
    ) -> Result<(From, Names)> {
        let query = super::syntax::parse_query(&v.query)?;
        let root = Scope::root();
        let boundary = Scope::boundary(&root);
        let selected = self.within_view(v, |b| b.query_or_flat(&query, &boundary, lock));
        let names: Vec<String> = v.columns.iter().map(|c| c.name.clone()).collect();
        self.derived(
            selected?,
            alias,
            Some((&v.name, schema, v.id)),
            Some(&names),
            vec![],
            melt,
        )
    }

    /// Binds a part of a view's query: its names mean what they meant where the view was made.
    pub(super) fn within_view<R>(&mut self, v: &ViewDef, f: impl FnOnce(&mut Self) -> R) -> R {
        self.by_definitions = true;
        let (stars, unqualified) = (self.stars.take(), self.unqualified.take());
        let schema_of = &self.cx.catalog.schema;
        let name = |n: Oid| schema_of.namespace(n).map(|n| n.name.clone());
        let own = schema_of.temporary();
        let lasts = own != Some(v.namespace);
        let mut path: Vec<String> = crate::catalog::namespaces(schema_of, &v.search_path)
            .filter(|n| !lasts || Some(*n) != own)
            .filter_map(name)
            .collect();
        // A temporary relation of the reader's session does not take the place of what the view reads.
        if lasts {
            path.push("pg_temp".into());
        }
        let readers = std::mem::replace(&mut self.path, path);
        self.views.push(v.id);
        self.meanings.push(Meaning::of(v));
        let bound = f(self);
        self.meanings.pop();
        self.views.pop();
        (self.stars, self.unqualified) = (stars, unqualified);
        self.path = readers;
        bound
    }

    /// The rows of a query as a relation.
    pub(crate) fn derived(
        &mut self,
        selected: Selected,
        alias: Option<&TableAlias>,
        named: Option<(&str, Option<String>, Oid)>,
        columns: Option<&[String]>,
        deps: Vec<Slot>,
        melt: bool,
    ) -> Result<(From, Names)> {
        let (name, schema, oid) = match (alias, named) {
            (Some(a), n) => (fold(&a.name), None, n.map_or(0, |n| n.2)),
            (None, Some((n, s, oid))) => (n.to_owned(), s, oid),
            (None, None) => (String::new(), None, 0),
        };
        let (item, cols) = match selected {
            Selected::Flat {
                items,
                filter,
                cols,
            } if melt || all_own(&items, &cols) => {
                let cols: Vec<ScopeColumn> = cols
                    .into_iter()
                    .map(|c| ScopeColumn {
                        name: c.name,
                        expr: c.bound.expr,
                        ty: c.bound.ty,
                        origin: c.origin,
                    })
                    .collect();
                (From::Inner { items, filter }, cols)
            }
            other => {
                let rel = self.finish_selected(other)?;
                self.rel_columns(rel, deps)
            }
        };
        // A view of an older build may say `*` of a table that has more columns today.
        let width = match columns {
            Some(names) if oid != 0 => names.len(),
            _ => cols.len(),
        };
        let columns = cols
            .into_iter()
            .take(width)
            .enumerate()
            .map(|(i, mut c)| {
                if let Some(names) = columns
                    && let Some(n) = names.get(i)
                {
                    c.name.clone_from(n);
                }
                if oid != 0 {
                    c.origin = (oid, i as i16 + 1);
                }
                if let Expr::Slot(s) = c.expr
                    && self.names[s as usize].is_empty()
                {
                    self.names[s as usize] = format!("{name}.{}", c.name);
                }
                c
            })
            .collect();
        let rel = ScopeRel {
            alias: name,
            schema,
            columns,
            system: None,
        };
        Ok((item, Names::of(rename(rel, alias)?)))
    }

    fn rel_columns(&mut self, rel: Rel, deps: Vec<Slot>) -> (From, Vec<ScopeColumn>) {
        self.relations += 1;
        let cols = rel
            .cols
            .iter()
            .map(|c| ScopeColumn {
                name: c.name.clone(),
                expr: Expr::Slot(c.slot),
                ty: c.ty,
                origin: c.origin,
            })
            .collect();
        let mut slots: Vec<Slot> = rel.cols.iter().map(|c| c.slot).collect();
        slots.sort_unstable();
        slots.dedup();
        let item = From::Rel {
            rel: Box::new(rel.node),
            slots,
            deps,
        };
        (item, cols)
    }
}

/// Whether every column is one of these relations: an outer join that finds no row for them then leaves it NULL.
/// Whether a text may give this constant by its digits.
fn is_number(v: &base::Value) -> bool {
    use base::Value as V;
    let integer = matches!(v, V::Int2(_) | V::Int4(_) | V::Int8(_));
    integer || matches!(v, V::Float4(_) | V::Float8(_) | V::Numeric(_))
}

fn all_own(items: &[From], cols: &[super::select::FlatCol]) -> bool {
    let own = slots_of(items);
    cols.iter()
        .all(|c| matches!(c.bound.expr, Expr::Slot(s) if own.contains(&s)))
}

/// Refuses a right side that reads the left one's rows, where that keeps its own rows.
fn not_lateral(left: &From, right: &From) -> Result<()> {
    let (mut own, mut read) = (vec![], vec![]);
    left.own_slots(&mut own);
    right.needs(&mut read);
    match read.iter().any(|s| own.contains(s)) {
        false => Ok(()),
        true => Err(Error::new(
            SqlState::INVALID_COLUMN_REFERENCE,
            "invalid reference to FROM-clause entry",
        )
        .detail("The combining JOIN type must be INNER or LEFT for a LATERAL reference.")),
    }
}

fn one_column(star: &[ScopeColumn], name: &str, side: &str) -> Result<ScopeColumn> {
    let mut hits = star.iter().filter(|c| c.name == name);
    match (hits.next(), hits.next()) {
        (Some(c), None) => Ok(c.clone()),
        (None, _) => Err(Error::new(
            SqlState::UNDEFINED_COLUMN,
            format!("column \"{name}\" specified in USING clause does not exist in {side} table"),
        )),
        _ => Err(Error::new(
            SqlState::AMBIGUOUS_COLUMN,
            format!("common column name \"{name}\" appears more than once in {side} table"),
        )),
    }
}

/// Applies an alias's column names.
pub(crate) fn rename(mut rel: ScopeRel, alias: Option<&TableAlias>) -> Result<ScopeRel> {
    let Some(a) = alias else { return Ok(rel) };
    if a.columns.len() > rel.columns.len() {
        return Err(Error::new(
            SqlState::INVALID_COLUMN_REFERENCE,
            format!(
                "table \"{}\" has {} columns available but {} columns specified",
                rel.alias,
                rel.columns.len(),
                a.columns.len()
            ),
        ));
    }
    for (c, n) in rel.columns.iter_mut().zip(&a.columns) {
        c.name = fold(&n.name);
    }
    Ok(rel)
}
