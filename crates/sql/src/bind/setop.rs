//! UNION, INTERSECT, EXCEPT, VALUES, TABLE.

use super::expr::Env;
use super::select::{QCol, Selected};
use super::{Binder, Bound, Rel, Scope};
use crate::expr::Expr;
use crate::logical::{Logical, SetKind, Values};
use base::{ColumnType, Error, Result, SqlState, Type};
use sqlparser::ast::{self, SetExpr, SetOperator, SetQuantifier};

/// One side of a set operation, its outputs not yet of their final types.
struct Branch {
    node: Logical,
    cols: Vec<(String, Bound, (u32, i16))>,
    /// It is a UNION; whether of all rows.
    union: Option<bool>,
}

/// A UNION of what its sides write to the same slots.
fn union(sides: Vec<Logical>, slots: &[u32], all: bool) -> Logical {
    let rows = Logical::Append(sides);
    match all {
        true => rows,
        false => rows.unique(slots.iter().map(|&s| Expr::Slot(s)).collect()),
    }
}

impl Binder<'_> {
    /// A body other than a SELECT.
    pub(super) fn set_expr(
        &mut self,
        e: &SetExpr,
        scope: &Scope<'_>,
        expected: Option<&[ColumnType]>,
    ) -> Result<Rel> {
        match e {
            SetExpr::Values(v) => self.values(v, scope, expected),
            SetExpr::Query(q) => self.query(q, scope, expected),
            SetExpr::SetOperation { .. } => {
                let b = self.branch(e, scope)?;
                let types: Vec<ColumnType> = b.cols.iter().map(|c| c.1.ty).collect();
                let types = settle_types(&types, expected);
                self.finish_branch(b, &types)
            }
            SetExpr::Table(t) => {
                let q = super::syntax::of_table(t)?;
                self.query(&q, scope, expected)
            }
            SetExpr::Select(_) => Err(Error::internal("a SELECT is no set operation")),
            _ => Err(Error::unsupported("a data-modifying statement here")),
        }
    }

    /// A side of a set operation. A chain is walked without recursion on its left side.
    fn branch(&mut self, e: &SetExpr, scope: &Scope<'_>) -> Result<Branch> {
        self.enter()?;
        let depth = self.depth;
        let (mut chain, mut first) = (vec![], e);
        while let SetExpr::SetOperation {
            left,
            op,
            set_quantifier,
            right,
        } = first
        {
            chain.push((*op, *set_quantifier, &**right));
            first = left;
        }
        let before = self.recursions();
        let mut b = match first {
            SetExpr::Select(s) => {
                let tail = super::query::Tail {
                    order: &[],
                    limit: None,
                    ties: false,
                    offset: None,
                    locks: &[],
                    above: None,
                };
                match self.select_unsettled(s, tail, scope)? {
                    Selected::Flat { .. } => {
                        return Err(Error::internal("a branch is not flat"));
                    }
                    Selected::Rel(r) => branch_of(r),
                }
            }
            other => branch_of(self.set_expr(other, scope, None)?),
        };
        for (op, quantifier, right) in chain.into_iter().rev() {
            let second = self.recursions();
            let r = self.branch(right, scope)?;
            match (op, quantifier == SetQuantifier::All) {
                (SetOperator::Except, all) => {
                    self.no_recursion_since(if all { before } else { second }, "EXCEPT")?;
                }
                (SetOperator::Intersect, true) => {
                    self.no_recursion_since(before, "INTERSECT")?;
                }
                _ => {}
            }
            b = self.combine(op, quantifier, b, r)?;
        }
        self.depth = depth - 1;
        Ok(b)
    }

    fn combine(
        &mut self,
        op: SetOperator,
        quantifier: SetQuantifier,
        l: Branch,
        r: Branch,
    ) -> Result<Branch> {
        let what = match op {
            SetOperator::Union => "UNION",
            SetOperator::Intersect => "INTERSECT",
            SetOperator::Except => "EXCEPT",
            SetOperator::Minus => return Err(Error::unsupported("MINUS")),
        };
        let all = match quantifier {
            SetQuantifier::All => true,
            SetQuantifier::None | SetQuantifier::Distinct => false,
            _ => return Err(Error::unsupported("BY NAME")),
        };
        if l.cols.len() != r.cols.len() {
            return Err(Error::new(
                SqlState::SYNTAX_ERROR,
                format!("each {what} query must have the same number of columns"),
            ));
        }
        let mut types = Vec::new();
        for (a, b) in l.cols.iter().zip(&r.cols) {
            types.push(self.common_type(&[a.1.ty, b.1.ty], what)?);
        }
        let same = l.cols.iter().zip(&types).all(|(c, t)| c.1.ty == *t);
        if let (SetOperator::Union, true, Some(before)) = (op, same, l.union)
            && before == all
        {
            return self.joined(l, r, &types, all);
        }
        // The left side is one level further down now.
        self.enter()?;
        let slots: Vec<_> = l
            .cols
            .iter()
            .map(|c| {
                let s = self.slot(c.0.clone());
                self.used[s as usize] = true;
                s
            })
            .collect();
        let names: Vec<(String, (u32, i16))> =
            l.cols.iter().map(|c| (c.0.clone(), (0, 0))).collect();
        let left = self.put_in_slots(l, &types, &slots, what)?;
        let right = self.put_in_slots(r, &types, &slots, what)?;
        let node = match op {
            SetOperator::Union => union(vec![left, right], &slots, all),
            _ => Logical::SetOp {
                kind: if op == SetOperator::Intersect {
                    SetKind::Intersect
                } else {
                    SetKind::Except
                },
                all,
                left: Box::new(left),
                right: Box::new(right),
                slots: slots.clone(),
            },
        };
        let cols = names
            .into_iter()
            .zip(slots)
            .zip(types)
            .map(|(((n, o), s), ty)| {
                let expr = Expr::Slot(s);
                (n, Bound { expr, ty }, o)
            })
            .collect();
        let union = (op == SetOperator::Union).then_some(all);
        Ok(Branch { node, cols, union })
    }

    /// One more side of a UNION of the same types, which stays one operation however many sides it has.
    fn joined(&mut self, l: Branch, r: Branch, types: &[ColumnType], all: bool) -> Result<Branch> {
        let slot = |c: &(String, Bound, (u32, i16))| match c.1.expr {
            Expr::Slot(s) => s,
            _ => unreachable!("a set operation gives slots"),
        };
        let slots: Vec<_> = l.cols.iter().map(slot).collect();
        let right = self.put_in_slots(r, types, &slots, "UNION")?;
        let mut sides = match l.node {
            Logical::Append(sides) => sides,
            Logical::Unique { input, .. } => match *input {
                Logical::Append(sides) => sides,
                _ => unreachable!("a UNION appends its sides"),
            },
            _ => unreachable!("a UNION appends its sides"),
        };
        sides.push(right);
        Ok(Branch {
            node: union(sides, &slots, all),
            ..l
        })
    }

    /// Converts a branch's outputs and puts them in these slots.
    fn put_in_slots(
        &mut self,
        b: Branch,
        types: &[ColumnType],
        slots: &[u32],
        what: &str,
    ) -> Result<Logical> {
        let mut exprs = Vec::new();
        for (((_, bound, _), &ty), &s) in b.cols.into_iter().zip(types).zip(slots) {
            exprs.push((s, self.coerce_common(bound, ty, what)?));
        }
        Ok(Logical::Project {
            input: Box::new(b.node),
            exprs,
        })
    }

    fn finish_branch(&mut self, b: Branch, types: &[ColumnType]) -> Result<Rel> {
        let mut cols = Vec::new();
        let mut exprs = Vec::new();
        for ((name, bound, origin), &ty) in b.cols.into_iter().zip(types) {
            let slot = match &bound.expr {
                Expr::Slot(s) if bound.ty.ty == ty.ty => *s,
                _ => {
                    let e = self.coerce_common(bound, ty, "UNION")?;
                    let s = self.slot(name.clone());
                    exprs.push((s, e));
                    s
                }
            };
            self.used[slot as usize] = true;
            cols.push(QCol {
                name,
                slot,
                ty,
                origin,
            });
        }
        let mut node = b.node;
        if !exprs.is_empty() {
            node = Logical::Project {
                input: Box::new(node),
                exprs,
            };
        }
        Ok(Rel { node, cols })
    }

    /// Makes a recursive CTE's parts write the same slots: `(node, columns)` of the first part settled, then the step.
    pub(super) fn recursive_parts(
        &mut self,
        body: &SetExpr,
        scope: &Scope<'_>,
        name: &str,
        run_step: &mut dyn FnMut(&mut Self, &SetExpr, &[QCol]) -> Result<Rel>,
    ) -> Result<(Logical, Logical, bool, Vec<QCol>)> {
        let SetExpr::SetOperation {
            left,
            op: SetOperator::Union,
            set_quantifier,
            right,
        } = body
        else {
            return Err(Error::new(
                SqlState::INVALID_RECURSION,
                format!(
                    "recursive query \"{name}\" does not have the form non-recursive-term UNION [ALL] recursive-term"
                ),
            ));
        };
        let distinct = *set_quantifier != SetQuantifier::All;
        let first = self.branch(left, scope)?;
        let types: Vec<ColumnType> = first.cols.iter().map(|c| c.1.ty).collect();
        let types = settle_types(&types, None);
        let mut cols = Vec::new();
        for ((n, _, _), &ty) in first.cols.iter().zip(&types) {
            let slot = self.slot(format!("{name}.{n}"));
            self.used[slot as usize] = true;
            cols.push(QCol {
                name: n.clone(),
                slot,
                ty,
                origin: (0, 0),
            });
        }
        let slots: Vec<u32> = cols.iter().map(|c| c.slot).collect();
        let first = self.put_in_slots(first, &types, &slots, "UNION")?;
        let step = branch_of(run_step(self, right, &cols)?);
        if step.cols.len() != cols.len() {
            return Err(Error::new(
                SqlState::SYNTAX_ERROR,
                "each UNION query must have the same number of columns",
            ));
        }
        for (i, (c, s)) in cols.iter().zip(&step.cols).enumerate() {
            let both = [c.ty.ty, s.1.ty.ty];
            let common = crate::functions::select_common_type(&both);
            if common != Some(c.ty.ty) {
                let shown = crate::types::typename::format_type;
                return Err(Error::new(
                    SqlState::DATATYPE_MISMATCH,
                    format!(
                        "recursive query \"{name}\" column {} has type {} in non-recursive term but type {} overall",
                        i + 1,
                        shown(c.ty.ty, -1),
                        shown(common.unwrap_or(s.1.ty.ty), -1)
                    ),
                )
                .hint("Cast the output of the non-recursive term to the correct type."));
            }
        }
        let step = self.put_in_slots(step, &types, &slots, "UNION")?;
        Ok((first, step, distinct, cols))
    }

    /// A branch of a recursive step.
    pub(super) fn step(&mut self, e: &SetExpr, scope: &Scope<'_>) -> Result<Rel> {
        let b = self.branch(e, scope)?;
        let types: Vec<ColumnType> = b.cols.iter().map(|c| c.1.ty).collect();
        let types = settle_types(&types, None);
        self.finish_branch(b, &types)
    }

    fn values(
        &mut self,
        v: &ast::Values,
        scope: &Scope<'_>,
        expected: Option<&[ColumnType]>,
    ) -> Result<Rel> {
        let width = v.rows.first().map_or(0, |r| r.content.len());
        if v.rows.iter().any(|r| r.content.len() != width) {
            return Err(Error::new(
                SqlState::SYNTAX_ERROR,
                "VALUES lists must all be the same length",
            ));
        }
        let mut columns: Vec<Vec<Bound>> = vec![Vec::with_capacity(v.rows.len()); width];
        for r in &v.rows {
            for (e, column) in r.content.iter().zip(&mut columns) {
                let mut env = Env::plain(scope, "VALUES");
                column.push(self.expr(e, &mut env)?);
            }
        }
        let mut rows: Vec<Vec<Expr>> = vec![Vec::with_capacity(width); v.rows.len()];
        let mut cols = Vec::new();
        for (i, column) in columns.into_iter().enumerate() {
            let types: Vec<ColumnType> = column.iter().map(|b| b.ty).collect();
            let mut ty = self.common_type(&types, "VALUES")?;
            if types.iter().all(|t| t.ty == Type::Unknown)
                && let Some(e) = expected.and_then(|e| e.get(i))
            {
                ty = *e;
            }
            for (b, row) in column.into_iter().zip(&mut rows) {
                row.push(self.coerce_common(b, ty, "VALUES")?);
            }
            let name = format!("column{}", i + 1);
            let slot = self.slot(name.clone());
            self.used[slot as usize] = true;
            cols.push(QCol {
                name,
                slot,
                ty,
                origin: (0, 0),
            });
        }
        let node = Logical::Values(Values {
            rows,
            out: cols.iter().map(|c| c.slot).collect(),
        });
        Ok(Rel { node, cols })
    }
}

fn branch_of(r: Rel) -> Branch {
    // A literal or parameter of unknown type is read as the type that the operation settles.
    let literal = |slot| match &r.node {
        Logical::Project { exprs, .. } => exprs.iter().find_map(|(s, e)| match e {
            Expr::Const(_) | Expr::Param(_) if *s == slot => Some(e.clone()),
            _ => None,
        }),
        _ => None,
    };
    let cols = r
        .cols
        .iter()
        .map(|c| {
            let expr = match c.ty.ty {
                Type::Unknown => literal(c.slot).unwrap_or(Expr::Slot(c.slot)),
                _ => Expr::Slot(c.slot),
            };
            (c.name.clone(), Bound { expr, ty: c.ty }, c.origin)
        })
        .collect();
    Branch {
        node: r.node,
        cols,
        union: None,
    }
}

/// Unknown outputs become what is expected, or text.
fn settle_types(types: &[ColumnType], expected: Option<&[ColumnType]>) -> Vec<ColumnType> {
    types
        .iter()
        .enumerate()
        .map(|(i, t)| match t.ty {
            Type::Unknown => expected
                .and_then(|e| e.get(i).copied())
                .unwrap_or(Type::Text.into()),
            _ => *t,
        })
        .collect()
}
