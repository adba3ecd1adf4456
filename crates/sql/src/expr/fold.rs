//! Constant folding, one node at a time: the binder calls [`fold`] on every node it makes, so parts are folded before the
//! whole. An expression that fails is left as it is: it fails when, and if, it is reached.
//!
//! [`hoist`] marks what is constant only within one execution (parameters, `now()`), so that it is computed once.

use super::{CmpOp, Expr, Slot};
use crate::functions::{EvalContext, NoSession, Volatility};
use crate::types::{OutputSettings, cast, ops};
use base::{Type, Value};

/// Whether a cast's result depends on settings or on the clock.
pub fn cast_volatility(from: Type, to: Type) -> Volatility {
    let reg = |t| {
        matches!(
            t,
            Type::RegClass | Type::RegType | Type::RegProc | Type::RegNamespace
        )
    };
    let date = |t| {
        matches!(
            t,
            Type::Date | Type::Time | Type::TimeTz | Type::Timestamp | Type::TimestampTz
        )
    };
    let zone = |t| matches!(t, Type::TimeTz | Type::TimestampTz);
    // What a field's type depends on counts for the whole.
    let made = |t: Type| t.element().unwrap_or(t).composite().is_some();
    if made(from) != made(to) {
        return Volatility::Stable;
    }
    if reg(from) && to.is_string() || reg(to) && from.is_string() {
        return Volatility::Stable;
    }
    if date(from) && to.is_string() || date(to) && from.is_string() {
        return Volatility::Stable;
    }
    if zone(from) != zone(to) && date(from) && date(to) {
        return Volatility::Stable;
    }
    if from == Type::Interval && to.is_string() || from == Type::Bytea && to.is_string() {
        return Volatility::Stable;
    }
    Volatility::Immutable
}

/// Whether a literal of a date-like type means the same whenever and wherever it is read.
fn settled_literal(text: &str, to: Type) -> bool {
    let t = text.trim();
    let iso = t.len() >= 10
        && t.as_bytes()[..4].iter().all(u8::is_ascii_digit)
        && t.as_bytes()[4] == b'-'
        && t.chars()
            .all(|c| c.is_ascii_digit() || "-:. T+Z".contains(c));
    match to {
        Type::Date | Type::Timestamp => iso || matches!(t, "infinity" | "-infinity" | "epoch"),
        Type::Time => t.starts_with(|c: char| c.is_ascii_digit()),
        Type::TimeTz => {
            let clock = |c: char| c.is_ascii_digit() || ":.+-".contains(c);
            t.chars().all(clock) && t.contains(['+', '-']) && t.contains(':')
        }
        Type::TimestampTz => {
            iso && (t.ends_with('Z') || t.len() > 10 && t[10..].contains(['+', '-']))
        }
        _ => false,
    }
}

fn is_const(e: &Expr) -> Option<&Value> {
    match e {
        Expr::Const(v) => Some(v),
        _ => None,
    }
}

