//! Queries: a body with WITH around it and ORDER BY, LIMIT and locks behind it.

use super::call::sort_key;
use super::expr::Env;
use super::locking::RowLock;
use super::select::{QCol, Selected};
use super::{Binder, Scope};
use crate::catalog::fold;
use crate::expr::{Expr, Slot};
use crate::logical::{Logical, SortKey};
use base::{ColumnType, Error, Result, SqlState};
use sqlparser::ast::{self, Expr as Ast, LimitClause, OrderByKind, SetExpr};

/// A bound query: its rows stand in the slots of its columns.
pub(crate) struct Rel {
    pub node: Logical,
    pub cols: Vec<QCol>,
}

/// What stands behind a query's body.
#[derive(Clone, Copy)]
pub(crate) struct Tail<'q> {
    pub order: &'q [ast::OrderByExpr],
    pub limit: Option<&'q Ast>,
    /// FETCH … WITH TIES: the limit lets in what ORDER BY puts in the same place as the last row.
    pub ties: bool,
    pub offset: Option<&'q Ast>,
    pub locks: &'q [ast::LockClause],
    /// How the query around locks the rows of this one's tables.
    pub above: Option<RowLock>,
}

impl<'q> Tail<'q> {
    fn of(q: &'q ast::Query, above: Option<RowLock>) -> Result<Tail<'q>> {
        let order: &[ast::OrderByExpr] = match &q.order_by {
            None => &[],
            Some(o) => match &o.kind {
                OrderByKind::Expressions(e) => e,
                OrderByKind::All(_) => return Err(Error::unsupported("ORDER BY ALL")),
            },
        };
        let (mut limit, offset) = match &q.limit_clause {
            None => (None, None),
            Some(LimitClause::LimitOffset {
                limit,
                offset,
                limit_by,
            }) => {
                if !limit_by.is_empty() {
                    return Err(Error::unsupported("LIMIT BY"));
                }
                (limit.as_ref(), offset.as_ref().map(|o| &o.value))
            }
            Some(LimitClause::OffsetCommaLimit { .. }) => {
                return Err(Error::new(
                    SqlState::SYNTAX_ERROR,
                    "LIMIT #,# syntax is not supported",
                )
                .hint("Use separate LIMIT and OFFSET clauses."));
            }
        };
        let mut ties = false;
        if let Some(of) = limit.and_then(super::syntax::limit_with_ties) {
            (limit, ties) = (Some(of), true);
        }
        if let Some(f) = &q.fetch {
            if f.percent {
                return Err(Error::unsupported("FETCH … PERCENT"));
            }
            ties = f.with_ties;
            limit = f.quantity.as_ref();
            if limit.is_none() {
                static ONE: std::sync::LazyLock<Ast> = std::sync::LazyLock::new(|| {
                    Ast::Value(ast::Value::Number("1".into(), false).into())
                });
                limit = Some(&ONE);
            }
        }
        if ties {
            may_tie(q, order, limit)?;
        }
        // LIMIT ALL and LIMIT NULL are no limit; the latter is found when it is evaluated.
        Ok(Tail {
            order,
            limit,
            ties,
            offset,
            locks: &q.locks,
            above,
        })
    }

    /// The keys of WITH TIES, of a query in this order.
    pub fn ties_of(&self, order: &[SortKey]) -> Vec<SortKey> {
        match self.ties {
            true => order.to_vec(),
            false => vec![],
        }
    }

    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
            && self.limit.is_none()
            && self.offset.is_none()
            && self.locks.is_empty()
    }
}

/// 42601 for WITH TIES without an order; 2201W for a literal NULL.
fn may_tie(q: &ast::Query, order: &[ast::OrderByExpr], limit: Option<&Ast>) -> Result<()> {
    let skips = |l: &ast::LockClause| matches!(l.nonblock, Some(ast::NonBlock::SkipLocked));
    let syntax = |what: &str| Err(Error::new(SqlState::SYNTAX_ERROR, what));
    if order.is_empty() {
        return syntax("WITH TIES cannot be specified without ORDER BY clause");
    }
    if q.locks.iter().any(skips) {
        return syntax("SKIP LOCKED and WITH TIES options cannot be used together");
    }
    let mut limit = limit;
    while let Some(Ast::Nested(inner)) = limit {
        limit = Some(inner);
    }
    match limit {
        Some(Ast::Value(v)) if matches!(v.value, ast::Value::Null) => Err(Error::new(
            SqlState::INVALID_LIMIT,
            "row count cannot be null in FETCH FIRST ... WITH TIES clause",
        )),
        _ => Ok(()),
    }
}

fn check_unsupported(q: &ast::Query) -> Result<()> {
    if q.for_clause.is_some()
        || q.settings.is_some()
        || q.format_clause.is_some()
        || !q.pipe_operators.is_empty()
    {
        return Err(Error::unsupported("this form of a query"));
    }
    Ok(())
}

