//! Walking over expressions: which slots one reads, what kind of thing it is, and rewriting.

use super::{Expr, Slot, SubqueryKind};
use crate::functions::Volatility;

impl Expr {
    /// Calls `f` on each direct part.
    pub fn children<'e>(&'e self, f: &mut dyn FnMut(&'e Expr)) {
        match self {
            Expr::Const(_) | Expr::Param(_) | Expr::Slot(_) => {}
            Expr::Once(_, e) | Expr::Not(e) => f(e),
            Expr::Call(c) => c.args.iter().for_each(f),
            Expr::Compare(_, ab) | Expr::NullIf(ab) => {
                f(&ab.0);
                f(&ab.1);
            }
            Expr::Distinct { args, .. } => {
                f(&args.0);
                f(&args.1);
            }
            Expr::And(l) | Expr::Or(l) | Expr::Coalesce(l) => l.iter().for_each(f),
            Expr::Extreme { items, .. } | Expr::Array { items, .. } => items.iter().for_each(f),
            Expr::IsNull { arg, .. } | Expr::IsBool { arg, .. } => f(arg),
            Expr::Case { whens, otherwise } => {
                for (c, r) in whens {
                    f(c);
                    f(r);
                }
                f(otherwise);
            }
            Expr::Let { value, body, .. } => {
                f(value);
                f(body);
            }
            Expr::Cast(c) => f(&c.arg),
            Expr::InList(l) => {
                f(&l.arg);
                l.items.iter().for_each(f);
            }
            Expr::AnyAll(a) => {
                f(&a.left);
                f(&a.array);
            }
            Expr::Subscript { array, indexes } => {
                f(array);
                indexes.iter().for_each(f);
            }
            Expr::Slice {
                array,
                lower,
                upper,
            } => {
                f(array);
                lower.iter().for_each(|e| f(e));
                upper.iter().for_each(|e| f(e));
            }
            Expr::Subquery(s) => {
                if let SubqueryKind::AnyAll { left, .. } = &s.kind {
                    left.iter().for_each(f);
                }
            }
            Expr::Record(items) => items.iter().for_each(|(e, _)| f(e)),
        }
    }

    /// Calls `f` on each direct part, to change it.
    pub fn children_mut(&mut self, f: &mut dyn FnMut(&mut Expr)) {
        match self {
            Expr::Const(_) | Expr::Param(_) | Expr::Slot(_) => {}
            Expr::Once(_, e) | Expr::Not(e) => f(e),
            Expr::Call(c) => c.args.iter_mut().for_each(f),
            Expr::Compare(_, ab) | Expr::NullIf(ab) => {
                f(&mut ab.0);
                f(&mut ab.1);
            }
            Expr::Distinct { args, .. } => {
                f(&mut args.0);
                f(&mut args.1);
            }
            Expr::And(l) | Expr::Or(l) | Expr::Coalesce(l) => l.iter_mut().for_each(f),
            Expr::Extreme { items, .. } | Expr::Array { items, .. } => items.iter_mut().for_each(f),
            Expr::IsNull { arg, .. } | Expr::IsBool { arg, .. } => f(arg),
            Expr::Case { whens, otherwise } => {
                for (c, r) in whens {
                    f(c);
                    f(r);
                }
                f(otherwise);
            }
            Expr::Let { value, body, .. } => {
                f(value);
                f(body);
            }
            Expr::Cast(c) => f(&mut c.arg),
            Expr::InList(l) => {
                f(&mut l.arg);
                l.items.iter_mut().for_each(f);
            }
            Expr::AnyAll(a) => {
                f(&mut a.left);
                f(&mut a.array);
            }
            Expr::Subscript { array, indexes } => {
                f(array);
                indexes.iter_mut().for_each(f);
            }
            Expr::Slice {
                array,
                lower,
                upper,
            } => {
                f(array);
                lower.iter_mut().for_each(|e| f(e));
                upper.iter_mut().for_each(|e| f(e));
            }
            Expr::Subquery(s) => {
                if let SubqueryKind::AnyAll { left, .. } = &mut s.kind {
                    left.iter_mut().for_each(f);
                }
            }
            Expr::Record(items) => items.iter_mut().for_each(|(e, _)| f(e)),
        }
    }

    /// Whether `test` holds for this expression or a part of it.
    pub fn any(&self, test: &mut dyn FnMut(&Expr) -> bool) -> bool {
        if test(self) {
            return true;
        }
        let mut found = false;
        self.children(&mut |e| found = found || e.any(test));
        found
    }

    /// Calls `f` with every slot that it reads from outside, those of subqueries in it included.
    pub fn slots(&self, f: &mut dyn FnMut(Slot)) {
        match self {
            Expr::Slot(s) => f(*s),
            Expr::Let { slot, value, body } => {
                value.slots(f);
                body.slots(&mut |s| {
                    if s != *slot {
                        f(s)
                    }
                });
            }
            Expr::Subquery(s) => {
                s.outer.iter().for_each(|&s| f(s));
                self.children(&mut |e| e.slots(f));
            }
            _ => self.children(&mut |e| e.slots(f)),
        }
    }

