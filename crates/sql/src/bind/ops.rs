//! Operators: resolution, comparisons of rows, IN lists, ANY and ALL over arrays.

use super::expr::{Env, comparable};
use super::{Binder, Bound};
use crate::expr::{AnyAll, Call, CmpOp, Expr, InList, Matcher};
use crate::functions::{NEXT_IDENTITY, Resolved, Volatility, lookup_any_operator, lookup_operator};
use base::{Error, Result, SqlState, Type};
use sqlparser::ast::{self, BinaryOperator, Expr as Ast, FunctionArg, FunctionArgExpr};

/// The symbol of an operator as PostgreSQL writes it.
pub(super) fn symbol(op: &BinaryOperator) -> String {
    match op {
        BinaryOperator::NotEq => "<>".into(),
        BinaryOperator::PGCustomBinaryOperator(parts) => parts.last().cloned().unwrap_or_default(),
        BinaryOperator::PGLikeMatch => "~~".into(),
        BinaryOperator::PGILikeMatch => "~~*".into(),
        BinaryOperator::PGNotLikeMatch => "!~~".into(),
        BinaryOperator::PGNotILikeMatch => "!~~*".into(),
        BinaryOperator::Custom(s) if s == "!=" => "<>".into(),
        op => {
            let s = op.to_string();
            if s == "!=" { "<>".into() } else { s }
        }
    }
}