impl Binder<'_> {
    /// Binds a query. `expected`: types that outputs of unknown type take, instead of text.
    pub(crate) fn query(
        &mut self,
        q: &ast::Query,
        scope: &Scope<'_>,
        expected: Option<&[ColumnType]>,
    ) -> Result<Rel> {
        let selected = self.query_selected(q, scope, expected, (false, None))?;
        self.finish_selected(selected)
    }

    /// Binds a query that may melt into the one around it, which locks its rows so.
    pub(crate) fn query_or_flat(
        &mut self,
        q: &ast::Query,
        scope: &Scope<'_>,
        lock: Option<RowLock>,
    ) -> Result<Selected> {
        self.query_selected(q, scope, None, (true, lock))
    }

    fn query_selected(
        &mut self,
        q: &ast::Query,
        scope: &Scope<'_>,
        expected: Option<&[ColumnType]>,
        (flat, lock): (bool, Option<RowLock>),
    ) -> Result<Selected> {
        base::memory::check()?;
        if let SetExpr::Table(t) = &*q.body {
            let body = super::syntax::of_table(t)?.body;
            let spelled = ast::Query { body, ..q.clone() };
            return self.query_selected(&spelled, scope, expected, (flat, lock));
        }
        if let Some(merged) = without_parentheses(q)? {
            return self.query_selected(&merged, scope, expected, (flat, lock));
        }
        self.enter()?;
        check_unsupported(q)?;
        let r = match &q.with {
            Some(w) => self
                .with(w, 0, scope, &mut |b, s| b.query_body(q, s, expected, lock))
                .map(Selected::Rel),
            None => {
                let tail = Tail::of(q, lock)?;
                match &*q.body {
                    SetExpr::Select(s) => self.select(s, tail, scope, expected, flat),
                    SetExpr::Query(inner) if tail.is_empty() => {
                        self.query_selected(inner, scope, expected, (flat, lock))
                    }
                    _ => self.query_body(q, scope, expected, lock).map(Selected::Rel),
                }
            }
        };
        self.depth -= 1;
        r
    }

    /// The query without its WITH.
    pub(crate) fn query_body(
        &mut self,
        q: &ast::Query,
        scope: &Scope<'_>,
        expected: Option<&[ColumnType]>,
        lock: Option<RowLock>,
    ) -> Result<Rel> {
        let tail = Tail::of(q, lock)?;
        if let SetExpr::Select(s) = &*q.body {
            let selected = self.select(s, tail, scope, expected, false)?;
            return self.finish_selected(selected);
        }
        if lock.is_some() && matches!(&*q.body, SetExpr::SetOperation { .. }) {
            self.lock_set_operation()?;
        }
        let rel = self.set_expr(&q.body, scope, expected)?;
        self.tail_of_rel(rel, tail, scope)
    }

    /// ORDER BY and LIMIT over finished outputs.
    fn tail_of_rel(&mut self, mut rel: Rel, tail: Tail<'_>, scope: &Scope<'_>) -> Result<Rel> {
        if !tail.locks.is_empty() {
            return Err(Error::unsupported(
                "FOR UPDATE with UNION/INTERSECT/EXCEPT or VALUES",
            ));
        }
        let (limit, offset) = self.limits(tail, scope)?;
        let mut ties = vec![];
        if !tail.order.is_empty() {
            let mut keys = Vec::new();
            for o in tail.order {
                let e = self.output_reference(&o.expr, &rel.cols)?;
                keys.push(sort_key(e, &o.options)?);
            }
            let mut slots: Vec<Slot> = rel.cols.iter().map(|c| c.slot).collect();
            slots.sort_unstable();
            slots.dedup();
            ties = tail.ties_of(&keys);
            rel.node = Logical::Sort {
                input: Box::new(rel.node),
                keys,
                slots,
            };
        }
        Ok(add_limit(rel, limit, offset, ties))
    }

    /// An output by name or number, where nothing else may stand.
    fn output_reference(&mut self, e: &Ast, cols: &[QCol]) -> Result<Expr> {
        if let Some(i) = ordinal(e, cols.len(), "ORDER BY")? {
            return Ok(Expr::Slot(cols[i].slot));
        }
        if let Ast::Identifier(i) = e {
            let name = fold(i);
            if let Some(c) = cols.iter().find(|c| c.name == name) {
                return Ok(Expr::Slot(c.slot));
            }
            return Err(Error::new(
                SqlState::UNDEFINED_COLUMN,
                format!("column \"{name}\" does not exist"),
            )
            .at(self.position(i.span.start)));
        }
        Err(Error::new(
            SqlState::FEATURE_NOT_SUPPORTED,
            "invalid UNION/INTERSECT/EXCEPT ORDER BY clause",
        )
        .detail("Only result column names can be used, not expressions or functions."))
    }

    /// LIMIT and OFFSET as bigints.
    pub(crate) fn limits(
        &mut self,
        tail: Tail<'_>,
        scope: &Scope<'_>,
    ) -> Result<(Option<Expr>, Option<Expr>)> {
        // The counts may read outer queries' columns, but none of this one.
        let mut one = |e: Option<&Ast>, what: &'static str| -> Result<Option<Expr>> {
            let Some(e) = e else { return Ok(None) };
            if matches!(e, Ast::Identifier(i) if i.quote_style.is_none() && i.value.eq_ignore_ascii_case("all"))
            {
                return Ok(None);
            }
            let mut env = Env::plain(scope, what);
            let b = self.expr(e, &mut env)?;
            self.row_count(b, what).map(Some)
        };
        Ok((one(tail.limit, "LIMIT")?, one(tail.offset, "OFFSET")?))
    }
}

