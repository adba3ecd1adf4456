//! Subqueries in expressions.

use super::expr::Env;
use super::{Binder, Bound, Scope};
use crate::expr::{Expr, Slot, Subquery, SubqueryKind};
use base::{Error, Result, SqlState, Type};
use sqlparser::ast::{self, Expr as Ast};

/// A bound subquery: its plan's place, its columns, and what it reads outside.
struct Planned {
    plan: usize,
    cols: Vec<super::QCol>,
    outer: Vec<Slot>,
}

impl Binder<'_> {
    fn subplan(&mut self, q: &ast::Query, env: &Env<'_, '_>) -> Result<Planned> {
        if let Some(what) = self.in_rule {
            return Err(Error::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                format!("cannot use subquery in {what}"),
            ));
        }
        let boundary = Scope::boundary(env.scope);
        let rel = self.in_subquery(|b| b.query(q, &boundary, None))?;
        self.subqueries.push(rel.node);
        Ok(Planned {
            plan: self.subqueries.len() - 1,
            cols: rel.cols,
            outer: boundary.take_crossed(),
        })
    }

    fn subquery_expr(&self, p: Planned, kind: SubqueryKind) -> Expr {
        Expr::Subquery(Box::new(Subquery {
            plan: p.plan,
            kind,
            outputs: p.cols.iter().map(|c| c.slot).collect(),
            outer: p.outer,
        }))
    }

    pub(super) fn exists(
        &mut self,
        q: &ast::Query,
        negated: bool,
        env: &mut Env<'_, '_>,
    ) -> Result<Bound> {
        let p = self.subplan(q, env)?;
        let e = self.subquery_expr(p, SubqueryKind::Exists { negated });
        Ok(Bound::new(e, Type::Bool))
    }

    pub(super) fn scalar_subquery(
        &mut self,
        q: &ast::Query,
        env: &mut Env<'_, '_>,
    ) -> Result<Bound> {
        let p = self.subplan(q, env)?;
        let [col] = &p.cols[..] else {
            return Err(Error::new(
                SqlState::SYNTAX_ERROR,
                "subquery must return only one column",
            ));
        };
        let ty = col.ty;
        let expr = self.subquery_expr(p, SubqueryKind::Scalar);
        Ok(Bound { expr, ty })
    }

    pub(super) fn array_subquery(
        &mut self,
        q: &ast::Query,
        env: &mut Env<'_, '_>,
    ) -> Result<Bound> {
        let p = self.subplan(q, env)?;
        let [col] = &p.cols[..] else {
            return Err(Error::new(
                SqlState::SYNTAX_ERROR,
                "subquery must return only one column",
            ));
        };
        let element = col.ty.ty;
        let array = element.array_of().ok_or_else(|| {
            Error::new(
                SqlState::UNDEFINED_OBJECT,
                format!(
                    "could not find array type for data type {}",
                    crate::types::typename::format_type(element, -1)
                ),
            )
        })?;
        let expr = self.subquery_expr(p, SubqueryKind::Array(element));
        Ok(Bound::new(expr, array))
    }

    /// `left op ANY|ALL (query)`.
    pub(super) fn any_subquery(
        &mut self,
        left: &Ast,
        op: &str,
        q: &ast::Query,
        all: bool,
        env: &mut Env<'_, '_>,
    ) -> Result<Bound> {
        let items = self.row_items(left);
        let lefts: Vec<&Ast> = items.unwrap_or_else(|| vec![left]);
        let mut bound = Vec::with_capacity(lefts.len());
        for e in &lefts {
            let b = self.expr(e, env)?;
            bound.push(b);
        }
        let p = self.subplan(q, env)?;
        if bound.len() != p.cols.len() {
            return Err(Error::new(
                SqlState::SYNTAX_ERROR,
                if p.cols.len() > bound.len() {
                    "subquery has too many columns"
                } else {
                    "subquery has too few columns"
                },
            ));
        }
        self.quantified(bound, op, p, all, false)
    }

    fn quantified(
        &mut self,
        left: Vec<Bound>,
        op: &str,
        p: Planned,
        all: bool,
        one: bool,
    ) -> Result<Bound> {
        // The comparison reads the left side from slots of its own; types are settled on these.
        let mut lhs = Vec::new();
        let mut slots = Vec::new();
        let mut values = Vec::new();
        let mut rights = Vec::new();
        for (b, c) in left.into_iter().zip(&p.cols) {
            let b = if b.ty.ty == Type::Unknown {
                let expr = self.coerce(b, c.ty.ty)?;
                Bound::new(expr, c.ty.ty)
            } else {
                b
            };
            let s = self.slot(String::new());
            self.used[s as usize] = true;
            slots.push(s);
            lhs.push(Bound {
                expr: Expr::Slot(s),
                ty: b.ty,
            });
            values.push(b.expr);
            rights.push(Bound {
                expr: Expr::Slot(c.slot),
                ty: c.ty,
            });
        }
        let condition = if lhs.len() == 1 {
            let (l, r) = (lhs.remove(0), rights.remove(0));
            self.operator(op, l, r)?
        } else {
            self.compare_bound_rows(lhs, op, rights)?
        };
        if condition.ty.ty != Type::Bool {
            return Err(Error::new(
                SqlState::WRONG_OBJECT_TYPE,
                "op ANY/ALL (subquery) requires operator to yield boolean",
            ));
        }
        let mut parts = Vec::new();
        condition.expr.clone().conjuncts(&mut parts);
        let plain = |e: &Expr| match e {
            Expr::Compare(crate::expr::CmpOp::Eq, ab) => {
                matches!((&ab.0, &ab.1), (Expr::Slot(_), Expr::Slot(_)))
            }
            _ => false,
        };
        let hashable = !all && !one && parts.iter().all(plain);
        let kind = SubqueryKind::AnyAll {
            left: values,
            lhs: slots,
            condition: Box::new(condition.expr),
            all,
            hashable,
            one,
        };
        let e = self.subquery_expr(p, kind);
        Ok(Bound::new(e, Type::Bool))
    }

    /// `(a, b) = (SELECT x, y …)`: the query gives one row or none.
    pub(super) fn row_subquery(
        &mut self,
        left: &[&Ast],
        op: &str,
        q: &ast::Query,
        env: &mut Env<'_, '_>,
    ) -> Result<Bound> {
        let mut bound = Vec::new();
        for e in left {
            bound.push(self.expr(e, env)?);
        }
        let p = self.subplan(q, env)?;
        if bound.len() != p.cols.len() {
            return Err(Error::new(
                SqlState::SYNTAX_ERROR,
                "subquery has the wrong number of columns",
            ));
        }
        self.quantified(bound, op, p, false, true)
    }
}
