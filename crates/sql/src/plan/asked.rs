//! Which conditions of a scan qualify to be asked again at commit. The scan's filter at run time says what qualifies and why.

use crate::expr::fold::cast_volatility;
use crate::expr::{Expr, Matcher, Slot};
use crate::functions::Volatility;
use base::{ColumnIdx, Type};

/// Which conditions of a scan can be asked later, and what they need.
pub struct Asked {
    /// As many, from the first on.
    pub conditions: usize,
    pub columns: Vec<(ColumnIdx, Slot)>,
    pub params: Vec<usize>,
    /// Slots that are there when the scan begins: of other relations, and ...
    pub given: Vec<Slot>,
    /// ... of what is computed once.
    pub once: Vec<Slot>,
}

impl Asked {
    /// What of these conditions qualifies, for a table whose columns' slots `column` knows; the row's key stands in the slot `key`.
    pub fn of(
        conditions: &[Expr],
        column: &dyn Fn(Slot) -> Option<usize>,
        key: Option<Slot>,
    ) -> Option<Asked> {
        let mut asked = Asked {
            conditions: 0,
            columns: vec![],
            params: vec![],
            given: vec![],
            once: vec![],
        };
        for c in conditions {
            let mut known = is_repeatable(c);
            c.slots(&mut |s| known &= Some(s) != key);
            if !known {
                break;
            }
            c.slots(&mut |s| match column(s) {
                Some(c) => asked.columns.push((c as ColumnIdx, s)),
                None => asked.given.push(s),
            });
            asked.note(c);
            asked.conditions += 1;
        }
        asked.columns.sort_unstable();
        asked.columns.dedup();
        asked.given.sort_unstable();
        asked.given.dedup();
        (asked.conditions > 0).then_some(asked)
    }

    fn note(&mut self, e: &Expr) {
        match e {
            Expr::Param(i) => self.params.push(*i as usize),
            Expr::Once(s, _) => self.once.push(*s),
            e => e.children(&mut |e| self.note(e)),
        }
    }

    /// Whether scans that begin at different times in one execution may ask different things.
    pub fn varies(&self) -> bool {
        !self.given.is_empty()
    }
}

/// Whether an expression gives the same for the same columns, parameters and given slots, wherever and whenever it is asked.
fn is_repeatable(e: &Expr) -> bool {
    let immutable = match e {
        // Its value is taken along.
        Expr::Once(..) => return true,
        Expr::Call(c) => c.f.volatility == Volatility::Immutable,
        Expr::AnyAll(a) => match &a.matcher {
            Matcher::Call(f, _) => f.volatility == Volatility::Immutable,
            Matcher::Compare(_) => true,
        },
        Expr::Cast(c) => is_repeatable_cast(c.from.ty, c.to.ty),
        Expr::Subquery(_) | Expr::Record(_) => false,
        _ => true,
    };
    let mut all = immutable;
    e.children(&mut |c| all = all && is_repeatable(c));
    all
}

/// As PostgreSQL has it, less what a setting has a say in all the same: a cursor may go on under another one.
fn is_repeatable_cast(from: Type, to: Type) -> bool {
    let float = matches!(from, Type::Float4 | Type::Float8);
    let array = from.element().is_some() || to.element().is_some();
    cast_volatility(from, to) == Volatility::Immutable && !array && !(float && to.is_string())
}