/// Replaces a node whose parts are constants by its value.
pub fn fold(e: Expr, settings: &OutputSettings) -> Expr {
    match e {
        Expr::Call(c) => {
            if c.f.strict
                && c.f.foldable()
                && c.args
                    .iter()
                    .any(|a| is_const(a).is_some_and(Value::is_null))
            {
                return Expr::NULL;
            }
            if !c.f.foldable() || !c.args.iter().all(|a| is_const(a).is_some()) {
                return Expr::Call(c);
            }
            let args: Vec<Value> = c.args.iter().filter_map(is_const).cloned().collect();
            let mut cx = EvalContext {
                settings,
                session: &NoSession,
            };
            match c.f.call(&args, &mut cx) {
                Ok(v) => Expr::Const(v),
                Err(_) => Expr::Call(c),
            }
        }
        Expr::Cast(c) => {
            let Some(v) = is_const(&c.arg) else {
                return Expr::Cast(c);
            };
            if v.is_null() {
                return Expr::NULL;
            }
            let settled = cast_volatility(c.from.ty, c.to.ty) == Volatility::Immutable
                || c.from.ty.is_string() && v.as_str().is_some_and(|s| settled_literal(s, c.to.ty));
            if !settled {
                return Expr::Cast(c);
            }
            match cast::apply(v.clone(), c.from, c.to, c.explicit, settings) {
                Ok(v) => Expr::Const(v),
                Err(_) => Expr::Cast(c),
            }
        }
        Expr::Compare(op, ab) => match (is_const(&ab.0), is_const(&ab.1)) {
            (Some(a), _) | (_, Some(a)) if a.is_null() => Expr::NULL,
            (Some(a), Some(b)) => Expr::Const(Value::Bool(op.holds(ops::compare(a, b)))),
            _ => Expr::Compare(op, ab),
        },
        Expr::Not(e) => match *e {
            Expr::Const(Value::Bool(b)) => Expr::Const(Value::Bool(!b)),
            Expr::Const(Value::Null) => Expr::NULL,
            Expr::Compare(op, ab) => Expr::Compare(op.negate(), ab),
            Expr::Not(e) => *e,
            Expr::IsNull { arg, not } => Expr::IsNull { arg, not: !not },
            Expr::InList(mut l) => {
                l.negated = !l.negated;
                Expr::InList(l)
            }
            e => Expr::Not(Box::new(e)),
        },
        Expr::And(parts) => {
            let mut out = Vec::new();
            for p in parts {
                match p {
                    Expr::Const(Value::Bool(false)) => return Expr::Const(Value::Bool(false)),
                    Expr::Const(Value::Bool(true)) => {}
                    Expr::And(l) => out.extend(l),
                    p => out.push(p),
                }
            }
            Expr::and(out)
        }
        Expr::Or(parts) => {
            let mut out = Vec::new();
            for p in parts {
                match p {
                    Expr::Const(Value::Bool(true)) => return Expr::TRUE,
                    Expr::Const(Value::Bool(false)) => {}
                    Expr::Or(l) => out.extend(l),
                    p => out.push(p),
                }
            }
            match out.len() {
                0 => Expr::Const(Value::Bool(false)),
                1 => out.remove(0),
                _ => Expr::Or(out),
            }
        }
        Expr::IsNull { arg, not } => match is_const(&arg) {
            Some(v) => Expr::Const(Value::Bool(v.is_null() != not)),
            None => Expr::IsNull { arg, not },
        },
        Expr::Array {
            element,
            items,
            nested: false,
        } if items.iter().all(|i| is_const(i).is_some()) => {
            let items = items.iter().filter_map(is_const).cloned().collect();
            Expr::Const(Value::Array(Box::new(base::Array::one_dim(element, items))))
        }
        Expr::AnyAll(a) => match (&a.array, &a.matcher) {
            // `x = ANY (constant array)` is a list. Not for no elements: to a list a NULL is unknown, to an empty array it is not.
            (Expr::Const(Value::Array(items)), _) if items.items.is_empty() => Expr::AnyAll(a),
            (Expr::Const(Value::Array(items)), super::Matcher::Compare(CmpOp::Eq)) if !a.all => {
                Expr::InList(Box::new(super::InList {
                    arg: a.left,
                    items: items.items.iter().cloned().map(Expr::Const).collect(),
                    negated: false,
                }))
            }
            (Expr::Const(Value::Array(items)), super::Matcher::Compare(CmpOp::Ne)) if a.all => {
                Expr::InList(Box::new(super::InList {
                    arg: a.left,
                    items: items.items.iter().cloned().map(Expr::Const).collect(),
                    negated: true,
                }))
            }
            _ => Expr::AnyAll(a),
        },
        e => e,
    }
}

/// Marks the largest parts that are constant within an execution. `new_slot` gives them places.
pub fn hoist(e: &mut Expr, new_slot: &mut dyn FnMut() -> Slot) {
    let worth = matches!(
        e,
        Expr::Call(_) | Expr::Cast(_) | Expr::Array { .. } | Expr::Case { .. } | Expr::Coalesce(_)
    );
    if worth && e.is_fixed() && !e.has_subquery() && e.volatility() < Volatility::Volatile {
        let inner = std::mem::replace(e, Expr::NULL);
        *e = Expr::Once(new_slot(), Box::new(inner));
        return;
    }
    if !matches!(e, Expr::Once(..)) {
        e.children_mut(&mut |c| hoist(c, new_slot));
    }
}