impl Binder<'_> {
    /// A call of a resolved function on arguments of its types.
    pub fn make_call(&mut self, f: Resolved, args: Vec<Expr>, op: Option<String>) -> Expr {
        self.writes |= matches!(f.name, "nextval" | "setval" | NEXT_IDENTITY);
        self.volatile += usize::from(f.volatility == Volatility::Volatile);
        self.looks_up |= crate::functions::is_lookup(f.name);
        self.sequences |= f.name == "pg_sequence_last_value";
        self.fold(Expr::Call(Box::new(Call { f, args, op })))
    }

    /// `l op r`.
    pub fn operator(&mut self, op: &str, l: Bound, r: Bound) -> Result<Bound> {
        let l = self.subject(op, l, &r)?;
        let (l, r) = self.rows_alike(l, r)?;
        let f = lookup_operator(op, Some(l.ty.ty), r.ty.ty)?;
        let (ret, left, right) = (f.ret, f.args[0], f.args[1]);
        let (a, b) = (self.coerce(l, left)?, self.coerce(r, right)?);
        let expr = match CmpOp::from_symbol(op) {
            Some(c) if ret == Type::Bool && comparable(left, right) => {
                self.fold(Expr::compare(c, a, b))
            }
            _ => self.make_call(f, vec![a, b], Some(op.into())),
        };
        Ok(Bound::new(expr, ret))
    }

    pub(super) fn binary(
        &mut self,
        left: &Ast,
        op: &BinaryOperator,
        right: &Ast,
        env: &mut Env<'_, '_>,
    ) -> Result<Bound> {
        match op {
            BinaryOperator::And | BinaryOperator::Or => {
                let and = *op == BinaryOperator::And;
                let what = if and { "AND" } else { "OR" };
                // Long chains lean to the left: walk them without recursion.
                let mut parts = vec![right];
                let mut rest = left;
                while let Ast::BinaryOp {
                    left,
                    op: inner,
                    right,
                } = rest
                    && inner == op
                {
                    parts.push(right);
                    rest = left;
                }
                parts.push(rest);
                let mut conditions = Vec::with_capacity(parts.len());
                for p in parts.into_iter().rev() {
                    let b = self.expr(p, env)?;
                    conditions.push(self.condition(b, what)?);
                }
                let e = if and {
                    Expr::And(conditions)
                } else {
                    Expr::Or(conditions)
                };
                return Ok(Bound::new(self.fold(e), Type::Bool));
            }
            _ => {}
        }
        let sym = symbol(op);
        if let Some(l) = self.row_items(left) {
            if let Ast::Subquery(q) = right {
                return self.row_subquery(&l, &sym, q, env);
            }
            if let Some(r) = self.row_items(right) {
                return self.compare_rows(&l, &sym, &r, env);
            }
        }
        let (l, r) = (self.expr(left, env)?, self.expr(right, env)?);
        self.operator(&sym, l, r).map_err(|e| {
            // The end of the left side is the end of its last operand.
            let mut last = left;
            while let Ast::BinaryOp { right, .. } = last {
                last = right;
            }
            let at = self.position(sqlparser::ast::Spanned::span(last).end);
            // PostgreSQL points at the operator; the text between has at least one blank as a rule.
            if at > 0 && e.fields().position == 0 {
                let p = operator_position(self.cx.source, at, &sym);
                e.at(p)
            } else {
                e
            }
        })
    }

    /// The fields of a row constructor: `(a, b)` or `ROW(a, b)`.
    pub(super) fn row_items<'e>(&self, e: &'e Ast) -> Option<Vec<&'e Ast>> {
        match e {
            Ast::Tuple(items) => Some(items.iter().collect()),
            Ast::Nested(e) => match &**e {
                Ast::Tuple(_) | Ast::Function(_) => self.row_items(e),
                _ => None,
            },
            Ast::Function(f) if f.name.to_string().eq_ignore_ascii_case("row") => match &f.args {
                ast::FunctionArguments::List(l) => l
                    .args
                    .iter()
                    .map(|a| match a {
                        ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(e)) => Some(e),
                        _ => None,
                    })
                    .collect(),
                _ => None,
            },
            _ => None,
        }
    }

    fn compare_rows(
        &mut self,
        l: &[&Ast],
        op: &str,
        r: &[&Ast],
        env: &mut Env<'_, '_>,
    ) -> Result<Bound> {
        if l.len() != r.len() {
            return Err(Error::new(
                SqlState::SYNTAX_ERROR,
                "unequal number of entries in row expressions",
            ));
        }
        let mut left = Vec::new();
        let mut right = Vec::new();
        for (a, b) in l.iter().zip(r) {
            left.push(self.expr(a, env)?);
            right.push(self.expr(b, env)?);
        }
        self.compare_bound_rows(left, op, right)
    }

    /// Compares two rows of bound fields.
    pub(super) fn compare_bound_rows(
        &mut self,
        left: Vec<Bound>,
        op: &str,
        right: Vec<Bound>,
    ) -> Result<Bound> {
        if op == "OVERLAPS" {
            let args: Vec<Bound> = left.into_iter().chain(right).collect();
            return self.call("overlaps", args);
        }
        let Some(cmp) = CmpOp::from_symbol(op) else {
            return Err(Error::unsupported(format!("the operator {op} on rows")));
        };
        let mut pairs = left.into_iter().zip(right);
        let e = match cmp {
            CmpOp::Eq | CmpOp::Ne => {
                let parts = pairs
                    .map(|(a, b)| Ok(self.operator("=", a, b)?.expr))
                    .collect::<Result<Vec<_>>>()?;
                let e = self.fold(Expr::And(parts));
                if cmp == CmpOp::Ne {
                    self.fold(Expr::Not(Box::new(e)))
                } else {
                    e
                }
            }
            _ => {
                // (a, b) < (c, d) is a < c OR (a = c AND b < d); the last column decides with the operator itself.
                let strict = if matches!(cmp, CmpOp::Lt | CmpOp::Le) {
                    "<"
                } else {
                    ">"
                };
                let mut columns: Vec<(Bound, Bound)> = pairs.by_ref().collect();
                let (a, b) = columns
                    .pop()
                    .ok_or_else(|| Error::unsupported("a comparison of rows without columns"))?;
                let mut e = self.operator(op, a, b)?.expr;
                while let Some((a, b)) = columns.pop() {
                    let less = self.operator(strict, a.clone(), b.clone())?.expr;
                    let same = self.operator("=", a, b)?.expr;
                    let both = self.fold(Expr::And(vec![same, e]));
                    e = self.fold(Expr::Or(vec![less, both]));
                }
                e
            }
        };
        Ok(Bound::new(e, Type::Bool))
    }

    pub(super) fn distinct(
        &mut self,
        a: &Ast,
        b: &Ast,
        not: bool,
        env: &mut Env<'_, '_>,
    ) -> Result<Bound> {
        let (l, r) = (self.expr(a, env)?, self.expr(b, env)?);
        let f = lookup_operator("=", Some(l.ty.ty), r.ty.ty)?;
        let (a, b) = (self.coerce(l, f.args[0])?, self.coerce(r, f.args[1])?);
        let null = |e: &Expr| matches!(e, Expr::Const(v) if v.is_null());
        // IS DISTINCT FROM NULL is IS NOT NULL.
        let e = if null(&b) {
            self.fold(Expr::IsNull {
                arg: Box::new(a),
                not: !not,
            })
        } else {
            Expr::Distinct {
                not,
                args: Box::new((a, b)),
            }
        };
        Ok(Bound::new(e, Type::Bool))
    }

    pub(super) fn in_list(
        &mut self,
        e: &Ast,
        list: &[Ast],
        negated: bool,
        env: &mut Env<'_, '_>,
    ) -> Result<Bound> {
        if let Some(left) = self.row_items(e) {
            let mut any = Vec::new();
            for item in list {
                let right = self.row_items(item).ok_or_else(|| {
                    Error::new(
                        SqlState::UNDEFINED_FUNCTION,
                        "IN compares a row with a value that is no row",
                    )
                })?;
                any.push(self.compare_rows(&left, "=", &right, env)?.expr);
            }
            let e = self.fold(Expr::Or(any));
            return Ok(self.negate_if(Bound::new(e, Type::Bool), negated));
        }
        let arg = self.expr(e, env)?;
        let mut items = Vec::with_capacity(list.len());
        for i in list {
            items.push(self.expr(i, env)?);
        }
        let mut types = vec![arg.ty.ty];
        types.extend(items.iter().map(|b| b.ty.ty));
        if let Some(t) = crate::functions::select_common_type(&types)
            && let Ok(f) = lookup_operator("=", Some(t), t)
            && comparable(f.args[0], f.args[1])
        {
            let to = f.args[0];
            let arg = self.coerce(arg, to)?;
            let mut exprs = Vec::with_capacity(items.len());
            for b in items {
                exprs.push(self.coerce(b, to)?);
            }
            if let [_] = exprs[..] {
                let op = if negated { CmpOp::Ne } else { CmpOp::Eq };
                let one = exprs.pop().expect("one");
                let e = self.fold(Expr::compare(op, arg, one));
                return Ok(Bound::new(e, Type::Bool));
            }
            let e = Expr::InList(Box::new(InList {
                arg,
                items: exprs,
                negated,
            }));
            return Ok(Bound::new(e, Type::Bool));
        }
        let mut any = Vec::new();
        for b in items {
            any.push(self.operator("=", arg.clone(), b)?.expr);
        }
        let e = self.fold(Expr::Or(any));
        Ok(self.negate_if(Bound::new(e, Type::Bool), negated))
    }

    pub(super) fn any_all(
        &mut self,
        left: &Ast,
        op: &BinaryOperator,
        right: &Ast,
        all: bool,
        env: &mut Env<'_, '_>,
    ) -> Result<Bound> {
        self.any_all_named(left, symbol(op), right, all, env)
    }

    /// `x LIKE ANY (patterns)`, and ALL.
    pub(super) fn like_each(
        &mut self,
        op: &str,
        left: &Ast,
        pattern: &Ast,
        env: &mut Env<'_, '_>,
    ) -> Result<Bound> {
        match each_of(pattern) {
            Some((list, all)) => self.any_all_named(left, op.to_owned(), &list, all, env),
            None => self.any_all_named(left, op.to_owned(), pattern, false, env),
        }
    }

    fn any_all_named(
        &mut self,
        left: &Ast,
        sym: String,
        right: &Ast,
        all: bool,
        env: &mut Env<'_, '_>,
    ) -> Result<Bound> {
        let mut inner = right;
        while let Ast::Nested(e) = inner {
            inner = e;
        }
        if let Ast::Subquery(q) = inner {
            return self.any_subquery(left, &sym, q, all, env);
        }
        let (l, r) = (self.expr(left, env)?, self.expr(inner, env)?);
        let (f, array_ty) = lookup_any_operator(&sym, l.ty.ty, r.ty.ty)?;
        let left = self.coerce(l, f.args[0])?;
        let array = self.coerce(r, array_ty)?;
        let matcher = match CmpOp::from_symbol(&sym) {
            Some(c) if comparable(f.args[0], f.args[1]) => Matcher::Compare(c),
            _ => Matcher::Call(f, sym),
        };
        let e = self.fold(Expr::AnyAll(Box::new(AnyAll {
            left,
            matcher,
            array,
            all,
        })));
        Ok(Bound::new(e, Type::Bool))
    }

    /// ROW(…) as a value of its own.
    pub(super) fn row(&mut self, items: &[Ast], env: &mut Env<'_, '_>) -> Result<Bound> {
        let mut fields = Vec::with_capacity(items.len());
        for i in items {
            fields.push(self.expr(i, env)?);
        }
        self.row_of(fields)
    }

    fn row_of(&mut self, values: Vec<Bound>) -> Result<Bound> {
        let mut fields = Vec::with_capacity(values.len());
        for b in values {
            // A literal is of no type until the row becomes a value of a composite type.
            let b = match b.expr {
                Expr::Const(_) => b,
                _ => self.settle(b)?,
            };
            let b = self.with_blanks(b)?;
            fields.push((b.expr, b.ty.ty));
        }
        Ok(Bound::new(Expr::Record(fields), Type::Record))
    }

    /// `ROW(a, t.*)`: the columns of `t` are fields. `None` for a row without such a star.
    pub(super) fn row_with_stars(
        &mut self,
        args: &[FunctionArg],
        env: &mut Env<'_, '_>,
    ) -> Result<Option<Bound>> {
        let is_star = |a: &FunctionArg| {
            matches!(
                a,
                FunctionArg::Unnamed(FunctionArgExpr::QualifiedWildcard(_))
            )
        };
        if !args.iter().any(is_star) {
            return Ok(None);
        }
        if self.stars.is_some() {
            // A view keeps its text, in which the star would come to stand for later columns.
            return Err(Error::unsupported(
                "the columns of a relation in a view's row",
            ));
        }
        let mut values = vec![];
        for a in args {
            match a {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => values.push(self.expr(e, env)?),
                FunctionArg::Unnamed(FunctionArgExpr::QualifiedWildcard(rel)) => {
                    let parts = rel.0.iter().filter_map(|p| p.as_ident().cloned());
                    let parts: Vec<ast::Ident> = parts.collect();
                    let columns = self.star_of(&parts, env.scope)?;
                    values.extend(columns.into_iter().map(|c| Bound {
                        expr: c.expr,
                        ty: c.ty,
                    }));
                }
                _ => return Err(Error::unsupported("this field of a row")),
            }
        }
        self.row_of(values).map(Some)
    }
}

fn operator_position(source: &str, from: usize, op: &str) -> usize {
    let rest: String = source.chars().skip(from.saturating_sub(1)).collect();
    match rest.find(op) {
        Some(i) => from + rest[..i].chars().count(),
        None => from,
    }
}

/// ANY, SOME or ALL over a list, which the parser takes for a call: the list, and whether all of it is meant.
pub(super) fn each_of(pattern: &Ast) -> Option<(Ast, bool)> {
    let Ast::Function(f) = pattern else {
        return None;
    };
    let all = match &*f.name.to_string().to_lowercase() {
        "all" => true,
        "any" | "some" => false,
        _ => return None,
    };
    let list = match &f.args {
        ast::FunctionArguments::List(l) => match &l.args[..] {
            [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(e))] => e.clone(),
            _ => return None,
        },
        ast::FunctionArguments::Subquery(q) => Ast::Subquery(q.clone()),
        ast::FunctionArguments::None => return None,
    };
    Some((list, all))
}
