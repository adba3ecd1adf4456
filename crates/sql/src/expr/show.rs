//! Expressions as text, for EXPLAIN: close to PostgreSQL's ruleutils.

use super::{Expr, Matcher, SubqueryKind};
use crate::types::typename::format_type;
use crate::types::{OutputSettings, text};
use base::Value;

/// The text of `e`; `names` gives each slot's.
pub fn show(e: &Expr, names: &[String]) -> String {
    let s = |e: &Expr| show(e, names);
    let list = |l: &[Expr], sep: &str| l.iter().map(s).collect::<Vec<_>>().join(sep);
    match e {
        Expr::Const(v) => show_const(v),
        Expr::Param(i) => format!("${}", i + 1),
        Expr::Slot(n) => names
            .get(*n as usize)
            .filter(|n| !n.is_empty())
            .cloned()
            .unwrap_or_else(|| format!("?{n}")),
        Expr::Once(_, e) => s(e),
        Expr::Call(c) => match (&c.op, &c.args[..]) {
            (Some(op), [a, b]) => format!("({} {op} {})", s(a), s(b)),
            (Some(op), [a]) => format!("({op} {})", s(a)),
            _ => format!("{}({})", c.f.name, list(&c.args, ", ")),
        },
        Expr::Compare(op, ab) => format!("({} {} {})", s(&ab.0), op.symbol(), s(&ab.1)),
        Expr::Distinct { not, args } => format!(
            "({} IS {}DISTINCT FROM {})",
            s(&args.0),
            if *not { "NOT " } else { "" },
            s(&args.1)
        ),
        Expr::And(l) => format!("({})", list(l, " AND ")),
        Expr::Or(l) => format!("({})", list(l, " OR ")),
        Expr::Not(e) => format!("(NOT {})", s(e)),
        Expr::IsNull { arg, not } => {
            format!("({} IS {}NULL)", s(arg), if *not { "NOT " } else { "" })
        }
        Expr::IsBool { arg, value, not } => format!(
            "({} IS {}{})",
            s(arg),
            if *not { "NOT " } else { "" },
            match value {
                Some(true) => "TRUE",
                Some(false) => "FALSE",
                None => "UNKNOWN",
            }
        ),
        Expr::Case { whens, otherwise } => {
            let w: Vec<String> = whens
                .iter()
                .map(|(c, r)| format!("WHEN {} THEN {}", s(c), s(r)))
                .collect();
            format!("CASE {} ELSE {} END", w.join(" "), s(otherwise))
        }
        Expr::Let { body, .. } => s(body),
        Expr::Coalesce(l) => format!("COALESCE({})", list(l, ", ")),
        Expr::NullIf(ab) => format!("NULLIF({}, {})", s(&ab.0), s(&ab.1)),
        Expr::Extreme { least, items } => format!(
            "{}({})",
            if *least { "LEAST" } else { "GREATEST" },
            list(items, ", ")
        ),
        Expr::Cast(c) => format!("({})::{}", s(&c.arg), format_type(c.to.ty, c.to.typmod)),
        Expr::InList(l) => format!(
            "({} {} ({}))",
            s(&l.arg),
            if l.negated { "<> ALL" } else { "= ANY" },
            list(&l.items, ", ")
        ),
        Expr::AnyAll(a) => {
            let op = match &a.matcher {
                Matcher::Compare(op) => op.symbol(),
                Matcher::Call(_, op) => op,
            };
            let q = if a.all { "ALL" } else { "ANY" };
            format!("({} {op} {q} ({}))", s(&a.left), s(&a.array))
        }
        Expr::Array { items, .. } => format!("ARRAY[{}]", list(items, ", ")),
        Expr::Subscript { array, indexes } => {
            let at: Vec<String> = indexes.iter().map(|i| format!("[{}]", s(i))).collect();
            format!("({}){}", s(array), at.concat())
        }
        Expr::Slice {
            array,
            lower,
            upper,
        } => {
            let b = |e: &Option<Box<Expr>>| e.as_ref().map(|e| s(e)).unwrap_or_default();
            format!("({})[{}:{}]", s(array), b(lower), b(upper))
        }
        Expr::Subquery(q) => {
            let n = q.plan + 1;
            match &q.kind {
                SubqueryKind::Exists { negated: true } => format!("(NOT EXISTS(SubPlan {n}))"),
                SubqueryKind::Exists { .. } => format!("EXISTS(SubPlan {n})"),
                SubqueryKind::Scalar => format!("(SubPlan {n})"),
                SubqueryKind::Array(_) => format!("ARRAY(SubPlan {n})"),
                SubqueryKind::AnyAll {
                    all: false,
                    hashable: true,
                    ..
                } if q.outer.is_empty() => format!("(hashed SubPlan {n})"),
                SubqueryKind::AnyAll { .. } => format!("(SubPlan {n})"),
            }
        }
        Expr::Record(l) => {
            let items: Vec<String> = l.iter().map(|(e, _)| s(e)).collect();
            format!("ROW({})", items.join(", "))
        }
    }
}

fn show_const(v: &Value) -> String {
    let ty = match v {
        Value::Null => return "NULL".into(),
        Value::Bool(b) => return b.to_string(),
        Value::Int2(_) | Value::Int4(_) => return v.as_i64().expect("an integer").to_string(),
        Value::Text(s) => return format!("'{}'::text", s.replace('\'', "''")),
        Value::Int8(x) => return format!("'{x}'::bigint"),
        v => v.natural_type().expect("NULL was looked at"),
    };
    let mut out = String::from("'");
    text::output(v, ty, &OutputSettings::default(), &mut out);
    format!("{out}'::{}", format_type(ty, -1))
}
