//! Expressions.

use super::window::Windows;
use super::{Binder, Bound, Scope};
use crate::expr::{Expr, Slot};
use crate::logical::{Agg, SetCall};
use base::packed::bits;
use base::{ColumnType, Error, Numeric, Packed, Result, SqlState, Type, Value};
use sqlparser::ast::{self, AccessExpr, Expr as Ast, Subscript, UnaryOperator};
use std::str::FromStr;

/// With less stack than this left, binding goes on with a new piece of this size.
const RED_ZONE: usize = 256 << 10;
const STACK: usize = 8 << 20;

/// Of an array.
const MOST_DIMENSIONS: usize = 6;

/// Where an expression stands: what it may hold, and what it collects.
pub(crate) struct Env<'s, 'p> {
    pub scope: &'s Scope<'p>,
    /// `WHERE`, `JOIN conditions` …, for messages.
    pub clause: &'static str,
    /// Aggregate calls met, when they may stand here.
    pub aggs: Option<Vec<Agg>>,
    /// Calls of GROUPING met, with their arguments. They may stand where aggregates may.
    pub groupings: Vec<(Slot, Vec<Expr>)>,
    /// Set-returning functions met, when they may stand here.
    pub sets: Option<Vec<SetCall>>,
    pub in_aggregate: bool,
    /// Windows and the calls met, when calls with OVER may stand here.
    pub windows: Option<Windows<'s>>,
    pub in_window: bool,
    /// CASE or COALESCE, inside of which no set may stand: whether it is asked for at all depends on the row.
    pub in_branch: Option<&'static str>,
}

impl<'s, 'p> Env<'s, 'p> {
    /// A place where neither aggregates nor sets may stand.
    pub fn plain(scope: &'s Scope<'p>, clause: &'static str) -> Env<'s, 'p> {
        Env {
            scope,
            clause,
            aggs: None,
            groupings: vec![],
            sets: None,
            in_aggregate: false,
            windows: None,
            in_window: false,
            in_branch: None,
        }
    }
}

impl<'s, 'p> Env<'s, 'p> {
    /// The arguments of an aggregate that stands here: neither aggregates nor sets may stand there.
    pub fn argument(&self) -> Env<'s, 'p> {
        Env {
            in_aggregate: true,
            ..Env::plain(self.scope, self.clause)
        }
    }
}