/// `(SELECT … LIMIT 3) ORDER BY x`: parentheses around a query alone mean nothing, so that all clauses are those of one query.
/// 42601 when a clause is there twice.
fn without_parentheses(q: &ast::Query) -> Result<Option<ast::Query>> {
    let SetExpr::Query(inner) = &*q.body else {
        return Ok(None);
    };
    let (limits, offsets) = match (&q.limit_clause, &inner.limit_clause) {
        (
            Some(LimitClause::LimitOffset {
                limit: a,
                offset: x,
                ..
            }),
            Some(LimitClause::LimitOffset {
                limit: b,
                offset: y,
                ..
            }),
        ) => (a.is_some() && b.is_some(), x.is_some() && y.is_some()),
        _ => (false, false),
    };
    let fetched = |q: &ast::Query| q.fetch.is_some();
    let twice = [
        (q.order_by.is_some() && inner.order_by.is_some(), "ORDER BY"),
        (limits || fetched(q) && fetched(inner), "LIMIT"),
        (offsets, "OFFSET"),
        (q.with.is_some() && inner.with.is_some(), "WITH"),
    ];
    if let Some((_, what)) = twice.iter().find(|(t, _)| *t) {
        return Err(Error::new(
            SqlState::SYNTAX_ERROR,
            format!("multiple {what} clauses not allowed"),
        ));
    }
    let mut merged = (**inner).clone();
    merged.with = q.with.clone().or(merged.with);
    merged.order_by = q.order_by.clone().or(merged.order_by);
    merged.fetch = q.fetch.clone().or(merged.fetch);
    merged.locks.extend(q.locks.iter().cloned());
    merged.limit_clause = match (q.limit_clause.clone(), merged.limit_clause) {
        (
            Some(LimitClause::LimitOffset {
                limit: a,
                offset: x,
                limit_by,
            }),
            Some(LimitClause::LimitOffset {
                limit: b,
                offset: y,
                ..
            }),
        ) => Some(LimitClause::LimitOffset {
            limit: a.or(b),
            offset: x.or(y),
            limit_by,
        }),
        (a, b) => a.or(b),
    };
    Ok(Some(merged))
}

/// A position in the select list: `ORDER BY 2`.
pub(crate) fn ordinal(e: &Ast, width: usize, clause: &str) -> Result<Option<usize>> {
    let mut e = e;
    while let Ast::Nested(inner) = e {
        e = inner;
    }
    if let Ast::UnaryOp {
        op: ast::UnaryOperator::Minus,
        expr,
    } = e
        && let Ast::Value(v) = &**expr
        && let ast::Value::Number(n, _) = &v.value
        && n.parse::<u32>().is_ok()
    {
        return Err(Error::new(
            SqlState::INVALID_COLUMN_REFERENCE,
            format!("{clause} position -{n} is not in select list"),
        ));
    }
    let Ast::Value(v) = e else { return Ok(None) };
    match &v.value {
        ast::Value::Number(n, _) => match n.parse::<usize>() {
            Ok(i) if (1..=width).contains(&i) => Ok(Some(i - 1)),
            Ok(i) => Err(Error::new(
                SqlState::INVALID_COLUMN_REFERENCE,
                format!("{clause} position {i} is not in select list"),
            )),
            Err(_) => Err(Error::new(
                SqlState::SYNTAX_ERROR,
                format!("non-integer constant in {clause}"),
            )),
        },
        ast::Value::SingleQuotedString(_) | ast::Value::Boolean(_) | ast::Value::Null => {
            Err(Error::new(
                SqlState::SYNTAX_ERROR,
                format!("non-integer constant in {clause}"),
            ))
        }
        _ => Ok(None),
    }
}

/// Puts a LIMIT over a query. `ties`: the keys of WITH TIES.
pub(crate) fn add_limit(
    mut rel: Rel,
    limit: Option<Expr>,
    offset: Option<Expr>,
    ties: Vec<SortKey>,
) -> Rel {
    if limit.is_some() || offset.is_some() {
        rel.node = Logical::Limit {
            input: Box::new(rel.node),
            limit,
            offset,
            ties,
        };
    }
    rel
}