    /// Whether it reads no slot: constant during an execution, unless volatile.
    pub fn is_fixed(&self) -> bool {
        let mut fixed = true;
        self.slots(&mut |_| fixed = false);
        fixed
    }

    pub fn has_subquery(&self) -> bool {
        self.any(&mut |e| matches!(e, Expr::Subquery(_)))
    }

    /// The worst volatility in it.
    pub fn volatility(&self) -> Volatility {
        let mut worst = Volatility::Immutable;
        self.any(&mut |e| {
            worst = worst.max(match e {
                Expr::Call(c) => c.f.volatility,
                Expr::AnyAll(a) => match &a.matcher {
                    super::Matcher::Call(f, _) => f.volatility,
                    super::Matcher::Compare(_) => Volatility::Immutable,
                },
                Expr::Cast(c) => super::fold::cast_volatility(c.from.ty, c.to.ty),
                Expr::Subquery(_) | Expr::Record(_) => Volatility::Stable,
                _ => Volatility::Immutable,
            });
            false
        });
        worst
    }

    /// Rewrites bottom up.
    pub fn rewrite(&mut self, f: &mut dyn FnMut(&mut Expr)) {
        self.children_mut(&mut |e| e.rewrite(f));
        f(self);
    }

    /// Structural equality, for GROUP BY and ORDER BY to recognise an expression. Subqueries are never equal.
    pub fn same(&self, other: &Expr) -> bool {
        use super::Matcher;
        let own = match (self, other) {
            (Expr::Const(a), Expr::Const(b)) => format!("{a:?}") == format!("{b:?}"),
            (Expr::Param(a), Expr::Param(b)) => a == b,
            (Expr::Slot(a), Expr::Slot(b)) => a == b,
            (Expr::Once(_, a), Expr::Once(_, b)) => return a.same(b),
            // A copy of the one that was bound (GROUP BY 1): each text has a plan of its own.
            (Expr::Subquery(a), Expr::Subquery(b)) => return a.plan == b.plan,
            (Expr::Call(a), Expr::Call(b)) => {
                a.f.name == b.f.name
                    && a.f.args == b.f.args
                    && a.op == b.op
                    && a.f.volatility != Volatility::Volatile
            }
            (Expr::Compare(a, _), Expr::Compare(b, _)) => a == b,
            (Expr::Distinct { not: a, .. }, Expr::Distinct { not: b, .. }) => a == b,
            (Expr::And(_), Expr::And(_))
            | (Expr::Or(_), Expr::Or(_))
            | (Expr::Not(_), Expr::Not(_))
            | (Expr::Coalesce(_), Expr::Coalesce(_))
            | (Expr::NullIf(_), Expr::NullIf(_))
            | (Expr::Case { .. }, Expr::Case { .. })
            | (Expr::Let { .. }, Expr::Let { .. })
            | (Expr::Subscript { .. }, Expr::Subscript { .. })
            | (Expr::Record(_), Expr::Record(_)) => true,
            (Expr::IsNull { not: a, .. }, Expr::IsNull { not: b, .. }) => a == b,
            (
                Expr::IsBool {
                    value: a, not: x, ..
                },
                Expr::IsBool {
                    value: b, not: y, ..
                },
            ) => (a, x) == (b, y),
            (Expr::Extreme { least: a, .. }, Expr::Extreme { least: b, .. }) => a == b,
            (Expr::Cast(a), Expr::Cast(b)) => a.from == b.from && a.to == b.to,
            (Expr::InList(a), Expr::InList(b)) => a.negated == b.negated,
            (Expr::AnyAll(a), Expr::AnyAll(b)) => {
                a.all == b.all
                    && match (&a.matcher, &b.matcher) {
                        (Matcher::Compare(x), Matcher::Compare(y)) => x == y,
                        (Matcher::Call(_, x), Matcher::Call(_, y)) => x == y,
                        _ => false,
                    }
            }
            (Expr::Array { element: a, .. }, Expr::Array { element: b, .. }) => a == b,
            _ => false,
        };
        if !own {
            return false;
        }
        // The operand's slot of a CASE differs from one to the next; it stands for the same thing.
        if let (
            Expr::Let {
                slot: a,
                value,
                body,
            },
            Expr::Let {
                slot: b,
                value: v2,
                body: b2,
            },
        ) = (self, other)
        {
            let mut renamed = (**b2).clone();
            renamed.rewrite(&mut |e| {
                if matches!(e, Expr::Slot(s) if s == b) {
                    *e = Expr::Slot(*a);
                }
            });
            return value.same(v2) && body.same(&renamed);
        }
        let (mut x, mut y) = (Vec::new(), Vec::new());
        self.children(&mut |e| x.push(e));
        other.children(&mut |e| y.push(e));
        x.len() == y.len() && x.iter().zip(y).all(|(a, b)| a.same(b))
    }
}