impl Binder<'_> {
    /// Binds an expression.
    pub fn expr(&mut self, e: &Ast, env: &mut Env<'_, '_>) -> Result<Bound> {
        base::memory::check()?;
        base::cancel::work(256)?;
        self.nesting += 1;
        self.deepest = self.deepest.max(self.nesting);
        let b = stacker::maybe_grow(RED_ZONE, STACK, || self.expr_inside(e, env));
        self.nesting -= 1;
        b
    }

    fn expr_inside(&mut self, e: &Ast, env: &mut Env<'_, '_>) -> Result<Bound> {
        match e {
            Ast::Identifier(i) => self.name_or_value(i, env),
            Ast::CompoundIdentifier(parts) => Ok(self.bind_name(parts, env.scope)?.0),
            Ast::Nested(e) => self.expr(e, env),
            Ast::Value(v) => self.literal(&v.value),
            Ast::TypedString(t) => {
                let (text, to) = self.type_written(&t.data_type)?;
                let b = self.literal(&t.value.value)?;
                self.cast_to(b, &text, to)
            }
            Ast::Interval(i) => self.interval(i, env),
            Ast::Cast {
                kind,
                expr,
                data_type,
                ..
            } => {
                if !matches!(kind, ast::CastKind::Cast | ast::CastKind::DoubleColon) {
                    return Err(Error::unsupported("TRY_CAST"));
                }
                let (text, to) = self.type_written(data_type)?;
                if let Ast::Array(a) = &**expr
                    && to.ty.element().is_some()
                {
                    return self.array(&a.elem, Some(to.ty), env);
                }
                let b = self.expr(expr, env)?;
                self.cast_to(b, &text, to)
            }
            Ast::IsNull(e) => self.is_null(e, false, env),
            Ast::IsNotNull(e) => self.is_null(e, true, env),
            Ast::IsTrue(e) => self.is_bool(e, Some(true), false, env),
            Ast::IsNotTrue(e) => self.is_bool(e, Some(true), true, env),
            Ast::IsFalse(e) => self.is_bool(e, Some(false), false, env),
            Ast::IsNotFalse(e) => self.is_bool(e, Some(false), true, env),
            Ast::IsUnknown(e) => self.is_bool(e, None, false, env),
            Ast::IsNotUnknown(e) => self.is_bool(e, None, true, env),
            Ast::IsDistinctFrom(a, b) => self.distinct(a, b, false, env),
            Ast::IsNotDistinctFrom(a, b) => self.distinct(a, b, true, env),
            Ast::InList {
                expr,
                list,
                negated,
            } => self.in_list(expr, list, *negated, env),
            Ast::InSubquery {
                expr,
                subquery,
                negated,
            } => {
                let b = self.any_subquery(expr, "=", subquery, false, env)?;
                Ok(self.negate_if(b, *negated))
            }
            Ast::Between {
                expr,
                negated,
                low,
                high,
            } => {
                let both = self.between(expr, low, high, env)?;
                Ok(self.negate_if(Bound::new(both, Type::Bool), *negated))
            }
            Ast::BinaryOp { left, op, right } => self.binary(left, op, right, env),
            Ast::UnaryOp { op, expr } => self.unary(op, expr, env),
            Ast::Like {
                negated,
                any,
                expr,
                pattern,
                escape_char,
            } => {
                let op = if *negated { "!~~" } else { "~~" };
                self.like(op, *any, expr, (pattern, escape_char.as_deref()), env)
            }
            Ast::ILike {
                negated,
                any,
                expr,
                pattern,
                escape_char,
            } => {
                let op = if *negated { "!~~*" } else { "~~*" };
                self.like(op, *any, expr, (pattern, escape_char.as_deref()), env)
            }
            Ast::SimilarTo {
                negated,
                expr,
                pattern,
                escape_char,
            } => {
                let x = self.expr(expr, env)?;
                let mut args = vec![self.expr(pattern, env)?];
                if let Some(e) = escape_char {
                    args.push(self.expr(e, env)?);
                }
                let pattern = self.call("similar_to_escape", args)?;
                self.operator(if *negated { "!~" } else { "~" }, x, pattern)
            }
            Ast::AnyOp {
                left,
                compare_op,
                right,
                ..
            } => self.any_all(left, compare_op, right, false, env),
            Ast::AllOp {
                left,
                compare_op,
                right,
            } => self.any_all(left, compare_op, right, true, env),
            Ast::AtTimeZone {
                timestamp,
                time_zone,
            } => {
                let (t, z) = (self.expr(timestamp, env)?, self.expr(time_zone, env)?);
                self.call("timezone", vec![z, t])
            }
            Ast::Extract { field, expr, .. } => {
                let field = field.to_string();
                let field = field.trim_matches(['"', '\'']).to_lowercase();
                let x = self.expr(expr, env)?;
                self.call(
                    "extract",
                    vec![Bound::new(Expr::Const(Value::from(field)), Type::Text), x],
                )
            }
            Ast::Ceil {
                expr,
                field: ast::CeilFloorKind::DateTimeField(ast::DateTimeField::NoDateTime),
            } => self.call_on("ceil", &[expr], env),
            Ast::Floor {
                expr,
                field: ast::CeilFloorKind::DateTimeField(ast::DateTimeField::NoDateTime),
            } => self.call_on("floor", &[expr], env),
            Ast::Position { expr, r#in } => self.call_on("position", &[r#in, expr], env),
            Ast::Substring {
                expr,
                substring_from,
                substring_for,
                shorthand,
                ..
            } => match (substring_from, substring_for) {
                // It has no form with a pattern.
                (Some(f), None) if *shorthand => self.call_on("substr", &[expr, f], env),
                (Some(f), Some(n)) if *shorthand => self.call_on("substr", &[expr, f, n], env),
                (Some(f), Some(n)) => self.call_on("substring", &[expr, f, n], env),
                (Some(f), None) => self.call_on("substring", &[expr, f], env),
                (None, Some(n)) => {
                    let x = self.expr(expr, env)?;
                    let one = Bound::new(Expr::Const(Value::Int4(1)), Type::Int4);
                    let n = self.expr(n, env)?;
                    self.call("substring", vec![x, one, n])
                }
                (None, None) => self.call_on("substring", &[expr], env),
            },
            Ast::Trim {
                trim_where,
                trim_what,
                expr,
                trim_characters,
            } => {
                let name = match trim_where {
                    Some(ast::TrimWhereField::Leading) => "ltrim",
                    Some(ast::TrimWhereField::Trailing) => "rtrim",
                    _ => "btrim",
                };
                let mut args = vec![self.expr(expr, env)?];
                if let Some(w) = trim_what {
                    args.push(self.expr(w, env)?);
                }
                for c in trim_characters.iter().flatten() {
                    args.push(self.expr(c, env)?);
                }
                self.call(name, args)
            }
            Ast::Overlay {
                expr,
                overlay_what,
                overlay_from,
                overlay_for,
            } => {
                let mut parts: Vec<&Ast> = vec![expr, overlay_what, overlay_from];
                parts.extend(overlay_for.as_deref());
                self.call_on("overlay", &parts, env)
            }
            Ast::Collate { expr, collation } => match super::syntax::is_byte_order(collation) {
                true => self.expr(expr, env),
                false => Err(Error::unsupported(format!("collation {collation}"))),
            },
            Ast::Function(f) => self.function(f, env),
            Ast::Case {
                operand,
                conditions,
                else_result,
                ..
            } => {
                let around = env.in_branch.replace("CASE");
                let b = self.case(operand.as_deref(), conditions, else_result.as_deref(), env);
                env.in_branch = around;
                b
            }
            Ast::Exists { subquery, negated } => self.exists(subquery, *negated, env),
            Ast::Subquery(q) => self.scalar_subquery(q, env),
            Ast::Tuple(items) => self.row(items, env),
            Ast::Array(a) => self.array(&a.elem, None, env),
            Ast::CompoundFieldAccess { root, access_chain } => self.access(root, access_chain, env),
            Ast::Prefixed { prefix, value } => {
                let to = self.type_named(&prefix.to_string())?;
                let b = self.expr(value, env)?;
                self.explicit_cast(b, to)
            }
            Ast::GroupingSets(_) | Ast::Cube(_) | Ast::Rollup(_) => {
                Err(Error::unsupported("GROUPING SETS"))
            }
            other => Err(Error::unsupported(format!("the expression {other}"))),
        }
    }

    /// A column, or what SQL writes like one: `current_schema`, `user` …
    fn name_or_value(&mut self, i: &ast::Ident, env: &mut Env<'_, '_>) -> Result<Bound> {
        let found = self.bind_name(std::slice::from_ref(i), env.scope);
        match found {
            Err(e) if e.code() == SqlState::UNDEFINED_COLUMN && i.quote_style.is_none() => {
                match super::call::sql_value_function(&i.value.to_lowercase()) {
                    Some(name) => self.call(name, vec![]),
                    None => Err(e),
                }
            }
            found => Ok(found?.0),
        }
    }

    /// A literal. Numbers are int4, int8 or numeric; strings are of unknown type.
    pub fn literal(&mut self, v: &ast::Value) -> Result<Bound> {
        let text = |s: &str| Bound::new(Expr::Const(Value::text(s)), Type::Unknown);
        Ok(match v {
            ast::Value::Number(s, _) => number(s)?,
            ast::Value::UnicodeStringLiteral(s) if s.contains('\0') => {
                return Err(Error::new(
                    SqlState::SYNTAX_ERROR,
                    "invalid Unicode escape value",
                ));
            }
            ast::Value::SingleQuotedString(s)
            | ast::Value::EscapedStringLiteral(s)
            | ast::Value::UnicodeStringLiteral(s)
            | ast::Value::NationalStringLiteral(s) => text(s),
            ast::Value::DollarQuotedString(s) => text(&s.value),
            ast::Value::SingleQuotedByteStringLiteral(s) => {
                bit_string(bits::read_binary_digits(s)?)
            }
            ast::Value::HexStringLiteral(s) => bit_string(bits::read_hex(s)?),
            ast::Value::Boolean(b) => Bound::new(Expr::Const(Value::Bool(*b)), Type::Bool),
            ast::Value::Null => Bound::new(Expr::NULL, Type::Unknown),
            ast::Value::Placeholder(p) => self.param(p)?,
            other => return Err(Error::unsupported(format!("the literal {other}"))),
        })
    }

    fn interval(&mut self, i: &ast::Interval, env: &mut Env<'_, '_>) -> Result<Bound> {
        let b = self.expr(&i.value, env)?;
        let Expr::Const(Value::Text(s)) = &b.expr else {
            return self.explicit_cast(b, Type::Interval.into());
        };
        let first = i
            .leading_field
            .as_ref()
            .map(|f| f.to_string().to_lowercase());
        let last = i.last_field.as_ref().map(|f| f.to_string().to_lowercase());
        let (first, last) = match (first, last) {
            (Some(first), None) => (first.clone(), first),
            (Some(first), Some(last)) => (first, last),
            (None, _) => (String::new(), String::new()),
        };
        let text = super::syntax::interval_text(s, &first, &last);
        let mut to = ColumnType::plain(Type::Interval);
        let precision = match i.leading_field {
            Some(ast::DateTimeField::Second) => i.leading_precision,
            _ => i.fractional_seconds_precision,
        };
        if let Some(n) = precision {
            to.typmod = n.min(6) as i32;
        }
        let literal = Bound::new(Expr::Const(Value::from(text)), Type::Unknown);
        let mut b = self.explicit_cast(literal, to)?;
        if let Expr::Const(Value::Interval(i)) = &mut b.expr {
            crate::types::datetime::interval::keep_fields(i, &last);
        }
        b.ty.typmod = -1;
        Ok(b)
    }

    fn is_null(&mut self, e: &Ast, not: bool, env: &mut Env<'_, '_>) -> Result<Bound> {
        if let Some(items) = self.row_items(e) {
            // A row is NULL when all its fields are, and not NULL when none is; a field that is a row is not NULL.
            let mut parts = Vec::new();
            for i in items {
                let arg = Box::new(self.tested(i, env)?.expr);
                parts.push(Expr::IsNull { arg, not });
            }
            let all = self.fold(Expr::And(parts));
            return Ok(Bound::new(all, Type::Bool));
        }
        let b = self.tested(e, env)?;
        let e = match b.ty.ty.composite() {
            Some(ty) => self.composite_null_test(b, ty, not),
            None => self.null_test(b, not),
        };
        Ok(Bound::new(e, Type::Bool))
    }

    fn tested(&mut self, e: &Ast, env: &mut Env<'_, '_>) -> Result<Bound> {
        let b = self.expr(e, env)?;
        match b.expr {
            Expr::Param(_) if b.ty.ty == Type::Unknown => self.settle(b),
            _ => Ok(b),
        }
    }

    /// The test of what is bound: of the fields of a row, in each branch where there are some.
    fn null_test(&self, b: Bound, not: bool) -> Expr {
        let plain = |arg| {
            let arg = Box::new(arg);
            Expr::IsNull { arg, not }
        };
        if let Some(fields) = super::json_rows::fields(&b) {
            let parts = fields.iter().map(|(e, _)| plain(e.clone()));
            return self.fold(Expr::And(parts.collect()));
        }
        let branch = |e| self.null_test(Bound { expr: e, ty: b.ty }, not);
        let record = b.ty.ty == Type::Record;
        self.fold(match b.expr {
            Expr::Case { whens, otherwise } if record => Expr::Case {
                whens: whens.into_iter().map(|(c, e)| (c, branch(e))).collect(),
                otherwise: Box::new(branch(*otherwise)),
            },
            Expr::Let { slot, value, body } if record => Expr::Let {
                slot,
                value,
                body: Box::new(branch(*body)),
            },
            e => plain(e),
        })
    }

    fn is_bool(
        &mut self,
        e: &Ast,
        value: Option<bool>,
        not: bool,
        env: &mut Env<'_, '_>,
    ) -> Result<Bound> {
        let b = self.expr(e, env)?;
        let what = match value {
            Some(true) => "IS TRUE",
            Some(false) => "IS FALSE",
            None => "IS UNKNOWN",
        };
        let arg = self.condition(b, what)?;
        let e = Expr::IsBool {
            arg: Box::new(arg),
            value,
            not,
        };
        Ok(Bound::new(e, Type::Bool))
    }

    /// NOT, when asked.
    pub fn negate_if(&self, b: Bound, negated: bool) -> Bound {
        if !negated {
            return b;
        }
        Bound::new(self.fold(Expr::Not(Box::new(b.expr))), Type::Bool)
    }

    fn unary(&mut self, op: &UnaryOperator, e: &Ast, env: &mut Env<'_, '_>) -> Result<Bound> {
        if let (UnaryOperator::Minus, Some(s)) = (op, negated(e)) {
            return number(&s);
        }
        if let (
            UnaryOperator::Minus | UnaryOperator::Plus,
            Ast::BinaryOp {
                left,
                op: ast::BinaryOperator::PGExp,
                right,
            },
        ) = (op, e)
        {
            // A sign binds tighter than ^ in PostgreSQL.
            let signed = Ast::UnaryOp {
                op: *op,
                expr: left.clone(),
            };
            return self.binary(&signed, &ast::BinaryOperator::PGExp, right, env);
        }
        let b = self.expr(e, env)?;
        let symbol = match op {
            UnaryOperator::Not => {
                let c = self.condition(b, "NOT")?;
                return Ok(self.negate_if(Bound::new(c, Type::Bool), true));
            }
            UnaryOperator::Plus => "+",
            UnaryOperator::Minus => "-",
            UnaryOperator::BitwiseNot => "~",
            UnaryOperator::PGAbs => "@",
            UnaryOperator::PGSquareRoot => "|/",
            UnaryOperator::PGCubeRoot => "||/",
            other => return Err(Error::unsupported(format!("the operator {other}"))),
        };
        let r = crate::functions::lookup_operator(symbol, None, b.ty.ty)?;
        let ret = r.ret;
        let arg = self.coerce(b, r.args[0])?;
        let e = self.make_call(r, vec![arg], Some(symbol.into()));
        Ok(Bound::new(e, ret))
    }

    fn case(
        &mut self,
        operand: Option<&Ast>,
        conditions: &[ast::CaseWhen],
        otherwise: Option<&Ast>,
        env: &mut Env<'_, '_>,
    ) -> Result<Bound> {
        let operand = match operand {
            Some(o) => {
                let b = self.expr(o, env)?;
                let b = self.settle(b)?;
                let slot = self.slot(String::new());
                Some((slot, b))
            }
            None => None,
        };
        let mut tests = Vec::new();
        let mut results = Vec::new();
        // PostgreSQL looks for the common type from ELSE on.
        let last = match otherwise {
            Some(e) => self.expr(e, env)?,
            None => Bound::new(Expr::NULL, Type::Unknown),
        };
        for w in conditions {
            tests.push(match &operand {
                Some((slot, b)) => {
                    let x = Bound {
                        expr: Expr::Slot(*slot),
                        ty: b.ty,
                    };
                    let y = self.expr(&w.condition, env)?;
                    self.operator("=", x, y)?.expr
                }
                None => {
                    let c = self.expr(&w.condition, env)?;
                    self.condition(c, "CASE/WHEN")?
                }
            });
            results.push(self.expr(&w.result, env)?);
        }
        results.insert(0, last);
        let (mut results, ty) = self.unify(results, "CASE")?;
        let otherwise = Box::new(results.remove(0));
        let body = Expr::Case {
            whens: tests.into_iter().zip(results).collect(),
            otherwise,
        };
        let expr = match operand {
            Some((slot, b)) => Expr::Let {
                slot,
                value: Box::new(b.expr),
                body: Box::new(body),
            },
            None => body,
        };
        Ok(Bound { expr, ty })
    }

    fn like(
        &mut self,
        op: &str,
        any: bool,
        e: &Ast,
        (pattern, escape): (&Ast, Option<&Ast>),
        env: &mut Env<'_, '_>,
    ) -> Result<Bound> {
        if any || super::ops::each_of(pattern).is_some() {
            return match escape {
                None => self.like_each(op, e, pattern, env),
                Some(_) => Err(Error::unsupported("ESCAPE behind LIKE ANY")),
            };
        }
        let x = self.expr(e, env)?;
        let mut p = self.expr(pattern, env)?;
        if let Some(c) = escape {
            let c = self.expr(c, env)?;
            p = self.call("like_escape", vec![p, c])?;
        }
        self.operator(op, x, p)
    }

    fn between(
        &mut self,
        expr: &Ast,
        low: &Ast,
        high: &Ast,
        env: &mut Env<'_, '_>,
    ) -> Result<Expr> {
        let mut x = self.expr(expr, env)?;
        let symmetric = super::spelling::symmetric(low);
        let mut low = self.expr(symmetric.unwrap_or(low), env)?;
        let mut high = self.expr(high, env)?;
        let mut computed = vec![];
        if symmetric.is_some() || is_large(&x.expr) {
            self.compute_once(&mut x, &mut computed);
        }
        if symmetric.is_some() {
            self.compute_once(&mut low, &mut computed);
            self.compute_once(&mut high, &mut computed);
        }
        let mut within = |low: Bound, high: Bound| -> Result<Expr> {
            let a = self.operator(">=", x.clone(), low)?;
            let b = self.operator("<=", x.clone(), high)?;
            Ok(self.fold(Expr::And(vec![a.expr, b.expr])))
        };
        let whole = match symmetric {
            None => within(low, high)?,
            Some(_) => {
                let both = vec![within(low.clone(), high.clone())?, within(high, low)?];
                self.fold(Expr::Or(both))
            }
        };
        let around = computed.into_iter().rev();
        Ok(around.fold(whole, |body, (slot, value)| Expr::Let {
            slot,
            value: Box::new(value),
            body: Box::new(body),
        }))
    }

    /// Puts what an expression reads several times in a slot, so that it stands in the expression, and is computed, once. A copy for each
    /// reader would double with each level that such expressions nest. Rows are compared by their parts, and stay.
    fn compute_once(&mut self, b: &mut Bound, computed: &mut Vec<(Slot, Expr)>) {
        let plain = matches!(b.expr, Expr::Slot(_) | Expr::Const(_) | Expr::Param(_));
        if plain || matches!(b.ty.ty, Type::Unknown | Type::Record) {
            return;
        }
        let slot = self.slot(String::new());
        let value = std::mem::replace(&mut b.expr, Expr::Slot(slot));
        computed.push((slot, value));
    }

    /// The element of an array at these places.
    fn element_at(&mut self, array: Bound, indexes: Vec<Expr>) -> Result<Bound> {
        let n = indexes.len();
        if n > MOST_DIMENSIONS {
            let what = format!(
                "number of array dimensions ({n}) exceeds the maximum allowed ({MOST_DIMENSIONS})"
            );
            return Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, what));
        }
        let element = self.element_of(&array)?;
        let array = Box::new(array.expr);
        Ok(Bound::new(Expr::Subscript { array, indexes }, element))
    }

    fn access(&mut self, root: &Ast, chain: &[AccessExpr], env: &mut Env<'_, '_>) -> Result<Bound> {
        // `t.column[1]`: the parser takes the qualifier for the root.
        let dot = |a: &&AccessExpr| matches!(a, AccessExpr::Dot(Ast::Identifier(_)));
        let dots = chain.iter().take_while(dot).count();
        if let (Ast::Identifier(first), true) = (root, dots > 0) {
            let mut parts = vec![first.clone()];
            parts.extend(chain[..dots].iter().filter_map(|a| match a {
                AccessExpr::Dot(Ast::Identifier(i)) => Some(i.clone()),
                _ => None,
            }));
            return self.access(&Ast::CompoundIdentifier(parts), &chain[dots..], env);
        }
        let mut b = self.expr(root, env)?;
        let mut rest = chain;
        while let Some(first) = rest.first() {
            match first {
                AccessExpr::Subscript(Subscript::Index { .. }) => {
                    let n = rest
                        .iter()
                        .take_while(|a| matches!(a, AccessExpr::Subscript(Subscript::Index { .. })))
                        .count();
                    let mut indexes = Vec::new();
                    for a in &rest[..n] {
                        if let AccessExpr::Subscript(Subscript::Index { index }) = a {
                            let i = self.expr(index, env)?;
                            if b.ty.ty == Type::Jsonb {
                                // Not `->`, to which a scalar has an element.
                                let i = match i.ty.ty {
                                    Type::Int4 => self.explicit_cast(i, Type::Text.into())?,
                                    _ => i,
                                };
                                b = self.call("jsonb_extract_path", vec![b, i])?;
                            } else {
                                indexes.push(self.subscript(i)?);
                            }
                        }
                    }
                    if b.ty.ty == Type::Name && indexes.len() == 1 {
                        let at = Bound::new(indexes.remove(0), Type::Int4);
                        b = self.call("name byte", vec![b, at])?;
                    }
                    if !indexes.is_empty() {
                        b = self.element_at(b, indexes)?;
                    }
                    rest = &rest[n..];
                }
                AccessExpr::Subscript(Subscript::Slice {
                    lower_bound,
                    upper_bound,
                    stride: None,
                }) => {
                    self.element_of(&b)?;
                    let mut bound = |e: &Option<Ast>| -> Result<Option<Box<Expr>>> {
                        match e {
                            Some(e) => {
                                let i = self.expr(e, env)?;
                                Ok(Some(Box::new(self.subscript(i)?)))
                            }
                            None => Ok(None),
                        }
                    };
                    let (lower, upper) = (bound(lower_bound)?, bound(upper_bound)?);
                    b = Bound {
                        expr: Expr::Slice {
                            array: Box::new(b.expr),
                            lower,
                            upper,
                        },
                        ty: b.ty,
                    };
                    rest = &rest[1..];
                }
                AccessExpr::Dot(Ast::Identifier(field)) if super::syntax::is_star(field) => {
                    let what = format!("{root}.* outside of a list of columns");
                    return Err(Error::unsupported(what));
                }
                AccessExpr::Dot(Ast::Identifier(field)) => {
                    b = self.any_field(root, b, &crate::catalog::fold(field), env.scope)?;
                    rest = &rest[1..];
                }
                AccessExpr::Dot(field) => {
                    return Err(Error::unsupported(format!("the field selection .{field}")));
                }
                AccessExpr::Subscript(_) => {
                    return Err(Error::unsupported("a slice with a stride"));
                }
            }
        }
        Ok(b)
    }

    /// A subscript as an int4, converted as a value is for a column.
    fn subscript(&mut self, b: Bound) -> Result<Expr> {
        let kind = crate::types::cast::CastKind::Assignment;
        self.try_coerce(b, Type::Int4.into(), kind)?.ok_or_else(|| {
            Error::new(
                SqlState::DATATYPE_MISMATCH,
                "array subscript must have type integer",
            )
        })
    }

    fn element_of(&self, b: &Bound) -> Result<Type> {
        b.ty.ty.element().ok_or_else(|| {
            Error::new(
                SqlState::DATATYPE_MISMATCH,
                format!(
                    "cannot subscript type {} because it does not support subscripting",
                    crate::types::typename::format_type(b.ty.ty, -1)
                ),
            )
        })
    }
}

/// A literal `B'…'` or `X'…'`.
fn bit_string(form: Box<[u8]>) -> Bound {
    Bound::new(Expr::Const(Value::packed(Packed::Bit, form)), Type::Bit)
}

/// The literal that `-e` is where `e` is one, as PostgreSQL's grammar reads it: `-2147483648` is an int4, and `- -9223372036854775808` a numeric.
fn negated(e: &Ast) -> Option<String> {
    match e {
        Ast::Nested(e) => negated(e),
        Ast::Value(v) => match &v.value {
            ast::Value::Number(s, _) => Some(format!("-{s}")),
            _ => None,
        },
        Ast::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => negated(expr).map(|s| match s.strip_prefix('-') {
            Some(s) => s.to_owned(),
            None => format!("-{s}"),
        }),
        _ => None,
    }
}

/// A numeric literal.
fn number(s: &str) -> Result<Bound> {
    let plain = s.replace('_', "");
    let digits = plain.strip_prefix('-').unwrap_or(&plain);
    if let Some(radix) = [("0x", 16), ("0o", 8), ("0b", 2)]
        .iter()
        .find(|(p, _)| digits.to_ascii_lowercase().starts_with(p))
        .map(|(_, r)| *r)
        && let Ok(v) = i64::from_str_radix(&digits[2..], radix)
    {
        let v = if plain.starts_with('-') { -v } else { v };
        return Ok(integer(v));
    }
    if digits.bytes().all(|b| b.is_ascii_digit())
        && let Ok(v) = plain.parse::<i64>()
    {
        return Ok(integer(v));
    }
    match Numeric::from_str(&plain) {
        Ok(n) => Ok(Bound::new(Expr::Const(n.into()), Type::Numeric)),
        Err(()) => Err(Error::new(
            SqlState::SYNTAX_ERROR,
            format!("invalid number \"{s}\""),
        )),
    }
}

fn integer(v: i64) -> Bound {
    match i32::try_from(v) {
        Ok(v) => Bound::new(Expr::Const(Value::Int4(v)), Type::Int4),
        Err(_) => Bound::new(Expr::Const(Value::Int8(v)), Type::Int8),
    }
}

/// Whether a comparison may use the common order of values: both sides of one family, whose order is the one of
/// [`crate::types::ops::compare`].
pub(crate) fn comparable(a: Type, b: Type) -> bool {
    fn family(t: Type) -> u32 {
        match t {
            Type::Int2 | Type::Int4 | Type::Int8 => 1,
            Type::Float4 | Type::Float8 => 2,
            Type::Text | Type::Varchar | Type::Name => 3,
            Type::Oid | Type::RegClass | Type::RegType | Type::RegProc | Type::RegNamespace => 4,
            t => 1000 + t.oid(),
        }
    }
    let ordered = !matches!(a, Type::Json | Type::Jsonb | Type::Record | Type::Unknown);
    ordered && family(a) == family(b)
}

/// Whether an expression is larger than one that an index is over may be expected to be.
fn is_large(e: &Expr) -> bool {
    let mut parts = 0;
    e.any(&mut |_| {
        parts += 1;
        parts > 64
    })
}
